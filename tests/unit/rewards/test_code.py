"""Code responses: tested in a process that can reach neither network nor files nor secrets."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from hacrl.rewards import Limits, Pool, Reward, Rewarder
from hacrl.rewards.verifiers import get_verifier
from hacrl.types import Prompt

TESTS = ["assert double(2) == 4", "assert double('ab') == 'abab'"]


@pytest.fixture(scope="module")
def rewarder() -> Iterator[Rewarder]:
    with Rewarder([Reward("python_tests", gold="tests")], limits=Limits(1.5), max_unscorable=0.0) as made:
        yield made


def score(rewarder: Rewarder, responses: list[str], tests: object = TESTS) -> list[float | None]:
    prompt = Prompt("p", "?", columns={"tests": tests})
    return [
        each.reward for each in rewarder.score([prompt] * len(responses), responses, [()] * len(responses))
    ]


def test_code_responses_pass_or_fail(rewarder: Rewarder) -> None:
    right = "def double(x):\n    return x + x\n"
    responses = [
        right,
        f"First try:\n```python\nbroken(\n```\nBetter:\n```python\n{right}```\nDone.",
        "def double(x):\n    return 2 + x\n",
        "def double(x) return",
        "",
        right + "\nif __name__ == '__main__':\n    raise SystemExit\n",
    ]
    assert score(rewarder, responses) == [1.0, 1.0, 0.0, 0.0, 0.0, 1.0]


def test_a_response_that_hangs_or_dies_is_wrong_not_unscorable(rewarder: Rewarder) -> None:
    attacks = [
        "while True: pass",
        "import os; os._exit(0)",
        "exit()",
        "x = bytearray(10**11)",
        "import os\nos.kill(1, 9)",
    ]
    assert score(rewarder, attacks) == [0.0] * len(attacks)


def test_a_response_does_not_affect_the_next_one(rewarder: Rewarder) -> None:
    spoiler = "import builtins\nbuiltins.len = lambda x: 3\nopen('left', 'w').write('x')\n"
    victim = "import os\nassert len('ab') == 2\nassert not os.path.exists('left')"
    assert score(rewarder, [spoiler, victim] * 3, "pass") == [1.0] * 6


def test_tests_that_do_not_compile_make_the_response_unscorable() -> None:
    with Rewarder([Reward("python_tests")], max_unscorable=1.0) as rewarder:
        (result,) = rewarder.score([Prompt("p", "?", columns={"answer": "assert ("})], ["x = 1"], [()])
    assert (result.reward, result.cause) == (None, "exception")


def test_confinement(rewarder: Rewarder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Pool(get_verifier("python_tests").path, Limits()) as pool:
        isolation = pool.isolation()
    precious = tmp_path / "precious"
    precious.write_text("kept")
    precious.chmod(0o666)
    tmp_path.chmod(0o777)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        connect = f"import socket\nsocket.create_connection(('127.0.0.1', {port}), timeout=1)"
        overwrite = f"open({str(precious)!r}, 'w').write('lost')"
        scratch = "open('notes', 'w').write('x')\nimport tempfile\ntempfile.TemporaryFile().write(b'x')"
        rewards = score(rewarder, [connect, overwrite, scratch], "pass")
    expected = [float(not isolation["network"]), float(not isolation["files"]), 1.0]
    assert rewards == expected
    assert precious.read_text() == ("kept" if isolation["files"] else "lost")


def test_secrets_stay_in_the_trainer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    look = "import os\nassert 'HF_TOKEN' in os.environ"
    with Rewarder([Reward("python_tests")]) as rewarder:
        (result,) = rewarder.score([Prompt("p", "?", columns={"answer": "pass"})], [look], [()])
    assert result.reward == 0.0
