"""From a recipe to its team: tasks, rewards, the runtime and, last, the models."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from hacrl import tasks
from hacrl.agents.agent import Agent
from hacrl.agents.blueprint import Blueprint, device_of, precision_of
from hacrl.agents.errors import AgentError
from hacrl.agents.features import FEATURES
from hacrl.agents.loading import load_tokenizer
from hacrl.algorithm import Capability, ContextualCapability, CriticParams
from hacrl.methods import Method
from hacrl.recipe import AgentSettings, LoggedSettings, Recipe, RecipeError, TaskSettings
from hacrl.recipe.problems import Problem
from hacrl.rewards import Limits, Reward, Rewarder, RewardFunction
from hacrl.runtime import Runtime
from hacrl.sharing import Learner
from hacrl.tasks import Task
from hacrl.tasks.toy_models import models as toy_models
from hacrl.tasks.toy_models.tokenizers import make_tokenizer
from hacrl.training.ahead import SampledAhead
from hacrl.training.peers import make_peers
from hacrl.training.prompt_lengths import short_enough
from hacrl.training.prompt_order import PromptOrder
from hacrl.training.team import Deliver, EvaluationTask, Member, Team, deliver_all


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
