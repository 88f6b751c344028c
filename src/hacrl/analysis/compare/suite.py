"""A plan of experiments from one YAML file: methods, settings, seeds, claims."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, Field, JsonValue, TypeAdapter, ValidationError

from hacrl.analysis.compare.faults import NO_FAULTS, Faults
from hacrl.analysis.compare.plan import Plan, Variant, as_overrides, check_label, plan_of
from hacrl.recipe import Recipe, RecipeError, parse_recipe
from hacrl.recipe.fields import AtLeast0, Settings, Text, all_different, not_empty
from hacrl.recipe.problems import Problem, nearest, shown
from hacrl.recipe.reading import read_mapping
from hacrl.training.evaluation import Measure

Form = TypeVar("Form")

TUNED = ".tuned.yaml"
"""How the file with the tuned values ends, beside the plan and with its name."""

BEFORE = "before"
"""In the README's table: the agents before training."""

Changes = dict[Text, JsonValue]
"""Keys of a recipe, dotted or nested, and their values."""
Seeds = Annotated[
    tuple[Annotated[int, Field(ge=0)], ...],
    Field(strict=False),
    AfterValidator(all_different),
    AfterValidator(not_empty),
]
Labels = Annotated[tuple[Text, ...], Field(strict=False), AfterValidator(all_different)]
MethodChoice = None | Text | Changes
"""Nothing: the method of that name; a method's name; or recipe keys, and `faults`."""


def _two_or_more(seeds: tuple[int, ...]) -> tuple[int, ...]:
    if len(seeds) < 2:
        raise ValueError("expected two or more: one seed cannot tell a difference from chance")
    return seeds


class Setting(Settings):
    """A recipe and the methods that run on it."""

    recipe: Text
    """A recipe in the plan's directory. The plan's `common` keys are its defaults."""
    methods: Labels | None = None
    """Labels of the plan's methods; null: all."""
    controls: dict[Text, MethodChoice] = Field(default_factory=dict)
    """Further methods, for this setting only."""
    changes: Changes = Field(default_factory=dict)
    """Of the recipe, for all methods."""
    faults: Faults = NO_FAULTS
    """Agents that misreport their rewards, under every method that has no `faults` of its own."""


class Claim(Settings):
    """A claim that a method is better than another, or than each of several."""

    text: Text
    better: Text
    worse: Text | Labels
    """A method, or several: the claim is about the best of them."""
    equal: Annotated[tuple[Literal["rollouts", "updates", "trained_tokens"], ...], Field(strict=False)] = ()
    """Of several, only those count that cost as much as `better`, within 10%."""
    measure: Measure = "greedy"
    margin: AtLeast0 = 0.0
    """How much worse the better one may be: 0.01 means "at most a point worse"."""
    settings: Labels | None = None
    """null: all."""
    agents: Literal["mean", "each"] = "mean"
    """`each`: about every single agent instead of their mean."""

    @property
    def rivals(self) -> tuple[str, ...]:
        """The methods that it compares with."""
        return (self.worse,) if isinstance(self.worse, str) else self.worse


class Tuning(Settings):
    """Sweeps over methods' settings, before anything is reported."""

    seeds: Seeds
    changes: Changes = Field(default_factory=dict)
    """Changes to every recipe, so that tuning uses other test prompts: `task.seed: 1`."""
    settings: Labels = ()
    """Tune on these, and use the best on average everywhere; none: tune every setting for itself."""
    sweeps: dict[Text, dict[Text, Annotated[tuple[JsonValue, ...], Field(strict=False)]]]
    """Method -> key -> values. Keys are tuned one after another, beginning with the first value of each."""

    def trials(self, method: str) -> int:
        """How many different combinations are run for a method."""
        return 1 + sum(len(values) - 1 for values in self.sweeps[method].values())


class Readme(Settings):
    """The table for the README. What it needs is run first."""

    settings: Labels
    rows: dict[Text, Text | Labels]
    """What a row is called -> the label of its method, `before` (training), or several labels: the best."""

    @property
    def labels(self) -> set[str]:
        """The methods in its rows."""
        rows = self.rows.values()
        return {label for row in rows for label in ((row,) if isinstance(row, str) else row)}


