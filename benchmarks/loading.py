"""How long it takes until a real model samples its first token: `python -m benchmarks.loading`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.command import JsonFile, Markdown, command, progress, show
from benchmarks.worker import Worker
from hacrl.analysis.tables import TextTable


@dataclass(frozen=True)
class Loading:
    """CPU seconds of a process with one thread, part by part."""

    model: str
    dtype: str
    imports: float
    loading: float
    first_token: float
    fingerprint: float
    """Of the weights; every step takes one."""

    @property
    def to_the_first_token(self) -> float:
        """From the start of the process."""
        return self.imports + self.loading + self.first_token


def loading(
    model: Annotated[Path, typer.Option(help="Directory of the model; `make models` makes two.")],
    markdown: Markdown = False,
    json_file: JsonFile = None,
) -> None:
    """Time what comes before an agent's first token, and a fingerprint of its weights."""
    found = measure_loading(model)
    seconds = {
        "importing hacrl, torch and transformers": found.imports,
        "loading the agent": found.loading,
        "its first token": found.first_token,
        "all of it": found.to_the_first_token,
        "a fingerprint of the weights": found.fingerprint,
    }
    rows = [(part, f"{value:.2f}") for part, value in seconds.items()]
    title = f"{found.model} in {found.dtype}: CPU seconds on one core"
    show([TextTable(title, ("", "seconds"), rows)], found, markdown, json_file)


def measure_loading(model: Path) -> Loading:
    """In a process of its own."""
    if not (model / "config.json").is_file():
        raise ValueError(f"{model} is not the directory of a model; `make models` makes two")
    progress(f"loading {model.name}")
    with Worker(model.name, "benchmarks.loading_worker", str(model.resolve())) as worker:
        return Loading(**worker.end())


app = command(loading)

if __name__ == "__main__":
    app()
