"""The page of results: what was run, a summary, the claims, every setting. All of it is generated."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from hacrl.analysis.compare.claims import claims_section
from hacrl.analysis.compare.data import MadeWith
from hacrl.analysis.compare.plan import Plan
from hacrl.analysis.compare.plots import forest, lines
from hacrl.analysis.compare.report import (
    DASH,
    READING,
    Section,
    markdown_table,
    measure_title,
    report,
    sections,
)
from hacrl.analysis.compare.results import Experiment
from hacrl.analysis.compare.statistics import Verdict
from hacrl.analysis.compare.suite import TUNED, Suite

SHORT: dict[Verdict, str] = {"better": "better", "worse": "worse", "no difference seen": "?"}
LEGEND = (
    "The difference to the reference in accuracy, for the mean of the agents, paired by seed and problem. "
    "*better* and *worse*: the corrected interval lies above or below 0. *?*: it contains 0, no difference "
    "was seen. Within a setting all differences in a measure are corrected together: the chance of any wrong "
    "verdict among them is at most 5%. A dash: the method was not run there."
)
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
    parts += ["## Summary", LEGEND]
    for reference in suite.file.references:
        parts += _summary(suite, experiments, reference)
        files[f"difference-to-{reference}.svg"] = _forest(experiments, reference)
        parts.append(f"![Differences to {reference}]({folder}/difference-to-{reference}.svg)")
    parts += _transfer(suite, experiments)
    if suite.file.claims:
        outcomes = {setting: experiment.outcomes for setting, experiment in experiments.items()}
        parts += claims_section(suite.file.claims, outcomes)
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
    rows = [
        f"- {sum(results.runs for results in found)} runs: {len(found)} settings, each method with the "
        f"reported seeds {_listed(suite.file.seeds)}{bases}",
        f"- {_tuning(suite)}",
        f"- commit {', '.join(commits) or 'unknown'}; {versions}",
        f"- {'; '.join(machines)}",
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
    return (
        f"tuned on the seeds {_listed(tuning.seeds)}{changes}, none of which is reported: "
        f"{', '.join(tuning.sweeps)}; the chosen values are in `{(suite.path.parent / TUNED).as_posix()}`"
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


def _summary(suite: Suite, experiments: Mapping[str, Experiment], reference: str) -> Iterator[str]:
    first = next(iter(experiments.values()))
    name = measure_title(first.outcomes.main_measure, first.results.samples)
    yield f"### {name}: difference to {reference}"
    yield _differences(suite, experiments, reference, {s: e.results.task for s, e in experiments.items()})


def _differences(
    suite: Suite, experiments: Mapping[str, Experiment], reference: str, tasks: Mapping[str, str]
) -> str:
    """Methods x settings; the reference's own row holds its accuracy."""
    methods = dict.fromkeys(label for e in experiments.values() for label in e.results.methods)
    rows = []
    for method in methods:
        cells = []
        for setting, experiment in experiments.items():
            if setting not in tasks or method not in experiment.results.methods:
                cells.append(DASH)
            elif method == reference:
                cells.append(f"{experiment.accuracy(tasks[setting]).mean.methods[method].mean:.3f}")
            else:
                cells.append(_cell(experiment, tasks[setting], method, reference))
        rows.append([f"{method} (accuracy)" if method == reference else method, *cells])
    return markdown_table(["method", *experiments], rows)


def _cell(experiment: Experiment, task: str, method: str, reference: str) -> str:
    found = experiment.difference(task, method, reference)
    return f"{found.interval.mean:+.3f} {SHORT[found.verdict]}" if found else DASH


def _forest(experiments: Mapping[str, Experiment], reference: str) -> str:
    panels = {
        setting: {
            method: experiment.difference(experiment.results.task, method, reference)
            for method in experiment.results.methods
            if method != reference
        }
        for setting, experiment in experiments.items()
    }
    return forest(panels, reference)


def _transfer(suite: Suite, experiments: Mapping[str, Experiment]) -> Iterator[str]:
    """The same on tasks that no agent trained on."""
    others = dict.fromkeys(task for e in experiments.values() for task in e.outcomes.tasks[1:])
    for task in others:
        there = {setting: task for setting, e in experiments.items() if task in e.outcomes.tasks}
        yield f"### On {task}, which no agent trained on: difference to {suite.file.references[0]}"
        yield _differences(suite, experiments, suite.file.references[0], there)


def _curves(name: str, experiment: Experiment) -> str | None:
    results, wanted = experiment.results, experiment.outcomes.main_measure
    for curves in results.curves:
        if (curves.task, curves.measure) == (results.task, wanted):
            drawn = {
                method: [
                    (step / max(accuracy) * results.budgets[method]["rollouts"], value)
                    for step, value in accuracy.items()
                ]
                for method, accuracy in list(curves.accuracy.items())[:PLOTTED]
            }
            return lines(drawn, name, "rollouts per agent", measure_title(wanted, results.samples))
    return None


def _setting(name: str, experiment: Experiment, folder: str, *, curves: bool) -> Iterator[str]:
    """Costs and the main measure; all other tables are in a page of their own."""
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
    main = measure_title(experiment.outcomes.main_measure, results.samples)
    costs, *others = sections(results)
    yield _shown(costs)
    yield from (_shown(section) for section in others if section.title == f"{main} on {results.task}")
    yield (
        f"[All tables of this setting]({folder}/{name}.md): greedy accuracy, pass@k, other tasks, learning "
        "curves, kinds of prompts, similarity between agents."
    )


def _shown(section: Section) -> str:
    return f"#### {section.title}\n\n{section.body}"


def _folded(title: str, body: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{body}\n\n</details>"


def _listed(seeds: tuple[int, ...]) -> str:
    return ", ".join(map(str, seeds))
