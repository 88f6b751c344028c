"""Look up everything that a recipe names, and compute what each agent does in a step."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

import torch

from hacrl.agents.blueprint import device_of
from hacrl.agents.errors import AgentError
from hacrl.agents.precision import Precision, Sizes, choose_precision
from hacrl.analysis.doctor.memory import Memory, cluster_gpu_memory, estimate, ranks_of
from hacrl.analysis.doctor.models import ModelFacts, is_elsewhere, look_at
from hacrl.analysis.doctor.peers import look_at_peer, look_at_server
from hacrl.analysis.doctor.prompts import Written, sent_to, written_for
from hacrl.defaults import usual_learning_rate
from hacrl.huggingface import offline
from hacrl.own_code import load_named
from hacrl.pool import SharedPoolError, open_place, pool_key
from hacrl.recipe import AgentSettings, EndpointSettings, Recipe, TaskSettings
from hacrl.recipe.problems import Problem, nearest
from hacrl.recipe.settings import PoolSettings
from hacrl.rewards.verifiers import VERIFIERS
from hacrl.runs.files import StorageError
from hacrl.tasks import Task
from hacrl.training.team_setup import load_task
from hacrl.types import Prompt

PROMPTS_MEASURED = 64
UNKNOWN_PROMPT = 1024
"""Tokens assumed for the longest prompt of a task that is not on this machine."""
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class AgentPlan:
    """What one agent does in every step."""

    name: str
    model: str
    facts: ModelFacts | None
    """With no trained weights if it is frozen."""
    device: str
    precision: Precision
    gpus: float
    """Of a Ray cluster, for each of the agent's processes; 0: it runs on a device of this machine."""
    ranks: int
    """Its processes."""
    learning_rate: float | None
    """The recipe's or the usual one; None: the recipe has none, and the size of the model is not known."""
    peers: tuple[str, ...]
    rollouts: int
    """Responses drawn in a step."""
    learned: int
    """Responses trained on in a step, the peers' included."""
    tokens: int
    """Upper bound on the tokens drawn in a step."""
    updates: int
    """Optimiser updates in a step, own responses first."""
    columns: Mapping[str, str]
    """What the method adds to the table of a step (`MethodSettings.columns`)."""
    memory: Memory | None
    first_prompt: Written | None = None
    """The task's first prompt as the model sees it; None: task or tokenizer are not on this machine."""
    trains: bool = True
    """False: its model is frozen."""
    key: str = ""
    """Where it is in the recipe: `agents.0`."""


@dataclass
class Diagnosis:
    """The result of an examination. With errors the recipe cannot run."""

    recipe: Recipe
    agents: list[AgentPlan] = field(default_factory=list)
    peers: list[str] = field(default_factory=list)
    """A line about every peer that has no model."""
    sent: dict[str, Written] = field(default_factory=dict)
    """The task's first prompt as each endpoint is sent it, by the name of the peer."""
    task: Task | None = None
    errors: list[Problem] = field(default_factory=list)
    notes: list[Problem] = field(default_factory=list)
    """Models and tasks that could not be examined because they are not on this machine."""
    gpu_memory: int = 0
    """Bytes of each of the cluster's GPUs."""

    def attempt(self, key: str, look: Callable[[], Found]) -> Found | None:
        """Call `look`; if it fails, record an error for `key` and continue."""
        try:
            return look()
        except (AgentError, StorageError, ValueError, TypeError, ImportError, OSError) as error:
            self.errors.append(Problem(key, str(error)))
            return None


