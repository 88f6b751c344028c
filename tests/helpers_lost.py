"""Processes of agents that are killed or stopped at random moments of a run on Ray.

Run as a script, this trains the recipe in FOLDER twice, undisturbed and with so many kills: vLLM's tests
need a process in which hacrl imports Ray.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from hacrl.runtime.remote_agent import RemoteAgent
from helpers_train import run


class Killer:
    """Sends signals to agents' processes, one of several ranks, just before randomly chosen calls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, signals: Sequence[int], calls: range) -> None:
        self.calls = 0
        self.killed: list[str] = []
        moments = sorted(random.Random(1).sample(calls, len(signals)))
        self._plan = dict(zip(moments, signals, strict=True))
        self._ranks = random.Random(2)
        request = RemoteAgent._request

        def counted(agent: RemoteAgent, method: str, *arguments: Any) -> Any:
            if agent._actors is not None and agent._actors.pids:
                self.calls += 1
                if self.calls in self._plan:
                    os.kill(self._ranks.choice(agent._actors.pids), self._plan[self.calls])
                    self.killed.append(agent.name)
            return request(agent, method, *arguments)

        monkeypatch.setattr(RemoteAgent, "_request", counted)


def main(folder: Path, kills: int) -> None:
    settings = json.loads((folder / "recipe.json").read_text())
    with pytest.MonkeyPatch.context() as patch:
        undisturbed = Killer(patch, [], range(0))
        run(settings, folder / "whole")
    with pytest.MonkeyPatch.context() as patch:
        killer = Killer(patch, [signal.SIGKILL] * kills, range(2, undisturbed.calls))
        run(settings, folder / "killed")
    (folder / "lost.json").write_text(json.dumps(killer.killed))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
