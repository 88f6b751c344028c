"""What learners predict about prompts: learned from what they receive, logged, restored, read again."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

from hacrl.algorithm import Belief
from hacrl.analysis.report.beliefs import belief_data
from hacrl.recipe import parse_recipe
from hacrl.runs.beliefs import read_beliefs
from hacrl.runs.directory import RunDirectory
from hacrl.runs.files import StorageError
from hacrl.runs.reader import RunReader
from hacrl.training.beliefs import StepBelief, plane, write_beliefs
from hacrl.training.step import train_step
from hacrl.training.step_metrics import step_metrics
from hacrl.training.team_setup import build_team
from hacrl.training.updates import update_records
from helpers_train import make_agent, metrics, recipe, run, short_answers

NAN = math.nan
PREDICTION = StepBelief(
    ("p0", "p1", "p2"),
    Belief(torch.tensor([[0.2, 0.4, 0.6], [0.5, 0.5, 0.5]]), torch.full((2, 3), 0.01)),
    Belief(torch.tensor([[0.1, 0.4, 0.7], [0.9, 0.5, 0.5]]), torch.full((2, 3), 0.01)),
    torch.tensor([[0.0, NAN, 1.0], [NAN, 0.75, NAN]]),
    torch.tensor([[1.0, 0.0], [2.0, 0.1], [6.0, 0.0]]),
)


@pytest.fixture(scope="module")
def agents(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("agents")
    return {name: make_agent(folder / name, seed) for seed, name in enumerate(("ada", "eve"))}


def test_errors_of_predictions_by_hand():
    # (.2 - 0)^2, (.6 - 1)^2 and (.5 - .75)^2
    assert PREDICTION.brier == pytest.approx((0.04 + 0.16 + 0.0625) / 3)
    # Agent 0 has the mean .5: .25 twice; agent 1 a single share.
    assert PREDICTION.spread == pytest.approx(0.5 / 3)


def test_the_plane_keeps_what_differs_most():
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(50, 2, generator=generator, dtype=torch.float64)
    mixed = hidden @ torch.randn(2, 8, generator=generator, dtype=torch.float64) + 3.0
    found = plane(mixed)
    scaled = (mixed - mixed.mean(0)) / mixed.std(0, correction=0)
    torch.testing.assert_close(found.square().sum(1), scaled.square().sum(1))  # two directions hold it all
    assert float(found[:, 0].var()) > float(found[:, 1].var())
    assert plane(torch.ones(3, 4)).tolist() == [[0.0, 0.0]] * 3


def test_a_log_is_read_as_it_was_written(tmp_path):
    directory = RunDirectory(tmp_path)
    write_beliefs(directory, 7, ["a", "b"], {"b": PREDICTION})
    (found,) = read_beliefs(directory.belief_file(7), ["a", "b"])
    assert (found.learner, found.prompt_id) == ("b", ["p0", "p1", "p2"])
    assert found.predicted == {"a": [0.2, 0.4, 0.6], "b": [0.5, 0.5, 0.5]}
    assert found.deviation == {"a": [0.1] * 3, "b": [0.1] * 3}
    assert found.believed["b"] == [0.9, 0.5, 0.5]
    assert found.share == {"a": [0.0, None, 1.0], "b": [None, 0.75, None]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"learner": "x"}, "learner: expected an agent of the run, got 'x'"),
        ({"prompt_id": [1, 2, 3]}, "prompt_id: expected strings"),
        ({"x": [1.0]}, "x: expected a number for every prompt"),
        ({"predicted": {"a": [0.1] * 3}}, "predicted: 1 columns, but the run has 2 agents"),
        ({"believed": {"a": [None] * 3, "b": [0.1] * 3}}, "a: expected a number for every prompt"),
        ({"share": {"a": [0.1] * 3, "<b>": [0.1] * 3}}, "share: '<b>' is not an agent of the run"),
    ],
)
def test_a_damaged_line_is_named(tmp_path, change, message):
    directory = RunDirectory(tmp_path)
    write_beliefs(directory, 1, ["a", "b"], {"a": PREDICTION})
    path = directory.belief_file(1)
    path.write_text(json.dumps(json.loads(path.read_text()) | change) + "\n")
    with pytest.raises(StorageError) as error:
        read_beliefs(path, ["a", "b"])
    assert f"{path}, line 1: {message}" in str(error.value)


def test_each_learner_learns_from_what_it_receives_with_its_own_features(agents):
    """Eve sends nothing to ada: ada knows nothing about her."""
    settings = recipe(agents, method="commons", exchange={"topology": [["ada", "eve"]]})
    team = build_team(parse_recipe(settings), reward_funcs=[short_answers])
    try:
        record = train_step(team, 1)
        values = step_metrics(team, record, update_records(record))
    finally:
        team.close()
    ada, eve = (record.predictions[name] for name in ("ada", "eve"))
    assert ada.before.mean.unique().tolist() == eve.before.mean.unique().tolist()  # nothing known yet
    torch.testing.assert_close(ada.after.mean[1], torch.full((8,), 0.5, dtype=torch.float64))
    assert float((eve.after.mean[0] - 0.5).abs().max()) > 0.05
    assert ada.shares[1].isnan().all()
    assert not ada.features.equal(eve.features)
    assert values["agent/eve/contextual/brier"] == eve.brier


def test_a_resumed_run_predicts_the_same_and_the_report_shows_it(agents, tmp_path):
    settings = recipe(agents, method="commons", evaluation={"prompts": 2, "before": False})
    run(settings | {"steps": 3}, tmp_path / "whole")
    run(settings | {"steps": 2}, tmp_path / "resumed")
    RunDirectory(tmp_path / "resumed").belief_file(9).write_text("left by a step that was lost\n")
    run(settings | {"steps": 3}, tmp_path / "resumed", resume=True)
    names = sorted(path.name for path in (tmp_path / "whole" / "beliefs").iterdir())
    assert names == ["step_000001.jsonl", "step_000002.jsonl", "step_000003.jsonl"]
    for name in names:
        both = [(tmp_path / which / "beliefs" / name).read_text() for which in ("whole", "resumed")]
        assert both[0] == both[1]
    assert not RunDirectory(tmp_path / "resumed").belief_file(9).exists()
    logged = metrics(tmp_path / "whole")[-1]
    assert 0 <= logged["agent/ada/contextual/brier"] <= 1

    found = belief_data(RunReader(tmp_path / "whole"))
    assert found is not None
    assert found["step"] == 3
    (last,) = [
        b for b in read_beliefs(RunDirectory(tmp_path / "whole").belief_file(3), agents) if b.learner == "eve"
    ]
    assert found["maps"]["eve"]["chances"] == last.believed
    points = found["calibration"]["ada"]
    assert sum(point["count"] for point in points) == 2 * 2 * 4  # two steps, two agents, prompts of each
    assert belief_data(RunReader(_without_log(tmp_path, settings))) is None


def _without_log(tmp_path: Path, settings: dict) -> Path:
    run(settings | {"steps": 1, "method": "gspo"}, tmp_path / "alone")
    return tmp_path / "alone"
