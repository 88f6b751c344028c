"""What is kept about updates, and that it agrees with the metrics."""

from __future__ import annotations

from pathlib import Path

import pytest

from hacrl.runs.directory import RunDirectory
from hacrl.training.update_log import forget_after, write_warnings
from helpers_report import lines
from helpers_train import make_agent, metrics, recipe, run


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("updates")
    agents = {name: make_agent(directory / name, seed) for seed, name in enumerate(("ann", "bob"))}
    run(recipe(agents, steps=3), directory / "run")
    return directory / "run"


def test_the_places_add_up_to_the_metrics(done: Path) -> None:
    """Shares of a pair's responses inside, below and above, from the update log and from the metrics."""
    for line in metrics(done)[1:]:
        updates = lines(done / "updates" / f"step_{line['step']:06.0f}.jsonl")[1:]
        places = [
            place
            for update in updates
            if update["learner"] == "bob"
            for source, place in zip(update["source"], update["place"], strict=True)
            if source == "ann" and place is not None
        ]
        assert len(places) > 0
        for side in ("inside", "below", "above"):
            assert line[f"cross/ann->bob/{side}"] == pytest.approx(places.count(side) / len(places))


def test_only_responses_inside_the_window_have_a_coefficient(done: Path) -> None:
    moved = 0
    for path in (done / "updates").iterdir():
        for update in lines(path)[1:]:
            low, high = update["window"]
            for place, ratio, coefficient in zip(
                update["place"], update["ratio"], update["coefficient"], strict=True
            ):
                if place is not None:
                    assert (place == "inside") == (low <= ratio <= high)
                    assert (coefficient != 0.0) == (place == "inside")
                    moved += coefficient != 0.0
    assert moved > 10


def test_a_resumed_run_forgets_what_came_after(done: Path, tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    directory.updates.mkdir()
    for step in (1, 2, 3):
        (directory.updates / f"step_{step:06d}.jsonl").write_text("{}\n")
        write_warnings(directory, step, [f"warning of step {step}"])
    forget_after(directory, 2)
    assert sorted(path.name for path in directory.updates.iterdir()) == [
        "step_000001.jsonl",
        "step_000002.jsonl",
    ]
    assert [line["message"] for line in lines(directory.warnings)] == [
        "warning of step 1",
        "warning of step 2",
    ]
