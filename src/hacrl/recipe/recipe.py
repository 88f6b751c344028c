"""A recipe: all settings of a training run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BeforeValidator, Field, SerializeAsAny, model_validator

from hacrl.pool import POOL
from hacrl.recipe.agent_settings import AgentSettings, LoggedSettings
from hacrl.recipe.engines import engine_problems
from hacrl.recipe.fields import Count, Settings, not_empty
from hacrl.recipe.method import DEFAULT, MethodSettings, read_method
from hacrl.recipe.peers import peer_problems, source_problems
from hacrl.recipe.problems import Contradiction, Problem
from hacrl.recipe.settings import (
    AuditSettings,
    CapabilitySettings,
    CheckpointSettings,
    EvaluationSettings,
    ExchangeSettings,
    LoggingSettings,
    OptimiserSettings,
    RewardSettings,
    RuntimeChoice,
    RuntimeSettings,
    SampleAheadSettings,
    SamplingSettings,
    TaskChoice,
    UpdatesSettings,
)
from hacrl.recipe.topology import Topology, make_topology, topology_problems


class Recipe(Settings):
    """A training run. `resolved()` is what `config.json` holds; `Recipe.model_validate` reads it back."""

    agents: Annotated[tuple[AgentSettings, ...], Field(strict=False), AfterValidator(not_empty)]
    """The agents, one or more."""
    task: TaskChoice
    """The task to train on: a name, or a mapping of `name` and the task's own settings."""
    method: Annotated[SerializeAsAny[MethodSettings], BeforeValidator(read_method)] = Field(
        default=DEFAULT, validate_default=True
    )
    """A method's name, `hacpo-no_MECHANISM`, your own `module:Class`, or a mapping with `name` and more."""
    steps: Count = 58
    """Training steps."""
    prompts_per_step: Count = 128
    """Prompts drawn in each step."""
    samples_per_prompt: Count = 8
    """Responses every agent draws for each prompt."""
    max_prompt_tokens: Count | None = None
    """Training prompts that are longer in any agent's tokens are left out; null: none is."""
    dynamic_sampling: Annotated[int, Field(ge=0)] = 0
    """How often prompts on which the rewards of each agent are all equal are replaced in a step; 0: never."""
    sample_ahead: SampleAheadSettings | None = None
    """`{}`: the next step's responses are drawn before this step's updates, not after; null: after."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """The same seed gives the same run."""
    sampling: SamplingSettings = SamplingSettings()
    """How responses are drawn."""
    updates: UpdatesSettings = UpdatesSettings()
    """How a step's responses become optimiser updates."""
    optimiser: OptimiserSettings = OptimiserSettings()
    """AdamW, its schedule, the KL term."""
    capability: CapabilitySettings = CapabilitySettings()
    """The estimate of how good each agent is."""
    exchange: ExchangeSettings = ExchangeSettings()
    """Who learns from whom."""
    reward: RewardSettings = RewardSettings()
    """How responses are scored."""
    evaluation: EvaluationSettings = EvaluationSettings()
    """Each agent alone on test prompts."""
    checkpoint: CheckpointSettings = CheckpointSettings()
    """What a run can be resumed from."""
    logging: LoggingSettings = LoggingSettings()
    """Where metrics go."""
    audit: AuditSettings = AuditSettings()
    """Audit measurements while training."""
    runtime: RuntimeChoice = RuntimeSettings()
    """Where the agents run: `local`, `ray`, or a mapping with `name` and settings."""

    @model_validator(mode="after")
    def _refuse_contradictions(self) -> Self:
        problems = tuple(_contradictions(self))
        if problems:
            raise Contradiction(problems)
        return self

    def resolved(self) -> dict[str, Any]:
        """Plain JSON values with every default filled in."""
        return self.model_dump(mode="json")

    def agent(self, name: str) -> AgentSettings:
        """The agent of that name."""
        return next(agent for agent in self.agents if agent.name == name)

    def topology(self) -> Topology:
        """Learner -> the peers whose responses it receives; none if the method does not share."""
        exchange = self.exchange if self.method.shares else ExchangeSettings(topology="nobody")
        return make_topology(
            exchange,
            [agent.name for agent in self.agents],
            [agent.name for agent in self.agents if agent.trains],
        )

    @property
    def heard(self) -> frozenset[str]:
        """The agents from which somebody learns."""
        return frozenset(source for sources in self.topology().values() for source in sources)

    @property
    def taking_part(self) -> tuple[AgentSettings, ...]:
        """The agents that train, and the others from which somebody learns: nobody pays for more."""
        heard = self.heard
        return tuple(agent for agent in self.agents if agent.trains or agent.name in heard)

    @property
    def assigned(self) -> tuple[str, ...]:
        """The agents among which a step's prompts are divided: a file of responses is asked for all."""
        return tuple(a.name for a in self.taking_part if not isinstance(a.source, LoggedSettings))

    def samples_of(self, name: str) -> int:
        """Responses the agent draws for each prompt, the method's factor included."""
        own = self.agent(name).samples_per_prompt or self.samples_per_prompt
        return own * self.rollout_factor

    def learning_rate_of(self, name: str) -> float | None:
        """The agent's own learning rate, or the one for all agents; None: the usual one for its size."""
        return self.agent(name).learning_rate or self.optimiser.learning_rate

    def updates_per_step(self, name: str) -> int:
        """Optimiser updates of the agent in one step, at most."""
        if not self.agent(name).trains:
            return 0
        peers = len(self.topology()[name]) + self.pooled
        return self.method.updates(self.updates.mini_batches, len(self.sources), peers)

    @property
    def pooled(self) -> bool:
        """Whether learners also receive responses of other runs."""
        return self.exchange.pool is not None

    @property
    def sources(self) -> tuple[str, ...]:
        """Whose responses a learner may receive: the agents, and the pool as one more peer."""
        names = tuple(agent.name for agent in self.agents)
        return (*names, POOL) if self.pooled else names

    @property
    def rollout_factor(self) -> int:
        """The method's factor on `samples_per_prompt`."""
        return self.method.rollout_factor(len(self.agents))

    @property
    def prompts_each(self) -> int:
        """Prompts that each agent responds to in a step."""
        return self.method.prompts_each(self.prompts_per_step, len(self.agents))

    @property
    def own_mini_batches(self) -> int:
        """Mini-batches of own responses: more prompts or samples than the recipe's make more of them."""
        return self.updates.mini_batches * self.rollout_factor * self.prompts_each // self.prompts_per_step

    @property
    def asynchronous(self) -> bool:
        """Whether agents run without waiting for each other, which they cannot in one process."""
        return self.exchange.asynchronous is not None and self.runtime.name == "ray"


