"""Runs for tests of the report: one real and tiny, and what its page holds."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from helpers_train import make_agent, recipe, run

NAMES = ("ann", "bob", "cy")


def make_runs(directory: Path) -> Path:
    """`directory/together` and, beside it, the same agents alone; returns the first."""
    agents = {name: make_agent(directory / "models" / name, seed) for seed, name in enumerate(NAMES)}
    changes: dict[str, Any] = {
        "steps": 6,
        "evaluation": {"prompts": 6, "samples": 2, "every": 2},
        "prompts_per_step": 6,
    }
    run(recipe(agents, **changes), directory / "together")
    run(recipe(agents, **changes, method="gspo"), directory / "alone")
    return directory / "together"


def page_data(page: str) -> dict[str, Any]:
    """The data inside a page."""
    found = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert len(found) == 1
    data: dict[str, Any] = json.loads(found[0])
    return data


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]
