"""What a run works with: agents, prompts, rewards and the method, built from a recipe."""

from __future__ import annotations

import hashlib
import importlib
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from transformers import PreTrainedTokenizerBase

from hacrl import tasks
from hacrl.agents.agent import Agent
from hacrl.agents.blueprint import Blueprint, device_of, precision_of
from hacrl.agents.endpoint import EndpointPeer
from hacrl.agents.errors import AgentError
from hacrl.agents.features import FEATURES
from hacrl.agents.loading import load_tokenizer
from hacrl.algorithm import Capability, ContextualCapability, CriticParams
from hacrl.methods import Method
from hacrl.pool import POOL
from hacrl.recipe import AgentSettings, LoggedSettings, Recipe, RecipeError, SamplingSettings, TaskSettings
from hacrl.recipe.problems import Problem
from hacrl.recipe.topology import Topology
from hacrl.rewards import Limits, Reward, Rewarder, RewardFunction
from hacrl.runtime import AgentLost, Runtime
from hacrl.sharing import Learner, Reverify
from hacrl.tasks import Task
from hacrl.tasks.toy_models import models as toy_models
from hacrl.tasks.toy_models.tokenizers import make_tokenizer
from hacrl.training.ahead import SampledAhead
from hacrl.training.peers import make_peers
from hacrl.training.prompt_lengths import short_enough
from hacrl.types import Prompt, Trajectory

if TYPE_CHECKING:
    from hacrl.training.pool_link import PoolLink

T = TypeVar("T")
Deliver = Callable[[Sequence[Trajectory], str, int], Sequence[Trajectory]]
"""A step's trajectories, a learner and the step -> the trajectories delivered to that learner."""


def deliver_all(trajectories: Sequence[Trajectory], learner: str, step: int) -> Sequence[Trajectory]:
    """Everything unchanged. Experiments with faulty agents replace this function."""
    return trajectories


class PromptOrder:
    """Which prompts each step draws: a function of the seed and the step, so a resumed run draws the same.

    Every epoch goes through all prompts in a new random order; an incomplete last batch is left out.
    """

    def __init__(self, prompts: Sequence[Prompt], prompts_per_step: int, seed: int) -> None:
        if prompts_per_step > len(prompts):
            raise ValueError(
                f"prompts_per_step is {prompts_per_step}, but the task has only {len(prompts)} training "
                "prompts: lower prompts_per_step or give the task more prompts"
            )
        self._prompts = prompts
        self._per_step = prompts_per_step
        self._seed = seed
        self._order = lru_cache(maxsize=1)(self._shuffled)

    @property
    def steps_per_epoch(self) -> int:
        """Steps until every prompt was drawn once, but for an incomplete last batch."""
        return len(self._prompts) // self._per_step

    def batch(self, step: int) -> list[Prompt]:
        """The prompts of a step, counted from 1."""
        epoch, place = divmod(step - 1, self.steps_per_epoch)
        start = place * self._per_step
        return [self._prompts[index] for index in self._order(epoch)[start : start + self._per_step]]

    def others(self, step: int) -> Iterator[Prompt]:
        """All prompts but those of the step, in a random order of the step's own."""
        taken = {prompt.id for prompt in self.batch(step)}
        order = list(range(len(self._prompts)))
        random.Random(f"{self._seed}/others/{step}").shuffle(order)
        yield from (self._prompts[index] for index in order if self._prompts[index].id not in taken)

    def _shuffled(self, epoch: int) -> list[int]:
        order = list(range(len(self._prompts)))
        random.Random(f"{self._seed}/{epoch}").shuffle(order)
        return order


@dataclass(frozen=True)
class Member:
    """One agent of the team and how many responses it draws for each prompt."""

    policy: Agent
    samples: int
    learner: Learner | None
    """As batches are built for it; None: a peer that only responds."""
    asked_all: bool = False
    """Whether it is asked for every prompt of a step, whichever are assigned to the others."""

    @property
    def name(self) -> str:
        """The agent's name."""
        return self.policy.name

    @property
    def trains(self) -> bool:
        """Whether it learns."""
        return self.learner is not None


