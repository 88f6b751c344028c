"""examples/peers: an agent learns more from each kind of peer than alone."""

from __future__ import annotations

import runpy
import shutil
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples" / "peers"


@pytest.mark.slow
def test_an_agent_learns_from_a_frozen_model_an_endpoint_and_a_file(tmp_path, monkeypatch, capsys):
    shutil.copytree(EXAMPLES, tmp_path / "peers", ignore=shutil.ignore_patterns("runs", "*.jsonl"))
    monkeypatch.chdir(tmp_path / "peers")
    monkeypatch.syspath_prepend(tmp_path / "peers")
    monkeypatch.setenv("TEACHER_KEY", "")
    monkeypatch.delitem(sys.modules, "serve", raising=False)
    found = runpy.run_path("run.py")["main"](["frozen", "endpoint", "log"])
    assert found.keys() == {"alone", "frozen", "endpoint", "log"}
    for kind in ("frozen", "endpoint", "log"):
        assert found[kind] > found["alone"] + 0.05, found
    printed = capsys.readouterr().out
    assert f"alone      {found['alone']:.3f}" in printed
    assert f"log        {found['log']:.3f}" in printed
