"""HACPO (arXiv 2603.02604) and its ablations: everybody learns from everybody's responses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import torch
from pydantic import AfterValidator, Field
from torch import Tensor

from hacrl.algorithm import HacpoObjective, HacpoParams, Objective, advantages, window_lower
from hacrl.algorithm.ratio import LOG_RATIO_BOUND
from hacrl.methods.base import View
from hacrl.methods.common import GspoOnOwn, UsesOmega
from hacrl.recipe.fields import Share, all_different
from hacrl.recipe.method import register
from hacrl.recipe.problems import Problem
from hacrl.sharing import LossTerm
from hacrl.symptoms import COMMON, Symptom, advised

if TYPE_CHECKING:
    from hacrl.recipe import Recipe

Mechanism = Literal["capability_baseline", "coefficient", "exponent", "stepwise", "clipping"]
"""What can be taken away from HACPO, one at a time or together."""
REMOVED = "no_"
"""`hacpo-no_exponent` is short for `{name: hacpo, without: [exponent]}`."""
PAPER = HacpoParams()

JOINT_SYMPTOMS = (
    Symptom(
        "baseline_bias",
        0.05,
        "above",
        "the baseline is off by {value:.3f} on average over all prompts",
        "Agents of unequal strength need baselines of their own: use gspo or commons, or hacpo, which scales "
        "rewards by omega.",
        either_sign=True,
    ),
    Symptom(
        "baseline_bias_of_kind",
        0.1,
        "above",
        "the baseline is off by {value:.3f} on prompts of this kind",
        "The agents' relative strength depends on the kind: train on kinds in which it is alike, or "
        "use a method with the own group's mean (gspo, commons).",
        either_sign=True,
    ),
    Symptom(
        "baseline_error",
        1.1,
        "above",
        "the baseline's error for one prompt is {value:.2f} times that of the own group's mean",
        "A baseline from the learner's own responses alone would be better (gspo, commons).",
    ),
    Symptom(
        "expected_gradient",
        0.05,
        "above",
        "the expected gradient is further from the true one than that of own responses alone, "
        "by {value:.2f} in cosine",
        "Compare with gspo before trusting the method at this distance between the agents.",
    ),
)
"""Symptoms of a baseline from everybody's rewards."""

HACPO_SYMPTOMS = (
    Symptom(
        "inside",
        0.05,
        "below",
        "only {value:.1%} of the source's responses had a ratio inside the window",
        "The others give no gradient. A larger method.delta or a smaller method.delta_step opens the window, "
        "fewer updates.mini_batches keep it open longer. Agents that are very different may gain little "
        "from each other.",
    ),
    *advised(
        (*COMMON, *JOINT_SYMPTOMS),
        {
            "accuracy": "Easier prompts, more samples_per_prompt, or a stronger peer inside its window (a "
            "larger method.delta) can give it a first success.",
            "zero_gradient": "Outside the window: raise method.delta or lower method.delta_step. Without an "
            "advantage: change the task's difficulty or raise samples_per_prompt.",
            "ess_ratio": "The weights are very unequal: lower method.alpha or method.delta.",
            "weight/largest": "Lower the upper bound of capability.clamp; a lone right response among very "
            "many weighs a lot, too.",
            "noise": "Too few of its responses count: raise method.delta, prompts_per_step or "
            "samples_per_prompt.",
            "cosine": "Lower method.delta, or leave the pair out of exchange.topology.",
            "cosine_wrong": "Pushing them down works against the learner's own gradient: lower method.delta, "
            "so that only responses count that the learner might have sampled itself.",
            "baseline_bias": "Omega lags behind or is clamped: shorten capability.window, widen "
            "capability.clamp.",
            "baseline_error": "A baseline from the learner's own responses alone would be better (gspo, "
            "commons); hacpo-no_capability_baseline helps only if the plain mean's error is smaller.",
            "expected_gradient": "Lower method.delta; compare with gspo before trusting the method at this "
            "distance.",
        },
    ),
)
"""Symptoms under HACPO, with advice on its own settings."""


