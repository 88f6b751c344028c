"""What an agent computes in, fp32 or bf16 (`dtype: auto` in a recipe).

On a CPU with AVX512-BF16 or AMX, matrix products in bf16 are more than twice as fast as in fp32; on others
they are many times slower. So both are measured, with products of the model's own shape.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
from torch.nn import functional as F
from transformers import AutoConfig, AutoModelForCausalLM

from hacrl.agents.model_files import base_model

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
"""By their names in a recipe; `auto` is one of them."""
SMALL = 20_000_000
"""Models with fewer parameters always compute in fp32: toy models train alike on all machines."""
MARGIN = 1.3
"""bf16 has to be this many times as fast: own responses are scored once more (see `Policy.prepare`)."""
ROWS = (16, 256)
"""Tokens per product: when responses are decoded side by side, and when they are trained on."""
REPETITIONS = 7


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of a model that the choice depends on."""

    parameters: int
    hidden: int
    feed_forward: int


@dataclass(frozen=True, slots=True)
class Precision:
    """What an agent computes in."""

    dtype: str
    """A key of `DTYPES`."""
    speedup: float | None = None
    """How many times as fast as fp32 bf16 is on this machine; None: not measured."""


def choose_precision(setting: str, device: str, sizes: Sizes | None) -> Precision:
    """The recipe's `setting`; for `auto`, bf16 on a GPU, and on a CPU if the model is large and bf16 faster.

    Without `sizes`, which are not always known, `auto` is fp32 on a CPU.
    """
    if setting != "auto":
        return Precision(setting)
    if torch.device(device).type != "cpu":
        return Precision("bfloat16")
    if sizes is None or sizes.parameters < SMALL:
        return Precision("float32")
    speedup = bf16_speedup(sizes.hidden, sizes.feed_forward)
    return Precision("bfloat16" if speedup >= MARGIN else "float32", speedup)


@lru_cache(maxsize=64)
def bf16_speedup(hidden: int, feed_forward: int) -> float:
    """fp32's time over bf16's on this CPU, half of fp32's time spent decoding and half training."""
    slowdowns = [_seconds(rows, hidden, feed_forward) for rows in ROWS]
    return len(ROWS) / sum(bf16 / fp32 for fp32, bf16 in slowdowns)


def _seconds(rows: int, hidden: int, feed_forward: int) -> tuple[float, float]:
    """Shortest times of one product in fp32 and in bf16: other programs only make them longer."""
    pairs = [
        (torch.ones(rows, hidden, dtype=dtype), torch.ones(feed_forward, hidden, dtype=dtype))
        for dtype in DTYPES.values()
    ]
    times: list[list[float]] = [[], []]
    with torch.inference_mode():
        for _ in range(REPETITIONS):
            for (tokens, weight), measured in zip(pairs, times, strict=True):
                started = time.perf_counter()
                F.linear(tokens, weight)
                measured.append(time.perf_counter() - started)
    fp32, bf16 = map(min, times)
    return fp32, bf16


@lru_cache(maxsize=64)
def sizes_of(model: str | Path) -> Sizes | None:
    """A model's sizes, from its configuration alone; None if it has none: loading the model will say why."""
    source = base_model(Path(model)) if Path(model).is_dir() else str(model)
    try:
        config = AutoConfig.from_pretrained(source, trust_remote_code=False)
        with torch.device("meta"):
            network = AutoModelForCausalLM.from_config(config)
    except Exception:  # a damaged configuration makes its readers fail in any way
        return None
    text = config.get_text_config()
    hidden = text.hidden_size
    return Sizes(network.num_parameters(), hidden, getattr(text, "intermediate_size", None) or 4 * hidden)
