"""What rounding does to ratios in half precision: `python -m benchmarks.rounding`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median, quantiles
from typing import Annotated

import torch
import typer

from benchmarks.command import JsonFile, Markdown, command, progress, show
from benchmarks.real_prompts import word_problems
from hacrl.agents.backends.interfaces import Row
from hacrl.agents.policy import Policy
from hacrl.agents.precision import DTYPES
from hacrl.analysis.tables import TextTable
from hacrl.defaults import GSPO_CLIP_LOW
from hacrl.recipe.settings import SamplingSettings
from hacrl.types import Prompt

PROMPTS, SAMPLES = 16, 8


@dataclass(frozen=True)
class Rounding:
    """Ratios of responses whose policy has not changed: 1, but for rounding."""

    model: str
    dtype: str
    length: float
    median: float
    """Of |ratio - 1|."""
    high: float
    """Its 95% quantile."""
    clipped: float
    """Share beyond the clip of GSPO."""


@dataclass(frozen=True)
class Roundings:
    """All models in all dtypes."""

    found: list[Rounding]


def rounding(
    model: Annotated[
        list[Path], typer.Option(help="Directory of a model; repeatable. `make models` makes two.")
    ],
    dtype: Annotated[list[str], typer.Option(help="float32 or bfloat16; repeatable.")] = ["bfloat16"],  # noqa: B006
    max_new: Annotated[int, typer.Option(min=1, help="Most tokens of a response.")] = 14,
    markdown: Markdown = False,
    json_file: JsonFile = None,
) -> None:
    """Score the same responses twice, all at once and in two halves, as mini-batches do, and compare."""
    torch.set_num_threads(1)
    if unknown := set(dtype) - set(DTYPES):
        raise ValueError(f"--dtype {min(unknown)}: expected one of {', '.join(DTYPES)}")
    result = Roundings([measure(directory, each, max_new) for directory in model for each in dtype])
    show([_table(result)], result, markdown, json_file)


def measure(directory: Path, dtype: str, max_new: int, prompts: Sequence[Prompt] | None = None) -> Rounding:
    """One model in one dtype."""
    progress(f"{directory.name} in {dtype}")
    policy = Policy.load("agent", str(directory), dtype=DTYPES[dtype])
    prompts = word_problems(PROMPTS) if prompts is None else prompts
    drawn = policy.sample(prompts, SAMPLES, SamplingSettings(max_new_tokens=max_new, stop=("\n",)), seed=0)
    encoded = {prompt.id: policy.encoder.encode_prompt(prompt) for prompt in prompts}
    rows = [(encoded[rollout.prompt_id], rollout.token_ids) for rollout in drawn]
    half = len(rows) // 2
    pairs = zip(_means(policy, rows), _means(policy, rows[:half]) + _means(policy, rows[half:]), strict=True)
    off = [abs(math.expm1(second - first)) for first, second in pairs]
    return Rounding(
        model=directory.name,
        dtype=dtype,
        length=fmean(len(ids) for _, ids in rows),
        median=median(off),
        high=quantiles(off, n=20)[-1],
        clipped=fmean(each > GSPO_CLIP_LOW for each in off),
    )


def _means(policy: Policy, rows: Sequence[Row]) -> list[float]:
    return [fmean(logps) for logps in policy.score(rows)]


def _table(result: Roundings) -> TextTable:
    rows = [
        (
            each.model,
            each.dtype,
            f"{each.length:.1f}",
            f"{each.median:.4f}",
            f"{each.high:.4f}",
            f"{each.clipped:.0%}",
        )
        for each in result.found
    ]
    header = ("model", "dtype", "tokens", "median |ratio - 1|", "95% below", f"beyond {GSPO_CLIP_LOW:g}")
    return TextTable("Ratios of unchanged policies: responses scored in other batches", header, rows)


app = command(rounding)

if __name__ == "__main__":
    app()