class SuiteFile(Settings):
    """The plan's YAML file."""

    title: Text = "Results"
    about: Text | None = None
    """Text below the page's title."""
    seeds: Annotated[Seeds, AfterValidator(_two_or_more)]
    bases: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(strict=False)] = ()
    """Independently made sets of toy models, for the seeds in turn; none: the usual ones for all seeds."""
    references: Annotated[Labels, AfterValidator(not_empty)]
    common: Changes = Field(default_factory=dict)
    methods: dict[Text, MethodChoice]
    settings: dict[Text, Setting]
    claims: Annotated[tuple[Claim, ...], Field(strict=False)] = ()
    tuning: Tuning | None = None
    readme: Readme | None = None


@dataclass(frozen=True, slots=True)
class Suite:
    """A plan that was read and checked."""

    path: Path
    file: SuiteFile
    tuned: Mapping[str, Mapping[str, Changes]]
    """Setting -> method -> tuned values."""

    @property
    def tuned_path(self) -> Path:
        """The file with the tuned values."""
        return self.path.with_suffix(TUNED)

    def variants(self, setting: str) -> dict[str, Variant]:
        """The methods of a setting, without tuned values."""
        own = self.file.settings[setting]
        labels = self.file.methods if own.methods is None else own.methods
        chosen = {label: self.file.methods[label] for label in labels} | own.controls
        return {
            label: _variant(label, choice, own.faults, f"{self.path}, {setting} with method {label}")
            for label, choice in chosen.items()
        }

    def recipe(self, setting: str, changes: Changes | None = None) -> Recipe:
        """The recipe that a setting's methods share."""
        path = self.path.parent / self.file.settings[setting].recipe
        values = _merged(self.file.common, read_mapping(path))
        changes = self.file.settings[setting].changes | (changes or {})
        return parse_recipe(values, as_overrides(changes), str(path))

    def plan(self, setting: str, out: Path) -> Plan:
        """The comparison of a setting."""
        tuned = self.tuned.get(setting, {})
        variants = {
            label: variant.with_settings(tuned.get(label, {}))
            for label, variant in self.variants(setting).items()
        }
        plan = plan_of(
            self.recipe(setting),
            variants,
            self.file.seeds,
            out / setting,
            where=f"{self.path}, {setting}",
            name=setting,
            bases=self.file.bases,
        )
        return replace(plan, recipes=_measured_before_once(plan.recipes))

    def references(self, setting: str) -> tuple[str, ...]:
        """Those that take part in a setting."""
        taking_part = self.variants(setting)
        return tuple(label for label in self.file.references if label in taking_part)


def edges(tuning: Tuning, chosen: Mapping[str, Mapping[str, Changes]]) -> Iterator[str]:
    """What was chosen at the edge of three or more numbers: a better value may lie beyond."""
    seen = dict.fromkeys(
        (method, key, str(value))
        for methods in chosen.values()
        for method, values in methods.items()
        for key, value in values.items()
        if _at_edge(value, tuning.sweeps.get(method, {}).get(key, ()))
    )
    for method, key, value in seen:
        yield f"{method}: {key} {value} is at the edge of the values tried"


def _at_edge(value: object, tried: Sequence[object]) -> bool:
    numbers = [one for one in tried if isinstance(one, int | float) and not isinstance(one, bool)]
    return len(numbers) > 2 and len(numbers) == len(tried) and value in (min(numbers), max(numbers))


def load_suite(path: Path) -> Suite:
    """Read a plan and the tuned values beside it; all mistakes are reported at once."""
    file = _checked(TypeAdapter(SuiteFile), read_mapping(path), str(path))
    problems = list(_unknown_names(file))
    if problems:
        raise RecipeError(str(path), problems)
    beside = path.with_suffix(TUNED)
    form = TypeAdapter(dict[str, dict[str, Changes]])
    tuned = _checked(form, read_mapping(beside), str(beside)) if beside.exists() else {}
    suite = Suite(path, file, tuned)
    for setting in file.settings:
        suite.plan(setting, Path())  # builds every recipe: mistakes are reported before any run
    return suite


