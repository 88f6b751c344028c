"""The first half of a step: prompts, responses, rewards; with dynamic sampling, prompts are replaced."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

from hacrl.sharing import collect
from hacrl.training.ahead import DrawnAhead
from hacrl.training.step_record import StepRecord
from hacrl.training.team import Member, Team
from hacrl.types import Prompt, Rollout, Trajectory

Asked = Mapping[str, Sequence[Prompt]]
"""Agent -> the prompts it responds to."""


def draw_step(team: Team, record: StepRecord) -> list[Prompt]:
    """Every agent's verified responses to the step's prompts, which it returns.

    With dynamic sampling, prompts on which no agent has an advantage are replaced by others, at most
    `dynamic_sampling` times. The last ones stay, whatever their rewards are.
    """
    prompts = team.order.batch(record.step)
    record.prompts = tuple(prompts)
    asked = assign(team, prompts, team.active)
    record.trajectories = draw_all(team, asked, record)
    if team.ahead is not None:
        return prompts
    others = team.order.others(record.step)
    for _ in range(team.recipe.dynamic_sampling):
        useless = without_advantage(record.trajectories)
        new = dict(zip([prompt.id for prompt in prompts if prompt.id in useless], others, strict=False))
        if not new:
            break
        prompts = [new.get(prompt.id, prompt) for prompt in prompts]
        asked = {
            name: [new[prompt.id] for prompt in given if prompt.id in new] for name, given in asked.items()
        }
        record.replace(new, draw_all(team, asked, record))
    return prompts


def assign(team: Team, prompts: Sequence[Prompt], members: Sequence[Member]) -> Asked:
    """Which of the step's prompts each member responds to: the method's choice, or all of them."""
    shared = team.method.assign(prompts, [member.name for member in members if not member.asked_all])
    return shared | {member.name: list(prompts) for member in members if member.asked_all}


def draw_all(team: Team, asked: Asked, record: StepRecord) -> tuple[Trajectory, ...]:
    """The verified responses of all agents to the prompts they are asked."""
    members = [member for member in team.active if asked[member.name]]
    drawn = team.each(lambda member: responses(team, member, asked[member.name], record), members)
    with ExitStack() as beside:
        if team.ahead is not None:  # agents draw while verifiers, in processes of their own, work
            beside.enter_context(_drawing_ahead(team, record))
        found: tuple[Trajectory, ...] = ()
        for member in members:
            if member.name in drawn:  # a lost agent has none
                found += verify(team, member, asked[member.name], drawn[member.name], record)
    return found


@contextmanager
def _drawing_ahead(team: Team, record: StepRecord) -> Iterator[None]:
    """Have all agents draw the next step's responses beside what is done here."""
    active = team.active
    with ThreadPoolExecutor(1) as thread:
        drawing = thread.submit(team.each, lambda member: draw_ahead(team, member, active, record), active)
        yield
        drawing.result()


def responses(team: Team, member: Member, prompts: Sequence[Prompt], record: StepRecord) -> list[Rollout]:
    """One agent's responses to the step's prompts: drawn ahead in the step before, or now."""
    drawn = None if team.ahead is None else team.ahead.take(member.name, record.step)
    if drawn is None:
        return draw(team, member, prompts, record)
    record.fingerprints[member.name] = drawn.fingerprint
    return list(drawn.rollouts)


def draw_ahead(team: Team, member: Member, members: Sequence[Member], record: StepRecord) -> None:
    """Have the agent draw the next step's responses by its present weights, if the recipe says so.

    Where something else draws them than the agent itself, they are only begun: `finish_ahead` waits for them.
    """
    step = record.step + 1
    if team.ahead is None or step > team.recipe.steps:
        return
    if asked := assign(team, team.order.batch(step), members)[member.name]:
        with record.timed(f"sample/{member.name}"):
            started = member.policy.start_sampling(asked, member.samples, team.sampling, team.seed(step))
        if started:
            team.ahead.started.add(member.name)
        else:
            _keep(team, member, record, draw(team, member, asked, record, step))


def finish_ahead(team: Team, member: Member, record: StepRecord) -> None:
    """Wait for the next step's responses, if they are still being drawn."""
    if team.ahead is not None and member.name in team.ahead.started:
        with record.timed(f"sample/{member.name}"):
            drawn = member.policy.finish_sampling()
        team.ahead.started.remove(member.name)
        _keep(team, member, record, drawn)


def _keep(team: Team, member: Member, record: StepRecord, drawn: Sequence[Rollout]) -> None:
    assert team.ahead is not None, "nothing is drawn ahead"
    team.ahead.keep(member.name, DrawnAhead(record.step + 1, record.weights[member.name], tuple(drawn)))


def without_advantage(trajectories: Iterable[Trajectory]) -> set[str]:
    """The prompts on which all rewards of each agent are equal: no agent has an advantage in its own group.

    A method may compare different agents' responses. That is not asked here: it is the same for all methods.
    """
    rewards: defaultdict[tuple[str, str], set[float]] = defaultdict(set)
    for t in trajectories:
        rewards[t.prompt_id, t.source] |= set() if t.reward is None else {t.reward}
    useful = {prompt_id for (prompt_id, _), found in rewards.items() if len(found) > 1}
    return {prompt_id for prompt_id, _ in rewards} - useful


def draw(
    team: Team, member: Member, prompts: Sequence[Prompt], record: StepRecord, step: int | None = None
) -> list[Rollout]:
    """One agent's responses to the prompts of this step or of a later `step`."""
    with record.timed(f"sample/{member.name}"):
        return member.policy.sample(prompts, member.samples, team.sampling, team.seed(step or record.step))


def verify(
    team: Team, member: Member, prompts: Sequence[Prompt], rollouts: Sequence[Rollout], record: StepRecord
) -> tuple[Trajectory, ...]:
    """An agent's responses with their rewards. Not thread-safe: all agents share the verifiers."""
    by_id = {prompt.id: prompt for prompt in prompts}
    if team.method.needs_logps and not member.trains:
        known = [rollout for rollout in rollouts if rollout.token_logps]
        record.rejected["no_logps"] += len(rollouts) - len(known)
        rollouts = known
    with record.timed("verify"):
        scores = team.rewarder.score(
            [by_id[rollout.prompt_id] for rollout in rollouts],
            [rollout.text for rollout in rollouts],
            [rollout.token_ids for rollout in rollouts],
        )
    record.unscorable.update(score.cause for score in scores if score.cause is not None)
    for rollout in rollouts:
        if rollout.engine is not None:
            record.engine_checks[member.name][rollout.prompt_id, rollout.sample] = rollout.engine
    fingerprint = record.fingerprints[member.name]
    trajectories, rejected = collect(
        Trajectory(
            step=record.step,
            prompt_id=rollout.prompt_id,
            source=member.name,
            sample=rollout.sample,
            fingerprint=fingerprint,
            text=rollout.text,
            reward=score.reward,
            finish_reason=rollout.finish_reason,
            token_ids=rollout.token_ids,
            token_logps=rollout.token_logps,
            stop=rollout.stop,
            ending=rollout.ending,
            tokens=rollout.tokens,
        )
        for rollout, score in zip(rollouts, scores, strict=True)
    )
    record.rejected.update(rejected)
    return trajectories


def verified_responses(
    team: Team, member: Member, prompts: Sequence[Prompt], record: StepRecord
) -> tuple[Trajectory, ...]:
    """One agent's responses to the prompts, with their rewards."""
    return verify(team, member, prompts, draw(team, member, prompts, record), record)