def _contradictions(recipe: Recipe) -> Iterator[Problem]:
    """Settings that are valid alone but not together."""
    exchange_problems = [*_same_names(recipe), *_exchange(recipe), *peer_problems(recipe)]
    yield from exchange_problems
    if recipe.own_mini_batches > recipe.prompts_each:
        yield Problem(
            "updates.mini_batches",
            f"{recipe.own_mini_batches} mini-batches cannot be made of {recipe.prompts_each} "
            "prompts_per_step: the responses to one prompt stay together",
        )
    if recipe.reward.verifier is not None and recipe.reward.functions:
        yield Problem("reward.verifier", "reward.functions replace it: set only one of the two")
    if recipe.optimiser.warmup_steps >= recipe.steps:
        yield Problem(
            "optimiser.warmup_steps",
            f"expected fewer than the run's {recipe.steps} steps, got {recipe.optimiser.warmup_steps}",
        )
    if not exchange_problems:
        yield from source_problems(recipe)
    if recipe.evaluation.keep == "best" and recipe.evaluation.every == 0:
        yield Problem("evaluation.every", "expected more than 0 with evaluation.keep: best, got 0")
    yield from _runtime(recipe)
    yield from engine_problems(recipe)
    yield from _quantised(recipe)
    yield from _asynchronous(recipe)
    yield from _ahead(recipe)
    yield from _truncation(recipe)
    if recipe.dynamic_sampling and recipe.method.critic is not None:
        yield Problem(
            "dynamic_sampling",
            f"expected 0 with method {recipe.method.name}: its advantages come from a critic",
        )
    yield from recipe.method.problems(recipe)


def _asynchronous(recipe: Recipe) -> Iterator[Problem]:
    """A checkpoint in every step would make every step synchronous."""
    if recipe.exchange.asynchronous is None:
        return
    if recipe.checkpoint.every in (1, "auto"):
        yield Problem(
            "checkpoint.every",
            f"expected more than 1 with exchange.asynchronous, got {recipe.checkpoint.every}: agents wait "
            "for each other at every checkpoint",
        )
    if recipe.dynamic_sampling:
        yield Problem(
            "dynamic_sampling", "expected 0 with exchange.asynchronous, where every agent has its own steps"
        )


def _ahead(recipe: Recipe) -> Iterator[Problem]:
    """Responses that are drawn ahead are a step old when they are trained on."""
    if recipe.sample_ahead is None:
        return
    if recipe.dynamic_sampling:
        yield Problem(
            "dynamic_sampling", "expected 0 with sample_ahead: other prompts would have to be drawn again"
        )
    late = recipe.exchange.asynchronous
    if late is not None and late.max_staleness < 1:
        yield Problem(
            "exchange.asynchronous.max_staleness",
            f"expected at least 1 with sample_ahead, got {late.max_staleness}: responses drawn ahead are a "
            "step old when they are published",
        )


