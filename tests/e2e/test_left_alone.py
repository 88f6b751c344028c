"""A run goes on when nobody reads its output any more, and saves when its terminal is closed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hacrl.runs.reader import RunReader
from helpers_train import make_agent, recipe

pytestmark = pytest.mark.slow
HACRL = str(Path(sys.executable).parent / "hacrl")


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("alone")
    agents = {name: make_agent(place / "models" / name, seed) for seed, name in enumerate(("ann", "bob"))}
    settings = recipe(agents, method="gspo", evaluation={"prompts": 2, "before": False})
    (place / "recipe.yaml").write_text(json.dumps(settings))
    return place


def start(place: Path, *words: str, **options) -> subprocess.Popen[bytes]:
    return subprocess.Popen([HACRL, "train", "recipe.yaml", *words], cwd=place, **options)


def test_a_run_goes_on_after_its_output_has_no_reader(place: Path):
    reading, writing = os.pipe()
    run = start(place, "steps=4", "--out", "read", stdout=writing, stderr=writing)
    os.close(writing)
    assert os.read(reading, 1), "something was printed, and that was enough: | head -c 1"
    os.close(reading)
    assert run.wait() == 0
    assert json.loads((place / "read" / "summary.json").read_text())["steps"] == 4
    assert (place / "read" / "report.html").is_file()


def test_a_closed_terminal_is_a_request_to_stop(place: Path):
    run = start(place, "steps=100000", "--out", "hung-up", stderr=subprocess.PIPE)
    while not (place / "hung-up" / "metrics.jsonl").exists():
        assert run.poll() is None, run.stderr.read()
        time.sleep(0.05)
    for _ in range(2):  # from the shell and from the kernel
        run.send_signal(signal.SIGHUP)
    _, error = run.communicate()
    assert run.returncode == 128 + signal.SIGHUP, error
    assert b"--out hung-up --resume" in error
    kept = RunReader(place / "hung-up")
    assert max(kept.checkpoints()) == kept.metrics[-1]["step"]