def _checked(form: TypeAdapter[Form], values: Any, where: str, key: tuple[str, ...] = ()) -> Form:
    try:
        return form.validate_python(values)
    except ValidationError as error:
        raise RecipeError(where, [_problem(details, key) for details in error.errors()]) from None


def _problem(details: Any, below: tuple[str, ...]) -> Problem:
    key = ".".join(str(part) for part in (*below, *details["loc"]))
    if details["type"] == "extra_forbidden":
        sections = (SuiteFile, Setting, Faults, Claim, Tuning, Readme)
        known = {name for section in sections for name in section.model_fields}
        return Problem(key, f"unknown key{nearest(str(details['loc'][-1]), known)}")
    return Problem(key, f"{details['msg']}, got {shown(details['input'])}")


def _unknown_names(file: SuiteFile) -> Iterator[Problem]:
    """Unknown labels and settings, and seeds that are both tuned on and reported."""
    controls = {label for setting in file.settings.values() for label in setting.controls}
    for name, setting in file.settings.items():
        check_label(name)
        yield from _missing(f"settings.{name}.methods", setting.methods or (), file.methods)
        both = [label for label in setting.controls if label in file.methods]
        yield from (
            Problem(f"settings.{name}.controls.{label}", "the plan has a method of that name")
            for label in both
        )
    yield from _missing("references", file.references, file.methods)
    for row, claim in enumerate(file.claims):
        yield from _missing(f"claims.{row}", (claim.better, *claim.rivals), {*file.methods, *controls})
        yield from _missing(f"claims.{row}.settings", claim.settings or (), file.settings)
    if file.readme:
        yield from _missing("readme.settings", file.readme.settings, file.settings)
        yield from _missing("readme.rows", sorted(file.readme.labels), (*file.methods, BEFORE))
    if file.tuning:
        yield from _missing("tuning.sweeps", file.tuning.sweeps, {*file.methods, *controls})
        yield from _missing("tuning.settings", file.tuning.settings, file.settings)
        trials = {method: file.tuning.trials(method) for method in file.tuning.sweeps}
        if len(set(trials.values())) > 1:
            counts = ", ".join(f"{method} has {count}" for method, count in trials.items())
            yield Problem("tuning.sweeps", f"expected as many trials for every method, but {counts}")
        for seed in set(file.seeds) & set(file.tuning.seeds):
            yield Problem("tuning.seeds", f"{seed} is a reported seed: tuning needs others")


def _missing(key: str, names: Iterable[str], known: Iterable[str]) -> Iterator[Problem]:
    known = list(known)
    for name in names:
        if name not in known:
            yield Problem(key, f"expected one of {', '.join(known)}, got {name!r}{nearest(name, known)}")


def _variant(label: str, choice: MethodChoice, faults: Faults, where: str) -> Variant:
    settings = dict(choice) if isinstance(choice, dict) else {"method": choice or label}
    method = settings.pop("method", label)
    if "faults" in settings:
        faults = _checked(TypeAdapter(Faults), settings.pop("faults"), where, ("faults",))
    own = dict(method) if isinstance(method, dict) else {"name": method}
    variant = Variant(str(own.pop("name", label)), faults=faults)
    return variant.with_settings({f"method.{key}": value for key, value in own.items()}).with_settings(
        settings
    )


def _measured_before_once(recipes: Mapping[str, Recipe]) -> dict[str, Recipe]:
    """Agents are the same under every method before the first step: the first method's runs measure them."""
    first, *others = recipes
    unmeasured = {label: recipes[label].evaluation.model_copy(update={"before": False}) for label in others}
    return {first: recipes[first]} | {
        label: recipes[label].model_copy(update={"evaluation": evaluation})
        for label, evaluation in unmeasured.items()
    }


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Nested mappings laid over each other."""
    merged = dict(below)
    for key, value in above.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = _merged(merged[key], value) if both else value
    return merged
