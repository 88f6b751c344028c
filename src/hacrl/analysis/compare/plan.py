"""A comparison: one recipe per method, the seeds, and the directory of each run."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hacrl.analysis.compare.faults import NO_FAULTS, Faults
from hacrl.recipe import Recipe, RecipeError, load_recipe, parse_recipe, recipe_differences
from hacrl.recipe.settings import EvaluationSettings
from hacrl.runs.directory import RunDirectory
from hacrl.runs.files import make_directory, write_json

_UNEVALUATED = EvaluationSettings().model_dump(mode="json")
"""What keys of `evaluation` mean that an older version did not know."""
_LABEL = re.compile(r"[A-Za-z0-9][\w.-]{0,63}")


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """One method with one seed."""

    name: str
    """For display."""
    method: str
    seed: int
    recipe: Recipe
    directory: RunDirectory
    log: Path
    """The run's output."""
    faults: Faults = NO_FAULTS
    dtypes: Mapping[str, str] = field(default_factory=dict)
    """What agents with `dtype: auto` compute in, the same in all runs."""

    @property
    def work_per_step(self) -> int:
        """Rough cost of a step: responses drawn and responses trained on, per prompt."""
        samples = {agent.name: self.recipe.samples_of(agent.name) for agent in self.recipe.agents}
        received = sum(samples[peer] for peers in self.recipe.topology().values() for peer in peers)
        return 2 * sum(samples.values()) + received

    @property
    def finished(self) -> bool:
        """Whether the summary exists, which is written last."""
        return self.directory.summary.exists()

    @property
    def begun(self) -> bool:
        """Whether there is something to resume."""
        return self.directory.config.exists()


