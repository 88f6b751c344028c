"""The methods a recipe can name, each with the settings it has and no others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag

from hacrl.recipe.method_section import MethodSettings, Share
from hacrl.recipe.problems import Contradiction, Problem, nearest, shown
from hacrl.recipe.published import (
    FtisSettings,
    GraftSettings,
    LuffySettings,
    OneWaySettings,
    SgtSettings,
    SwarmSettings,
    XgrpoSettings,
)
from hacrl.recipe.settings import Above0, AtLeast0, Count, all_different, named

if TYPE_CHECKING:
    from hacrl.methods import Method

Mechanism = Literal["capability_baseline", "coefficient", "exponent", "stepwise", "clipping"]

ABLATION = "-no_"
"""`hacpo-no_exponent` is short for `{name: hacpo, without: [exponent]}`."""


class HacpoSettings(MethodSettings):
    """HACPO and its ablations."""

    name: Literal["hacpo"] = "hacpo"
    """`hacpo`."""
    delta: Share = 0.2
    """Peers' responses count while their ratio is in [1 - delta, 1] at the first update of a step ..."""
    delta_step: Share = 0.025
    """... and that lower bound rises by this much with every update."""
    alpha: Annotated[float, Field(ge=0, le=10)] = 1.0
    """Exponent of the importance weight of peers' responses."""
    without: Annotated[tuple[Mechanism, ...], Field(strict=False), AfterValidator(all_different)] = ()
    """Mechanisms taken away: `capability_baseline`, `coefficient`, `exponent`, `stepwise`, `clipping`."""


class HacpoControlSettings(MethodSettings):
    """Controls of HACPO: its peers without a gradient, or copies of oneself in their place."""

    name: Literal["hacpo_muted", "hacpo_copies"]
    """`hacpo_muted` (peers have no gradient, only updates) or `hacpo_copies` (copies as peers)."""
    delta: Share = 0.2
    """As for `hacpo`."""
    delta_step: Share = 0.025
    """As for `hacpo`."""
    alpha: Annotated[float, Field(ge=0, le=10)] = 1.0
    """As for `hacpo`."""

    @property
    def shares(self) -> bool:
        """Copies need no peers; muted peers are heard."""
        return self.name == "hacpo_muted"

    def rollout_factor(self, agents: int) -> int:
        """A copy's responses are drawn by the agent itself."""
        return agents if self.name == "hacpo_copies" else 1

    def updates(self, mini_batches: int, agents: int, peers: int) -> int:
        """As many as with peers."""
        return mini_batches * agents if self.name == "hacpo_copies" else mini_batches * (1 + peers)


class CommonsSettings(MethodSettings):
    """Division of labour: every agent answers prompts of its own, all learn from the verified answers."""

    name: Literal["commons"]
    """`commons`."""
    passes: Count = 4
    """Times a step's verified answers are imitated."""
    margin: Annotated[float, Field(ge=-1, le=1)] = 0.3
    """Lead in the share of right answers to a kind of prompt, from which on all of a peer's are imitated."""
    familiar: Share = 0.05
    """Else those that are no less likely than this share of the learner's own right answers to the kind."""

    def updates(self, mini_batches: int, agents: int, peers: int) -> int:
        """Own answers, then every pass over the pool; as many for a pool of few peers."""
        return mini_batches * (1 + (agents - 1) * self.passes)


class NaiveSettings(MethodSettings):
    """All shared, nothing corrected."""

    name: Literal["naive"]
    """`naive`."""


class AloneSettings(MethodSettings):
    """Every agent alone."""

    epochs: Count = 1
    """Passes over a step's responses."""

    @property
    def shares(self) -> bool:
        """Every agent is alone."""
        return False

    def updates(self, mini_batches: int, agents: int, peers: int) -> int:
        """Twice the rollouts are twice the mini-batches: the size of a mini-batch stays the same."""
        return mini_batches * self.rollout_factor(agents) * self.epochs


class GspoSettings(AloneSettings):
    """GSPO, every agent alone."""

    name: Literal["gspo", "gspo_x2"]
    """`gspo`, or `gspo_x2` with twice the rollouts."""


class GrpoSettings(AloneSettings):
    """GRPO, every agent alone; it clips the ratio of each token."""

    name: Literal["grpo"]
    """`grpo`."""
    clip_low: Share = 0.2
    """Clip of the ratio of each token below 1."""
    clip_high: AtLeast0 = 0.28
    """Clip of the ratio of each token above 1."""


class PpoSettings(AloneSettings):
    """PPO, every agent alone with a critic of its own; it clips the ratio of each token."""

    name: Literal["ppo"]
    """`ppo`: a second model per agent, its critic, has to fit into memory too."""
    clip_low: Share = 0.2
    """Clip of the ratio of each token below 1."""
    clip_high: AtLeast0 = 0.2
    """Clip of the ratio of each token above 1."""
    gamma: Share = 1.0
    """Discount of the reward per token."""
    lam: Share = 1.0
    """Lambda of the advantage estimate: 1 trusts the final reward only, 0 the critic's next value only."""
    value_clip: AtLeast0 = 0.5
    """How far one step moves the critic's values."""
    critic_learning_rate: Above0 | None = None
    """Of the critic; null takes ten times the agent's own."""


