"""SAPO: groups drawn from everybody's pool and treated as one's own."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hacrl.algorithm import GrpoObjective, GspoObjective
from hacrl.methods.base import View
from hacrl.methods.common import group_advantages, rng
from hacrl.methods.divided import Divided
from hacrl.methods.gspo import own_term
from hacrl.sharing import LossTerm


@dataclass(frozen=True)
class Swarm(Divided):
    """Every agent answers its own prompts and learns from some of its peers' groups (arXiv 2509.08721)."""

    own: GspoObjective
    shared: GrpoObjective
    external: float
    """Peers' groups per own group."""
    name: str = "swarm"

    def lessons(self, view: View) -> list[LossTerm]:
        """Own answers, then groups of peers: the ratio is to the learner's own policy before the step."""
        values = group_advantages(view)
        own = own_term(view, self.own)
        peers = LossTerm(
            self.shared,
            values,
            self.drawn(view, values),
            view.equal_weights,
            updates=view.mini_batches,
            scorer=view.learner,
            complete=True,
        )
        return [own, peers]

    def drawn(self, view: View, values: Tensor) -> Tensor:
        """[j, b, i]: the answers of the drawn groups, all of which teach something."""
        teaching = (view.peers & (values != 0)).any(2)
        groups = sorted((view.table.agents[j], b, j) for j, b in teaching.nonzero().tolist())
        wanted = round(self.external * int(view.own.any(2).sum()))
        chosen = torch.zeros_like(teaching)
        for _, b, j in rng(view).sample(groups, min(wanted, len(groups))):
            chosen[j, b] = True
        return view.peers & chosen[:, :, None]


def swarm(
    clip_low: float = 3e-4,
    clip_high: float = 4e-4,
    external: float = 1.0,
    peer_clip_low: float = 0.2,
    peer_clip_high: float = 0.28,
) -> Swarm:
    """Swarm sampling: as many groups of peers as own ones."""
    return Swarm(
        GspoObjective(clip_low, clip_high), GrpoObjective(peer_clip_low, peer_clip_high), external=external
    )
