"""Check the formulas on this machine: fit the costs to some measured steps, and predict others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from hacrl.analysis.simulate.forecast import forecast
from hacrl.analysis.simulate.hardware import Cost, Hardware, LoopCost
from hacrl.analysis.simulate.measure import PHASES, Case, MeasuredStep, measure
from hacrl.analysis.simulate.synthetic import Size
from hacrl.analysis.simulate.work import Lengths, Workload, sampling, trained_responses, updating, workload
from hacrl.analysis.tables import TextTable

ALLOWED = 0.2
"""Largest relative error of a whole step."""
NARROW, WIDE, DEEP = Size(96, 3, 4, 64), Size(192, 2, 4, 64), Size(128, 6, 4, 64)
WORDY = Size(128, 2, 4, 1000)
FITTED = (
    Case((NARROW,), prompts=4, samples=8, max_new=32),
    Case((NARROW,), prompts=8, samples=8, max_new=16),
    Case((WIDE,), prompts=4, samples=8, max_new=16),
    Case((DEEP,), prompts=2, samples=8, max_new=24),
    Case((WORDY,), prompts=4, samples=8, max_new=16),
    Case((WIDE, NARROW), prompts=2, samples=8, max_new=24),
    Case((NARROW, NARROW), prompts=2, samples=4, max_new=160),
)
PREDICTED = (
    Case((Size(128, 4, 4, 64),), prompts=8, samples=8, max_new=32),
    Case((Size(160, 4, 4, 64), NARROW), prompts=4, samples=8, max_new=32),
    Case((WORDY, Size(96, 4, 4, 1000)), prompts=4, samples=8, max_new=24),
    Case((DEEP, NARROW, NARROW), prompts=4, samples=4, max_new=32),
    Case((NARROW, NARROW, WIDE, NARROW), prompts=2, samples=8, max_new=16),
    Case((Size(256, 3, 4, 64),), prompts=2, samples=8, max_new=48),
)


@dataclass(frozen=True, slots=True)
class Prediction:
    """A measured step and its prediction, in seconds."""

    case: str
    measured: dict[str, float]
    predicted: dict[str, float]

    @property
    def error(self) -> float:
        """Of the whole step, relative."""
        return self.predicted["step"] / self.measured["step"] - 1


@dataclass(frozen=True, slots=True)
class Checked:
    """This machine's costs and their predictions."""

    hardware: Hardware
    predictions: list[Prediction]

    @property
    def passed(self) -> bool:
        """Whether every step that was not fitted is predicted within `ALLOWED`."""
        return all(abs(prediction.error) <= ALLOWED for prediction in self.predictions)


def check(progress: Callable[[str], None], rounds: int = 5) -> Checked:
    """Measure both sets of steps, fit the first, predict the second."""
    found = measure((*FITTED, *PREDICTED), rounds, progress)
    hardware = this_machine(found[: len(FITTED)])
    return Checked(hardware, [_predict(step, hardware) for step in found[len(FITTED) :]])


def measure_here(progress: Callable[[str], None], rounds: int = 3) -> Hardware:
    """This machine's costs."""
    return this_machine(measure(FITTED, rounds, progress))


def this_machine(found: Sequence[MeasuredStep]) -> Hardware:
    """One core's costs, fitted to measured steps."""
    return Hardware(
        name="one core of this machine, fp32",
        origin=f"measured in {len(found)} workloads of tiny agents, in CPU seconds",
        sample=_fit_phase("sample", found),
        update=_fit_phase("update", found),
        link=float("inf"),
        network=float("inf"),
        loop=_fit_loop(found),
        width=4,
    )


def _fit_phase(phase: str, found: Sequence[MeasuredStep]) -> Cost:
    count = {"sample": sampling, "update": updating}[phase]
    amounts, seconds = [], []
    for step in found:
        for name, load in _loads(step).items():
            work = count(step.facts[name], load)
            amounts.append((work.flops, work.bytes, work.passes))
            seconds.append(step.phases[name][phase])
    return Cost(*fit_costs(amounts, seconds))


def _fit_loop(found: Sequence[MeasuredStep]) -> LoopCost:
    amounts = []
    for step in found:
        loads = _loads(step).values()
        amounts.append([sum(map(trained_responses, loads)), sum(load.trained_tokens for load in loads)])
    return LoopCost(*fit_costs(amounts, [step.rest for step in found]))


def fit_costs(amounts: Sequence[Sequence[float]], seconds: Sequence[float]) -> list[float]:
    """Least squares of predicted / measured - 1 over the cost of each kind of amount, none of them negative.

    Every subset of the kinds is tried as those with a cost above 0; there are few.
    """
    measured = np.array(seconds)
    kinds = np.array(amounts) / measured[:, None]
    count = kinds.shape[1]
    best, least = np.zeros(count), np.inf
    for chosen in (list(c) for size in range(1, count + 1) for c in combinations(range(count), size)):
        scale = kinds[:, chosen].max(axis=0)  # the columns differ by many orders of magnitude
        costs = np.linalg.lstsq(kinds[:, chosen] / scale, np.ones(len(measured)), rcond=None)[0] / scale
        error = float(((kinds[:, chosen] @ costs - 1) ** 2).sum())
        if (costs > 0).all() and error < least:
            best, least = np.zeros(count), error
            best[chosen] = costs
    return [float(cost) for cost in best]


def _loads(step: MeasuredStep) -> dict[str, Workload]:
    names = [agent.name for agent in step.recipe.agents]
    return {name: workload(step.recipe, name, _lengths(step), width=4) for name in names}


def _predict(step: MeasuredStep, hardware: Hardware) -> Prediction:
    cost = forecast(step.recipe, step.facts, _lengths(step), hardware, "exact")
    measured = {phase: sum(seconds[phase] for seconds in step.phases.values()) for phase in PHASES}
    return Prediction(
        str(step.case),
        {**measured, "loop": step.rest, "step": step.step},
        {"sample": cost.sample, "update": cost.update, "loop": cost.loop, "step": cost.total},
    )


def _lengths(step: MeasuredStep) -> Lengths:
    """Responses have full length."""
    return Lengths(step.prompt_tokens, step.case.max_new, step.case.max_new)


def check_tables(checked: Checked) -> list[TextTable]:
    """Predicted and measured seconds, and the fitted costs."""
    parts = (*PHASES, "loop", "step")
    rows = [
        (
            prediction.case,
            *(f"{prediction.predicted[part]:.3f} / {prediction.measured[part]:.3f}" for part in parts),
            f"{prediction.error:+.0%}",
        )
        for prediction in checked.predictions
    ]
    costs = [
        (phase, f"{1e12 * cost.per_flop:.3g}", f"{1e12 * cost.per_byte:.3g}", f"{1e6 * cost.per_pass:.3g}")
        for phase, cost in (("sample", checked.hardware.sample), ("update", checked.hardware.update))
    ]
    loop = checked.hardware.loop
    per = f"{1e6 * loop.per_response:.0f} per response trained on and {1e6 * loop.per_token:.1f} per token"
    title = "Steps that were not fitted: predicted / measured CPU seconds"
    return [
        TextTable(title, ("layers x width, prompts x samples x tokens", *parts, "error"), rows),
        TextTable(
            f"Fitted costs; the loop, in microseconds: {per}",
            ("", "ps per operation", "ps per byte", "microseconds per layer"),
            costs,
        ),
    ]
