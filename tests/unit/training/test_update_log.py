"""What is kept about lessons: the pull of every response, and agreement with the metrics."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from hacrl.algorithm import GspoObjective, HacpoObjective, HacpoParams, ImitationObjective
from hacrl.runs.directory import RunDirectory
from hacrl.training.update_log import forget_after, gradient_coefficients, write_warnings
from hacrl.types import TrainingRow
from helpers_report import lines
from helpers_train import make_agent, metrics, recipe, run


def row(
    *, own: bool, advantage: float, omega: float = 1.0, scale: float = 1.0, mean: float = -1.0
) -> TrainingRow:
    return TrainingRow(
        prompt_id="p",
        prompt_ids=(1, 2),
        response_ids=(3, 4, 5),
        source="me" if own else "peer",
        own=own,
        source_mean_logp=mean,
        source_logps=(mean - 0.5, mean, mean + 0.5) if own else (),
        advantage=advantage,
        omega=omega,
        length_scale=scale,
    )


def test_hacpo_pulls_as_the_paper_says() -> None:
    """Peers inside the window: scale * omega * s^(1 + alpha) * A (the derivative of Eq. 12); outside: 0."""
    params = HacpoParams(delta=0.4, delta_step=0.1, alpha=2.0)
    rows = [
        row(own=False, advantage=1.5, omega=0.7, scale=0.5),
        row(own=False, advantage=-2.0, omega=3.0),
        row(own=False, advantage=1.0),  # above 1
        row(own=False, advantage=1.0),  # below the window at update 2, inside at update 0
        row(own=True, advantage=-1.2),
        row(own=True, advantage=-1.2),  # the ratio fell below the clip: nothing left to push down
    ]
    means = [-1.2, -1.1, -0.9, -1.3, -1.0, -1.1]
    inside = 0.5 * 0.7 * math.exp(-0.1) ** 3 * 1.5, 3.0 * math.exp(-0.1) ** 3 * -2.0
    late = gradient_coefficients(rows, means, HacpoObjective(params), update=2)
    assert late == pytest.approx([*inside, 0.0, 0.0, -1.2, 0.0], rel=1e-4)
    early = gradient_coefficients(rows, means, HacpoObjective(params), update=0)
    assert early[3] == pytest.approx(math.exp(-0.3) ** 3, rel=1e-4)


def test_other_objectives_pull_by_their_own_rules() -> None:
    rows = [row(own=False, advantage=1.0), row(own=True, advantage=0.5)]
    clipped, free = gradient_coefficients(rows, [-0.5, -1.5], GspoObjective(), update=0)
    assert clipped == 0.0  # already pushed up beyond the clip
    assert free == pytest.approx(0.5 * math.exp(-0.5), rel=1e-5)
    before = gradient_coefficients(rows, [-1.0, -1.0], ImitationObjective(), update=0)
    after = gradient_coefficients(rows, [-3.0, -0.1], ImitationObjective(), update=5)
    assert before == pytest.approx(after)  # imitation knows no ratio
    assert before[0] == pytest.approx(2 * before[1])
    assert before[0] > 0


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("lessons")
    agents = {name: make_agent(directory / name, seed) for seed, name in enumerate(("ann", "bob"))}
    run(recipe(agents, steps=3), directory / "run")
    return directory / "run"


def test_the_places_add_up_to_the_metrics(done: Path) -> None:
    """Shares of a pair's responses inside, below and above, from the lessons and from the metrics."""
    for line in metrics(done)[1:]:
        lessons = lines(done / "lessons" / f"step_{line['step']:06.0f}.jsonl")[1:]
        places = [
            place
            for lesson in lessons
            if lesson["learner"] == "bob"
            for source, place in zip(lesson["source"], lesson["place"], strict=True)
            if source == "ann" and place is not None
        ]
        assert len(places) > 0
        for side in ("inside", "below", "above"):
            assert line[f"cross/ann->bob/{side}"] == pytest.approx(places.count(side) / len(places))


def test_only_responses_inside_the_window_pull(done: Path) -> None:
    pulled = 0
    for path in (done / "lessons").iterdir():
        for lesson in lines(path)[1:]:
            low, high = lesson["window"]
            for place, ratio, pull in zip(lesson["place"], lesson["ratio"], lesson["pull"], strict=True):
                if place is not None:
                    assert (place == "inside") == (low <= ratio <= high)
                    assert (pull != 0.0) == (place == "inside")
                    pulled += pull != 0.0
    assert pulled > 10


def test_a_resumed_run_forgets_what_came_after(done: Path, tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    directory.lessons.mkdir()
    for step in (1, 2, 3):
        (directory.lessons / f"step_{step:06d}.jsonl").write_text("{}\n")
        write_warnings(directory, step, [f"warning of step {step}"])
    forget_after(directory, 2)
    assert sorted(path.name for path in directory.lessons.iterdir()) == [
        "step_000001.jsonl",
        "step_000002.jsonl",
    ]
    assert [line["message"] for line in lines(directory.warnings)] == [
        "warning of step 1",
        "warning of step 2",
    ]
