"""The page of results: what was run, a summary, the claims, every setting. All of it is generated."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from hacrl.analysis.compare.claims import claims_section
from hacrl.analysis.compare.data import MadeWith
from hacrl.analysis.compare.outcomes import PRIMARY
from hacrl.analysis.compare.plan import Plan
from hacrl.analysis.compare.plots import forest, lines
from hacrl.analysis.compare.report import (
    DASH,
    READING,
    Section,
    cost_title,
    markdown_table,
    measure_title,
    report,
    sections,
    shown_cost,
)
from hacrl.analysis.compare.results import BUDGET, Experiment, Results, equal_budgets
from hacrl.analysis.compare.statistics import Estimate, Verdict
from hacrl.analysis.compare.suite import Suite, edges
from hacrl.training.evaluation import Measure

SHORT: dict[Verdict, str] = {"better": "better", "worse": "worse", "no difference seen": "?"}
LEGEND = (
    "The difference to the reference in accuracy, for the mean of the agents, paired by seed and problem. "
    "*better* and *worse*: the corrected interval lies above or below 0. *?*: it contains 0, no difference "
    "was seen. Within a setting all differences in a measure are corrected together: the chance of any wrong "
    "verdict among them is at most 5%. A dash: the method was not run there. *=*: rollouts, updates and "
    "trained tokens of both are within 10% of each other; *~*: rollouts and updates are, trained tokens "
    "are not. Without a sign the budgets differ; they are in the tables of each setting."
)
OTHER_MACHINES = ". CPU seconds of different machines are not comparable: compare updates and tokens"
BESIDE = (*BUDGET, "cpu_seconds")
"""Costs shown beside every result, per agent."""
PLOTTED = 8
"""Methods in a plot of learning curves, the first of the plan: more are hard to distinguish."""


@dataclass(frozen=True, slots=True)
class Page:
    """Markdown, and the files beside it by name: plots, and a page with every table of each setting."""

    text: str
    files: dict[str, str]


@dataclass(frozen=True, slots=True)
class Finished:
    """How much of a setting's plan there is."""

    runs: int
    of: int
    part: Plan | None
    """What the page shows: the same seeds of every method."""


def make_page(
    suite: Suite,
    experiments: Mapping[str, Experiment],
    finished: Mapping[str, Finished],
    made_with: Mapping[str, MadeWith],
    folder: str,
) -> Page:
    """The whole page; its other files are found in `folder`."""
    drawn = {f"{name}.svg": _curves(name, experiment) for name, experiment in experiments.items()}
    files = {name: plot for name, plot in drawn.items() if plot}
    about = [suite.file.about] if suite.file.about else []
    parts = [f"# {suite.file.title}", *about, *_what_was_run(suite, experiments, finished, made_with)]
    parts += ["## Summary", *_accuracies(experiments), LEGEND]
    for reference, kind in product(suite.file.references, PRIMARY):
        there = {name: e for name, e in experiments.items() if _has(e, reference, kind)}
        if there:
            plot = f"{kind.replace('_at_k', '')}-difference-to-{reference}.svg"
            parts += _summary(experiments, there, reference, kind)
            files[plot] = _forest(there, reference, kind)
            parts.append(f"![Differences to {reference}]({folder}/{plot})")
    parts += _transfer(suite, experiments)
    if suite.file.claims:
        parts += claims_section(suite.file.claims, experiments)
    parts += ["## Every setting", READING]
    for name, experiment in experiments.items():
        parts += _setting(name, experiment, folder, curves=f"{name}.svg" in files)
        files[f"{name}.md"] = report(experiment.results)
    return Page("\n\n".join(parts) + "\n", files)


def _what_was_run(
    suite: Suite,
    experiments: Mapping[str, Experiment],
    finished: Mapping[str, Finished],
    made_with: Mapping[str, MadeWith],
) -> Iterator[str]:
    found, made = [experiment.results for experiment in experiments.values()], list(made_with.values())
    commits = dict.fromkeys(commit for one in made for commit in one.commits)
    machines = dict.fromkeys(name for one in made for name in one.machines)
    versions = ", ".join(f"{package} {version}" for package, version in made[0].versions.items())
    bases = f", agents made with the bases {_listed(suite.file.bases)} in turn" if suite.file.bases else ""
    yield (
        f"Written by `hacrl results {suite.path.as_posix()}`. The outcomes of every run are kept beside this "
        "page; with `--from` and their directory, the command makes it from them again."
    )
    hours = sum(one.seconds for one in made) / 3600
    rows = [
        f"- {sum(results.runs for results in found)} runs, {hours:.1f} hours one after another: {len(found)} "
        f"settings, each method with the reported seeds {_listed(suite.file.seeds)}{bases}",
        f"- {_tuning(suite)}",
        f"- commit {', '.join(commits) or 'unknown'}; {versions}",
        f"- {'; '.join(machines)}{OTHER_MACHINES if len(machines) > 1 else ''}",
    ]
    yield "\n".join(rows)
    yield from _unfinished(suite, finished)
    shared = json.dumps(suite.file.common)
    yield _folded("What all settings share", f"`{shared}`")


