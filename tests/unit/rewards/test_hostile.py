"""Whatever a verifier does, only its own sample is unscorable; all others are scored correctly."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hacrl.rewards import Limits, Pool, PoolError, Reward, Rewarder
from hacrl.rewards.pool import OWNER_VARIABLE
from hacrl.rewards.processes import descendants, kill_descendants
from hacrl.types import Prompt

DEADLINE = 1.5


def workers_of(owner: int) -> list[int]:
    """The living processes that carry the mark of a trainer's workers."""
    mark = f"{OWNER_VARIABLE}={owner}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in entry.read_bytes().split(b"\0"):
                found.append(int(entry.parent.name))
        except OSError:
            continue
    return found


def wait_until(condition: Callable[[], bool]) -> bool:
    """Whether the condition becomes true within ten seconds."""
    for _ in range(500):
        if condition():
            return True
        time.sleep(0.02)
    return False


@pytest.fixture(scope="module")
def rewarder() -> Iterator[Rewarder]:
    with Rewarder([Reward("helpers_hostile:rewards")], limits=Limits(DEADLINE), max_unscorable=1.0) as made:
        yield made


def score(rewarder: Rewarder, completions: list[str]) -> list[tuple[float | None, str | None]]:
    prompts = [Prompt(str(number), "?") for number in range(len(completions))]
    scores = rewarder.score(prompts, completions, [()] * len(completions))
    return [(each.reward, each.cause) for each in scores]


@pytest.mark.parametrize(
    ("attack", "cause"),
    [
        ("sleep", "timeout"),
        ("fork bomb", "timeout"),
        ("10 GB", "memory"),
        ("exit", "crash"),
        ("raise", "exception"),
        ("wrong length", "wrong_length"),
        ("nan", "not_finite"),
        ("infinity", "not_finite"),
        ("text", "not_a_number"),
        ("none", "none"),
    ],
)
def test_one_bad_sample_does_not_affect_the_others(rewarder: Rewarder, attack: str, cause: str) -> None:
    before = rewarder.unscorable[cause]  # type: ignore[index]
    scores = score(rewarder, ["right", attack, "wrong", "right"])
    assert scores == [(1.0, None), (None, cause), (0.5, None), (1.0, None)]
    assert rewarder.unscorable[cause] == before + 1  # type: ignore[index]


@pytest.mark.parametrize("misbehaviour", ["flood", "fork and both return", "leave a daemon behind"])
def test_misbehaviour_that_is_not_a_failure(rewarder: Rewarder, misbehaviour: str) -> None:
    for _ in range(3):
        assert score(rewarder, ["right", misbehaviour, "wrong"]) == [(1.0, None), (0.5, None), (0.5, None)]


def test_the_detail_of_an_exception_is_truncated() -> None:
    with Pool("helpers_hostile:single", Limits(30)) as pool:
        (outcome,) = pool.run([{"what": "raise"}])
    assert outcome.detail.startswith("ValueError: zzz")
    assert len(outcome.detail) < 500


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
def test_no_process_or_file_is_left_behind() -> None:
    attacks = ["fork bomb", "leave a daemon behind", "sleep", "right"]
    others = set(workers_of(os.getpid()))
    with Pool("helpers_hostile:single", Limits(DEADLINE)) as pool:
        outcomes = pool.run([{"what": what} for what in attacks])
        assert [outcome.value for outcome in outcomes] == [None, 0.5, None, 1.0]
        scratch = Path(pool._workers[0]._scratch).parent
        assert set(workers_of(os.getpid())) - others
    assert not set(workers_of(os.getpid())) - others
    assert not scratch.exists()


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
def test_workers_die_with_a_killed_trainer(tmp_path: Path) -> None:
    program = """
        from hacrl.rewards import Limits, Pool
        pool = Pool("helpers_hostile:single", Limits(600))
        pool.isolation()
        print("ready", flush=True)
        pool.run([{"what": "spin"}, {"what": "leave a daemon behind"}, {"what": "sleep"}])
    """
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, env=environment
    ) as trainer:
        assert trainer.stdout is not None
        assert trainer.stdout.readline() == b"ready\n"
        assert wait_until(lambda: len(workers_of(trainer.pid)) >= 4)
        trainer.kill()
    assert wait_until(lambda: not workers_of(trainer.pid) and not list(tmp_path.iterdir()))


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_a_tree_is_killed_without_namespaces_too() -> None:
    """On systems that forbid namespaces, a daemon that left its session is still found."""
    program = """
        import os, time
        from hacrl.rewards.processes import adopt_orphans
        adopt_orphans()
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.setsid()
                time.sleep(1000)
            os._exit(0)
        os.wait()
        print("ready", flush=True)
        time.sleep(1000)
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, start_new_session=True
    ) as root:
        assert root.stdout is not None
        assert root.stdout.readline() == b"ready\n"
        (daemon,) = descendants(root.pid)
        kill_descendants(root.pid)
        assert descendants(root.pid) == []
        root.kill()
    assert not Path(f"/proc/{daemon}").exists() or "Z" in Path(f"/proc/{daemon}/stat").read_text()


def test_a_worker_is_replaced_after_its_calls() -> None:
    with Pool("os:getpid", Limits(calls=2), workers=1) as pool:
        pool.isolation()
        first = pool._workers[0]._process
        pool.run([{}])
        assert pool._workers[0]._process is first
        pool.run([{}])
        assert pool._workers[0]._process is not first


@pytest.mark.parametrize(
    ("function", "message"), [("no_such_module:f", "No module named"), ("math:nothing", "has no attribute")]
)
def test_a_function_that_cannot_be_loaded_is_an_error(function: str, message: str) -> None:
    with Pool(function) as pool, pytest.raises(PoolError, match=message):
        pool.run([{}])


def test_arguments_that_are_not_json_are_unscorable() -> None:
    with Pool("helpers_hostile:single") as pool:
        outcomes = pool.run([{"what": object()}, {"what": "right"}])
    assert [outcome.cause for outcome in outcomes] == ["not_json", None]
    assert outcomes[1].value == 1.0


def test_workers_import_neither_torch_nor_the_verifiers_of_others() -> None:
    program = "import sys, hacrl.rewards.worker; print(*sys.modules)"
    listed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(listed.stdout.split())
    assert "hacrl.rewards.worker" in loaded
    assert not loaded & {"torch", "transformers", "pydantic", "math_verify", "jsonschema", "reasoning_gym"}
    assert "hacrl.rewards.notation" not in loaded
