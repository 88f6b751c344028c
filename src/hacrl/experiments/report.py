"""The results of a comparison as Markdown, for `results.md` and for the screen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from hacrl.evaluate import measure_name
from hacrl.experiments.curves import Curves
from hacrl.experiments.results import COSTS, Accuracy, Results
from hacrl.experiments.statistics import Difference, Estimate
from hacrl.experiments.tables import Table

READING = (
    "Brackets hold 95% intervals over seeds and problems. Differences are paired by seed and problem. Each "
    "column of differences is a family: its intervals are corrected together (Holm), so that the chance of "
    "any wrong word in the column is at most 5%. The word says where the interval lies: above 0 (better), "
    "below 0 (worse), around 0 (no difference seen)."
)


def report(results: Results) -> str:
    """All tables with what is needed to judge them."""
    parts = [*_heading(results), *_budgets(results)]
    for accuracy in results.accuracies:
        parts += _accuracy(results, accuracy)
    for curves in results.curves:
        parts += _curves(results, curves)
    if not results.curves:
        parts.append(
            "Accuracy at equal rollouts and CPU seconds needs `evaluation.every` above 0 in the recipe."
        )
    parts += _alike(results)
    return "\n\n".join(parts) + "\n"


def _heading(results: Results) -> Iterator[str]:
    yield f"# {', '.join(results.methods)} on {results.task}"
    seeds = ", ".join(map(str, results.seeds))
    versions = ", ".join(f"{package} {version}" for package, version in results.versions.items())
    lines = [
        f"- agents: {', '.join(results.agents)}",
        f"- {results.runs} runs: {len(results.methods)} methods with the seeds {seeds}",
        f"- commit {', '.join(results.commits) or 'unknown'}; {versions}",
        *(f"- an agent stopped taking part: {retired}" for retired in results.retired),
    ]
    yield "\n".join(lines)
    yield READING


def _budgets(results: Results) -> Iterator[str]:
    yield "## What it costs, per agent"
    rows = [
        [method, *(f"{results.budgets[method][key]:,.{1 if key == 'cpu_seconds' else 0}f}" for key in COSTS)]
        for method in results.methods
    ]
    yield _markdown(["method", *(key.replace("_", " ").replace("cpu", "CPU") for key in COSTS)], rows)
    yield "CPU seconds are those of training steps, verifiers included."


def _accuracy(results: Results, accuracy: Accuracy) -> Iterator[str]:
    yield f"## {_name(results, accuracy.measure)} on {accuracy.task}"
    left_out = f"; {accuracy.left_out} that some run could not score are left out" * bool(accuracy.left_out)
    yield f"{accuracy.problems} test problems{left_out}."
    rows = [
        [
            method,
            *(_shown(table.methods[method]) for table in (accuracy.mean, accuracy.worst)),
            *(_shown(accuracy.agents[agent][method]) for agent in results.agents),
        ]
        for method in results.methods
    ]
    if accuracy.before:
        rows.insert(0, ["before training", *map(_shown, accuracy.before.values())])
    yield _markdown(["method", "mean of agents", "worst agent", *results.agents], rows)
    yield _contrasts({"mean of agents": accuracy.mean, "worst agent": accuracy.worst})


def _curves(results: Results, curves: Curves) -> Iterator[str]:
    yield f"## {_name(results, curves.measure)} on {curves.task} during the run"
    rollouts, seconds = curves.equal_rollouts, curves.equal_cpu_seconds
    tables = {
        "mean over the run": curves.area,
        f"at {rollouts.per_agent:,.0f} rollouts": rollouts.table,
        f"at {seconds.per_agent:,.1f} CPU seconds": seconds.table,
    }
    rows = [
        [
            method,
            *(_shown(table.methods[method]) for table in tables.values()),
            *(_count(curves.rollouts_to_reach[reference][method]) for reference in results.references),
        ]
        for method in results.methods
    ]
    reach = [f"rollouts to {reference}'s last accuracy" for reference in results.references]
    yield "Mean of agents."
    yield _markdown(["method", *tables, *reach], rows)
    yield _contrasts(tables)


def _contrasts(tables: Mapping[str, Table]) -> str:
    """Differences side by side: every table has the same pairs of methods."""
    header = ["method", "against", *(f"difference, {name}" for name in tables)]
    rows = [
        [contrasts[0].method, contrasts[0].reference, *(_signed(c.difference) for c in contrasts)]
        for contrasts in zip(*(table.contrasts for table in tables.values()), strict=True)
    ]
    return _markdown(header, rows)


def _alike(results: Results) -> Iterator[str]:
    if not results.alike:
        return
    yield "## Do the agents become alike?"
    yield f"Share of test problems of {results.task} to which two agents give the same greedy answer."
    moments = list(next(iter(results.alike.values())))
    rows = [
        [method, *(_shown(results.alike[method][when]) for when in moments)] for method in results.methods
    ]
    yield _markdown(["method", *moments], rows)


def _name(results: Results, measure: str) -> str:
    return {"greedy": "Greedy accuracy"}.get(measure, measure_name(measure, results.samples))


def _shown(estimate: Estimate) -> str:
    return f"{estimate.mean:.3f} [{estimate.low:.3f}, {estimate.high:.3f}]"


def _signed(difference: Difference) -> str:
    interval = difference.interval
    numbers = f"{interval.mean:+.3f} [{interval.low:+.3f}, {interval.high:+.3f}]"
    return f"{numbers} {difference.verdict}"


def _count(value: float | None) -> str:
    return "never" if value is None else f"{value:,.0f}"


def _markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
