"""The methods a recipe can name, each with the settings it has and no others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag

from hacrl.config.problems import Contradiction, Problem, nearest, shown
from hacrl.config.sections import AtLeast0, Section, all_different, named

if TYPE_CHECKING:
    from hacrl.algorithm import Method

MethodName = Literal["hacpo", "naive", "gspo", "gspo_x2", "grpo"]
Mechanism = Literal["capability_baseline", "coefficient", "exponent", "stepwise", "clipping"]
Share = Annotated[float, Field(ge=0, le=1)]

ABLATION = "-no_"
"""`hacpo-no_exponent` is short for `{name: hacpo, without: [exponent]}`."""


class MethodSection(Section):
    """What every method has."""

    name: MethodName

    def settings(self) -> dict[str, Any]:
        """Everything but the name."""
        return self.model_dump(exclude={"name"})

    @property
    def shares(self) -> bool:
        """Whether agents learn from their peers' responses."""
        return self.name in ("hacpo", "naive")

    @property
    def rollout_factor(self) -> int:
        """How many times the recipe's samples per prompt are drawn."""
        return 2 if self.name == "gspo_x2" else 1


class HacpoSection(MethodSection):
    """HACPO and its ablations."""

    name: Literal["hacpo"] = "hacpo"
    """`hacpo`."""
    delta: Share = 0.2
    """Peers' responses count while their ratio is in [1 - delta, 1] at the first update of a step ..."""
    delta_step: Share = 0.025
    """... and that lower bound rises by this much with every update."""
    alpha: Annotated[float, Field(ge=0, le=10)] = 1.0
    """Exponent of the importance weight of peers' responses."""
    clip_low: Share = 3e-4
    """Clip of the ratio of own responses below 1."""
    clip_high: AtLeast0 = 4e-4
    """Clip of the ratio of own responses above 1."""
    without: Annotated[tuple[Mechanism, ...], Field(strict=False), AfterValidator(all_different)] = ()
    """Mechanisms taken away: `capability_baseline`, `coefficient`, `exponent`, `stepwise`, `clipping`."""


class GspoSection(MethodSection):
    """GSPO: every agent alone, alone with twice the rollouts, or all together without any correction."""

    name: Literal["gspo", "gspo_x2", "naive"]
    """`gspo` (alone), `gspo_x2` (alone, twice the rollouts), `naive` (all shared, nothing corrected)."""
    clip_low: Share = 3e-4
    """Clip of the ratio below 1."""
    clip_high: AtLeast0 = 4e-4
    """Clip of the ratio above 1."""


class GrpoSection(MethodSection):
    """GRPO, every agent alone."""

    name: Literal["grpo"]
    """`grpo`."""
    clip_low: Share = 0.2
    """Clip of the ratio of each token below 1."""
    clip_high: AtLeast0 = 0.28
    """Clip of the ratio of each token above 1."""


_SECTION: dict[str, type[MethodSection]] = {
    "hacpo": HacpoSection,
    "naive": GspoSection,
    "gspo": GspoSection,
    "gspo_x2": GspoSection,
    "grpo": GrpoSection,
}


def _full(value: object) -> object:
    """A method as a mapping with a known name; `hacpo-no_exponent` is taken apart."""
    key = "method" if isinstance(value, str) else "method.name"
    value = named(value)
    if not isinstance(value, Mapping):
        return value
    name = value.get("name", "hacpo")
    base, *removed = str(name).split(ABLATION)
    if base not in _SECTION or (removed and base != "hacpo"):
        expected = (
            f"expected {', '.join(_SECTION)} or hacpo{ABLATION}MECHANISM ({', '.join(get_args(Mechanism))})"
        )
        raise Contradiction([Problem(key, f"{expected}, got {shown(name)}{nearest(str(name), _SECTION)}")])
    without = value.get("without", ())
    if removed and isinstance(without, list | tuple):
        value = {**value, "without": (*without, *removed)}
    return {**value, "name": base}


def _tag(value: object) -> str | None:
    if isinstance(value, Mapping):
        return f"<{_SECTION[value['name']].__name__}>"
    return f"<{type(value).__name__}>" if isinstance(value, MethodSection) else None


MethodChoice = Annotated[
    Annotated[HacpoSection, Tag("<HacpoSection>")]
    | Annotated[GspoSection, Tag("<GspoSection>")]
    | Annotated[GrpoSection, Tag("<GrpoSection>")],
    Discriminator(_tag, "method", "Input should be the name of a method or a mapping with its settings"),
    BeforeValidator(_full),
]


def make_method(section: MethodSection) -> Method:
    """The algorithm's method with the recipe's settings. Imports torch."""
    from hacrl import algorithm

    settings = section.settings()
    if section.name == "hacpo":
        without = settings.pop("without")
        return algorithm.hacpo(algorithm.HacpoParams(**settings), without=without)
    factories = {
        "naive": algorithm.naive,
        "gspo": algorithm.gspo,
        "gspo_x2": algorithm.gspo_x2,
        "grpo": algorithm.grpo,
    }
    return factories[section.name](**settings)