def _runtime(recipe: Recipe) -> Iterator[Problem]:
    """Resources that Ray cannot provide. It hides the GPUs from a process that asked for none."""
    if recipe.runtime.share_devices:
        yield from _sharing(recipe)
    if recipe.runtime.name != "ray":
        return
    for position, agent in enumerate(recipe.agents):
        key = f"agents.{position}.resources"
        if agent.device.startswith("cuda") and not agent.resources.gpus:
            yield Problem(f"{key}.gpus", f"expected more than 0 for {agent.device}, got 0")
        if agent.resources.ranks > 1 and agent.resources.gpus not in (0, 1):
            yield Problem(
                f"{key}.gpus", f"expected 0 or 1 for each of several ranks, got {agent.resources.gpus:g}"
            )
        if agent.resources.ranks % agent.resources.nodes:
            ranks, nodes = agent.resources.ranks, agent.resources.nodes
            yield Problem(f"{key}.nodes", f"{ranks} ranks cannot be spread evenly over {nodes} machines")
        if agent.resources.nodes > 1 and recipe.runtime.address is None:
            yield Problem(
                f"{key}.nodes", "a cluster that is started here has 1 machine: set runtime.address, or 1"
            )


def _sharing(recipe: Recipe) -> Iterator[Problem]:
    """Agents that share devices work one after the other and need equal GPUs."""
    if recipe.asynchronous:
        yield Problem(
            "exchange.asynchronous",
            "expected null with runtime.share_devices: agents work one after the other",
        )
    first = recipe.agents[0].resources.gpus
    for position, agent in enumerate(recipe.agents):
        key, resources = f"agents.{position}", agent.resources
        if recipe.runtime.name != "ray":
            continue
        if resources.nodes > 1:
            yield Problem(
                f"{key}.resources.nodes", f"expected 1 with runtime.share_devices, got {resources.nodes}"
            )
        if resources.gpus != first:
            yield Problem(
                f"{key}.resources.gpus",
                f"expected {first:g} with runtime.share_devices, as the first agent has, "
                f"got {resources.gpus:g}",
            )


def _quantised(recipe: Recipe) -> Iterator[Problem]:
    """Weights in 4 bits can neither be sharded nor moved to another device nor copied to vLLM."""
    for position, agent in enumerate(recipe.agents):
        if agent.lora is None or agent.lora.base_bits is None:
            continue
        obstacles = {
            "engine: vllm": agent.engine is not None,
            "several resources.ranks": recipe.runtime.name == "ray" and agent.resources.ranks > 1,
            "runtime.share_devices": recipe.runtime.share_devices,
        }
        for obstacle in (name for name, present in obstacles.items() if present):
            yield Problem(
                f"agents.{position}.lora.base_bits",
                f"expected null with {obstacle}, got {agent.lora.base_bits}",
            )


def _same_names(recipe: Recipe) -> Iterator[Problem]:
    """Names become directories, and some file systems ignore case."""
    seen: set[str] = set()
    for position, agent in enumerate(recipe.agents):
        if agent.name.lower() in seen:
            yield Problem(
                f"agents.{position}.name",
                f"expected a unique name, got {agent.name!r} again (case is ignored)",
            )
        seen.add(agent.name.lower())


def _exchange(recipe: Recipe) -> Iterator[Problem]:
    names = [agent.name for agent in recipe.agents]
    topology = recipe.exchange.topology
    if topology not in ("everybody", "nobody") and not recipe.method.shares:
        yield Problem(
            "exchange.topology",
            f"expected everybody or nobody with method {recipe.method.name}, which shares nothing, "
            f"got {topology!r}",
        )
    yield from topology_problems(recipe.exchange, names)
    if recipe.exchange.pool is not None:
        yield from _pool(recipe)


def _pool(recipe: Recipe) -> Iterator[Problem]:
    """What a pool, which has neither a model nor steps of this run, cannot do."""
    if not recipe.method.shares:
        yield Problem(
            "exchange.pool", f"expected null with method {recipe.method.name}, which shares nothing"
        )
    elif recipe.method.needs_scores:
        yield Problem(
            "exchange.pool",
            f"expected null with method {recipe.method.name}, which needs its peers' models; use commons",
        )
    if recipe.exchange.asynchronous is not None:
        yield Problem("exchange.pool", "expected null with exchange.asynchronous: set only one of the two")
    for position, agent in enumerate(recipe.agents):
        if agent.name == POOL:
            yield Problem(
                f"agents.{position}.name", f"expected another name: with exchange.pool, {POOL!r} is taken"
            )


def _truncation(recipe: Recipe) -> Iterator[Problem]:
    """The source's log-probs are those of its whole response: their sum is not that of what is left."""
    norm = recipe.exchange.length_norm
    if recipe.exchange.truncate_overlong and norm != "own":
        yield Problem(
            "exchange.truncate_overlong",
            f"expected false with exchange.length_norm: {norm}, which compares sums over the same text",
        )
