"""Real processes, killed: nothing is lost, nothing is done twice."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from helpers_train import make_agent, metrics, outcome, recipe

KILLS = 30
TESTS = Path(__file__).parents[1]


@pytest.mark.slow
def test_a_run_killed_at_any_moment_resumes_to_the_same_result(tmp_path):
    """30 random moments inside every phase and every write of a save."""
    script = str(TESTS / "helpers_train_kills.py")
    done = subprocess.run([sys.executable, script, str(tmp_path), str(KILLS)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    whole = outcome(tmp_path / "whole")
    killed = sorted(tmp_path.glob("killed-*"))
    assert len(killed) == KILLS
    for victim in killed:
        assert outcome(victim) == whole, victim.name


@pytest.mark.slow
def test_ctrl_c_saves_and_says_how_to_resume(tmp_path):
    agents = {"ada": make_agent(tmp_path / "ada", 1), "bob": make_agent(tmp_path / "bob", 2)}
    settings = recipe(agents, steps=100_000, reward={"verifier": "numeric"})
    (tmp_path / "recipe.yaml").write_text(json.dumps(settings))
    command = [
        sys.executable,
        "-m",
        "hacrl",
        "train",
        str(tmp_path / "recipe.yaml"),
        "--out",
        str(tmp_path / "run"),
    ]

    def start(*options):
        process = subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True)
        _wait_for_step(tmp_path / "run" / "metrics.jsonl", process)
        return process

    process = start()
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGINT
    assert "--resume" in stderr
    assert "Traceback" not in stderr
    steps = [line["step"] for line in metrics(tmp_path / "run")]
    assert steps == list(range(len(steps)))

    process = start("--resume")
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode in (128 + signal.SIGINT, 128 + signal.SIGTERM)
    again = [line["step"] for line in metrics(tmp_path / "run")]
    assert again == list(range(len(again)))
    assert len(again) > len(steps)


def _wait_for_step(path, process):
    """Block until the process has logged a step of its own."""
    before = path.read_text().count("\n") if path.exists() else 0
    while process.poll() is None:
        if path.exists() and path.read_text().count("\n") > before + 2:
            return
        time.sleep(0.05)
    raise AssertionError(process.stderr.read())