class OwnSuccessSettings(MethodSettings):
    """Controls: GSPO alone, and as many updates more on one's own successes as sharing makes on peers."""

    @property
    def shares(self) -> bool:
        """Every agent is alone."""
        return False

    def updates(self, mini_batches: int, agents: int, peers: int) -> int:
        """As many as a sharing method would make, times the rollouts."""
        return mini_batches * agents * self.rollout_factor(agents)


class ReplaySettings(OwnSuccessSettings):
    """Own successes again, with their advantage."""

    name: Literal["replay", "replay_x2"]
    """`replay`, or `replay_x2` with twice the rollouts."""


class PoolSettings(OwnSuccessSettings):
    """Own distinct successes, imitated as `commons` imitates everybody's."""

    name: Literal["pool", "pool_x2"]
    """`pool`, or `pool_x2` with twice the rollouts."""
    passes: Count = 4
    """Times a step's verified answers are imitated."""

    def updates(self, mini_batches: int, agents: int, peers: int) -> int:
        """As many as `commons` makes, times the rollouts."""
        return mini_batches * (1 + (agents - 1) * self.passes) * self.rollout_factor(agents)


_SECTIONS = (
    HacpoSettings,
    HacpoControlSettings,
    CommonsSettings,
    NaiveSettings,
    FtisSettings,
    XgrpoSettings,
    SgtSettings,
    SwarmSettings,
    LuffySettings,
    GraftSettings,
    OneWaySettings,
    GspoSettings,
    GrpoSettings,
    PpoSettings,
    ReplaySettings,
    PoolSettings,
)
_SECTION: dict[str, type[MethodSettings]] = {
    name: section for section in _SECTIONS for name in get_args(section.model_fields["name"].annotation)
}
METHODS = tuple(_SECTION)
"""All names."""


def _full(value: object) -> object:
    """A method as a mapping with a known name; `hacpo-no_exponent` is taken apart."""
    key = "method" if isinstance(value, str) else "method.name"
    value = named(value)
    if not isinstance(value, Mapping):
        return value
    name = value.get("name", "hacpo")
    base, *removed = str(name).split(ABLATION)
    if base not in _SECTION or (removed and base != "hacpo"):
        expected = f"expected {', '.join(_SECTION)} or hacpo{ABLATION}MECHANISM"
        raise Contradiction([Problem(key, f"{expected}, got {shown(name)}{nearest(str(name), _SECTION)}")])
    without = value.get("without", ())
    if removed and isinstance(without, list | tuple):
        value = {**value, "without": (*without, *removed)}
    return {**value, "name": base}


def _tag(value: object) -> str | None:
    if isinstance(value, Mapping):
        return f"<{_SECTION[value['name']].__name__}>"
    return f"<{type(value).__name__}>" if isinstance(value, MethodSettings) else None


MethodChoice = Annotated[
    Annotated[HacpoSettings, Tag("<HacpoSettings>")]
    | Annotated[HacpoControlSettings, Tag("<HacpoControlSettings>")]
    | Annotated[CommonsSettings, Tag("<CommonsSettings>")]
    | Annotated[NaiveSettings, Tag("<NaiveSettings>")]
    | Annotated[FtisSettings, Tag("<FtisSettings>")]
    | Annotated[XgrpoSettings, Tag("<XgrpoSettings>")]
    | Annotated[SgtSettings, Tag("<SgtSettings>")]
    | Annotated[SwarmSettings, Tag("<SwarmSettings>")]
    | Annotated[LuffySettings, Tag("<LuffySettings>")]
    | Annotated[GraftSettings, Tag("<GraftSettings>")]
    | Annotated[OneWaySettings, Tag("<OneWaySettings>")]
    | Annotated[GspoSettings, Tag("<GspoSettings>")]
    | Annotated[GrpoSettings, Tag("<GrpoSettings>")]
    | Annotated[PpoSettings, Tag("<PpoSettings>")]
    | Annotated[ReplaySettings, Tag("<ReplaySettings>")]
    | Annotated[PoolSettings, Tag("<PoolSettings>")],
    Discriminator(_tag, "method", "Input should be the name of a method or a mapping with its settings"),
    BeforeValidator(_full),
]


def make_method(section: MethodSettings, agents: int) -> Method:
    """The method with the recipe's settings for so many agents. Imports torch."""
    from hacrl import methods
    from hacrl.algorithm import HacpoParams

    settings = section.settings()
    if section.name == "hacpo":
        without = settings.pop("without")
        return methods.hacpo(HacpoParams(**settings), without=without)
    if section.name == "hacpo_copies":
        return methods.hacpo_copies(agents, HacpoParams(**settings))
    if section.name == "hacpo_muted":
        return methods.hacpo_muted(HacpoParams(**settings))
    factory: Callable[..., Method] = getattr(methods, section.name)
    return factory(**settings)
