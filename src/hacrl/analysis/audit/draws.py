"""Fresh responses at a checkpoint: a large sample for the ground truth, and the groups of several steps."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from hacrl.sharing import RewardTable, arrange
from hacrl.training.rollouts import assign, verified_responses
from hacrl.training.step import Delivery, batch_means, learner_batch, receive
from hacrl.training.step_record import StepRecord
from hacrl.training.team import Member, Team
from hacrl.types import Prompt, Trajectory

OnNext = Callable[[str], None]
"""Called with the name of the next part of the work."""


@dataclass(frozen=True)
class Draws:
    """Responses that were not trained on; those behind `truth` are not in `groups`."""

    prompts: tuple[Prompt, ...]
    truth: Tensor
    """[k, b] mean reward of agent k's large sample."""
    truth_variance: Tensor
    """[k, b] of that mean."""
    groups: tuple[RewardTable, ...]
    """The responses of one step each: every agent's to every prompt."""
    steps: tuple[StepRecord, ...]
    """The step that training would do on each group, with every learner's batch, without the updates."""


def draw(team: Team, prompts: Sequence[Prompt], step: int, samples: int, groups: int, begin: OnNext) -> Draws:
    """Sample from every agent; `team` must have another seed than its run."""
    drawn: dict[str, Sequence[Trajectory]] = {}
    record = StepRecord(step)
    record.fingerprints = {member.name: member.policy.fingerprint() for member in team.active}
    for member in team.active:
        begin(f"sampling from {member.name}")
        asked = replace(member, samples=samples + groups * member.samples)
        drawn[member.name] = verified_responses(team, asked, prompts, record)
    truth, variance = _truth(team, prompts, drawn, samples)
    begin("building batches")
    steps = [_step(team, step, _group(team.active, drawn, samples, g)) for g in range(groups)]
    ids = [prompt.id for prompt in prompts]
    return Draws(
        prompts=tuple(prompts),
        truth=truth,
        truth_variance=variance,
        groups=tuple(arrange(step, record.trajectories, team.names, ids) for record in steps),
        steps=tuple(_with_batches(team, prompts, record) for record in steps),
    )


def _truth(
    team: Team, prompts: Sequence[Prompt], drawn: Mapping[str, Sequence[Trajectory]], samples: int
) -> tuple[Tensor, Tensor]:
    """Mean reward [k, b] of the first responses, and the variance of that mean; 0 for a retired agent."""
    index = {prompt.id: b for b, prompt in enumerate(prompts)}
    rewards = torch.full((len(team.names), len(prompts), samples), torch.nan, dtype=torch.float64)
    for k, name in enumerate(team.names):
        for t in drawn.get(name, ()):
            if t.sample < samples and t.reward is not None:
                rewards[k, index[t.prompt_id], t.sample] = t.reward
    count = rewards.isfinite().sum(-1)
    mean = rewards.nanmean(-1).nan_to_num(0.0)
    squares = (rewards - mean[..., None]).square().nansum(-1)
    return mean, squares / (count - 1).clamp(min=1) / count.clamp(min=1)


def _group(
    members: Sequence[Member], drawn: Mapping[str, Sequence[Trajectory]], samples: int, number: int
) -> list[Trajectory]:
    """The responses of one group, numbered from 0."""
    chosen = []
    for member in members:
        first = samples + number * member.samples
        chosen += [
            replace(t, sample=t.sample - first)
            for t in drawn[member.name]
            if first <= t.sample < first + member.samples
        ]
    return chosen


def _step(team: Team, step: int, group: list[Trajectory]) -> StepRecord:
    """A step's record up to the capabilities; those of the team are left unchanged."""
    capability = copy.deepcopy(team.capability)
    capability.update(*batch_means(team, group))
    return StepRecord(step, tuple(group), capability.omega)


def _with_batches(team: Team, prompts: Sequence[Prompt], record: StepRecord) -> StepRecord:
    """The record with every learner's batch: only responses to prompts that the method assigns."""
    team = replace(team, contextual=copy.deepcopy(team.contextual))
    asked = assign(team, prompts, team.active)
    ids = {name: {prompt.id for prompt in own} for name, own in asked.items()}
    delivered = tuple(t for t in record.trajectories if t.prompt_id in ids[t.source])
    assigned = replace(record, trajectories=delivered)
    sent = Delivery(record.step, prompts, delivered, record.omega)
    for member in team.learners:
        received = receive(team, member, sent, assigned)
        assigned.batches[member.name] = learner_batch(team, member, received, assigned)
    return assigned
