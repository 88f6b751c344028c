"""Auditing a run of tiny agents: what is measured, what is reported, and that no response is used twice."""

import json
import math
import shutil
from dataclasses import replace
from io import StringIO

import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

from hacrl.algorithm.diagnostics import EstimatorError, SampleStatistics
from hacrl.analysis.audit.audit import CheckpointAudit, SampleSize, audit
from hacrl.analysis.audit.audit import _measured as measured_warnings
from hacrl.analysis.audit.baseline import BaselineAudit
from hacrl.analysis.audit.opening import open_run, restore
from hacrl.analysis.audit.pairs import PairAudit, Spread
from hacrl.analysis.audit.tables import audit_tables
from hacrl.cli.app import app
from hacrl.methods.commons import Commons
from hacrl.methods.hacpo import Hacpo
from hacrl.methods.naive import Naive
from hacrl.runs.checkpoint_format import seal_checkpoint
from hacrl.runs.files import StorageError
from hacrl.symptoms import with_own
from hacrl.training.team_setup import build_team
from helpers_train import make_agent, recipe, run, short_answers

SMALL = SampleSize(prompts=12, samples=12)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("audit")
    agents = {"ada": make_agent(folder / "ada", 1), "eve": make_agent(folder / "eve", 3)}
    settings = recipe(agents, steps=2, evaluation={"prompts": 2, "before": False}, audit={"every": 1})
    run(settings, folder / "run")
    return folder / "run"


@pytest.fixture(scope="module")
def found(finished):
    return audit(finished, SMALL, reward_funcs=[short_answers])


def test_every_checkpoint_and_every_pair_is_measured(finished, found):
    assert [checkpoint.step for checkpoint in found.checkpoints] == [1, 2]
    for checkpoint in found.checkpoints:
        assert {(pair.source, pair.learner) for pair in checkpoint.pairs} == {("ada", "eve"), ("eve", "ada")}
        assert {baseline.learner for baseline in checkpoint.baselines} == {"ada", "eve"}
        for pair in checkpoint.pairs:
            assert pair.statistics.rows == 12 * 4 * found.groups == 12 * 4 * 3  # prompts x samples x groups
            assert pair.statistics.largest <= pair.bound + 1e-4
            assert -1.0 <= pair.cosine <= 1.0
    written = json.loads((finished / "audit.json").read_text())
    assert written["checkpoints"][1]["pairs"][0]["cosine"] == found.checkpoints[1].pairs[0].cosine
    assert written["warnings"] == found.warnings


def test_the_same_seed_gives_the_same_audit_and_another_does_not(finished, found):
    again = audit(finished, SMALL, checkpoint=2, reward_funcs=[short_answers])
    assert again.checkpoints == found.checkpoints[1:]
    other = audit(finished, SampleSize(12, 12, seed=1), checkpoint=2, reward_funcs=[short_answers])
    assert other.checkpoints[0].pairs[0].cosine != found.checkpoints[1].pairs[0].cosine


def test_an_audit_leaves_the_run_as_it_is(finished, found):
    saved = open_run(finished, checkpoint=2)
    team = build_team(saved.recipe, reward_funcs=[short_answers])
    try:
        restore(team, saved.checkpoints[0])
        final = {m.name: m.policy.fingerprint() for m in team.members}
    finally:
        team.close()
    exported = build_team(
        saved.recipe.model_copy(
            update={
                "agents": tuple(
                    agent.model_copy(update={"model": str(finished / "agents" / agent.name)})
                    for agent in saved.recipe.agents
                )
            }
        ),
        reward_funcs=[short_answers],
    )
    try:
        assert {m.name: m.policy.fingerprint() for m in exported.members} == final
    finally:
        exported.close()


