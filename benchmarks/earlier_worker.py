"""Trains the recipe of a folder with whatever version of hacrl it finds, and prints each step's seconds.

Run by its path, not as a module of `benchmarks`, which would be that of one version only.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from zlib import crc32

import torch

import hacrl
from hacrl.training.trainer import train


def half_of_them(prompts: Any, completions: Any, **columns: Any) -> list[float]:
    """A reward for about half of the responses, whatever they say, so that all are trained on."""
    return [float(crc32(f"{place}{text}".encode()) % 2) for place, text in enumerate(completions)]


def main(folder: Path, threads: int) -> None:
    """The last line printed says which package it was, and the seconds."""
    torch.set_num_threads(threads)
    recipe = json.loads((folder / "recipe.json").read_text())
    train(recipe, folder / "run", reward_funcs=[half_of_them])
    lines = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    steps = [line["time/step"] for line in lines if "time/step" in line]
    print(json.dumps({"package": hacrl.__file__, "steps": steps}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