@dataclass(frozen=True, slots=True)
class Plan:
    """The same agents, data order and seeds under every method."""

    out: Path
    recipes: Mapping[str, Recipe]
    """By the method's label."""
    seeds: tuple[int, ...]
    name: str = ""
    """Distinguishes its runs from those of other plans."""
    faults: Mapping[str, Faults] = field(default_factory=dict)
    """By method; most have none."""
    bases: tuple[int, ...] = ()
    """Toy models that were made independently: the first seed has the first, and so on in turn."""

    def base(self, seed: int) -> int:
        """Which toy models a seed begins with; 0 are the usual ones."""
        return self.bases[self.seeds.index(seed) % len(self.bases)] if self.bases else 0

    def part(self, methods: Sequence[str], seeds: Sequence[int]) -> Plan:
        """Some of the methods, with the first of the seeds."""
        return replace(self, recipes={m: self.recipes[m] for m in methods}, seeds=tuple(seeds))

    def plain_settings(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Recipes and faults by method, as JSON has them."""
        recipes = {method: recipe.resolved() for method, recipe in self.recipes.items()}
        faults = {method: found.model_dump(mode="json") for method, found in self.faults.items()}
        return recipes, faults

    def run(self, method: str, seed: int) -> PlannedRun:
        """The run of a method with a seed."""
        return PlannedRun(
            name="/".join(filter(None, (self.name, method, f"seed_{seed}"))),
            method=method,
            seed=seed,
            recipe=_from_base(self.recipes[method], self.base(seed)).model_copy(update={"seed": seed}),
            directory=RunDirectory(self.out / "runs" / method / f"seed_{seed}"),
            log=self.out / "logs" / f"{method}-seed_{seed}.log",
            faults=self.faults.get(method, NO_FAULTS),
        )

    def runs(self) -> list[PlannedRun]:
        """All runs; the first seed of every method comes before the second of any."""
        return [self.run(method, seed) for seed in self.seeds for method in self.recipes]


def _from_base(recipe: Recipe, base: int) -> Recipe:
    """The recipe with other toy models of the same kind; models of other origin stay as they are."""
    if not base:
        return recipe
    agents = [
        agent.model_copy(update={"model": f"{agent.model}@{base}"})
        if agent.model.startswith("toy:")
        else agent
        for agent in recipe.agents
    ]
    return recipe.model_copy(update={"agents": tuple(agents)})


@dataclass(frozen=True, slots=True)
class Variant:
    """A method as a comparison runs it: its name in recipes, `KEY=VALUE` settings for it alone, faults."""

    name: str
    overrides: tuple[str, ...] = ()
    faults: Faults = NO_FAULTS

    def with_settings(self, settings: Mapping[str, Any]) -> Variant:
        """With further keys of the recipe."""
        return replace(self, overrides=self.overrides + as_overrides(settings))


def as_overrides(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """As `KEY=VALUE` on the command line (JSON is YAML); nested keys leave their siblings unchanged."""
    found: list[str] = []
    for key, value in settings.items():
        if isinstance(value, Mapping):
            found += as_overrides({f"{key}.{inner}": below for inner, below in value.items()})
        else:
            found.append(f"{key}={json.dumps(value)}")
    return tuple(found)


def make_plan(
    recipe: Path,
    overrides: Sequence[str],
    methods: Sequence[str],
    own_overrides: Sequence[str],
    seeds: Sequence[int],
    out: Path,
) -> Plan:
    """A plan from the command line's arguments; mistakes are reported before anything runs.

    A method is a name that recipes know, or `LABEL=NAME` to give it another label; `own_overrides` are
    `LABEL:KEY=VALUE` and change one method alone.
    """
    base = load_recipe(recipe, overrides)
    names = dict(_labelled(method) for method in methods)
    if len(names) < max(2, len(methods)):
        raise ValueError(f"--methods: expected two or more different ones, got {','.join(methods)}")
    own: dict[str, list[str]] = {label: [] for label in names}
    for override in own_overrides:
        label, colon, setting = override.partition(":")
        if not colon or label not in own:
            raise ValueError(f"--set {override}: expected METHOD:KEY=VALUE, METHOD one of {', '.join(own)}")
        own[label].append(setting)
    variants = {label: Variant(name, tuple(own[label])) for label, name in names.items()}
    return plan_of(base, variants, tuple(seeds), out, where=str(recipe))


def plan_of(
    base: Recipe,
    variants: Mapping[str, Variant],
    seeds: tuple[int, ...],
    out: Path,
    *,
    where: str,
    name: str = "",
    bases: tuple[int, ...] = (),
) -> Plan:
    """The recipe under every method; `where` is what error messages call the recipe."""
    recipes = {}
    for label, variant in variants.items():
        check_label(label)
        recipes[label] = _under_method(base, variant, f"{where} with method {label}")
        _check_comparable(base, recipes[label], label)
        if problems := list(variant.faults.problems(recipes[label])):
            raise RecipeError(f"{where} with method {label}", problems)
    faults = {label: variant.faults for label, variant in variants.items() if variant.faults}
    return Plan(out, recipes, seeds, name, faults, bases)


def _check_comparable(base: Recipe, recipe: Recipe, label: str) -> None:
    """Methods may have different settings, but agents, task and evaluation must be the same.

    Only `evaluation.before` may differ: agents start alike under every method, so one of them may measure it.
    """
    if recipe.exchange.pool is not None:
        raise ValueError(f"{label}: exchange.pool: the runs of a comparison would learn from each other")
    agents, own = (sorted((agent.name, agent.model) for agent in one.agents) for one in (base, recipe))
    for key, same in {
        "agents": agents == own,
        "task": base.task == recipe.task,
        "evaluation": base.evaluation
        == recipe.evaluation.model_copy(update={"before": base.evaluation.before}),
    }.items():
        if not same:
            raise ValueError(f"{label}: {key} must be the same for all methods")


def _labelled(method: str) -> tuple[str, str]:
    label, _, name = method.partition("=")
    return label, name or label


def check_label(label: str) -> None:
    """Reject labels that cannot name a directory."""
    if not _LABEL.fullmatch(label):
        raise ValueError(
            f"{label!r} cannot name a directory: a method's label has letters, digits, '_', '.' and '-'"
        )


def _under_method(base: Recipe, variant: Variant, where: str) -> Recipe:
    """The recipe with another method; settings of the recipe's own method apply to that method only."""
    name, overrides = variant.name, variant.overrides
    values = base.resolved()
    settings = {"name": name}
    if name.split("-")[0] == base.method.name:
        settings = {**values["method"], "name": name}
        settings.pop("without", None)
    values["method"] = settings
    alone = {**values, "exchange": values["exchange"] | {"topology": "everybody", "hub": None}}
    isolated = parse_recipe(alone, overrides, where)
    return parse_recipe(values, overrides, where) if isolated.method.shares else isolated


def write_plan(plan: Plan, commit: str | None) -> list[str]:
    """Write the settings to `comparison.json`; those of an earlier call must be the same.

    Methods and seeds may be added. Returns the commits that runs of this comparison were made with.
    """
    path = plan.out / "comparison.json"
    earlier: dict[str, Any] = {"recipes": {}, "faults": {}, "commits": []}
    if path.exists():
        earlier |= json.loads(path.read_text())
    recipes, faults = plan.plain_settings()
    refuse_other_settings(plan.out, earlier, recipes, faults)
    commits = list(earlier["commits"])
    if commit and commit not in commits and not all(run.finished for run in plan.runs()):
        commits.append(commit)
    make_directory(plan.out)
    content = {
        "recipes": {**earlier["recipes"], **recipes},
        "faults": {**earlier["faults"], **faults},
        "commits": commits,
    }
    write_json(path, content)
    return commits


def forget_settings(plan: Plan, method: str) -> None:
    """Drop a method from `comparison.json`, to run it again with any settings."""
    path = plan.out / "comparison.json"
    if path.exists():
        content = json.loads(path.read_text())
        for kept in (content["recipes"], content["faults"]):
            kept.pop(method, None)
        write_json(path, content)


def refuse_other_settings(
    where: Path, earlier: Mapping[str, Any], recipes: Mapping[str, Any], faults: Mapping[str, Any]
) -> None:
    """A method with earlier runs must keep its settings and faults."""
    problems = []
    for method in [method for method in earlier["recipes"] if method in recipes]:
        found = _differences(earlier["recipes"][method], recipes[method])
        before, now = earlier["faults"].get(method), faults.get(method)
        if before != now:
            found.append(f"faults: {before or 'none'} before, {now or 'none'} now")
        problems += [f"  {method}: {difference}" for difference in found]
    if problems:
        raise ValueError(
            f"{where} holds a comparison with other settings: use another --out, or the same settings\n"
            + "\n".join(problems)
        )


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """As for a resumed run, but evaluation and the number of steps must be the same too.

    Whether a method's runs are evaluated before the first step may differ: one method's are enough.
    """
    found = recipe_differences({**old, "seed": 0}, {**new, "seed": 0})
    before, after = ({**_UNEVALUATED, **recipe["evaluation"]} for recipe in (old, new))
    found += [
        f"evaluation.{key}: {before[key]!r} before, {after[key]!r} now"
        for key in after
        if key != "before" and before[key] != after[key]
    ]
    if old["steps"] != new["steps"] and not any(line.startswith("steps:") for line in found):
        found.append(f"steps: {old['steps']} before, {new['steps']} now")
    return found
