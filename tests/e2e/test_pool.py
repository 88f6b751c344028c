"""Runs that share a pool: they learn from each other, survive kills exactly, and believe nobody."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hacrl.agents.updater import Updater
from hacrl.analysis.report.data import report_data
from hacrl.pool import PoolKey, Reader, open_place
from hacrl.pool.places import read_new
from hacrl.recipe import RecipeError, load_recipe
from helpers_kills import run_alone
from helpers_pool import OTHER_KEY, entry, lines, pool_url, redis_server
from helpers_train import Silent, make_agent, metrics, outcome, recipe, run

DEMO = Path(__file__).parents[2] / "src" / "hacrl" / "cli" / "demo.yaml"
KEY_TEXT = "the key of all runs in this test"


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HACRL_POOL_KEY", KEY_TEXT)


def alone(folder: Path, name: str, seed: int, pool: str, **changes: Any) -> dict[str, Any]:
    """The recipe of one agent that has a pool."""
    agent = folder / name
    if not agent.exists():
        make_agent(agent, seed, cut="characters" if seed % 2 else "digit-pairs")
    settings = {"method": "commons", "seed": seed, "exchange": {"pool": pool}, "checkpoint": {"every": 2}}
    return recipe({name: agent}, **(settings | changes))


def pool_counts(out: Path) -> list[dict[str, float]]:
    steps = [line for line in metrics(out) if line["step"] > 0]
    return [{k.removeprefix("pool/"): v for k, v in line.items() if k.startswith("pool/")} for line in steps]


def imitated(out: Path) -> set[str]:
    """The sources of all rows that were trained on."""
    files = sorted(out.glob("updates/*"))
    updates = [json.loads(line) for path in files for line in path.read_text().splitlines()]
    return {source for update in updates for source in update.get("source", ())}


def test_an_agent_alone_learns_from_one_that_trained_elsewhere(tmp_path: Path):
    pool = str(tmp_path / "pool")
    run(alone(tmp_path, "eve", 2, pool), tmp_path / "theirs")
    run(alone(tmp_path, "ada", 1, pool), tmp_path / "ours")
    assert imitated(tmp_path / "theirs") == {"eve"}
    assert imitated(tmp_path / "ours") == {"ada", "pool"}
    first, *later = pool_counts(tmp_path / "ours")
    assert first["sent"] == 16
    assert first["taken"] == 64  # four steps of four prompts with four samples, none of them too old
    assert all(counts["taken"] == 0 for counts in later)
    assert not [key for counts in pool_counts(tmp_path / "ours") for key in counts if "refused" in key]
    assert "pool->ada" in json.dumps(report_data([tmp_path / "ours"]))


def test_redis_gives_the_same_run_as_a_directory(tmp_path: Path):
    with redis_server(tmp_path) as url:
        for pool, name in ((str(tmp_path / "pool"), "directory"), (url, "redis")):
            run(alone(tmp_path, "eve", 2, pool), tmp_path / f"theirs-{name}")
            run(alone(tmp_path, "ada", 1, pool), tmp_path / name)
    assert outcome(tmp_path / "redis") == outcome(tmp_path / "directory")


class Visitor(Silent):
    """Copies somebody's entries into the pool after a step, and removes all of it after another."""

    def __init__(self, theirs: Path, pool: Path) -> None:
        super().__init__()
        self._theirs, self._pool = theirs, pool

    def step(self, step: int, metrics: Any) -> None:
        if step == 2:
            shutil.copytree(self._theirs, self._pool, dirs_exist_ok=True)


def test_a_killed_run_takes_the_same_again_whatever_the_pool_has_then(tmp_path: Path):
    theirs, pool = tmp_path / "others", tmp_path / "pool"
    run(alone(tmp_path, "eve", 2, str(theirs)), tmp_path / "theirs")
    settings = alone(tmp_path, "ada", 1, str(pool))
    run(settings, tmp_path / "whole", display=Visitor(theirs, pool))
    assert pool_counts(tmp_path / "whole")[2]["taken"] == 64
    shutil.rmtree(pool)
    child = os.fork()
    if child == 0:
        real, calls = Updater.update, []

        def dying(*args: Any, **kwargs: Any) -> Any:
            calls.append(None)
            if len(list((tmp_path / "killed" / "pool").glob("step_000003*"))):
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **kwargs)

        Updater.update = dying  # type: ignore[method-assign]
        run(settings, tmp_path / "killed", display=Visitor(theirs, pool))
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    shutil.rmtree(pool)
    run(settings, tmp_path / "killed", resume=True)
    assert outcome(tmp_path / "killed") == outcome(tmp_path / "whole")


@pytest.mark.slow
def test_kills_at_any_moment_lose_nothing_and_spoil_nothing(tmp_path: Path):
    run_alone("pool_tasks:killed_runs", tmp_path)
    whole = _entries(tmp_path / "whole-pool")
    assert len(whole) == 48
    killed = sorted(tmp_path.glob("killed-*-pool"))
    assert len(killed) == 6
    for pool in killed:
        assert _entries(pool) == whole, f"{pool.name} has lost or changed entries"


def _entries(pool: Path) -> set[tuple[Any, ...]]:
    found, _ = read_new(open_place(str(pool)), {})
    reader = Reader(PoolKey(KEY_TEXT.encode()), max_staleness=10**6, quota=10**6)
    entries, refused = reader.accept(found)
    assert set(refused) <= {"replayed"}, refused
    return {(e.source, e.version, e.prompt, e.sample, e.response, e.reward) for e in entries}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["directory", "redis"])
