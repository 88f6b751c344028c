"""F-TIS: peers' answers under truncated importance sampling, far failures filtered out."""

from __future__ import annotations

from dataclasses import dataclass

from hacrl.algorithm import GspoObjective, TruncatedObjective
from hacrl.methods.base import View
from hacrl.methods.common import group_advantages
from hacrl.methods.divided import Divided
from hacrl.methods.gspo import own_term
from hacrl.sharing import LossTerm


@dataclass(frozen=True)
class Ftis(Divided):
    """Every agent answers its own prompts; whole groups are exchanged (arXiv 2605.22537, "vertical")."""

    own: GspoObjective
    shared: TruncatedObjective
    name: str = "ftis"

    def lessons(self, view: View) -> list[LossTerm]:
        """Own answers, then every peer's, compared with the peer's own group."""
        peers = LossTerm(self.shared, group_advantages(view), view.peers, view.equal_weights)
        return [own_term(view, self.own), peers]


def ftis(
    clip_low: float = 3e-4, clip_high: float = 4e-4, truncation: float = 2.0, kl_limit: float = 50.0
) -> Ftis:
    """Filtered truncated importance sampling."""
    return Ftis(GspoObjective(clip_low, clip_high), TruncatedObjective(truncation, kl_limit))
