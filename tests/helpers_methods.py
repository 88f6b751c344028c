"""A step small enough to follow by hand, as one learner sees it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch

from hacrl.algorithm import Belief
from hacrl.methods import View
from hacrl.sharing import arrange
from helpers_sharing import trajectory

ANSWERS = {
    "a": {"p0": [("7", 1.0), ("8", 0.0), ("7", 1.0), ("+7", 1.0)], "p1": [("x", 0.0)] * 4},
    "b": {"p0": [("7", 1.0)] + [("9", 0.0)] * 3, "p1": [("5", 1.0), ("6", 0.0), ("6", 0.0), ("6", 0.0)]},
}
"""Agent -> prompt -> answers with their rewards. Agent a never solves p1, b does once."""


def view(
    learner: str = "a",
    agents: str = "ab",
    answers: dict[str, dict[str, list[tuple[str, float]]]] = ANSWERS,
    prompts: Sequence[str] = ("p0", "p1"),
    likely: Mapping[str, float] | None = None,
    chances: Mapping[str, float] | None = None,
) -> View:
    """What the learner knows; agent b is twice as good as a, whatever the answers say.

    `likely` has the learner's mean log-prob of texts it does not find as likely as any (0), `chances` what it
    believes about every agent's success, give or take 0.1.
    """
    step = [
        trajectory(agent, prompt, i, text=text, reward=reward)
        for agent in agents
        for prompt, given in answers[agent].items()
        for i, (text, reward) in enumerate(given)
    ]
    worth = torch.tensor([{"a": 1.0, "b": 2.0}.get(agent, 1.0) for agent in agents], dtype=torch.float64)
    table = arrange(1, step, list(agents), prompts)

    def likelihood(chosen: torch.Tensor) -> torch.Tensor:
        found = torch.full(chosen.shape, math.nan, dtype=torch.float64)
        for j, b, i in chosen.nonzero().tolist():
            found[j, b, i] = (likely or {}).get(table.samples[j][b][i].text, 0.0)
        return found

    belief = None
    if chances is not None:
        mean = torch.tensor([chances[agent] for agent in agents], dtype=torch.float64)
        belief = Belief(mean[:, None].expand(-1, len(prompts)), torch.full((len(agents), len(prompts)), 0.01))
    return View(
        learner,
        table,
        worth[:, None] / worth[None, :],
        reward_max=1.0,
        mini_batches=2,
        likelihood=likelihood,
        belief=belief,
    )


def texts(view: View, chosen: torch.Tensor) -> list[tuple[str, str, str]]:
    """(agent, prompt, text) of the chosen answers."""
    samples = [view.table.samples[j][b][i] for j, b, i in chosen.nonzero().tolist()]
    return sorted((t.source, t.prompt_id, t.text) for t in samples)
