"""Costs from a run: the phases it measured, whatever hardware it ran on."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from hacrl.analysis.doctor.models import ModelFacts, look_at
from hacrl.analysis.simulate.forecast import Lengths, workload
from hacrl.analysis.simulate.hardware import Hardware
from hacrl.analysis.simulate.work import Workload, sampling, updating
from hacrl.recipe import Recipe
from hacrl.runs.directory import RunDirectory

Metrics = Sequence[Mapping[str, float]]


def scaled_to(directory: Path, prompt_tokens: float, hardware: Hardware) -> Hardware:
    """The hardware with the costs of each phase multiplied so that they meet the run's measured seconds."""
    files = RunDirectory(directory)
    if not files.config.is_file() or not files.metrics.is_file():
        raise ValueError(f"--from {directory}: holds no run with metrics: give the --out of hacrl train")
    recipe = Recipe.model_validate(json.loads(files.config.read_text()))
    metrics = [json.loads(line) for line in files.metrics.read_text().splitlines()]
    sample = update = predicted_sample = predicted_update = 0.0
    for agent in recipe.agents:
        facts = _facts(agent.model, directory)
        load = _load(recipe, agent.name, prompt_tokens, metrics, hardware.width)
        sample += _median(metrics, f"time/sample/{agent.name}", directory)
        update += _median(metrics, f"time/update/{agent.name}", directory)
        predicted_sample += hardware.sample.seconds(sampling(facts, load))
        predicted_update += hardware.update.seconds(updating(facts, load))
    factors = sample / predicted_sample, update / predicted_update
    return replace(
        hardware,
        origin=f"{hardware.origin}; times {factors[0]:.2f} in sampling and {factors[1]:.2f} in updates, "
        f"as measured in {directory}",
        sample=hardware.sample.times(factors[0]),
        update=hardware.update.times(factors[1]),
    )


def _facts(model: str, directory: Path) -> ModelFacts:
    facts = look_at(model, None)
    if facts is None:
        raise ValueError(f"--from {directory}: nothing is known of its model {model!r}: it is not here")
    return facts


def _load(recipe: Recipe, name: str, prompt_tokens: float, metrics: Metrics, width: int) -> Workload:
    """What the agent really did in a step: lengths as drawn, and only the tokens that had a gradient."""
    mean, longest, taught = (
        _median(metrics, f"agent/{name}/{key}")
        for key in ("completions/mean_length", "completions/max_length", "trained_tokens")
    )
    load = workload(recipe, name, Lengths(prompt_tokens, mean, longest), width)
    return replace(load, taught_tokens=taught)


def _median(metrics: Metrics, key: str, where: Path | str = "the run") -> float:
    values = [line[key] for line in metrics if key in line]
    if not values:
        raise ValueError(f"{where} has no metric {key}: was it stopped before its first step?")
    return statistics.median(values)