def _unfinished(suite: Suite, finished: Mapping[str, Finished]) -> Iterator[str]:
    """What the page lacks of the plan, if anything."""
    lines = []
    for setting, found in finished.items():
        if found.runs == found.of:
            continue
        done = f"- {setting}: {found.runs} of {found.of} runs are finished"
        if found.part is None:
            lines.append(f"{done}, too few to show")
            continue
        absent = [label for label in suite.variants(setting) if label not in found.part.recipes]
        without = f", without {', '.join(absent)}" if absent else ""
        lines.append(f"{done}; shown are the seeds {_listed(found.part.seeds)} of every method{without}")
    if lines:
        yield "**This plan is not finished.**\n\n" + "\n".join(lines)


def _tuning(suite: Suite) -> str:
    tuning = suite.file.tuning
    if tuning is None or not suite.tuned:
        return "nothing was tuned"
    changes = "".join(f", {key} {value}" for key, value in tuning.changes.items())
    trials = max(map(tuning.trials, tuning.sweeps))
    return "; ".join(
        [
            f"tuned on the seeds {_listed(tuning.seeds)}{changes}, none of which is reported, with {trials} "
            f"trials of each: {', '.join(tuning.sweeps)}",
            f"the chosen values are in `{suite.tuned_path.as_posix()}`",
            *edges(tuning, suite.tuned),
        ]
    )


