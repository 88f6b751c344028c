"""The training step: Algorithm 1 of arXiv 2603.02604 for any number of agents.

`train_step` runs the stages for all agents together. The asynchronous loop (`hacrl.training.async_loop`) runs
the same stages for one agent at a time.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from hacrl import sharing
from hacrl.agents.errors import NonFiniteLoss
from hacrl.agents.updater import UpdateReport
from hacrl.methods import View
from hacrl.sharing import LearnerBatch, Reencoder, arrange, build_batches, own_ending
from hacrl.training.beliefs import learn_outcomes
from hacrl.training.model_scores import add_engine_weights, add_model_scores, likelihood, present_logps
from hacrl.training.rollouts import draw_step, finish_ahead
from hacrl.training.step_metrics import method_metrics
from hacrl.training.step_record import StepRecord
from hacrl.training.team import Member, Team
from hacrl.training.updates import cosines, gradients_by_part, numbered_updates
from hacrl.types import Prompt, Trajectory


def train_step(team: Team, step: int) -> StepRecord:
    """One step: sample, verify, share, and train every agent on the responses it receives."""
    record, started = StepRecord(step), time.perf_counter()
    team.runtime.traffic()  # discard what was moved between steps
    record.weights = team.each(lambda member: member.policy.fingerprint())
    record.fingerprints = dict(record.weights)
    prompts = draw_step(team, record)  # 1.-3. prompts, responses of the old policies, their rewards

    team.capability.update(*batch_means(team, record.drawn))  # 4. capability
    record.omega = team.capability.omega
    with record.timed("exchange"):  # 5.-6. advantages, coefficients, the learner's tokens
        sent = add_pool(team, Delivery(step, prompts, record.trajectories, record.omega), record)
        received = {member.name: receive(team, member, sent, record) for member in team.learners}
        record.batches = team.each(
            lambda member: learner_batch(team, member, received[member.name], record), team.learners
        )
    for member in team.learners:  # a learner whose scorer was lost makes no updates
        record.batches.setdefault(member.name, LearnerBatch((), Counter()))
    if audited(team, step):
        with record.timed("audit"):
            team.each(lambda member: audit(team, member, record), team.learners)
    record.reports = team.each(lambda member: update(member, record), team.learners)  # 7.-10. own, peers'
    team.each(lambda member: finish_ahead(team, member, record))
    record.traffic = team.runtime.traffic()
    record.elapsed = time.perf_counter() - started
    return record


@dataclass(frozen=True)
class Delivery:
    """One step's responses for one learner; asynchronous learners receive them in parts."""

    step: int
    prompts: Sequence[Prompt]
    trajectories: tuple[Trajectory, ...]
    omega: Tensor
    trained_on: frozenset[str] = frozenset()
    """Agents whose responses of this step the learner has trained on before."""
    awaited: frozenset[str] = frozenset()
    """Agents that have not published their responses of this step yet."""
    pooled: tuple[Trajectory, ...] = ()
    """Responses from the pool, which every learner receives; their prompts are among `prompts`."""


def add_pool(team: Team, sent: Delivery, record: StepRecord) -> Delivery:
    """The step's responses and those that the pool has, with their prompts."""
    if team.pool is None:
        return sent
    with record.timed("pool"):
        found = team.pool.exchange(team, sent.prompts, record)
    prompts = {prompt.id: prompt for prompt in (*sent.prompts, *found.prompts)}
    record.prompts = tuple({prompt.id: prompt for prompt in (*record.prompts, *found.prompts)}.values())
    return replace(sent, prompts=list(prompts.values()), pooled=found.trajectories)


def omega_of_sources(team: Team, omega: Tensor) -> Tensor:
    """Omega with a place for the pool, which counts as capable as everybody: who is behind it changes."""
    missing = len(team.sources) - len(omega)
    return torch.nn.functional.pad(omega, (0, missing, 0, missing), value=1.0)


def batch_means(team: Team, trajectories: Sequence[Trajectory]) -> tuple[Tensor, Tensor]:
    """Every agent's mean reward (or share of rewards above zero) in this batch, and which agents have any."""
    values: dict[str, list[float]] = {name: [] for name in team.names}
    for trajectory in trajectories:
        if trajectory.reward is not None:
            positive = team.recipe.capability.measure == "positive_rate"
            values[trajectory.source].append(float(trajectory.reward > 0) if positive else trajectory.reward)
    means = [sum(rewards) / max(1, len(rewards)) for rewards in values.values()]
    return torch.tensor(means, dtype=torch.float64), torch.tensor([bool(v) for v in values.values()])


