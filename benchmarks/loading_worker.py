"""What `python -m benchmarks.loading` times, in a process of its own that begins with nothing loaded."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path
from time import process_time

from benchmarks.worker import answer


def main(directory: str) -> None:
    """The parts one after another, from the start of the process."""
    from benchmarks.real_prompts import word_problems
    from hacrl.agents.blueprint import Blueprint, precision_of
    from hacrl.recipe import AgentSettings, SamplingSettings

    times = [0.0, process_time()]
    settings = AgentSettings(name="agent", model=directory)
    agent = Blueprint(settings).load()
    times.append(process_time())
    agent.sample(word_problems(1), 1, SamplingSettings(max_new_tokens=1), seed=0)
    times.append(process_time())
    agent.fingerprint()
    times.append(process_time())
    imports, loading, first_token, fingerprint = (b - a for a, b in pairwise(times))
    answer(
        {
            "model": Path(directory).name,
            "dtype": precision_of(settings, "cpu").dtype,
            "imports": imports,
            "loading": loading,
            "first_token": first_token,
            "fingerprint": fingerprint,
        }
    )


if __name__ == "__main__":
    main(sys.argv[1])
