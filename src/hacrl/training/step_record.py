"""The record of one step, and how the records of asynchronous agents are merged into one."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any, Self

import torch
from torch import Tensor

from hacrl.agents.updater import UpdateReport
from hacrl.runtime import Traffic
from hacrl.sharing import LearnerBatch
from hacrl.training.beliefs import StepBelief
from hacrl.types import EngineCheck, Prompt, Trajectory


def _same(whole: int, part: int) -> int:
    if whole != part:
        raise ValueError(f"records of steps {whole} and {part} cannot be merged")
    return whole


def _concatenate(whole: tuple[Any, ...], part: tuple[Any, ...]) -> tuple[Any, ...]:
    return whole + part


def _distinct(whole: tuple[Prompt, ...], part: tuple[Prompt, ...]) -> tuple[Prompt, ...]:
    return tuple({prompt.id: prompt for prompt in (*whole, *part)}.values())


def _by_agent(whole: dict[Any, Any], part: Mapping[Any, Any]) -> dict[Any, Any]:
    whole.update(part)
    return whole


def _add(whole: dict[str, Any], part: Mapping[str, Any]) -> dict[str, Any]:
    for key, value in part.items():
        whole[key] += value
    return whole


def _earliest(whole: Any, part: Any) -> Any:
    if isinstance(whole, dict):
        return whole | {key: min(value, whole.get(key, value)) for key, value in part.items()}
    return min(whole, part)


def _latest(whole: dict[str, float], part: Mapping[str, float]) -> dict[str, float]:
    return whole | {key: max(value, whole.get(key, value)) for key, value in part.items()}


def _left_to_the_loop(whole: Any, part: Any) -> Any:
    return whole


# How a field of several agents' records is merged; every field names one of these.
SAME = {"merge": _same}
CONCATENATE = {"merge": _concatenate}
DISTINCT = {"merge": _distinct}
BY_AGENT = {"merge": _by_agent}
ADD = {"merge": _add}
EARLIEST, LATEST = {"merge": _earliest}, {"merge": _latest}
LEFT_TO_THE_LOOP = {"merge": _left_to_the_loop}
"""Not known to any single agent: the loop fills it in."""


@dataclass
class StepRecord:
    """Everything that metrics, warnings and the display need to know about one step."""

    step: int = field(metadata=SAME)
    trajectories: tuple[Trajectory, ...] = field(default=(), metadata=CONCATENATE)
    omega: Tensor = field(default_factory=lambda: torch.ones(0, 0), metadata=LEFT_TO_THE_LOOP)
    prompts: tuple[Prompt, ...] = field(default=(), metadata=DISTINCT)
    replaced: tuple[Trajectory, ...] = field(default=(), metadata=CONCATENATE)
    """Responses to prompts that dynamic sampling replaced: they are not trained on."""
    method_metrics: dict[str, float] = field(default_factory=dict, metadata=BY_AGENT)
    """The method's own metrics of every learner, measured before its first update."""
    predictions: dict[str, StepBelief] = field(default_factory=dict, metadata=BY_AGENT)
    """By learner, if capability depends on the prompt."""
    batches: dict[str, LearnerBatch] = field(default_factory=dict, metadata=BY_AGENT)
    reports: dict[str, list[UpdateReport]] = field(default_factory=dict, metadata=BY_AGENT)
    rejected: Counter[str] = field(default_factory=Counter, metadata=ADD)
    """Trajectories that were not used, by cause: `non_finite_logp`, or a learner could not confirm the
    reward."""
    unscorable: Counter[str] = field(default_factory=Counter, metadata=ADD)
    """Responses without a reward, by cause."""
    fingerprints: dict[str, str] = field(default_factory=dict, metadata=BY_AGENT)
    """Of every agent's weights when it sampled ..."""
    weights: dict[str, str] = field(default_factory=dict, metadata=BY_AGENT)
    """... and before its updates: others, if the responses were drawn ahead."""
    engine_checks: defaultdict[str, dict[tuple[str, int], EngineCheck]] = field(
        default_factory=lambda: defaultdict(dict), metadata=BY_AGENT
    )
    """By agent, then prompt and sample: the checks of responses drawn by an engine ..."""
    ahead_checks: defaultdict[str, dict[tuple[str, int], EngineCheck]] = field(
        default_factory=lambda: defaultdict(dict), metadata=BY_AGENT
    )
    """... and of those drawn ahead, by earlier weights."""
    failures: dict[str, str] = field(default_factory=dict, metadata=BY_AGENT)
    """Agents whose updates failed in this step, and why; the failed update has not changed the weights."""
    cosines: dict[tuple[str, str], dict[str, float]] = field(default_factory=dict, metadata=BY_AGENT)
    """By source and learner, in the steps that are audited (`hacrl.training.updates`)."""
    pool: Counter[str] = field(default_factory=Counter, metadata=ADD)
    """Responses `sent` to the pool, `taken` from it, and `refused/<cause>`."""
    notices: tuple[str, ...] = field(default=(), metadata=CONCATENATE)
    """What to warn about."""
    staleness: dict[str, float] = field(default_factory=dict, metadata=BY_AGENT)
    """By asynchronous learner: by how many steps peers' responses were late, on average."""
    dropped: Counter[str] = field(default_factory=Counter, metadata=ADD)
    """By asynchronous learner: peers' responses that were too late to train on."""
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float), metadata=ADD)
    """Time by phase: `sample/<agent>`, `verify`, `wait/<agent>`, `exchange`, `audit`, `update/<agent>`, and
    `capability/<agent>` as a part of `exchange`; phases of different agents may overlap."""
    began: float = field(default_factory=time.perf_counter, metadata=EARLIEST)
    """When the step began, on the clock of this process ..."""
    begins: dict[str, float] = field(default_factory=dict, metadata=EARLIEST)
    """... when each phase began first ..."""
    ends: dict[str, float] = field(default_factory=dict, metadata=LATEST)
    """... and ended last: who waited for whom. Dynamic sampling, for example, interrupts phases."""
    memory: dict[str, list[int]] = field(default_factory=dict, metadata=BY_AGENT)
    """Bytes in use by each of an agent's processes after its updates (`Agent.memory`)."""
    elapsed: float = field(default=0.0, metadata=LEFT_TO_THE_LOOP)
    """Seconds of the whole step."""
    traffic: dict[str, Traffic] = field(default_factory=dict, metadata=BY_AGENT)
    """Bytes to and from the agents' processes; empty where agents share this process."""

    @property
    def drawn(self) -> tuple[Trajectory, ...]:
        """All responses, those to replaced prompts included."""
        return self.trajectories + self.replaced

    def drawn_ahead(self, agent: str) -> bool:
        """Whether other weights than the agent's present ones drew its responses."""
        return agent in self.weights and self.weights[agent] != self.fingerprints[agent]

    def replace(self, prompts: Mapping[str, Prompt], trajectories: Sequence[Trajectory]) -> None:
        """Put other prompts and the responses to them in the place of some."""
        self.prompts += tuple(prompts.values())
        self.replaced += tuple(t for t in self.trajectories if t.prompt_id in prompts)
        kept = [t for t in self.trajectories if t.prompt_id not in prompts]
        self.trajectories = tuple(
            sorted((*kept, *trajectories), key=lambda t: (t.source, t.prompt_id, t.sample))
        )

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Add the time of a phase."""
        start = time.perf_counter()
        yield
        end = time.perf_counter()
        self.seconds[phase] += end - start
        self.begins.setdefault(phase, start)
        self.ends[phase] = end

    @classmethod
    def merge(cls, step: int, parts: Sequence[Self]) -> Self:
        """One record of what each agent recorded of the same step; a field without a rule is an error."""
        whole = cls(step)
        for part in parts:
            for each in fields(cls):
                merge = each.metadata["merge"]
                setattr(whole, each.name, merge(getattr(whole, each.name), getattr(part, each.name)))
        return whole
