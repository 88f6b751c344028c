"""A small plan of experiments in a folder of its own, and its runs written down instead of carried out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hacrl.analysis.compare.plan import Plan
from hacrl.analysis.compare.suite import Suite, load_suite
from helpers_compare import AGENTS, finish

PLAN: dict[str, Any] = {
    "seeds": [0, 1, 2],
    "references": ["gspo", "gspo_x2"],
    "common": {"task": "digits", "steps": 4, "evaluation": {"every": 2, "prompts": 8}},
    "methods": {
        "gspo": None,
        "gspo_x2": None,
        "hacpo": None,
        "wide": {"method": {"name": "hacpo", "delta": 0.5}, "optimiser.learning_rate": 1e-5},
    },
    "settings": {
        "pair": {"recipe": "pair.yaml", "methods": ["gspo", "gspo_x2", "hacpo"]},
        "short": {
            "recipe": "short.yaml",
            "controls": {"one_way": {"method": "hacpo", "exchange.topology": [["ada", "bob"]]}},
        },
    },
}


def write_suite(folder: Path, **changes: Any) -> Path:
    agents = [{"name": name, "model": f"models/{name}"} for name in AGENTS]
    (folder / "pair.yaml").write_text(json.dumps({"agents": agents}))
    (folder / "short.yaml").write_text(json.dumps({"agents": agents, "steps": 3}))
    path = folder / "plan.yaml"
    path.write_text(json.dumps(PLAN | changes))
    return path


def suite(folder: Path, **changes: Any) -> Suite:
    return load_suite(write_suite(folder, **changes))


def finish_all(planned: Plan, solved: Mapping[str, int | Sequence[int]]) -> None:
    """Both agents solve so many of 40 problems, by method (and by seed); half as many half-way."""
    for run in planned.runs():
        of_method = solved.get(run.method, 10)
        count = of_method if isinstance(of_method, int) else of_method[planned.seeds.index(run.seed)]
        during = {2: _outcomes(count // 2)}
        finish(planned, run.method, run.seed, _outcomes(count), during=during)


def _outcomes(count: int) -> dict[str, list[float]]:
    return {agent: [1.0] * count + [0.0] * (40 - count) for agent in AGENTS}