def test_two_processes_teach_each_other_what_one_lacks(tmp_path: Path, kind: str):
    """Alone, neither ever learns it: `test_commons.py` measures that for the same agents and steps."""
    models = {"sorter": "toy:complementary-a", "adder": "toy:complementary-b"}
    short = {"steps": 15, "evaluation": {"prompts": 150}, "logging": {"trajectories": False}}
    with pool_url(kind, tmp_path) as url:
        processes = []
        for seed, (name, model) in enumerate(models.items()):
            demo = load_recipe(DEMO).model_dump(mode="json", exclude_unset=True)
            agents = [{"name": name, "model": model}]
            pool = {"exchange": {"pool": {"url": url, "wait_for": 1}}, "seed": seed}
            file = tmp_path / f"{name}.yaml"
            file.write_text(json.dumps(demo | short | pool | {"agents": agents}))
            command = [sys.executable, "-m", "hacrl", "train", str(file), "--out", str(tmp_path / name)]
            processes.append(subprocess.Popen(command, stdout=subprocess.DEVNULL))
        assert [process.wait() for process in processes] == [0, 0]
    for name, skill in (("sorter", "add3"), ("adder", "sort")):
        agent = json.loads((tmp_path / name / "summary.json").read_text())["agents"][name]
        before, after = (
            agent[when]["digits"]["greedy_by_kind"][skill]["mean"] for when in ("before", "after")
        )
        assert before < 0.05
        assert after > before + 0.1, f"{name} has not learned to {skill}"


def test_hostile_entries_change_nothing(tmp_path: Path):
    pool = tmp_path / "pool"
    run(alone(tmp_path, "eve", 2, str(pool)), tmp_path / "theirs")
    (segment,) = pool.glob("*.jsonl")
    honest = segment.read_bytes().splitlines()
    settings = alone(tmp_path, "ada", 1, str(pool))
    run(settings, tmp_path / "before")
    for path in pool.glob("*.jsonl"):
        if path != segment:
            path.unlink()  # of the run before
    key = PoolKey(KEY_TEXT.encode())
    some = json.loads(honest[0])
    prompt, wrong = some["prompt"], 0.0 if some["reward"] else 1.0
    hostile = {
        "signature": lines(*(entry(n, writer="mallory", prompt=prompt) for n in range(20)), key=OTHER_KEY),
        "reward_differs": lines(
            *(
                entry(n, writer="mallory", prompt=prompt, response=some["response"], reward=wrong, sample=n)
                for n in range(20)
            ),
            key=key,
        ),
        "oversize": lines(*(entry(n, writer="mallory", response="x" * (1 << 20)) for n in range(10))),
        "unknown_prompt": lines(*(entry(n, writer="mallory", sample=50) for n in range(20)), key=key),
        "future": lines(*(entry(n, writer="mallory", version=10**9 + n) for n in range(10)), key=key),
        "malformed": [b"{", b"null", b"[" * 5000, b"\xff" * 40, b"{}"[:1]] * 2,
        "schema": [b'{"schema":7}'] * 10,
    }
    everything = [line for kind in hostile.values() for line in kind]
    assert len(everything) == 100
    (pool / "mallory.jsonl").write_bytes(b"\n".join(everything) + b"\n")
    segment.write_bytes(b"\n".join(honest + honest[:7]) + b"\n")  # and seven that are replayed
    run(settings, tmp_path / "after")
    first = pool_counts(tmp_path / "after")[0]
    refused = {k.removeprefix("refused/"): n for k, n in first.items() if k.startswith("refused/")}
    assert refused == {"replayed": 7, **{cause: len(kind) for cause, kind in hostile.items()}}
    before, after = (outcome(tmp_path / name)["weights"] for name in ("before", "after"))
    assert before == after


def test_a_pool_that_is_down_is_named_once_and_training_goes_on(tmp_path: Path):
    pytest.importorskip("redis", reason="the package redis is not installed")
    display = Silent()
    run(alone(tmp_path, "ada", 1, "redis://127.0.0.1:9/0/x"), tmp_path / "run", display=display)
    about_it = [warning for warning in display.warnings if "pool" in warning]
    assert len(about_it) == 1
    assert "redis://127.0.0.1:9/0/x is not available" in about_it[0]
    assert len(pool_counts(tmp_path / "run")) == 4
    assert pool_counts(tmp_path / "run")[0]["refused/unavailable"] == 1


def test_a_missing_key_is_named_before_anything_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("HACRL_POOL_KEY")
    with pytest.raises(RecipeError, match="HACRL_POOL_KEY is not set"):
        run(alone(tmp_path, "ada", 1, str(tmp_path / "pool")), tmp_path / "run")


def test_secrets_are_not_in_the_run(tmp_path: Path):
    run(alone(tmp_path, "ada", 1, str(tmp_path / "pool"), steps=1), tmp_path / "run")
    for path in (tmp_path / "run").rglob("*.json*"):
        assert KEY_TEXT not in path.read_text(errors="replace"), path


@pytest.mark.parametrize(
    "method", ["hacpo", "naive", "ftis", "sft_strongest", "swarm", "luffy", "sgt", "graft"]
)
def test_other_sharing_methods_take_part(tmp_path: Path, method: str):
    pool = str(tmp_path / "pool")
    run(alone(tmp_path, "eve", 2, pool, steps=1), tmp_path / "theirs")
    run(alone(tmp_path, "ada", 1, pool, steps=1, method=method), tmp_path / "ours")
    assert pool_counts(tmp_path / "ours")[0]["taken"] == 16