def receive(team: Team, member: Member, sent: Delivery, record: StepRecord) -> Delivery:
    """The responses that the learner accepts. Not thread-safe: all learners share the verifiers."""
    name = member.name
    delivered = team.deliver(sent.trajectories, name, sent.step)
    reverify = team.reverify({prompt.id: prompt for prompt in sent.prompts})
    accepted, rejected = sharing.receive(delivered, name, team.topology[name], reverify)
    record.rejected.update(rejected)
    return replace(sent, trajectories=accepted)


def learner_batch(team: Team, member: Member, received: Delivery, record: StepRecord) -> LearnerBatch:
    """The learner's training batch of one step's responses."""
    batch = build_batch(team, member, received, record)
    return add_model_scores(team, member, batch, received.prompts, record.engine_checks[member.name])


def build_batch(team: Team, member: Member, received: Delivery, record: StepRecord) -> LearnerBatch:
    """The batch before other models score it: the method's loss terms as rows in mini-batches."""
    assert member.learner is not None, "only an agent that trains has batches"
    by_id = {prompt.id: prompt for prompt in received.prompts}
    if received.step == record.step and record.drawn_ahead(member.name):
        checks = record.ahead_checks[member.name]
        rescored = present_logps(team, member, received.prompts, received.trajectories, checks)
        received = replace(received, trajectories=rescored)
    table = arrange(received.step, (*received.trajectories, *received.pooled), team.sources, list(by_id))
    tokens = Reencoder(member.learner, by_id, own_ending(received.trajectories, member.name))
    changed = member.name in received.trained_on
    view = View(
        member.name,
        table,
        omega_of_sources(team, received.omega),
        team.recipe.reward.maximum,
        team.recipe.updates.mini_batches,
        likelihood=lambda chosen: likelihood(member.policy, tokens, table, chosen, changed=changed),
        trained_on=received.trained_on,
        awaited=received.awaited,
        mask_truncated=team.recipe.updates.mask_truncated,
    )
    if team.contextual:
        with record.timed(f"capability/{member.name}"):
            found = learn_outcomes(team, member, view, received.prompts)
        view = replace(view, belief=found.after, prompt_omega=found.after.omega(team.recipe.capability.clamp))
        if received.step == record.step:
            record.predictions[member.name] = found
    taken = view.new & view.trainable
    terms = [replace(term, mask=term.mask & taken) for term in team.method.loss_terms(view)]
    if received.step == record.step:  # not again when late responses arrive
        record.method_metrics.update(method_metrics(team, view, terms))
    batch = build_batches(table, tokens, terms, team.recipe.exchange, team.recipe.own_mini_batches)
    if team.recipe.updates.mask_truncated:
        batch.left_out["truncated"] += int((table.mask & view.new & ~view.trainable).sum())
    batch = add_engine_weights(batch, record.engine_checks[member.name])
    return add_engine_weights(batch, record.ahead_checks[member.name])


def audited(team: Team, step: int) -> bool:
    """Whether the recipe audits this step (`audit.every`)."""
    return team.recipe.audit.every > 0 and step % team.recipe.audit.every == 0


def audit(team: Team, member: Member, record: StepRecord) -> None:
    """Measure the cosines between the gradients of peers' responses and of the learner's own."""
    gradients = gradients_by_part(member.policy, record.batches[member.name])
    for source in team.topology[member.name]:
        record.cosines[source, member.name] = cosines(gradients, member.name, source)


def update(member: Member, record: StepRecord) -> list[UpdateReport]:
    """The learner's updates of this step, up to the first loss that is not finite.

    Each has the learning rate of the middle of its share of the step: whatever the number of updates, all
    methods warm up and decay alike.
    """
    reports: list[UpdateReport] = []
    updates = list(numbered_updates(record.batches[member.name]))
    with record.timed(f"update/{member.name}"):
        try:
            for number, objective, mini_batch in updates:
                steps_done = record.step - 1 + (number + 0.5) / len(updates)
                reports += member.policy.update([mini_batch], objective, number, steps_done)
        except NonFiniteLoss as error:
            record.failures[member.name] = str(error)
    record.memory[member.name] = member.policy.memory()
    return reports
