"""The peers of a run that have no model, endpoints and files: they live in the process of the loop."""

from __future__ import annotations

from pathlib import Path

from hacrl.agents.agent import Agent
from hacrl.agents.endpoint import EndpointPeer
from hacrl.agents.logged import LoggedPeer
from hacrl.recipe import EndpointSettings, LoggedSettings, Recipe, RecipeError
from hacrl.recipe.problems import Problem, shown
from hacrl.tasks import Task


def make_peers(recipe: Recipe, task: Task, replies: Path) -> list[Agent]:
    """The peers from which somebody learns; `replies` is the directory that keeps what endpoints reply."""
    taking_part = {agent.name for agent in recipe.taking_part}
    peers: list[Agent] = []
    for position, agent in enumerate(recipe.agents):
        if agent.name not in taking_part:
            continue
        if isinstance(agent.source, EndpointSettings):
            peers.append(EndpointPeer(agent, replies))
        elif isinstance(agent.source, LoggedSettings):
            peer = LoggedPeer(agent.name, agent.source)
            if not any(map(peer.responses, task.train)):
                problem = Problem(f"agents.{position}.source.prompt", other_prompts(agent.source, task))
                raise RecipeError("recipe", [problem])
            peers.append(peer)
    return peers


def other_prompts(source: LoggedSettings, task: Task) -> str:
    """Why a file has no response to any training prompt."""
    first = f"; the first is {shown(task.train[0].text)}" if task.train else ""
    return (
        f"no training prompt of task {task.name} is in column {source.prompt!r} of {source.file}, which has "
        f"to hold their texts, chat messages or ids{first}"
    )
