"""Our reading of MOPD (arXiv 2606.30406): on-policy distillation from the best agent at each prompt."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal

import torch

from hacrl.algorithm import DistillationObjective
from hacrl.methods.base import View
from hacrl.methods.common import own_term, strongest
from hacrl.methods.opd import Taught
from hacrl.recipe.method import register
from hacrl.sharing import LossTerm


@register
class Mopd(Taught):
    """GSPO on own responses, then distillation on them from whoever is believed to be best at the prompt."""

    name: Literal["mopd"] = "mopd"
    """`mopd`: the agent that is probably best at a prompt scores own responses to it, token by token."""

    needs_scores: ClassVar[bool] = True
    needs_all_peers: ClassVar[str | None] = "lets the best agents judge, as they were before the step"

    @property
    def contextual(self) -> bool:
        """Teachers are chosen prompt by prompt."""
        return True

    def loss_terms(self, view: View) -> list[LossTerm]:
        """The second term is on the prompts that have a teacher; no reward enters it."""
        own, teachers = own_term(view, self.own_objective), self.teachers(view)
        if not teachers:
            return [own]
        taught = torch.tensor([prompt_id in teachers for prompt_id in view.table.prompt_ids])
        distilled = replace(
            own,
            objective=DistillationObjective(),
            advantages=torch.ones_like(own.advantages),
            mask=own.mask & taught[:, None],
            updates=view.peer_updates,
            scorer=teachers,
        )
        return [own, distilled]

    def teachers(self, view: View) -> dict[str, str]:
        """Prompt -> the source with the highest chance of success there, if that is above the learner's.

        Of equals the first by name. Where nothing is known about single prompts, the strongest agent teaches.
        """
        agents, prompt_ids = view.table.agents, view.table.prompt_ids
        if view.belief is None:
            best = strongest(view)
            return {} if best == view.k else dict.fromkeys(prompt_ids, agents[best])
        known = [j for j in range(len(agents)) if j == view.k or bool(view.table.mask[j].any())]
        order = sorted(known, key=lambda j: (j != view.k, agents[j]))  # the learner wins a tie
        best_at = view.belief.mean[order].argmax(0).tolist()
        return {
            prompt_id: agents[order[place]]
            for prompt_id, place in zip(prompt_ids, best_at, strict=True)
            if order[place] != view.k
        }