@dataclass(frozen=True)
class EvaluationTask:
    """Test prompts and the rewarder that scores the responses."""

    name: str
    prompts: Sequence[Prompt]
    rewarder: Rewarder
    samples: int
    """Besides the greedy response; 0: greedy only."""
    many: tuple[int, int] = (0, 0)
    """Samples for a large k, and the prompts that get so many."""

    @property
    def greedy_only(self) -> EvaluationTask:
        """The same without samples."""
        return replace(self, samples=0, many=(0, 0))


@dataclass
class Team:
    """Everything a training step needs. The agents' weights, capabilities, `retired` and `lost` change."""

    recipe: Recipe
    members: tuple[Member, ...]
    """Those that take part, sorted by name: the order of agents in the recipe changes nothing."""
    task: Task
    order: PromptOrder
    rewarder: Rewarder
    evaluation_tasks: tuple[EvaluationTask, ...]
    method: Method
    topology: Topology
    sampling: SamplingSettings
    capability: Capability
    contextual: Mapping[str, ContextualCapability]
    """By learner, if the method needs it."""
    runtime: Runtime
    dtypes: Mapping[str, str]
    """What each agent computes in."""
    retired: dict[str, str] = field(default_factory=dict)
    """Agents that no longer take part, and why."""
    lost: set[str] = field(default_factory=set)
    """Retired agents whose weights are lost."""
    deliver: Deliver = deliver_all
    ahead: SampledAhead | None = None
    """Responses of the next step, if they are drawn ahead."""
    pool: PoolLink | None = None
    """Responses of other runs; only a training run has it."""

    @property
    def names(self) -> tuple[str, ...]:
        """All agents, retired ones and those that nobody learns from included: the axes k and j."""
        return tuple(sorted(agent.name for agent in self.recipe.agents))

    @property
    def sources(self) -> tuple[str, ...]:
        """All agents, and the pool if there is one: whose responses a learner may receive."""
        return (*self.names, POOL) if self.recipe.pooled else self.names

    @property
    def active(self) -> tuple[Member, ...]:
        """The agents that still take part."""
        return tuple(member for member in self.members if member.name not in self.retired)

    @property
    def learners(self) -> tuple[Member, ...]:
        """The active agents that train."""
        return tuple(member for member in self.active if member.trains)

    @property
    def present(self) -> tuple[Member, ...]:
        """The agents that train and whose weights are still there, retired ones included."""
        return tuple(member for member in self.members if member.trains and member.name not in self.lost)

    def each(self, task: Callable[[Member], T], members: Sequence[Member] | None = None) -> dict[str, T]:
        """Run the task for every member, in parallel if the runtime can; for all active ones by default.

        A lost agent is retired, and outcomes that needed it are left out.
        """
        members = self.active if members is None else members
        outcomes = self.runtime.run({member.name: partial(task, member) for member in members})
        for outcome in outcomes.values():
            if isinstance(outcome, AgentLost):
                self.lost.add(outcome.agent)
                self.retired[outcome.agent] = str(outcome)
                if not self.learners:
                    raise outcome
        return {name: outcome for name, outcome in outcomes.items() if not isinstance(outcome, AgentLost)}

    def load_capabilities(self, state: Mapping[str, Any]) -> None:
        """Restore what the agents were believed to be capable of from a checkpoint."""
        self.capability.load_state_dict(state["capability"])
        for name, found in self.contextual.items():
            found.load_state_dict(state["contextual"][name])

    def seed(self, purpose: object) -> int:
        """A seed of its own for every step and purpose."""
        digest = hashlib.blake2b(f"{self.recipe.seed}/{purpose}".encode(), digest_size=7)
        return int.from_bytes(digest.digest(), "big")

    def reverify(self, prompts: Mapping[str, Prompt]) -> Reverify | None:
        """The function with which a learner verifies its peers' responses again; None: it does not.

        `reward.max_unscorable` does not apply here: a response that cannot be confirmed is not used.
        """
        chosen = self.recipe.exchange.reverify
        if not (self.method.reverifies if chosen is None else chosen):
            return None

        def again(trajectories: Sequence[Trajectory]) -> list[float | None]:
            scores = self.rewarder.score(
                [prompts[t.prompt_id] for t in trajectories],
                [t.text for t in trajectories],
                [t.token_ids for t in trajectories],
                limit_unscorable=False,
            )
            return [score.reward for score in scores]

        return again

    def close(self) -> None:
        """End the processes of verifiers and agents, and connections."""
        for member in self.members:
            if isinstance(member.policy, EndpointPeer):
                member.policy.close()
        if self.pool is not None:
            self.pool.close()
        self.rewarder.close()
        for task in self.evaluation_tasks:
            task.rewarder.close()
        self.runtime.close()


