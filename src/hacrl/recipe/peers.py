"""What a recipe may ask of peers: agents that respond but do not train."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from hacrl.recipe.agent_settings import AgentSettings, EndpointSettings
from hacrl.recipe.problems import Problem

if TYPE_CHECKING:
    from hacrl.recipe.recipe import Recipe

TRAINING = ("lora", "learning_rate")
"""Keys for agents that train."""
MODEL = ("device", "dtype", "engine", "resources", "template_variables")
"""Keys for agents whose model is loaded."""
PROMPTING = ("prompt_template", "system_prompt")
"""Keys for agents that are sent a prompt."""


def peer_problems(recipe: Recipe) -> Iterator[Problem]:
    """Why these peers cannot take part."""
    if not any(agent.trains for agent in recipe.agents):
        yield Problem("agents", "expected at least one agent that trains: every agent has a source")
    for position, agent in enumerate(recipe.agents):
        for key in _without_effect(agent):
            if getattr(agent, key) != AgentSettings.model_fields[key].default:
                yield Problem(
                    f"agents.{position}.{key}", f"has no effect with source {kind(agent)}: leave it out"
                )
    yield from _pairs(recipe)


def _pairs(recipe: Recipe) -> Iterator[Problem]:
    """Pairs of the topology whose learner does not learn."""
    peers = {agent.name for agent in recipe.agents if not agent.trains}
    topology = recipe.exchange.topology
    for row, pair in enumerate(() if isinstance(topology, str) else topology):
        if pair[1] in peers:
            yield Problem(
                f"exchange.topology.{row}", f"agent {pair[1]!r} only responds: it learns from nobody"
            )


def source_problems(recipe: Recipe) -> Iterator[Problem]:
    """Sources that give the method too little: log-probs for its ratios, tokens for its scores."""
    method, heard = recipe.method, recipe.heard
    for position, agent in enumerate(recipe.agents):
        if agent.name not in heard or agent.trains:
            continue
        if method.needs_scores and not agent.has_model:
            yield Problem(
                f"agents.{position}.source",
                f"expected frozen or null with method {method.name}, which lets agents score each other's "
                f"responses, got {kind(agent)}",
            )
        elif method.needs_logps and not agent.has_logps:
            fix = "set source.logprobs: true, or " if isinstance(agent.source, EndpointSettings) else ""
            yield Problem(
                f"agents.{position}.source",
                f"method {method.name} takes ratios to the log-probs of a response under the agent that "
                f"wrote it, and {kind(agent)} has none: {fix}use a method that needs none, such as commons",
            )


def kind(agent: AgentSettings) -> str:
    """What the agent's responses come from, in a word."""
    if agent.source is None or agent.source == "frozen":
        return "frozen"
    return "url" if isinstance(agent.source, EndpointSettings) else "file"


def _without_effect(agent: AgentSettings) -> tuple[str, ...]:
    if agent.trains:
        return ()
    if agent.has_model:
        return TRAINING
    return TRAINING + MODEL + (() if kind(agent) == "url" else PROMPTING)
