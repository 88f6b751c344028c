"""One step's verified trajectories, checked on arrival: what is refused is never learned from."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from hacrl.types import Trajectory

Cause = Literal[
    "unknown_agent",
    "impostor",
    "wrong_step",
    "wrong_fingerprint",
    "wrong_prompt",
    "empty",
    "length_mismatch",
    "bad_number",
    "duplicate",
]

LARGEST_LOGP = 1e-3
"""A log-prob is at most 0; rounding in low precision may lift it a little."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """A trajectory that was refused, and why."""

    trajectory_id: str
    cause: Cause
    reason: str


class TrajectoryPool:
    """Takes in what the agents send for one step.

    `asked` maps every agent to the prompts it answers in this step: the same for all, or each its own.
    `fingerprints` maps every agent to the fingerprint of the weights it samples with.
    """

    def __init__(
        self, step: int, asked: Mapping[str, Collection[str]], fingerprints: Mapping[str, str]
    ) -> None:
        if asked.keys() != fingerprints.keys():
            raise ValueError(
                f"asked and fingerprints must name the same agents: {sorted(asked)}, {sorted(fingerprints)}"
            )
        self.step = step
        self._asked = {agent: frozenset(prompt_ids) for agent, prompt_ids in asked.items()}
        self._fingerprints = dict(fingerprints)
        self._accepted: dict[tuple[str, str, int], Trajectory] = {}
        self.rejected: Counter[str] = Counter()
        """How many were refused, by `Cause`."""

    def add(self, sender: str, trajectories: Iterable[Trajectory]) -> tuple[Rejection, ...]:
        """Take in what `sender` says it drew; returns what was refused."""
        rejections = []
        for trajectory in trajectories:
            objection = self._objection(sender, trajectory)
            if objection is None:
                self._accepted[_key(trajectory)] = trajectory
            else:
                cause, reason = objection
                self.rejected[cause] += 1
                rejections.append(Rejection(trajectory.id, cause, reason))
        return tuple(rejections)

    @property
    def trajectories(self) -> tuple[Trajectory, ...]:
        """All accepted ones, sorted by source, prompt and sample: the order of arrival does not matter."""
        return tuple(self._accepted[key] for key in sorted(self._accepted))

    def _objection(self, sender: str, trajectory: Trajectory) -> tuple[Cause, str] | None:
        source = trajectory.source
        if source not in self._asked:
            return "unknown_agent", f"source {source!r} is not one of {sorted(self._asked)}"
        if sender != source:
            return "impostor", f"sent by {sender!r} as a sample of {source!r}; agents send only their own"
        if trajectory.step != self.step:
            return "wrong_step", f"drawn in step {trajectory.step}, this is step {self.step}"
        expected = self._fingerprints[source]
        if trajectory.fingerprint != expected:
            return (
                "wrong_fingerprint",
                f"drawn with weights {trajectory.fingerprint!r}, expected {expected!r}",
            )
        if trajectory.prompt_id not in self._asked[source]:
            return "wrong_prompt", f"{source!r} was not asked prompt {trajectory.prompt_id!r} in this step"
        if _key(trajectory) in self._accepted:
            return "duplicate", f"sample {trajectory.sample} of {source!r} for this prompt is already here"
        return _bad_numbers(trajectory)


def _key(trajectory: Trajectory) -> tuple[str, str, int]:
    return trajectory.source, trajectory.prompt_id, trajectory.sample


def _bad_numbers(trajectory: Trajectory) -> tuple[Cause, str] | None:
    tokens, logps = len(trajectory.token_ids), len(trajectory.token_logps)
    if tokens == 0:
        return "empty", "a response has at least one token, if only EOS"
    if tokens != logps:
        return "length_mismatch", f"{tokens} tokens but {logps} log-probs"
    if trajectory.reward is not None and not math.isfinite(trajectory.reward):
        return "bad_number", f"reward {trajectory.reward} is not finite"
    for position, logp in enumerate(trajectory.token_logps):
        if not (math.isfinite(logp) and logp <= LARGEST_LOGP):
            return "bad_number", f"token_logps[{position}] = {logp} is not a log-probability"
    return None