class JointGroup(GspoOnOwn):
    """Methods with one group of all agents' responses under one objective, own ones first."""

    symptoms: ClassVar[tuple[Symptom, ...]] = JOINT_SYMPTOMS

    @property
    def objective(self) -> Objective:
        """The loss of every response: GSPO's, unless a method has its own."""
        return self.own_objective

    def advantages(
        self, rewards: Tensor, omega: Tensor, *, reward_max: float = 1.0, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """`rewards[j, b, i]` -> `(advantages[k, j, b, i], baseline[k, b])`: plain mean and spread."""
        return advantages(rewards, torch.ones_like(omega), reward_max=reward_max, mask=mask)

    def coefficients(self, omega: Tensor) -> Tensor:
        """`[k, j]`: the weight of source j's responses in learner k's update; `[k, j, b]` if omega has b."""
        return torch.ones_like(omega)

    def loss_terms(self, view: View) -> list[LossTerm]:
        """One term on everything the learner received."""
        values, _ = self._compared(view)
        coefficients = self.coefficients(self.omega(view))[view.k]
        return [LossTerm(self.objective, values[view.k], view.table.mask, coefficients)]

    def baseline(self, view: View) -> Tensor:
        """[b] from everybody's rewards."""
        return self._compared(view)[1][view.k]

    def _compared(self, view: View) -> tuple[Tensor, Tensor]:
        table = view.table
        return self.advantages(table.rewards, self.omega(view), reward_max=view.reward_max, mask=table.mask)

    def omega(self, view: View) -> Tensor:
        """[k, j] or [k, j, b]: how capable the agents are, relative to each other."""
        return view.omega


class HacpoSettings(JointGroup, UsesOmega):
    """The settings that HACPO and its controls have in common; its first two mechanisms."""

    delta: Share = PAPER.delta
    """Peers' responses count while their ratio is in [1 - delta, 1] at the first update of a step ..."""
    delta_step: Share = PAPER.delta_step
    """... and that lower bound rises by this much with every update."""
    alpha: Annotated[float, Field(ge=0, le=10)] = PAPER.alpha
    """Exponent of the importance weight of peers' responses."""
    log_ratio_cap: Annotated[float, Field(gt=0, le=LOG_RATIO_BOUND)] | None = None
    """Log-ratios are cut at plus and minus this, and have no gradient beyond; null: 20, against overflow."""

    @property
    def params(self) -> HacpoParams:
        """As the loss takes them."""
        return HacpoParams(
            self.clip_low,
            self.clip_high,
            self.delta,
            self.delta_step,
            self.alpha,
            log_ratio_cap=self.log_ratio_cap or LOG_RATIO_BOUND,
        )

    @property
    def objective(self) -> HacpoObjective:
        """Mechanisms 3 and 4 are in the loss."""
        return HacpoObjective(self.params)

    def advantages(
        self, rewards: Tensor, omega: Tensor, *, reward_max: float = 1.0, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Mechanism 1: peers' rewards are scaled by omega in the baseline."""
        return advantages(rewards, omega, reward_max=reward_max, mask=mask)

    def coefficients(self, omega: Tensor) -> Tensor:
        """Mechanism 2: omega[j, k], a peer's capability over the learner's."""
        return omega.transpose(0, 1)

    def windows(self, recipe: Recipe, agent: str) -> tuple[float, ...]:
        """Lower bound of the window at each update on peers' responses; empty if there is no window.

        Own responses come first, and each update on them narrows the window as well.
        """
        if not self.params.window:
            return ()
        updates = range(recipe.updates.mini_batches, recipe.updates_per_step(agent))
        return tuple(window_lower(update, self.params) for update in updates)


@register
class Hacpo(HacpoSettings):
    """GSPO on own responses; peers' responses inside a window that narrows with every update."""

    name: Literal["hacpo"] = "hacpo"
    """`hacpo`."""
    capability: Literal["overall", "contextual"] = "overall"
    """`overall`: one number per agent, the paper's. `contextual`: it depends on the prompt."""
    without: Annotated[tuple[Mechanism, ...], Field(strict=False), AfterValidator(all_different)] = ()
    """Mechanisms taken away: `capability_baseline`, `coefficient`, `exponent`, `stepwise`, `clipping`."""

    symptoms: ClassVar[tuple[Symptom, ...]] = (*JOINT_SYMPTOMS, *HACPO_SYMPTOMS)
    shown: ClassVar[Mapping[str, tuple[str, str]]] = {
        "peers inside window": ("inside", ".0%"),
        **UsesOmega.shown,
    }

    @property
    def contextual(self) -> bool:
        """Whether omega depends on the prompt."""
        return self.capability == "contextual"

    def omega(self, view: View) -> Tensor:
        """The paper's [k, j], or [k, j, b]; the former as long as the latter is not known."""
        return view.omega if view.prompt_omega is None else view.prompt_omega

    @property
    def label(self) -> str:
        """`hacpo`, with what was taken away."""
        return "-".join((self.name, *(f"{REMOVED}{mechanism}" for mechanism in self.without)))

    @property
    def params(self) -> HacpoParams:
        """Three of the mechanisms are switched off by the loss's own settings."""
        return HacpoParams(
            self.clip_low,
            self.clip_high,
            self.delta,
            delta_step=0.0 if "stepwise" in self.without else self.delta_step,
            alpha=0.0 if "exponent" in self.without else self.alpha,
            window="clipping" not in self.without,
            log_ratio_cap=self.log_ratio_cap or LOG_RATIO_BOUND,
        )

    def advantages(
        self, rewards: Tensor, omega: Tensor, *, reward_max: float = 1.0, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Mechanism 1, unless it is taken away."""
        scale = torch.ones_like(omega) if "capability_baseline" in self.without else omega
        return advantages(rewards, scale, reward_max=reward_max, mask=mask)

    def coefficients(self, omega: Tensor) -> Tensor:
        """Mechanism 2, unless it is taken away."""
        return torch.ones_like(omega) if "coefficient" in self.without else omega.transpose(0, 1)

    @classmethod
    def variant(cls, suffixes: Sequence[str], settings: Mapping[str, Any]) -> Mapping[str, Any]:
        """`hacpo-no_exponent-no_stepwise` -> `{without: [exponent, stepwise]}`."""
        odd = [suffix for suffix in suffixes if not suffix.startswith(REMOVED)]
        if odd:
            raise ValueError(f"expected hacpo-{REMOVED}MECHANISM, not {odd[0]!r}")
        given = settings.get("without", ())
        if not isinstance(given, list | tuple):
            return {}
        return {"without": (*given, *(suffix.removeprefix(REMOVED) for suffix in suffixes))}

    def columns(self, recipe: Recipe, agent: str) -> Mapping[str, str]:
        """The window, update by update."""
        bounds = " ".join(f"{lower:.3g}" for lower in self.windows(recipe, agent))
        return {"window": bounds or "-"}

    def advice(self, recipe: Recipe) -> Iterator[Problem]:
        """A closed window: the updates on peers' responses have no gradient."""
        trained = [agent.name for agent in recipe.agents if agent.trains]
        windows = {name: self.windows(recipe, name) for name in trained}
        closed = {name: sum(lower >= 1.0 for lower in lowers) for name, lowers in windows.items()}
        if any(closed.values()):
            name = max((name for name in closed if closed[name]), key=recipe.updates_per_step)
            updates = recipe.updates_per_step(name)
            yield Problem(
                "method.delta_step",
                f"the window of agent {name!r} is closed in the last {closed[name]} of a step's {updates} "
                f"updates, which learn nothing: set at most delta / {updates} = {self.delta / updates:.3g}, "
                "or fewer updates.mini_batches",
            )
        several = any(lowers and len(recipe.topology()[name]) > 1 for name, lowers in windows.items())
        if recipe.exchange.peer_order == "sequential" and several:
            yield Problem(
                "exchange.peer_order",
                "the last peer always meets the narrowest window: interleaved treats all peers alike",
            )
