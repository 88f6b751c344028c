"""Whole comparisons in real processes: stopped, killed, continued, with runs that fail."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hacrl.analysis.compare.comparison import run_comparison
from hacrl.analysis.compare.faults import Faults
from hacrl.analysis.compare.plan import make_plan
from hacrl.analysis.compare.workers import LocalWorker, WorkerPool
from hacrl.cli.app import app
from hacrl.rewards.processes import descendants
from helpers_train import make_agent, outcome, recipe, run

METHODS = ["hacpo", "gspo_x2"]
HELPERS = str(Path(__file__).parents[1])


@pytest.fixture(autouse=True)
def _helpers_are_found(monkeypatch):
    """Also by the processes that score, which import the reward function."""
    monkeypatch.setenv("PYTHONPATH", HELPERS, prepend=os.pathsep)


@pytest.fixture(scope="session")
def recipe_file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recipe")
    agents = {"ada": make_agent(folder / "ada", 1), "bob": make_agent(folder / "bob", 2, cut="digit-pairs")}
    settings = recipe(
        agents,
        steps=4,
        reward={"functions": [{"path": "helpers_reward:even_responses"}]},
        evaluation={"prompts": 12, "samples": 2, "every": 2},
    )
    (folder / "recipe.yaml").write_text(json.dumps(settings))
    return folder / "recipe.yaml"


def planned(recipe_file, out, methods=METHODS, own=()):
    return make_plan(recipe_file, [], methods, own, range(2), out)


@pytest.fixture(scope="session")
def whole(recipe_file, tmp_path_factory):
    """The comparison without any processes of its own: every run as by `hacrl train`."""
    plan = planned(recipe_file, tmp_path_factory.mktemp("whole") / "out")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", HELPERS, prepend=os.pathsep)
        for one in plan.runs():
            run(one.recipe, one.directory.path, reward_funcs=None)
    run_comparison(plan, (), WorkerPool())
    return plan


def assert_equal(plan, other):
    for one, same in zip(plan.runs(), other.runs(), strict=True):
        assert outcome(one.directory.path) == outcome(same.directory.path)
    assert results(plan.out) == results(other.out)


def without_times(value):
    if isinstance(value, dict):
        return {key: without_times(item) for key, item in value.items() if "seconds" not in key}
    return [without_times(item) for item in value] if isinstance(value, list) else value


def results(out):
    kept = json.loads((out / "results.json").read_text())
    kept.pop("commits")
    return without_times(kept)


def written(plan):
    """Of every finished run, when its summary was written."""
    return {run.name: run.directory.summary.stat().st_mtime_ns for run in plan.runs() if run.finished}


def is_alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def is_worker(pid):
    parts = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
    return b"hacrl.analysis.compare.workers" in parts and int(parent) == os.getpid()


class Comparison:
    """`hacrl compare` in a process of its own."""

    def __init__(self, recipe_file, out, *options):
        command = [sys.executable, "-m", "hacrl", "compare", str(recipe_file), "--methods", ",".join(METHODS)]
        self.process = subprocess.Popen(
            [*command, "--seeds", "2", "--out", str(out), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def wait_for(self, path):
        while not path.exists():
            assert self.process.poll() is None, self.process.stdout.read()
            time.sleep(0.01)

    def end_by(self, number):
        """Send a signal; returns what was printed once the comparison and all its children are gone."""
        children = descendants(self.process.pid)
        assert children
        self.process.send_signal(number)
        printed, _ = self.process.communicate(timeout=120)
        while any(is_alive(child) for child in children):  # at most until the test's timeout
            time.sleep(0.05)
        return printed


@pytest.mark.slow
def test_a_comparison_stopped_and_killed_repeats_nothing_and_ends_the_same(recipe_file, whole, tmp_path):
    plan = planned(recipe_file, tmp_path / "out")
    first, second, *_ = plan.runs()

    stopped = Comparison(recipe_file, plan.out, "--jobs", "1")
    stopped.wait_for(first.directory.config)
    assert "Go on with the same command" in stopped.end_by(signal.SIGINT)
    assert stopped.process.returncode == 128 + signal.SIGINT

    killed = Comparison(recipe_file, plan.out, "--jobs", "1")
    killed.wait_for(second.directory.config)
    killed.end_by(signal.SIGKILL)
    finished = written(plan)
    assert first.name in finished
    assert not plan.runs()[-1].begun

    last = Comparison(recipe_file, plan.out, "--jobs", "2")
    printed, _ = last.process.communicate(timeout=300)
    assert last.process.returncode == 0, printed
    assert f"{len(finished)} of 4 runs are finished already" in printed
    assert written(plan).items() >= finished.items()

    assert_equal(plan, whole)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("ray") is None, reason="needs ray: pip install 'hacrl[ray]'")
def test_a_comparison_on_ray_is_the_same_as_one_on_cores(recipe_file, whole, tmp_path):
    plan = planned(recipe_file, tmp_path / "out")
    first, second, *_ = plan.runs()

    stopped = Comparison(recipe_file, plan.out, "--jobs", "1", "--runtime", "ray")
    stopped.wait_for(second.directory.config)
    printed = stopped.end_by(signal.SIGTERM)
    assert "Go on with the same command" in printed
    assert stopped.process.returncode == 128 + signal.SIGTERM
    finished = written(plan)
    assert first.name in finished
    assert f"[1/4] {first.name} finished" in printed
    assert not plan.runs()[-1].begun

    last = Comparison(recipe_file, plan.out, "--runtime", "ray")
    printed, _ = last.process.communicate(timeout=600)
    assert last.process.returncode == 0, printed
    assert written(plan).items() >= finished.items()
    assert_equal(plan, whole)


@pytest.mark.slow
def test_a_run_that_fails_does_not_end_the_others(recipe_file, tmp_path):
    """The broken method's runs fail in the child processes; the other method's next run still happens."""
    broken = ["broken:agents.bob.device=cuda:99"]
    plan = planned(recipe_file, tmp_path / "out", ["broken=gspo", "gspo"], broken)
    sound = plan.run("gspo", 0)
    run(sound.recipe, sound.directory.path, reward_funcs=None)
    options = ["--methods", "broken=gspo,gspo", "--set", broken[0], "--seeds", "2", "--jobs", "1"]
    told = CliRunner().invoke(app, ["compare", str(recipe_file), "--out", str(plan.out), *options])
    assert told.exit_code == 1
    assert "2 of 4 runs failed" in told.stderr
    assert f"the end of {plan.out / 'logs' / 'broken-seed_1.log'}" in told.stderr
    assert "Traceback" not in told.stderr
    assert plan.run("gspo", 1).finished
    assert not (plan.out / "results.json").exists()


@pytest.mark.slow
def test_a_worker_that_is_killed_costs_its_run_alone(recipe_file, whole, tmp_path):
    """The next run has faults, which reach it with the job."""
    plan = planned(recipe_file, tmp_path / "out")
    for one in plan.runs():
        one.log.parent.mkdir(parents=True, exist_ok=True)
    first = plan.run("hacpo", 0)
    second = replace(plan.run("hacpo", 1), faults=Faults(inverted=("bob",)))
    worker = LocalWorker()
    worker.begin(first)
    while not first.directory.config.exists():
        assert worker.ended() is None, first.log.read_text()
        time.sleep(0.01)
    [of_worker] = [pid for pid in descendants(os.getpid()) if is_worker(pid)]
    children = descendants(of_worker)
    os.kill(of_worker, signal.SIGKILL)
    while (how := worker.ended()) is None:
        time.sleep(0.01)
    assert how == "with code -9"
    while any(is_alive(child) for child in children):  # at most until the test's timeout
        time.sleep(0.01)
    assert not first.finished
    worker.begin(second)
    while (how := worker.ended()) is None:
        time.sleep(0.05)
    worker.close()
    assert how == "with code 0", second.log.read_text()
    assert second.finished
    run(second.recipe, tmp_path / "same", reward_funcs=None, deliver=second.faults.delivery(second.recipe))
    assert outcome(second.directory.path) == outcome(tmp_path / "same")
    assert outcome(second.directory.path) != outcome(whole.run("hacpo", 1).directory.path)


def test_mistakes_cost_no_time(recipe_file, tmp_path):
    def invoke(*options):
        return CliRunner().invoke(
            app, ["compare", str(recipe_file), "--out", str(tmp_path / "out"), *options]
        )

    for options, message in {
        ("--methods", "hacpo,gpso"): "did you mean 'gspo'",
        ("--methods", "hacpo,gspo", "--reference", "grpo"): "--reference grpo: expected one of hacpo, gspo",
        ("stepz=3",): "stepz",
        ("--runtime", "rya"): "--runtime rya: expected local or ray",
        ("--address", "head:6379"): "--address head:6379: this is for --runtime ray",
    }.items():
        result = invoke(*options)
        assert result.exit_code == 2
        assert message in result.stderr
    assert not (tmp_path / "out").exists()
