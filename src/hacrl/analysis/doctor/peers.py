"""Peers that have no model, which are not asked anything now; and servers of engines, which are."""

from __future__ import annotations

from hacrl.agents.backends.vllm_server import VllmServer
from hacrl.agents.errors import ServerAway
from hacrl.agents.json_client import read_key
from hacrl.agents.logged import LoggedPeer
from hacrl.recipe import AgentSettings, EndpointSettings, LoggedSettings, Recipe
from hacrl.tasks import Task
from hacrl.training.peers import other_prompts

SECONDS = 30.0
"""Longest wait for a server now; it computes checksums of its weights."""


def look_at_peer(recipe: Recipe, agent: AgentSettings, task: Task | None) -> str:
    """A line about the peer; a `ValueError` or `AgentError` says why it cannot take part."""
    if isinstance(agent.source, EndpointSettings):
        read_key(agent.name, agent.source)
        requests = recipe.prompts_per_step * recipe.samples_of(agent.name)
        tokens = requests * recipe.sampling.max_new_tokens
        return (
            f"Peer {agent.name}: {agent.model} at {agent.source.url}, at most {requests:,} requests and "
            f"{tokens:,} response tokens in a step; it was not asked anything now"
        )
    assert isinstance(agent.source, LoggedSettings), "a peer with a model is examined like an agent"
    peer = LoggedPeer(agent.name, agent.source)
    if task is None:
        return f"Peer {agent.name}: {agent.source.file}"
    known = sum(bool(peer.responses(prompt)) for prompt in task.train)
    if not known:
        raise ValueError(other_prompts(agent.source, task))
    share = f"{known:,} of {len(task.train):,} training prompts"
    return f"Peer {agent.name}: {agent.source.file} has responses to {share}"


def look_at_server(agent: AgentSettings) -> str | None:
    """What could not be checked about the agent's vLLM server; an `AgentError` says why it will not do."""
    assert agent.engine is not None
    settings = agent.engine.model_copy(update={"retries": 0, "timeout_seconds": SECONDS})
    try:
        VllmServer(agent.name, settings, trains=agent.trains).close()
    except ServerAway as error:
        return f"not checked: {error}"
    return None
