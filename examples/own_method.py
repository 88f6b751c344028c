"""A custom method: imitate peers' right responses, with more weight on those the learner finds unlikely."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from hacrl.algorithm import GspoObjective, SourceData
from hacrl.methods import Method, View
from hacrl.methods.common import own_term
from hacrl.recipe.fields import AtLeast0
from hacrl.sharing import LossTerm
from hacrl.symptoms import Symptom


@dataclass(frozen=True)
class FocalObjective:
    """-(1 - p)^gamma * log p, with p the geometric mean of a response's token probabilities."""

    gamma: float

    def __call__(self, logps: Tensor, mask: Tensor, data: SourceData, update: int) -> Tensor:
        """Loss[s] of log-probs [s, t]."""
        mean = (logps * mask).sum(-1) / mask.sum(-1)
        return -data.advantage * (1 - mean.exp()).detach() ** self.gamma * mean


class Focal(Method):
    """GSPO on own responses, then a focal loss on the verified responses of peers."""

    gamma: AtLeast0 = 2.0
    """How strongly responses are down-weighted that the learner already finds likely."""

    symptoms: ClassVar[tuple[Symptom, ...]] = (
        Symptom("focal/likelihood", 0.9, "above", "it knows its peers' responses", "Lower method.gamma."),
    )

    def updates(self, mini_batches: int, agents: int, peers: int) -> int:
        """As many updates on peers' responses as on own ones."""
        return mini_batches * (2 if peers else 1)

    def loss_terms(self, view: View) -> list[LossTerm]:
        """Own responses first, then the peers'."""
        own, right = own_term(view, GspoObjective()), view.peers & view.verified
        focal, weights = FocalObjective(self.gamma), right.double()
        shared = LossTerm(focal, weights, right, view.equal_weights, updates=view.mini_batches, complete=True)
        return [own, shared]

    def metrics(self, view: View, terms: Sequence[LossTerm]) -> dict[str, float]:
        """How likely the learner finds the responses that it is about to imitate."""
        imitated = terms[1].mask
        found = {"focal/imitated": float(imitated.sum())}
        if imitated.any():
            found["focal/likelihood"] = float(view.likelihood(imitated).exp().nanmean())
        return found
