"""The README's table of results and its picture, made from the same outcomes as the page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hacrl.analysis.compare.outcomes import PRIMARY
from hacrl.analysis.compare.plots import bars
from hacrl.analysis.compare.report import DASH, markdown_table, measure_title
from hacrl.analysis.compare.results import Experiment
from hacrl.analysis.compare.statistics import Estimate
from hacrl.analysis.compare.suite import BEFORE, Readme
from hacrl.training.evaluation import Measure

BEGIN, END = "<!-- written by `hacrl results`: begin -->", "<!-- end -->"
"""What stands around the table in the README."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A row's result in one setting."""

    method: str
    """Whose result it is; "" before training."""
    results: dict[Measure, Estimate]
    """In the primary measures."""

    @property
    def greedy(self) -> float:
        """What rows are ranked by."""
        return self.results["greedy"].mean


def readme_table(readme: Readme, experiments: Mapping[str, Experiment]) -> str:
    """Rows x settings: the primary measures of the mean of the agents, then what the row cost."""
    settings = {name: experiments[name] for name in readme.settings if name in experiments}
    found = rows_of(readme, settings)
    lines = []
    for row, cells in found.items():
        several = not isinstance(readme.rows[row], str)
        best = {
            setting: max(other[setting].greedy for other in found.values() if setting in other)
            for setting in cells
        }
        shown = [
            _cell(cells[setting], several, cells[setting].greedy == best[setting])
            if setting in cells
            else DASH
            for setting in settings
        ]
        costs = [
            _cost([settings[s].results.budgets[cell.method][key] for s, cell in cells.items() if cell.method])
            for key in ("rollouts", "updates", "cpu_seconds")
        ]
        lines.append([row, *shown, *costs])
    return markdown_table(["", *settings, "rollouts", "updates", "CPU s"], lines)


def readme_text(readme: Readme, experiments: Mapping[str, Experiment], picture: str) -> str:
    """What stands between the marks of the README: picture, table and how to read it."""
    settings = [experiments[name] for name in readme.settings if name in experiments]
    names = " / ".join(
        measure_title(kind, settings[0].results).lower() for kind in settings[0].outcomes.primary
    )
    runs = len(settings[0].outcomes.units)
    unit = "independently made sets of agents" if settings[0].outcomes.plan.bases else "seeds"
    reading = (
        f"{names[0].upper()}{names[1:]}, mean of the agents, over {runs} {unit}; the best in bold. "
        "Costs are per agent, means of these settings; CPU seconds are those of training."
    )
    image = f"![Greedy accuracy by method and setting]({picture})"
    return "\n\n".join([image, readme_table(readme, experiments), reading])


def readme_picture(readme: Readme, experiments: Mapping[str, Experiment]) -> str:
    """Greedy accuracy as bars with their intervals, a panel for every setting."""
    settings = {name: experiments[name] for name in readme.settings if name in experiments}
    found = rows_of(readme, settings)
    panels = {
        setting: {row: cells[setting].results["greedy"] for row, cells in found.items() if setting in cells}
        for setting in settings
    }
    return bars(panels, "Greedy accuracy on test problems, mean of the agents")


def rows_of(readme: Readme, settings: Mapping[str, Experiment]) -> dict[str, dict[str, Shown]]:
    """Row -> setting -> its result; of a row with several methods that of the best, by greedy accuracy."""
    found: dict[str, dict[str, Shown]] = {}
    for row, labels in readme.rows.items():
        found[row] = {}
        for setting, experiment in settings.items():
            shown = [
                _shown(experiment, label) for label in ((labels,) if isinstance(labels, str) else labels)
            ]
            there = [one for one in shown if one]
            if there:
                found[row][setting] = max(there, key=lambda one: one.greedy)
    return found


def _shown(experiment: Experiment, label: str) -> Shown | None:
    results: dict[Measure, Estimate] = {}
    for kind in PRIMARY:
        accuracy = experiment.accuracy(experiment.results.task, kind)
        if accuracy and label == BEFORE and accuracy.before:
            results[kind] = accuracy.before["mean"]
        elif accuracy and label in accuracy.mean.methods:
            results[kind] = accuracy.mean.methods[label]
    return Shown("" if label == BEFORE else label, results) if results else None


def _cell(shown: Shown, several: bool, best: bool) -> str:
    text = " / ".join(f"{one.mean:.3f}" for one in shown.results.values())
    return (f"**{text}**" if best else text) + (f" ({shown.method})" if several else "")


def _cost(values: list[float]) -> str:
    return f"{sum(values) / len(values):,.0f}" if values else DASH


def with_table(text: str, table: str, where: str) -> str:
    """The README with a new table between its marks."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(
            f"{where}: expected the lines '{BEGIN}' and '{END}', between which the table is written"
        )
    return f"{before}{BEGIN}\n\n{table}\n\n{END}{after}"
