"""Tables that more than one command prints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rich.table import Table

from hacrl.training.evaluation import MEASURES, Evaluation, Share, measure_name


def summary_table(summary: Mapping[str, Any]) -> Table:
    """Every agent of a run before and after, with 95% intervals, and what it cost."""
    table = Table(
        title=f"{summary['method']} on {summary['task']}, {summary['steps']} steps", title_justify="left"
    )
    for heading in ("agent", "measure", "before", "after", "rollouts"):
        table.add_column(heading, justify="left" if heading in ("agent", "measure") else "right")
    for name, agent in summary["agents"].items():
        several = len(agent["after"]) > 1
        for task, after in agent["after"].items():
            before = agent["before"].get(task)
            for measure in MEASURES:
                if after[measure] is None:
                    continue
                label = measure_name(measure, after["samples"])
                table.add_row(
                    name,
                    f"{task}: {label}" if several else label,
                    interval(before[measure]) if before else "-",
                    interval(after[measure]),
                    f"{agent['rollouts']:,}",
                )
    return table


def evaluation_table(title: str, result: Evaluation) -> Table:
    """One agent on one task."""
    table = Table(title=title, title_justify="left")
    for heading in ("measure", "accuracy", "problems"):
        table.add_column(heading, justify="left" if heading == "measure" else "right")
    rows: list[tuple[str, Share | None]] = [("greedy", result.greedy)]
    if len(result.greedy_by_kind) > 1:
        rows += [(f"greedy, {kind}", share) for kind, share in result.greedy_by_kind.items()]
    rows += [(f"mean@{result.samples}", result.mean_at_k), (f"pass@{result.samples}", result.pass_at_k)]
    for measure, share in rows:
        if share is not None:
            table.add_row(measure, interval(asdict(share)), str(share.problems))
    if result.unscorable:
        table.caption = f"{result.unscorable} answers could not be scored and do not count"
    return table


def interval(share: Mapping[str, float]) -> str:
    """A share with its 95% interval: .427 [.37, .48]."""
    mean, low, high = (share[key] for key in ("mean", "low", "high"))
    text = f"{mean:.3f} [{low:.2f}, {high:.2f}]"
    return text.replace("0.", ".")