def build_team(
    recipe: Recipe,
    *,
    task: Task | None = None,
    reward_funcs: Sequence[RewardFunction] | None = None,
    deliver: Deliver | None = None,
    dtypes: Mapping[str, str] | None = None,
    replies: Path | None = None,
) -> Team:
    """Build the team of a recipe. Models are loaded last, so that other mistakes show early.

    `replies` is the directory that keeps what endpoints reply. Without it, peers that have no model do not
    take part: nothing is asked of anybody, and no file of theirs is read.
    `dtypes` are what agents with `dtype: auto` compute in; for agents that are not in it, it is chosen now.
    """
    task = task or load_task(recipe.task)
    method = recipe.method
    if not isinstance(method, Method):
        message = f"{method.name!r} is not a method: derive it from hacrl.methods.Method"
        raise RecipeError("recipe", [Problem("method", message)])
    if recipe.runtime.name == "local":
        refuse_missing_devices(recipe)
    drawn = method.prompts_drawn(recipe.prompts_per_step, len(recipe.assigned))
    order = PromptOrder(task.train, drawn, recipe.seed)  # before the models are loaded: it may refuse
    rewarder = make_rewarder(recipe, task, reward_funcs)
    many = (recipe.evaluation.many, recipe.evaluation.many_prompts)
    evaluation_tasks = [replace(_evaluation_task(recipe, task, rewarder), many=many)]
    for section in recipe.evaluation.tasks:
        other = load_task(section)
        evaluation_tasks.append(_evaluation_task(recipe, other, make_rewarder(recipe, other)))
    loaded = sorted(agent.name for agent in recipe.taking_part if agent.has_model)
    peers = [] if replies is None else make_peers(recipe, task, replies)
    runtime = make_runtime(recipe)
    dtypes = choose_dtypes(recipe, dtypes or {})
    agents = runtime.load([_blueprint(recipe, name, dtypes[name], method.critic) for name in loaded])
    if recipe.max_prompt_tokens is not None:
        encoders = [agent.encoder for agent in agents]
        try:
            train = short_enough(task.train, encoders, recipe.max_prompt_tokens)
            order = PromptOrder(train, drawn, recipe.seed)
        except BaseException:
            runtime.close()
            raise
    return Team(
        recipe=recipe,
        members=tuple(sorted((_member(recipe, agent) for agent in [*agents, *peers]), key=_name)),
        task=task,
        order=order,
        rewarder=rewarder,
        evaluation_tasks=tuple(_named_apart(evaluation_tasks)),
        method=method,
        topology=recipe.topology(),
        sampling=recipe.sampling,
        capability=Capability(
            len(recipe.agents), recipe.capability.window, recipe.capability.floor, recipe.capability.clamp
        ),
        contextual=_contextual(recipe) if method.contextual and len(recipe.sources) > 1 else {},
        runtime=runtime,
        dtypes=dtypes,
        deliver=deliver or deliver_all,
        ahead=None if recipe.sample_ahead is None else SampledAhead(),
    )


def _contextual(recipe: Recipe) -> dict[str, ContextualCapability]:
    """Every learner has an estimate of its own: the features are its own."""
    agents, memory = recipe.agents, recipe.capability.memory
    return {a.name: ContextualCapability(len(recipe.sources), FEATURES, memory) for a in agents if a.trains}


def refuse_missing_devices(recipe: Recipe) -> None:
    """Raise a `RecipeError` for GPUs that this machine does not have."""
    problems = []
    for position, agent in enumerate(recipe.agents):
        try:
            device_of(agent.device)
        except AgentError as error:
            problems.append(Problem(f"agents.{position}.device", str(error)))
    if problems:
        raise RecipeError("recipe", problems)


def tokenizer_of(model: str) -> PreTrainedTokenizerBase:
    """An agent's tokenizer; a toy model need not have been made yet."""
    kind, _, name = model.partition(":")
    return make_tokenizer(toy_models.find(name).body.cut) if kind == "toy" else load_tokenizer(model)


