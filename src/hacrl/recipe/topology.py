"""Who learns from whom: for every learner the names of the peers whose responses it receives."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from hacrl.recipe.problems import Problem, nearest
from hacrl.recipe.settings import ExchangeSettings

Topology = Mapping[str, tuple[str, ...]]
"""Learner -> the peers it learns from, sorted by name: the order of agents in a recipe never matters."""


def make_topology(
    exchange: ExchangeSettings, agents: Sequence[str], learners: Collection[str] | None = None
) -> Topology:
    """The peers of every agent; the settings have passed `topology_problems`.

    `learners` are the agents that train, by default all; the others have no peers.
    """
    kind = exchange.topology
    if kind == "everybody":
        pairs = {(source, learner) for source in agents for learner in agents if source != learner}
    elif kind == "nobody":
        pairs = set()
    elif kind == "ring":
        pairs = _ring(agents)
    elif kind == "star":
        others = [name for name in agents if name != exchange.hub]
        pairs = {pair for name in others for pair in ((str(exchange.hub), name), (name, str(exchange.hub)))}
    else:
        pairs = set(kind)
    if learners is not None:
        pairs = {(source, learner) for source, learner in pairs if learner in learners}
    return {
        learner: tuple(sorted(source for source, target in pairs if target == learner)) for learner in agents
    }


def _ring(agents: Sequence[str]) -> set[tuple[str, str]]:
    """Everyone learns from the agent before it in the order of names, the first from the last."""
    names = sorted(agents)
    return {(names[n - 1], name) for n, name in enumerate(names) if len(names) > 1}


def topology_problems(exchange: ExchangeSettings, names: Sequence[str]) -> Iterator[Problem]:
    """Hubs and pairs that do not match the agents."""
    topology, hub = exchange.topology, exchange.hub
    if topology == "star" and hub is None:
        yield Problem("exchange.hub", f"missing: a star needs one of the agents {list(names)} as its hub")
    if topology != "star" and hub is not None:
        yield Problem("exchange.hub", f"only a star has a hub, but exchange.topology is {topology!r}")
    elif hub is not None and hub not in names:
        yield Problem(
            "exchange.hub", f"expected one of the agents {list(names)}, got {hub!r}{nearest(hub, names)}"
        )
    if isinstance(topology, str):
        return
    seen: set[tuple[str, str]] = set()
    for row, pair in enumerate(topology):
        key = f"exchange.topology.{row}"
        for name in dict.fromkeys(pair):
            if name not in names:
                expected = f"expected two of the agents {list(names)}"
                yield Problem(key, f"{expected}, got {name!r}{nearest(name, names)}")
        if pair[0] == pair[1]:
            yield Problem(key, f"expected two different agents, got {pair[0]!r} twice")
        if pair in seen:
            yield Problem(key, f"the pair {list(pair)} is listed twice")
        seen.add(pair)
