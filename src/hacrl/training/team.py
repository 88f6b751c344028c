"""What a run works with: agents, prompts, rewards and the method."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from hacrl.agents.agent import Agent
from hacrl.agents.endpoint import EndpointPeer
from hacrl.algorithm import Capability, ContextualCapability
from hacrl.methods import Method
from hacrl.pool import POOL
from hacrl.recipe import Recipe, SamplingSettings
from hacrl.recipe.topology import Topology
from hacrl.rewards import Rewarder
from hacrl.runtime import AgentLost, Runtime
from hacrl.sharing import Learner, Reverify
from hacrl.tasks import Task
from hacrl.training.ahead import SampledAhead
from hacrl.training.prompt_order import PromptOrder
from hacrl.types import Prompt, Trajectory

if TYPE_CHECKING:
    from hacrl.training.pool_link import PoolLink

T = TypeVar("T")
Deliver = Callable[[Sequence[Trajectory], str, int], Sequence[Trajectory]]
"""A step's trajectories, a learner and the step -> the trajectories delivered to that learner."""


def deliver_all(trajectories: Sequence[Trajectory], learner: str, step: int) -> Sequence[Trajectory]:
    """Everything unchanged. Experiments with faulty agents replace this function."""
    return trajectories


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
