"""Generation beside vLLM on one core: `python -m benchmarks.vllm`, in vLLM's environment."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.command import JsonFile, Markdown, Repeats, command, progress, show
from benchmarks.generation import PROMPTS, RESPONSES, SIDES
from benchmarks.real_models import RealModel
from benchmarks.timing import Spread
from benchmarks.worker import Worker
from hacrl.agents.precision import DTYPES
from hacrl.analysis.tables import TextTable


@dataclass(frozen=True)
class Rate:
    """Tokens per second of one side in one dtype, by the number of responses drawn together."""

    side: str
    dtype: str
    tokens_per_second: dict[str, Spread]


@dataclass(frozen=True)
class Generation:
    """What was found. Ratios are those of each side's faster dtype, within one round."""

    model: str
    max_new: int
    repeats: int
    rates: list[Rate]
    ratio: dict[str, Spread]
    """Our tokens per second over vLLM's, by the number of responses."""


def vllm(
    model: Annotated[Path, typer.Option(help="Directory of the model; `make models` makes two.")],
    max_new: Annotated[int, typer.Option(min=1, help="Tokens of every response.")] = 32,
    eager: Annotated[
        bool,
        typer.Option("--eager", help="vLLM does not compile its model: for machines without a compiler."),
    ] = False,
    repeats: Repeats = 5,
    markdown: Markdown = False,
    json_file: JsonFile = None,
) -> None:
    """Compare how fast hacrl and vLLM generate on one core, with the same weights, prompts and lengths.

    Every response has full length. Both sides try fp32 and bf16, each in a process of its own; they take
    turns. `make test-vllm` makes the environment that this needs.
    """
    found = measure_vllm(RealModel.at_its_best(model), max_new, repeats, eager)
    show(_tables(found), found, markdown, json_file)


def measure_vllm(model: RealModel, max_new: int, repeats: int, eager: bool) -> Generation:
    """Rounds in which every side and dtype generates once, after one to warm up."""
    seconds: dict[tuple[str, str, int], list[float]] = {}
    with ExitStack() as workers:
        asked = {}
        for side in SIDES:
            for dtype in DTYPES:
                progress(f"{side} in {dtype} starts")
                settings = {"directory": model.directory, "dtype": dtype, "max_new": max_new, "eager": eager}
                worker = Worker(f"{side} in {dtype}", "benchmarks.generation", side, json.dumps(settings))
                asked[side, dtype] = workers.enter_context(worker)
                worker.ask(str(min(RESPONSES)))
        for number in range(repeats + 1):
            progress(f"round {number} of {repeats}")
            for (side, dtype), worker in asked.items():
                for responses in RESPONSES:
                    took = worker.ask(str(responses))["seconds"]
                    seconds.setdefault((side, dtype, responses), []).append(took)
    return summarise(model.name, max_new, {case: measured[1:] for case, measured in seconds.items()})


def summarise(model: str, max_new: int, seconds: dict[tuple[str, str, int], list[float]]) -> Generation:
    """Rates of all cases, and the ratios of the sides at their best; rounds are paired."""

    def rates(side: str, dtype: str, responses: int) -> list[float]:
        return [responses * max_new / each for each in seconds[side, dtype, responses]]

    def best(side: str, responses: int) -> list[float]:
        return max((rates(side, dtype, responses) for dtype in DTYPES), key=lambda all: Spread.of(all).median)

    ratio = {}
    for responses in RESPONSES:
        pairs = zip(best("hacrl", responses), best("vllm", responses), strict=True)
        ratio[str(responses)] = Spread.of([ours / theirs for ours, theirs in pairs])
    found = [
        Rate(side, dtype, {str(n): Spread.of(rates(side, dtype, n)) for n in RESPONSES})
        for side in SIDES
        for dtype in DTYPES
    ]
    return Generation(model, max_new, len(next(iter(seconds.values()))), found, ratio)


def _tables(found: Generation) -> list[TextTable]:
    title = (
        f"{found.model}: tokens per second on one core, {PROMPTS} prompts, {found.max_new} tokens a response"
    )
    header = ("", *(f"{responses} responses" for responses in RESPONSES))
    rows = [
        (f"{rate.side}, {rate.dtype}", *(f"{spread:.0f}" for spread in rate.tokens_per_second.values()))
        for rate in found.rates
    ]
    ratios = ("hacrl over vLLM, each at its best", *(f"{spread:.2f}" for spread in found.ratio.values()))
    return [TextTable(title, header, [*rows, ratios])]


app = command(vllm)

if __name__ == "__main__":
    app()
