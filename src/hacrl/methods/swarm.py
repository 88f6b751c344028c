"""Swarm sampling (Gensyn's SAPO, arXiv 2509.08721): groups drawn from all peers and treated as one's own."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor

from hacrl.algorithm import GrpoObjective
from hacrl.defaults import GRPO_CLIP_HIGH, GRPO_CLIP_LOW
from hacrl.methods.base import View
from hacrl.methods.common import GspoOnOwn, OwnPrompts, group_advantages, own_term, rng
from hacrl.recipe.fields import AtLeast0, Share
from hacrl.recipe.method import register
from hacrl.sharing import LossTerm


@register
class Swarm(GspoOnOwn, OwnPrompts):
    """Every agent responds to its own prompts and learns from some of its peers' groups.

    Not called SAPO here: TRL, verl and SkyRL use that name for Soft Adaptive Policy Optimization.
    """

    name: Literal["swarm"] = "swarm"
    """`swarm`."""
    external: Share = 1.0
    """Peers' groups per own group."""
    peer_clip_low: Share = GRPO_CLIP_LOW
    """Clip of the ratio of each token of peers' responses below 1."""
    peer_clip_high: AtLeast0 = GRPO_CLIP_HIGH
    """Clip of the ratio of each token of peers' responses above 1."""

    needs_logps: ClassVar[bool] = False
    needs_all_peers: ClassVar[str | None] = "draws among all peers' responses"

    def updates(self, mini_batches: int, agents: int, peers: int) -> int:
        """At most as many groups of peers as own ones, however many peers there are."""
        return mini_batches * (2 if peers else 1)

    def loss_terms(self, view: View) -> list[LossTerm]:
        """Own responses, then groups of peers: the ratio is to the learner's own policy before the step."""
        values = group_advantages(view)
        own = own_term(view, self.own_objective)
        peers = LossTerm(
            GrpoObjective(self.peer_clip_low, self.peer_clip_high),
            values,
            self.drawn(view, values),
            view.equal_weights,
            updates=view.mini_batches,
            scorer=view.learner,
            complete=True,
        )
        return [own, peers]

    def drawn(self, view: View, values: Tensor) -> Tensor:
        """[j, b, i]: the responses of the drawn groups, all of which have an advantage to learn from."""
        useful = (view.peers & (values != 0)).any(2)
        groups = sorted((view.table.agents[j], b, j) for j, b in useful.nonzero().tolist())
        wanted = round(self.external * int(view.own.any(2).sum()))
        chosen = torch.zeros_like(useful)
        for _, b, j in rng(view).sample(groups, min(wanted, len(groups))):
            chosen[j, b] = True
        return view.peers & chosen[:, :, None]
