"""Runs on a real Ray: the same as in one process, whatever is killed."""

from __future__ import annotations

import json
import os
import signal
import socket
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from hacrl import tasks
from hacrl.rewards.processes import descendants
from hacrl.runtime import AgentLost
from hacrl.runtime.cluster import FOLDER_PREFIX
from helpers_lost import Killer
from helpers_train import Silent, make_agent, no_process_left, outcome, recipe, run

# Not `importorskip`: Ray has to be imported by hacrl, which sets it up.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("ray") is None, reason="needs ray: pip install 'hacrl[ray]'"),
]


@pytest.fixture(scope="module")
def agents(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("agents")
    return {
        "ada": make_agent(folder / "ada", 1),
        "eve": make_agent(folder / "eve", 3, "qwen3", cut="digit-pairs"),
    }


@pytest.fixture(scope="module")
def settings(agents) -> dict[str, Any]:
    return recipe(
        agents,
        steps=3,
        dynamic_sampling=1,
        sampling={"max_new_tokens": 6, "stop": ["7"]},
        evaluation={"prompts": 3, "every": 2},
        audit={"every": 2},
    )


@pytest.fixture(scope="module")
def local(settings, tmp_path_factory) -> dict[str, Any]:
    out = tmp_path_factory.mktemp("local") / "run"
    run(settings, out)
    return outcome(out)


@pytest.fixture(autouse=True)
def _nothing_is_left_behind() -> Iterator[None]:
    with no_process_left():
        yield
    assert not list(Path(tempfile.gettempdir()).glob(f"{FOLDER_PREFIX}{os.getpid()}-*"))


def test_ray_equals_one_process_bit_by_bit(settings, local, tmp_path):
    run(settings | {"runtime": "ray"}, tmp_path / "ray", display=Watching())
    assert outcome(tmp_path / "ray") == local
    lines = [json.loads(line) for line in (tmp_path / "ray" / "metrics.jsonl").read_text().splitlines()]
    moved = {key: value for key, value in lines[1].items() if key.startswith("runtime/")}
    for name in ("ada", "eve"):
        drawn, trained = (moved[f"runtime/{name}/bytes_per_{kind}_token"] for kind in ("drawn", "trained"))
        assert 5 < drawn < 200
        assert 5 < trained < 200
        assert moved[f"runtime/{name}/bytes_drawn"] == pytest.approx(
            drawn * lines[1][f"agent/{name}/num_tokens"]
        )
        assert moved[f"runtime/{name}/memory/0"] > 1e8  # a process with torch in it
    begin, end = (
        [lines[1][f"time/{edge}/sample/{name}"] for name in ("ada", "eve")] for edge in ("begin", "end")
    )
    assert max(begin) < min(end)  # they sample at the same time


class Watching(Silent):
    """Inspects the folder and the sockets of the running cluster."""

    def step(self, step: int, metrics: Any) -> None:
        (folder,) = Path(tempfile.gettempdir()).glob(f"{FOLDER_PREFIX}{os.getpid()}-*")
        assert folder.stat().st_mode & 0o777 == 0o700
        assert (folder / "ray" / "session_latest" / "sockets").is_dir()
        addresses = [address for pid in descendants(os.getpid()) for address in listening_addresses(pid)]
        assert addresses
        assert set(addresses) == {"127.0.0.1"}


def listening_addresses(pid: int) -> Iterator[str]:
    """The addresses a process listens on, from the kernel's tables."""
    own = {os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir() if link.exists()}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in own:
                raw = bytes.fromhex(fields[1].partition(":")[0])[-4:]  # tcp6: an IPv4 address, mapped
                yield socket.inet_ntoa(raw[::-1])


def test_killed_and_stopped_agents_are_restarted_without_a_trace(settings, tmp_path, monkeypatch):
    kills = int(os.environ.get("HACRL_TEST_KILLS", "3"))
    settings = settings | {"steps": kills}  # the same call may fail three times, not more
    run(settings, tmp_path / "local")
    signals = [signal.SIGSTOP] + [signal.SIGKILL] * kills
    killer = Killer(monkeypatch, signals, range(2, 13 * kills))
    display = Silent()
    changed = settings | {"runtime": {"name": "ray", "deadline_seconds": 15}}
    run(changed, tmp_path / "ray", display=display)
    assert len(killer.killed) == len(signals)
    assert outcome(tmp_path / "ray") == outcome(tmp_path / "local")
    assert len([text for text in display.warnings if "restarting it" in text]) >= kills


def test_the_others_go_on_without_a_lost_agent_and_the_run_can_be_resumed(settings, tmp_path, monkeypatch):
    runtime = {"name": "ray", "on_failure": "degrade"}
    killer = Killer(monkeypatch, [signal.SIGKILL], range(20, 21))
    display = Silent()
    summary = run(settings | {"runtime": runtime}, tmp_path / "run", display=display)
    (lost,) = killer.killed
    other = ({"ada", "eve"} - {lost}).pop()
    assert summary["agents"][lost]["retired"].startswith(f"agent {lost!r} was lost: its process is gone")
    assert summary["agents"][lost]["after"] == {}
    assert summary["agents"][other]["retired"] is None
    assert summary["agents"][other]["after"]
    assert [path.name for path in (tmp_path / "run" / "agents").iterdir()] == [other]
    assert any("The others continue without it" in text for text in display.warnings)
    monkeypatch.undo()
    longer = run(settings | {"steps": 4, "runtime": "local"}, tmp_path / "run", resume=True)
    assert longer["steps"] == 4
    assert longer["agents"][lost]["retired"] == summary["agents"][lost]["retired"]


def test_a_lost_agent_ends_the_run_and_a_resumed_one_equals_the_undisturbed(
    settings, local, tmp_path, monkeypatch
):
    runtime = {"name": "ray", "on_failure": "stop"}
    Killer(monkeypatch, [signal.SIGKILL], range(24, 25))
    with pytest.raises(AgentLost, match=r"agent '\w+' was lost: its process is gone"):
        run(settings | {"runtime": runtime}, tmp_path / "run")
    monkeypatch.undo()
    run(settings, tmp_path / "run", resume=True)
    assert outcome(tmp_path / "run") == local


def test_peers_that_only_respond_are_the_same_on_ray(settings, tmp_path):
    """A frozen model has a process of its own, a file of responses is in that of the loop."""
    prompts = tasks.load("digits", train=90, test=30).train
    rows = [{"prompt": prompt.text, "response": ["1", "22"]} for prompt in prompts]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    eve = settings["agents"][1] | {"source": "frozen"}
    log = {"name": "log", "source": {"file": str(tmp_path / "log.jsonl")}}
    changed = settings | {"agents": [settings["agents"][0], eve, log], "method": "commons", "audit": {}}
    run(changed, tmp_path / "local")
    run(changed | {"runtime": "ray"}, tmp_path / "ray")
    assert outcome(tmp_path / "ray") == outcome(tmp_path / "local")
