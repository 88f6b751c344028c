"""Progress of a run: a bar and a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from hacrl.training.team import Team

Metrics = Mapping[str, float]


class Display(Protocol):
    """Where a run reports to."""

    def start(self, team: Team, step: int) -> None:
        """The run begins after `step` finished steps."""

    def status(self, text: str) -> None:
        """What the run is doing between steps."""

    def step(self, step: int, metrics: Metrics) -> None:
        """A step is finished."""

    def warn(self, text: str) -> None:
        """Something the user should know."""

    def close(self) -> None:
        """The run is over."""


def make_display(console: Console | None = None) -> Display:
    """Live on a terminal, plain lines otherwise."""
    console = console or _LastingConsole(stderr=True)
    return LiveDisplay(console) if console.is_terminal else PlainDisplay(console)


class _LastingConsole(Console):
    """A console whose reader may go away: the run goes on without it."""

    def on_broken_pipe(self) -> None:
        """Rich would end the process."""
        self.quiet = True


class PlainDisplay:
    """A line for about every twentieth of the run."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._names: tuple[str, ...] = ()
        self._steps = 0

    def start(self, team: Team, step: int) -> None:
        """Keep the agents' names and the number of steps."""
        self._names, self._steps = team.names, team.recipe.steps

    def status(self, text: str) -> None:
        """Not shown."""

    def step(self, step: int, metrics: Metrics) -> None:
        """One line every so many steps."""
        if step % max(1, self._steps // 20) == 0 or step == self._steps:
            rewards = "  ".join(
                f"{name} {metrics.get(f'agent/{name}/reward', math.nan):.3f}" for name in self._names
            )
            self._print(f"step {step}/{self._steps}  reward: {rewards}")

    def warn(self, text: str) -> None:
        """Print the warning."""
        self._print(f"warning: {text}")

    def close(self) -> None:
        """Nothing to do."""

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


class LiveDisplay:
    """A progress bar above a table of the agents, redrawn after every step."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
        )
        self._task = self._bar.add_task("training")
        self._team: Team | None = None
        self._metrics: Metrics = {}
        self._live = Live(console=console, refresh_per_second=4, get_renderable=self._render)

    def start(self, team: Team, step: int) -> None:
        """Begin drawing."""
        self._team = team
        self._bar.update(self._task, total=team.recipe.steps, completed=step)
        self._live.start()

    def status(self, text: str) -> None:
        """Show it before the bar."""
        self._bar.update(self._task, description=text)

    def step(self, step: int, metrics: Metrics) -> None:
        """Move the bar, show the new numbers."""
        self._metrics = metrics
        self._bar.update(self._task, completed=step, description="training")

    def warn(self, text: str) -> None:
        """Print above the live part."""
        self._console.print(f"warning: {text}", style="yellow", markup=False, highlight=False)

    def close(self) -> None:
        """Leave the last table on the screen."""
        self._bar.update(self._task, description="done")
        self._live.stop()

    def _render(self) -> Group:
        return Group(self._bar, *([self._table()] if self._metrics else []))

    def _table(self) -> Table:
        assert self._team is not None
        names = self._team.names
        table = Table(box=None, padding=(0, 2))
        pair_columns = self._team.method.shown
        for heading in ("agent", "reward", "accuracy", "length", "tokens/s", *pair_columns):
            table.add_column(heading, justify="left" if heading == "agent" else "right")
        for name in names:
            own = f"agent/{name}"
            peers = [f"cross/{source}->{name}" for source in self._team.topology[name]]
            table.add_row(
                name,
                self._show(f"{own}/reward", ".3f"),
                self._show(f"{own}/accuracy", ".1%"),
                self._show(f"{own}/completions/mean_length", ".1f"),
                self._show(f"time/tokens_per_second/{name}", ",.0f"),
                *(
                    " ".join(self._show(f"{peer}/{metric}", style) for peer in peers) or "-"
                    for metric, style in pair_columns.values()
                ),
            )
        return table

    def _show(self, key: str, style: str) -> str:
        value = self._metrics.get(key, math.nan)
        return format(value, style) if math.isfinite(value) else "-"