def make_runtime(recipe: Recipe) -> Runtime:
    """The runtime that the recipe names; its module is imported only now, because Ray is heavy."""
    module = importlib.import_module(f"hacrl.runtime.{recipe.runtime.name}_runtime")
    resources = {agent.name: agent.resources for agent in recipe.taking_part if agent.has_model}
    runtime: Runtime = module.RUNTIME(recipe.runtime, resources)
    return runtime


def load_task(section: TaskSettings) -> Task:
    """The task a recipe names, with its settings."""
    return tasks.load(section.name, **section.settings)


def make_rewarder(
    recipe: Recipe, task: Task, reward_funcs: Sequence[RewardFunction] | None = None
) -> Rewarder:
    """The given functions and the recipe's; without any, the recipe's verifier or else the task's."""
    section = recipe.reward
    rewards = [Reward(function) for function in reward_funcs or ()]
    rewards += [Reward(function.path, function.weight) for function in section.functions]
    if section.verifier is not None or not rewards:
        rewards.append(Reward(section.verifier or task.verifier))
    return Rewarder(
        rewards, limits=Limits(deadline=section.deadline_seconds), max_unscorable=section.max_unscorable
    )


def _evaluation_task(recipe: Recipe, task: Task, rewarder: Rewarder) -> EvaluationTask:
    settings = recipe.evaluation
    return EvaluationTask(
        task.name, task.test[: settings.prompts], rewarder, settings.samples or best_of(task)
    )


def _named_apart(found: Sequence[EvaluationTask]) -> Iterator[EvaluationTask]:
    """Results are kept by name: the second task of a name, with other settings, is `NAME (2)`."""
    seen: Counter[str] = Counter()
    for task in found:
        seen[task.name] += 1
        number = seen[task.name]
        yield replace(task, name=f"{task.name} ({number})") if number > 1 else task


def best_of(task: Task) -> int:
    """Samples a task's own protocol asks for: k for best@k, 0 for avg@1, the greedy response."""
    return task.test_samples if task.test_samples > 1 else 0


def choose_dtypes(recipe: Recipe, known: Mapping[str, str]) -> dict[str, str]:
    """What each agent computes in: the recipe's dtype; for `auto` what is `known`, or else a new choice.

    Chosen here, where the run is started, so that all processes of an agent agree.
    """
    return {
        agent.name: known[agent.name]
        if agent.dtype == "auto" and agent.name in known
        else precision_of(agent, planned_device(recipe, agent)).dtype
        for agent in recipe.taking_part
        if agent.has_model
    }


def planned_device(recipe: Recipe, agent: AgentSettings) -> str:
    """Where an agent is going to compute; on Ray that need not be a device of this process."""
    on_ray = recipe.runtime.name == "ray"
    return ("cuda" if agent.resources.gpus else "cpu") if on_ray else device_of(agent.device)


def _blueprint(recipe: Recipe, name: str, dtype: str, critic: CriticParams | None) -> Blueprint:
    agent = recipe.agent(name).model_copy(update={"dtype": dtype})
    shares = recipe.runtime.share_devices
    if not agent.trains:
        return Blueprint(
            agent,
            updates=recipe.updates,
            sampling=recipe.sampling,
            seed=recipe.seed,
            shares_device=shares,
        )
    return Blueprint(
        agent,
        optimiser=recipe.optimiser.model_copy(update={"learning_rate": recipe.learning_rate_of(name)}),
        updates=recipe.updates,
        sampling=recipe.sampling,
        total_steps=recipe.steps,
        critic=critic,
        seed=recipe.seed,
        shares_device=shares,
    )


def _member(recipe: Recipe, agent: Agent) -> Member:
    settings, exchange, samples = recipe.agent(agent.name), recipe.exchange, recipe.samples_of(agent.name)
    if not settings.trains:
        return Member(agent, samples, None, asked_all=isinstance(settings.source, LoggedSettings))
    learner = Learner(
        agent.name,
        agent.encoder,
        agent.context_length,
        exchange.max_prompt_tokens,
        exchange.max_response_tokens,
        exchange.truncate_overlong,
        recipe.updates.train_eos,
    )
    return Member(agent, samples, learner)


def _name(member: Member) -> str:
    return member.name
