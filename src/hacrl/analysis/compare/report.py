"""The results of a comparison as Markdown, for `results.md` and for the screen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from hacrl.analysis.compare.besides import TITLES
from hacrl.analysis.compare.results import COSTS, Accuracy, Curves, Results
from hacrl.analysis.compare.statistics import Difference, Estimate, Table
from hacrl.training.evaluation import measure_name

READING = (
    "Brackets contain 95% intervals over seeds and problems. Differences are paired by seed and problem. The "
    "intervals in a column of differences are corrected together (Holm), so that the chance of any wrong "
    "verdict in the column is at most 5%. The verdict says where the interval lies: above 0 (better), below "
    "0 (worse), around 0 (no difference seen)."
)
DASH = "\N{EN DASH}"
"""In a table: the method was not run there."""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a report."""

    title: str
    body: str


def report(results: Results) -> str:
    """All tables, with how to read them."""
    parts = list(_heading(results))
    for section in sections(results):
        parts += [f"## {section.title}", section.body]
    return "\n\n".join(parts) + "\n"


def sections(results: Results) -> Iterator[Section]:
    """Costs, accuracies, curves, kinds of prompts, similarity, entropy."""
    yield Section("Cost per agent", "\n\n".join(_budgets(results)))
    for accuracy in results.accuracies:
        name = measure_title(accuracy.measure, results)
        yield Section(f"{name} on {accuracy.task}", "\n\n".join(_accuracy(results, accuracy)))
    for curves in results.curves:
        name = measure_title(curves.measure, results)
        yield Section(f"{name} on {curves.task} during the run", "\n\n".join(_curves(results, curves)))
    for task in results.by_kind:
        body = "\n\n".join(_by_kind(results, task))
        yield Section(f"Greedy accuracy on {task} by kind of prompt", body)
    if results.alike:
        yield Section("Similarity between agents", "\n\n".join(_similarity(results)))
    if results.entropy:
        yield Section("Entropy of responses", "\n\n".join(_entropy(results)))
    if any(found for agents in results.besides.values() for found in agents.values()):
        yield Section("What training did besides", "\n\n".join(_besides(results)))


def _heading(results: Results) -> Iterator[str]:
    yield f"# {len(results.methods)} methods on {results.task}"
    seeds = ", ".join(map(str, results.seeds))
    versions = ", ".join(f"{package} {version}" for package, version in results.versions.items())
    lines = [
        f"- agents: {', '.join(results.agents)}",
        f"- {results.runs} runs with the seeds {seeds} of {', '.join(results.methods)}",
        f"- commit {', '.join(results.commits) or 'unknown'}; {versions}",
        *(f"- an agent was retired: {retired}" for retired in results.retired),
    ]
    yield "\n".join(lines)
    yield READING
    if not results.curves:
        yield "Accuracy at equal rollouts and CPU seconds needs `evaluation.every` above 0 in the recipe."


def _budgets(results: Results) -> Iterator[str]:
    rows = [[method, *(shown_cost(results, method, key) for key in COSTS)] for method in results.methods]
    yield markdown_table(["method", *map(cost_title, COSTS)], rows)
    yield "CPU seconds are those of training steps, verifiers included."


def cost_title(key: str) -> str:
    """A cost's name in a heading."""
    return key.replace("_", " ").replace("cpu", "CPU")


def shown_cost(results: Results, method: str, key: str) -> str:
    """A cost per agent."""
    return f"{results.budgets[method][key]:,.{1 if key == 'cpu_seconds' else 0}f}"


def _accuracy(results: Results, accuracy: Accuracy) -> Iterator[str]:
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
    yield markdown_table(["method", "mean of agents", "worst agent", *results.agents], rows)
    yield _contrasts({"mean of agents": accuracy.mean, "worst agent": accuracy.worst})


def _curves(results: Results, curves: Curves) -> Iterator[str]:
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
    reach = [f"rollouts to reach {reference}'s final accuracy" for reference in results.references]
    yield "Mean of agents."
    yield markdown_table(["method", *tables, *reach], rows)
    yield _contrasts(tables)


def _contrasts(tables: Mapping[str, Table]) -> str:
    """Differences side by side: every table has the same pairs of methods."""
    header = ["method", "against", *(f"difference, {name}" for name in tables)]
    rows = [
        [contrasts[0].method, contrasts[0].reference, *(_signed(c.difference) for c in contrasts)]
        for contrasts in zip(*(table.contrasts for table in tables.values()), strict=True)
    ]
    return markdown_table(header, rows)


def _by_kind(results: Results, task: str) -> Iterator[str]:
    yield f"Mean of agents, in brackets {', '.join(results.agents)}. Means over seeds, without intervals."
    methods = results.by_kind[task]
    kinds = list(next(iter(methods.values())))
    rows = [[method, *(_of_agents(found[kind]) for kind in kinds)] for method, found in methods.items()]
    yield markdown_table(["method", *kinds], rows)


def _of_agents(accuracies: Mapping[str, float]) -> str:
    single = ", ".join(f"{value:.2f}" for value in accuracies.values())
    return f"{sum(accuracies.values()) / len(accuracies):.3f} ({single})"


def _similarity(results: Results) -> Iterator[str]:
    yield f"Share of test problems of {results.task} to which two agents give the same greedy response."
    yield _moments(results.alike)


def _entropy(results: Results) -> Iterator[str]:
    yield (
        f"Minus the mean log-prob of a sampled response to {results.task}, in nats, the mean of the agents: "
        "sampled accuracy may rise just because responses become more certain."
    )
    yield _moments(results.entropy)


def _besides(results: Results) -> Iterator[str]:
    yield (
        "KL from the start is that of an agent's responses before training, in nats; perplexity is that of "
        "plain text, where the recipe asks for them. The others are means over the last steps: length of "
        "responses in tokens, share that was cut off, how wrong predictions of success were (Brier score, "
        "and the best that one number per agent could have reached); of peers' responses the ratio, the "
        "share inside HACPO's window, the share that passes the gate, and the share that passes as needed."
    )
    rows = [
        (method, agent, found)
        for method, agents in results.besides.items()
        for agent, found in agents.items()
    ]
    measured = [name for name in TITLES if any(name in found for _, _, found in rows)]
    yield markdown_table(
        ["method", "agent", *(TITLES[name] for name in measured)],
        [[method, agent, *(_number(found.get(name)) for name in measured)] for method, agent, found in rows],
    )


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _moments(found: Mapping[str, Mapping[str, Estimate]]) -> str:
    """A row for every method, a column before training and one after."""
    moments = list(next(iter(found.values())))
    rows = [[method, *(_shown(values[when]) for when in moments)] for method, values in found.items()]
    return markdown_table(["method", *moments], rows)


def measure_title(measure: str, results: Results) -> str:
    """The measure's name in a heading."""
    name = measure_name(measure, results.samples, results.many)
    return {"greedy": "Greedy accuracy"}.get(measure, name)


def _shown(estimate: Estimate) -> str:
    return f"{estimate.mean:.3f} [{estimate.low:.3f}, {estimate.high:.3f}]"


def _signed(difference: Difference) -> str:
    return f"{signed(difference.interval)} {difference.verdict}"


def signed(interval: Estimate) -> str:
    """A difference with its interval."""
    return f"{interval.mean:+.3f} [{interval.low:+.3f}, {interval.high:+.3f}]"


def _count(value: float | None) -> str:
    return "never" if value is None else f"{value:,.0f}"


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