def test_an_agent_that_the_run_lost_is_left_out_and_named(tmp_path):
    agents = {name: make_agent(tmp_path / name, seed) for seed, name in enumerate(("ada", "bob", "eve"))}
    run(recipe(agents, steps=1, evaluation={"prompts": 2, "before": False}), tmp_path / "run")
    lose(tmp_path / "run" / "checkpoints" / "step_00000001", "bob")
    found = audit(tmp_path / "run", SMALL, reward_funcs=[short_answers])
    assert {(pair.source, pair.learner) for pair in found.checkpoints[0].pairs} == {
        ("ada", "eve"),
        ("eve", "ada"),
    }
    assert found.warnings[0] == "step 1: bob is left out: its process was killed"
    lose(tmp_path / "run" / "checkpoints" / "step_00000001", "eve")
    alone = audit(tmp_path / "run", SMALL, reward_funcs=[short_answers])
    assert alone.checkpoints[0].pairs == []
    assert [text.split(":")[1] for text in alone.warnings[:2]] == [" bob is left out", " eve is left out"]
    list(audit_tables(alone))


def lose(checkpoint, agent):
    """What a checkpoint holds after an agent was lost under `runtime.on_failure: degrade`."""
    shutil.rmtree(checkpoint / "agents" / agent)
    (checkpoint / "manifest.json").unlink()
    state = json.loads((checkpoint / "trainer.json").read_text())
    state["retired"][agent] = "its process was killed"
    state["lost"].append(agent)
    (checkpoint / "trainer.json").unlink()
    seal_checkpoint(checkpoint, 1, None, {"trainer.json": json.dumps(state).encode()})


