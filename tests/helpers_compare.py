"""Comparisons whose runs are written down instead of carried out: every number is known."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hacrl.analysis.compare.outcomes import Outcomes
from hacrl.analysis.compare.plan import Plan, make_plan
from hacrl.analysis.compare.results import Experiment, make_results

AGENTS = ("ada", "bob")


def plan(folder: Path, methods: Sequence[str], seeds: int = 2, **changes: Any) -> Plan:
    recipe = {
        "agents": [{"name": name, "model": f"models/{name}"} for name in AGENTS],
        "task": "digits",
        "steps": 4,
        **changes,
    }
    path = folder / "recipe.yaml"
    path.write_text(json.dumps(recipe))
    return make_plan(path, [], methods, [], range(seeds), folder / "out")


def evaluation(outcomes: Sequence[float | None], responses: Sequence[str]) -> dict[str, Any]:
    problems = {
        "ids": [f"p{number}" for number in range(len(outcomes))],
        "responses": list(responses),
        "greedy": list(outcomes),
        "mean_at_k": None,
        "pass_at_k": None,
    }
    half = len(outcomes) // 2
    kinds = {"easy": _share(outcomes[:half]), "hard": _share(outcomes[half:])}
    return {
        "greedy": _share(outcomes),
        "greedy_by_kind": kinds,
        "mean_at_k": None,
        "pass_at_k": None,
        "samples": 0,
        "unscorable": 0,
        "problems": problems,
    }


def _share(outcomes: Sequence[float | None]) -> dict[str, float]:
    return {"mean": _mean(outcomes), "low": 0.0, "high": 1.0, "problems": len(outcomes)}


def _mean(outcomes: Sequence[float | None]) -> float:
    scored = [outcome for outcome in outcomes if outcome is not None]
    return sum(scored) / max(1, len(scored))


def finish(
    planned: Plan,
    method: str,
    seed: int,
    greedy: Mapping[str, Sequence[float | None]],
    *,
    rollouts: int = 100,
    updates: int = 8,
    during: Mapping[int, Mapping[str, Sequence[float]]] | None = None,
) -> None:
    """Write the outcome of a run: agents' outcomes by problem after the last step, and `during` it by step.

    Before training all responses were wrong.
    """
    run = planned.run(method, seed)
    run.directory.path.mkdir(parents=True)
    agents = {}
    for name, outcomes in greedy.items():
        before = evaluation([0.0] * len(outcomes), ["same"] * len(outcomes))
        after = evaluation(outcomes, [f"{name}{outcome}" if not outcome else "right" for outcome in outcomes])
        agents[name] = {
            "model": run.recipe.agent(name).model,
            "before": {"digits": before},
            "after": {"digits": after},
            "rollouts": rollouts,
            "generated_tokens": 10 * rollouts,
            "trained_tokens": 20 * rollouts,
            "updates": updates,
            "retired": None,
        }
    summary = {
        "method": method,
        "task": "digits",
        "steps": run.recipe.steps,
        "seconds": 7.0,
        "cpu_seconds": 6.0,
        "agents": agents,
    }
    run.directory.config.write_text(json.dumps({"recipe": run.recipe.resolved(), "versions": {"hacrl": "1"}}))
    for step, by_agent in (during or {}).items():
        path = run.directory.evaluation_file(step)
        path.parent.mkdir(exist_ok=True)
        found = {
            name: {"digits": evaluation(values, [""] * len(values))} for name, values in by_agent.items()
        }
        path.write_text(json.dumps(found))
    run.directory.summary.write_text(json.dumps(summary))


def read(planned: Plan) -> Outcomes:
    return Outcomes.read(planned)


def experiment(planned: Plan, references: Sequence[str] = ("gspo",)) -> Experiment:
    outcomes = read(planned)
    return Experiment(outcomes, make_results(outcomes, references, {"hacrl": "1"}, ["abc"]))