def examine(recipe: Recipe, gpu_memory: int | None = None) -> Diagnosis:
    """Check models, tasks, rewards and packages; nothing is trained or downloaded.

    `gpu_memory` is that of each GPU of the Ray cluster; None takes this machine's GPU, or 80 GB.
    """
    found = Diagnosis(recipe, gpu_memory=gpu_memory or cluster_gpu_memory())
    with offline():
        _look_at_tasks(found)
    _look_at_rewards(found)
    for package in recipe.logging.to:
        found.attempt("logging.to", partial(_require, package, package))
    if recipe.exchange.pool is not None:
        _look_at_pool(found, recipe.exchange.pool)
    for position, agent in enumerate(recipe.agents):
        if agent.has_model:
            found.agents.append(_plan(found, position))
        elif agent.name in recipe.heard:
            _look_at_peer(found, position)
    _look_for_gpus(found)
    return found


def _look_at_peer(found: Diagnosis, position: int) -> None:
    agent, key = found.recipe.agents[position], f"agents.{position}"
    line = found.attempt(f"{key}.source", partial(look_at_peer, found.recipe, agent, found.task))
    found.peers += [line] if line else []
    if isinstance(agent.source, EndpointSettings) and found.task and found.task.train:
        sent = found.attempt(key, partial(sent_to, agent, found.task.train[0]))
        found.sent |= {agent.name: sent} if sent else {}


def _look_at_pool(found: Diagnosis, pool: PoolSettings) -> None:
    """Whether the key is there, and the packages that its place needs; nobody is asked."""
    found.attempt("exchange.pool.key_env", partial(pool_key, pool.key_env))
    try:
        open_place(pool.url).close()
    except SharedPoolError as error:
        found.errors.append(Problem("exchange.pool.url", str(error)))


def _look_at_tasks(found: Diagnosis) -> None:
    recipe = found.recipe
    found.task = _look_at_task(found, "task", recipe.task)
    for position, section in enumerate(recipe.evaluation.tasks):
        _look_at_task(found, f"evaluation.tasks.{position}", section)
    if found.task and recipe.prompts_each > len(found.task.train):
        found.errors.append(
            Problem(
                "prompts_per_step",
                f"expected at most the task's {len(found.task.train)} training prompts, "
                f"got {recipe.prompts_each}",
            )
        )


def _look_at_task(found: Diagnosis, key: str, section: TaskSettings) -> Task | None:
    """The task; None if it is not on this machine."""

    def look() -> Task | None:
        try:
            return load_task(section)
        except ValueError as error:
            if not isinstance(error.__cause__, ConnectionError):
                raise
            unseen = ", and no first prompt is shown" if key == "task" else ""
            note = f"{section.name} is not on this machine: not checked{unseen}"
            found.notes.append(Problem(key, note))
            return None

    return found.attempt(key, look)


def _look_at_rewards(found: Diagnosis) -> None:
    reward = found.recipe.reward
    if reward.verifier is not None:
        found.attempt("reward.verifier", partial(_check_verifier, reward.verifier))
    for position, function in enumerate(reward.functions):
        found.attempt(f"reward.functions.{position}.path", partial(_check_function, function.path))


def _check_verifier(name: str) -> None:
    if name not in VERIFIERS:
        raise ValueError(f"expected one of {', '.join(VERIFIERS)}, got {name!r}{nearest(name, VERIFIERS)}")
    VERIFIERS[name].load()


def _check_function(path: str) -> None:
    try:
        function = load_named(path)
    except Exception as error:  # the module is the user's: importing it may fail in any way
        raise ValueError(f"cannot import {path!r}: {type(error).__name__}: {error}") from error
    if not callable(function):
        raise ValueError(f"{path!r} is not a function")