def test_the_cosine_is_also_measured_live(finished):
    lines = [json.loads(line) for line in (finished / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if line["step"] > 0 and "agent/ada/reward" in line]
    assert len(steps) == 2
    for line in steps:
        assert -1.0 <= line["cross/ada->eve/cosine"] <= 1.0
        assert 0.0 <= line["cross/ada->eve/zero_gradient"] <= 1.0
        assert line["cross/ada->eve/weight/largest"] <= line["cross/ada->eve/weight/bound"] + 1e-4
        assert abs(line["agent/eve/baseline_bias"]) < 1.0


def printed(found):
    console = Console(width=200, record=True, file=StringIO())
    for table in audit_tables(found):
        console.print(table)
    return console.export_text()


def test_the_tables_have_the_pair_metrics_of_the_method(found):
    text = printed(found)
    assert "Baselines against the learner's expected reward" in text
    assert "omega" in text
    assert all(pair.method_metrics.keys() == {"omega"} for pair in found.checkpoints[0].pairs)


def test_nothing_of_hacpo_is_printed_with_another_method(tmp_path):
    agents = {"ada": make_agent(tmp_path / "ada", 1), "eve": make_agent(tmp_path / "eve", 3)}
    run(
        recipe(agents, steps=1, evaluation={"before": False, "prompts": 2}, method="commons"),
        tmp_path / "run",
    )
    found = audit(tmp_path / "run", SMALL, reward_funcs=[short_answers])
    assert found.checkpoints[0].pairs
    text = " ".join([printed(found), *found.warnings])
    assert "Direction of peers' gradient" in text
    for word in ("omega", "window", "delta", "Baselines"):
        assert word not in text


def test_mistakes_are_reported_before_anything_is_loaded(tmp_path, finished):
    with pytest.raises(StorageError, match=r"holds no run \(no config.json\)"):
        audit(tmp_path)
    with pytest.raises(StorageError, match="no checkpoint of step 7, only of 1, 2"):
        audit(finished, checkpoint=7)
    (tmp_path / "config.json").write_text((finished / "config.json").read_text())
    with pytest.raises(StorageError, match="has no checkpoint to audit"):
        audit(tmp_path)
    with pytest.raises(ValueError, match="prompts: expected 2 or more, got 1"):
        audit(finished, SampleSize(prompts=1))


@pytest.mark.parametrize(
    ("arguments", "message"), [(["--toy", "x"], "without one"), ([], "or --toy"), (["/nowhere"], "no run")]
)
def test_the_command_reports_mistakes_without_a_traceback(arguments, message):
    result = CliRunner().invoke(app, ["audit", *arguments])
    assert result.exit_code == 2
    assert message in result.stderr


def test_noise_of_a_gradient():
    """Mean 3 along one axis; noise of variance 4 along both: sqrt(8) / 3."""
    random = torch.Generator().manual_seed(0)
    spread = Spread()
    for _ in range(4000):
        noise = 2.0 * torch.randn(2, dtype=torch.float64, generator=random)
        spread.add([torch.tensor([3.0, 0.0]), noise])
    assert spread.noise() == pytest.approx(math.sqrt(8) / 3, rel=0.05)
    silent = Spread()
    silent.add([])
    silent.add([])
    assert math.isnan(silent.noise())


def bad_checkpoint():
    off = EstimatorError(bias=-0.2, bias_error=0.01, systematic=0.3, rmse=0.3)
    good = EstimatorError(bias=0.0, bias_error=0.01, systematic=0.0, rmse=0.1)
    unsure = EstimatorError(bias=-0.2, bias_error=0.15, systematic=0.0, rmse=0.1)
    statistics = SampleStatistics(100, 0.5, 0.45, 1.0, 2.0, 20.0)
    return CheckpointAudit(
        step=9,
        baselines=[
            BaselineAudit("ada", "all", 8, 0.5, off, good, good),
            BaselineAudit("ada", "sort", 4, 0.5, off, good, good),
            BaselineAudit("eve", "all", 8, 0.5, unsure, good, good),
        ],
        pairs=[PairAudit("ada", "eve", {"omega": 10.0}, statistics, 40.0, 4.0, 1.0, -0.3, 0.2, -0.5)],
    )


def check(found, expected):
    assert len(found) == len(expected)
    for warning, (title, change) in zip(found, expected, strict=True):
        assert title in warning
        assert change in warning


def test_each_symptom_warns_with_what_to_change():
    found = list(measured_warnings([bad_checkpoint()], with_own(Hacpo().symptoms)))
    expected = [
        ("ada, all prompts: the baseline is off by 0.200", "capability.window"),
        ("ada, all prompts: the baseline's error for one prompt is 3.00 times", "gspo"),
        ("ada, sort prompts: the baseline is off by 0.200", "relative strength depends on the kind"),
        ("ada -> eve: 95% of the source's responses have no gradient", "method.delta"),
        ("ada -> eve: the effective sample size is only 20%", "method.alpha"),
        ("ada -> eve: one response has a gradient coefficient of 20.0", "capability.clamp"),
        ("ada -> eve: the source's gradient is 4.0 times as noisy", "method.delta"),
        ("ada -> eve: the source's gradient points against the learner's own (cosine -0.30)", "method.delta"),
        ("ada -> eve: the gradient of the source's wrong responses", "method.delta"),
    ]
    check(found, expected)


PAIR_ADVICE = [
    ("95% of the source's responses have no gradient", "the task's difficulty"),
    ("the effective sample size is only 20%", "The weights are very unequal"),
    ("one response has a gradient coefficient of 20.0", "samples_per_prompt"),
    ("the source's gradient is 4.0 times as noisy", "prompts_per_step"),
    ("points against the learner's own (cosine -0.30)", "exchange.topology"),
    ("the gradient of the source's wrong responses", "exchange.topology"),
]


def test_other_methods_get_no_advice_on_the_settings_of_hacpo():
    checkpoint = bad_checkpoint()
    naive = list(measured_warnings([checkpoint], with_own(Naive().symptoms)))
    baselines = [
        ("ada, all prompts: the baseline is off by 0.200", "gspo or commons"),
        ("ada, all prompts: the baseline's error for one prompt is 3.00 times", "gspo"),
        ("ada, sort prompts: the baseline is off by 0.200", "relative strength depends on the kind"),
    ]
    check(naive, baselines + PAIR_ADVICE)
    # commons compares rewards with the learner's own group alone: `audit_baselines` finds nothing to judge
    commons = list(measured_warnings([replace(checkpoint, baselines=[])], with_own(Commons().symptoms)))
    check(commons, PAIR_ADVICE)
    for word in ("method.delta", "method.alpha", "capability.", "window"):
        assert word not in " ".join(naive + commons)
    assert "omega" not in " ".join(commons)