def machine() -> str:
    """Operating system, cores and processor."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [
            line.partition(":")[2].strip() for line in info.read_text().splitlines() if "model name" in line
        ]
        model = names[0] if names else model
    return f"{platform.system()}, {os.cpu_count()} cores of {model}"


def _has(experiment: Experiment, reference: str, kind: Measure) -> bool:
    return reference in experiment.results.methods and kind in experiment.outcomes.primary


def _accuracies(experiments: Mapping[str, Experiment]) -> Iterator[str]:
    """Methods x settings in each primary measure, before training in the first row."""
    for kind in PRIMARY:
        found = {name: e.accuracy(e.results.task, kind) for name, e in experiments.items()}
        shown = {name: accuracy for name, accuracy in found.items() if accuracy}
        if not shown:
            continue
        methods = dict.fromkeys(label for a in shown.values() for label in a.mean.methods)
        rows = [
            [method, *(_mean(accuracy.mean.methods.get(method)) for accuracy in shown.values())]
            for method in methods
        ]
        before = ["before training", *(_mean(accuracy.before.get("mean")) for accuracy in shown.values())]
        yield f"### {_title(experiments, kind)}, mean of the agents"
        yield markdown_table(["method", *shown], [before, *rows])


def _mean(estimate: Estimate | None) -> str:
    return f"{estimate.mean:.3f}" if estimate else DASH


def _title(experiments: Mapping[str, Experiment], kind: Measure) -> str:
    return measure_title(kind, next(iter(experiments.values())).results)


def _summary(
    experiments: Mapping[str, Experiment], there: Mapping[str, Experiment], reference: str, kind: Measure
) -> Iterator[str]:
    yield f"### {_title(experiments, kind)}: difference to {reference}"
    yield _differences(experiments, reference, kind, {s: e.results.task for s, e in there.items()})


def _differences(
    experiments: Mapping[str, Experiment], reference: str, kind: Measure, tasks: Mapping[str, str]
) -> str:
    """Methods x settings that have the task."""
    shown = {setting: experiments[setting] for setting in tasks}
    methods = dict.fromkeys(label for e in shown.values() for label in e.results.methods)
    rows = [
        [method, *(_cell(e, tasks[setting], method, reference, kind) for setting, e in shown.items())]
        for method in methods
        if method != reference
    ]
    return markdown_table(["method", *shown], rows)


def _cell(experiment: Experiment, task: str, method: str, reference: str, kind: Measure) -> str:
    found = experiment.difference(task, method, reference, kind)
    if not found:
        return DASH
    sign = ""
    if equal_budgets(experiment.results, method, reference, BUDGET[:2]):
        sign = " =" if equal_budgets(experiment.results, method, reference) else " ~"
    return f"{found.interval.mean:+.3f} {SHORT[found.verdict]}{sign}"


def _forest(experiments: Mapping[str, Experiment], reference: str, kind: Measure) -> str:
    panels = {
        setting: {
            method: experiment.difference(experiment.results.task, method, reference, kind)
            for method in experiment.results.methods
            if method != reference
        }
        for setting, experiment in experiments.items()
    }
    return forest(panels, f"{reference}, {_title(experiments, kind)}")


def _transfer(suite: Suite, experiments: Mapping[str, Experiment]) -> Iterator[str]:
    """The same on tasks that no agent trained on."""
    reference = suite.file.references[0]
    others = dict.fromkeys(task for e in experiments.values() for task in e.outcomes.tasks[1:])
    for task in others:
        there = {
            s: task
            for s, e in experiments.items()
            if task in e.outcomes.tasks and reference in e.results.methods
        }
        if there:
            yield f"### Greedy accuracy on {task}, which no agent trained on: difference to {reference}"
            yield _differences(experiments, reference, "greedy", there)


def _curves(name: str, experiment: Experiment) -> str | None:
    results = experiment.results
    for curves in results.curves:
        if (curves.task, curves.measure) == (results.task, "greedy"):
            drawn = {
                method: [
                    (step / max(accuracy) * results.budgets[method]["rollouts"], value)
                    for step, value in accuracy.items()
                ]
                for method, accuracy in list(curves.accuracy.items())[:PLOTTED]
            }
            return lines(drawn, name, "rollouts per agent", measure_title("greedy", results))
    return None


def _setting(name: str, experiment: Experiment, folder: str, *, curves: bool) -> Iterator[str]:
    """Measures and costs, and the primary measures by agent; all other tables are in a page of their own."""
    results, recipe = experiment.results, next(iter(experiment.outcomes.plan.recipes.values()))
    yield f"### {name}"
    agents = ", ".join(f"{agent.name} ({agent.model})" for agent in recipe.agents)
    yield (
        f"Agents: {agents}. {results.runs} runs; {recipe.steps} steps of {recipe.prompts_per_step} prompts "
        f"with {recipe.samples_per_prompt} samples each."
    )
    if results.retired:
        yield "\n".join(f"- an agent was retired: {retired}" for retired in results.retired)
    if curves:
        yield f"![Learning curves of {name}]({folder}/{name}.svg)"
    yield _measures_and_costs(results)
    primary = {f"{measure_title(kind, results)} on {results.task}" for kind in experiment.outcomes.primary}
    yield from (_shown(section) for section in sections(results) if section.title in primary)
    yield (
        f"[All tables of this setting]({folder}/{name}.md): all measures with intervals, other tasks, "
        "learning curves, kinds of prompts, similarity between agents, entropy."
    )


def _measures_and_costs(results: Results) -> str:
    """Every measure of the mean of the agents beside what it cost, before training in the first row."""
    accuracies = [a for a in results.accuracies if a.task == results.task or a.measure == "greedy"]
    titles = [
        measure_title(a.measure, results) if a.task == results.task else f"greedy on {a.task}"
        for a in accuracies
    ]
    first = results.methods[0]
    rows = [
        [
            "before training",
            *(_mean(a.before.get("mean")) for a in accuracies),
            *(_mean(found[first].get("before")) for found in (results.entropy, results.alike) if found),
            *(DASH for _ in BESIDE),
        ]
    ]
    rows += [
        [
            method,
            *(_mean(a.mean.methods[method]) for a in accuracies),
            *(_mean(found[method]["after"]) for found in (results.entropy, results.alike) if found),
            *(shown_cost(results, method, key) for key in BESIDE),
        ]
        for method in results.methods
    ]
    more = ["entropy"] * bool(results.entropy) + ["alike"] * bool(results.alike)
    return markdown_table(["method", *titles, *more, *map(cost_title, BESIDE)], rows)


def _shown(section: Section) -> str:
    return f"#### {section.title}\n\n{section.body}"


def _folded(title: str, body: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{body}\n\n</details>"


def _listed(seeds: tuple[int, ...]) -> str:
    return ", ".join(map(str, seeds))