def _require(package: str, extra: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise ImportError(f"needs the {package} package: pip install 'hacrl[{extra}]'")


def _plan(found: Diagnosis, position: int) -> AgentPlan:
    recipe = found.recipe
    agent = recipe.agents[position]
    key = f"agents.{position}"
    facts = found.attempt(f"{key}.model", partial(_look_at_model, found, key, agent))
    gpus = agent.resources.gpus if recipe.runtime.name == "ray" else 0.0
    device = (
        "cuda" if gpus else found.attempt(f"{key}.device", partial(device_of, agent.device)) or agent.device
    )
    sizes = Sizes(facts.parameters, facts.hidden, facts.feed_forward) if facts else None
    precision = choose_precision(agent.dtype, device, sizes)
    if agent.lora:
        found.attempt(f"{key}.lora", partial(_require, "peft", "lora"))
    if agent.lora and agent.lora.base_bits:
        found.attempt(f"{key}.lora.base_bits", partial(_require, "bitsandbytes", "quantised"))
    if agent.engine and agent.engine.url:
        note = found.attempt(f"{key}.engine.url", partial(look_at_server, agent))
        found.notes += [Problem(f"{key}.engine.url", note)] if note else []
    elif agent.engine:
        found.attempt(f"{key}.engine", partial(_require, "vllm", "vllm"))
    peers = recipe.topology()[agent.name]
    rollouts = recipe.prompts_each * recipe.samples_of(agent.name)
    row = recipe.sampling.max_new_tokens
    prompts = [] if found.task is None else found.task.train[:PROMPTS_MEASURED]
    longest = max((_characters(prompt) for prompt in prompts), default=UNKNOWN_PROMPT)
    return AgentPlan(
        name=agent.name,
        model=agent.model,
        facts=facts,
        device=device,
        precision=precision,
        gpus=gpus,
        ranks=ranks_of(recipe, agent.name),
        learning_rate=recipe.learning_rate_of(agent.name) or (usual_rate(facts, agent) if facts else None),
        peers=peers,
        rollouts=rollouts,
        learned=recipe.prompts_each * sum(map(recipe.samples_of, (agent.name, *peers))) * agent.trains,
        tokens=rollouts * (1 + recipe.dynamic_sampling) * (min(row, facts.context or row) if facts else row),
        updates=recipe.updates_per_step(agent.name),
        columns=recipe.method.columns(recipe, agent.name) if agent.trains else {},
        memory=estimate(recipe, agent.name, facts, precision.dtype, longest) if facts else None,
        first_prompt=_first_prompt(found, key, agent),
        trains=agent.trains,
        key=key,
    )


def usual_rate(facts: ModelFacts, agent: AgentSettings) -> float:
    """The usual learning rate for the size of the agent's model."""
    return usual_learning_rate(facts.parameters, adapters=agent.lora is not None)


def _first_prompt(found: Diagnosis, key: str, agent: AgentSettings) -> Written | None:
    if (
        not found.task
        or not found.task.train
        or any(problem.key == f"{key}.model" for problem in found.errors)
    ):
        return None
    return found.attempt(key, partial(written_for, agent, found.task.train[0]))


def _look_at_model(found: Diagnosis, key: str, agent: AgentSettings) -> ModelFacts | None:
    facts = look_at(agent.model, agent.lora)
    if facts and not agent.trains:
        facts = replace(facts, trained=0)
    if is_elsewhere(agent.model):
        sizes = "its published sizes are used" if facts else "its size is not known"
        note = f"{agent.model} is not on this machine: {sizes}, and its first prompt is not shown"
        found.notes.append(Problem(f"{key}.model", note))
    return facts


def gpus_needed(found: Diagnosis) -> float:
    """Of a Ray cluster, for all agents together."""
    wanted = [agent.gpus * agent.ranks for agent in found.agents]
    return max(wanted) if found.recipe.runtime.share_devices else sum(wanted)


def _look_for_gpus(found: Diagnosis) -> None:
    needed = gpus_needed(found)
    here = torch.cuda.device_count()
    if found.recipe.runtime.address is None and needed > here:
        message = (
            f"the agents need {needed:g} GPUs and this machine has {here}: run it where they are available"
        )
        found.notes.append(Problem("runtime", message))


def _characters(prompt: Prompt) -> int:
    """An upper bound on its tokens for nearly every tokenizer."""
    if isinstance(prompt.text, str):
        return len(prompt.text)
    return sum(len(message["content"]) for message in prompt.text)
