"""The README's table of results and its picture, made from the same outcomes as the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hacrl.analysis.compare.outcomes import PRIMARY
from hacrl.analysis.compare.plots import bars
from hacrl.analysis.compare.report import DASH, markdown_table, measure_title
from hacrl.analysis.compare.results import Experiment
from hacrl.analysis.compare.statistics import Estimate
from hacrl.analysis.compare.suite import BEFORE, Readme
from hacrl.training.evaluation import Measure

END = "<!-- end -->"
"""What stands below the table in the README."""
MEAN = "mean"
"""Of the agents."""


def begin(plan: str) -> str:
    """What stands above the table of a plan, a file of this name."""
    return f"<!-- written by `hacrl results` from {plan}: begin -->"


@dataclass(frozen=True, slots=True)
class Column:
    """One column of results: the mean of a setting's agents, or one of them."""

    title: str
    experiment: Experiment
    agent: str = MEAN


@dataclass(frozen=True, slots=True)
class Shown:
    """A row's result in one column."""

    method: str
    """Whose result it is; "" before training."""
    results: dict[Measure, Estimate]
    """In the primary measures."""

    @property
    def greedy(self) -> float:
        """What the methods of a row are ranked by."""
        return self.results["greedy"].mean


def columns_of(readme: Readme, experiments: Mapping[str, Experiment]) -> list[Column]:
    """A column for every setting; of a single one there is room for every agent as well."""
    found = [Column(name, experiments[name]) for name in readme.settings if name in experiments]
    if len(readme.settings) > 1:
        return found
    return [
        Column(agent, column.experiment, agent)
        for column in found
        for agent in (MEAN, *column.experiment.results.agents)
    ]


def readme_table(readme: Readme, experiments: Mapping[str, Experiment]) -> str:
    """Rows x columns: the primary measures, then what the row cost."""
    columns = columns_of(readme, experiments)
    found = rows_of(readme, columns)
    lines = []
    for row, cells in found.items():
        several = not isinstance(readme.rows[row], str)
        shown = []
        for column in columns:
            cell = cells.get(column.title)
            others = [other[column.title] for other in found.values() if column.title in other]
            shown.append(cell_text(cell, several, others) if cell else DASH)
        budgets = [
            column.experiment.results.budgets[cells[column.title].method]
            for column in columns
            if column.title in cells and cells[column.title].method
        ]
        costs = [_cost([budget[key] for budget in budgets]) for key in ("rollouts", "updates", "cpu_seconds")]
        lines.append([row, *shown, *costs])
    titles = [column.title for column in columns]
    return markdown_table(["", *titles, "rollouts", "updates", "CPU s"], lines)


def readme_text(readme: Readme, experiments: Mapping[str, Experiment], picture: str) -> str:
    """What stands between the marks of the README: picture, table and how to read it."""
    columns = columns_of(readme, experiments)
    first = columns[0].experiment
    names = " / ".join(measure_title(kind, first.results).lower() for kind in first.outcomes.primary)
    plan = first.outcomes.plan
    runs = f"{len(first.outcomes.units)} {'independently made sets of agents' if plan.bases else 'seeds'}"
    agents = any(column.agent != MEAN for column in columns)
    whose, costs = (" and each of them", "") if agents else ("", ", means of these settings")
    reading = (
        f"{names[0].upper()}{names[1:]}, mean of the agents{whose}, over {runs}; the best of each in bold. "
        f"Costs are per agent{costs}; CPU seconds are those of training."
    )
    image = f"![Greedy accuracy by method and {'agent' if agents else 'setting'}]({picture})"
    return "\n\n".join([image, readme_table(readme, experiments), reading])


def readme_picture(readme: Readme, experiments: Mapping[str, Experiment]) -> str:
    """Greedy accuracy as bars with their intervals, a panel for every column."""
    columns = columns_of(readme, experiments)
    found = rows_of(readme, columns)
    panels = {
        column.title: {
            row: cells[column.title].results["greedy"]
            for row, cells in found.items()
            if column.title in cells
        }
        for column in columns
    }
    agents = any(column.agent != MEAN for column in columns)
    return bars(panels, f"Greedy accuracy on test problems{'' if agents else ', mean of the agents'}")


def rows_of(readme: Readme, columns: Sequence[Column]) -> dict[str, dict[str, Shown]]:
    """Row -> column -> its result; of a row with several methods that of the best, by greedy accuracy."""
    found: dict[str, dict[str, Shown]] = {}
    for row, labels in readme.rows.items():
        several = (labels,) if isinstance(labels, str) else labels
        found[row] = {}
        for column in columns:
            means = [_shown(label, replace(column, agent=MEAN)) for label in several]
            there = [one for one in means if one]
            if there:
                best = max(there, key=lambda one: one.greedy)
                shown = _shown(best.method or BEFORE, column)
                assert shown is not None
                found[row][column.title] = shown
    return found


def _shown(label: str, column: Column) -> Shown | None:
    experiment, agent = column.experiment, column.agent
    results: dict[Measure, Estimate] = {}
    for kind in PRIMARY:
        accuracy = experiment.accuracy(experiment.results.task, kind)
        if accuracy and label == BEFORE and accuracy.before:
            results[kind] = accuracy.before[agent]
        elif accuracy and label in accuracy.mean.methods:
            methods = accuracy.mean.methods if agent == MEAN else accuracy.agents[agent]
            results[kind] = methods[label]
    return Shown("" if label == BEFORE else label, results) if results else None


def cell_text(shown: Shown, several: bool, column: Sequence[Shown]) -> str:
    """A result; the best of its column in each measure is bold."""
    texts = []
    for kind, found in shown.results.items():
        best = max(other.results[kind].mean for other in column)
        texts.append(f"**{found.mean:.3f}**" if found.mean == best else f"{found.mean:.3f}")
    return " / ".join(texts) + (f" ({shown.method})" if several else "")


def _cost(values: list[float]) -> str:
    return f"{sum(values) / len(values):,.0f}" if values else DASH


def with_table(text: str, table: str, plan: str, where: str) -> str:
    """The README with a new table between the marks of a plan."""
    mark = begin(plan)
    before, found, rest = text.partition(mark)
    _, end, after = rest.partition(END)
    if not found or not end:
        raise ValueError(
            f"{where}: expected the lines '{mark}' and '{END}', between which the table is written"
        )
    return f"{before}{mark}\n\n{table}\n\n{END}{after}"
