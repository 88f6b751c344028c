"""A first recipe, short and with comments: what `hacrl init` writes."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from hacrl.recipe.overrides import parse_recipe
from hacrl.recipe.reading import parse_yaml

TOYS = ("toy:complementary-a", "toy:complementary-b")
"""Models for a recipe that needs nothing else."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Sizes to begin with; `hacrl doctor` says whether they fit."""

    prompts_per_step: int
    max_new_tokens: int
    updates: str = ""
    """Settings that save memory."""


HARDWARE = {
    "cpu": Scale(16, 128, "{tokens_per_micro_batch: 4096}"),
    "gpu": Scale(64, 1024, "{tokens_per_micro_batch: 8192, gradient_checkpointing: true}"),
    "ray": Scale(128, 4096, "{tokens_per_micro_batch: 8192, gradient_checkpointing: true}"),
}
"""All agents on this machine's processor; all on its GPU; each on a GPU of its own, through Ray."""
TOY_SCALE = Scale(64, 16)
"""For toy models, whatever the hardware."""


def default_task(models: Sequence[str]) -> str:
    """What the models can learn something from: the toys' own task, or word problems."""
    return "digits" if all(map(_is_toy, models)) else "gsm8k"


def starter_recipe(models: Sequence[str], task: str, method: str, hardware: str) -> str:
    """The text of a recipe that is valid; raises `RecipeError` where the choices are not.

    A model is `MODEL` or `NAME=MODEL`.
    """
    if hardware not in HARDWARE:
        raise ValueError(f"hardware {hardware!r}: choose one of {', '.join(HARDWARE)}")
    text = "\n".join([*_what(models, task, method, hardware), *_how(models, hardware)]) + "\n"
    parse_recipe(parse_yaml(text))
    return text


def _what(models: Sequence[str], task: str, method: str, hardware: str) -> list[str]:
    lines = [
        "# Written by `hacrl init`. `hacrl doctor` checks it and shows what it resolves to; then:",
        "#   hacrl train THIS_FILE --out runs/first",
        "agents:  # a model is a directory, a hub id or toy:NAME; `lora: {rank: 16}` trains adapters only",
    ]
    for name, model in _named(models).items():
        lines += [f"  - name: {_scalar(name)}", f"    model: {_scalar(model)}"]
        if hardware == "ray":
            lines.append("    resources: {gpus: 1}")
    return [
        *lines,
        f"task: {_scalar(task)}  # a built-in task, a file of prompts and answers, or a data set of the hub",
        f"method: {_scalar(method)}  # gspo trains each agent alone; `hacrl compare` tests what sharing adds",
    ]


def _how(models: Sequence[str], hardware: str) -> list[str]:
    scale = TOY_SCALE if all(map(_is_toy, models)) else HARDWARE[hardware]
    return [
        "steps: 30",
        f"prompts_per_step: {scale.prompts_per_step}",
        "samples_per_prompt: 8  # responses of an agent to each prompt",
        f"sampling: {{max_new_tokens: {scale.max_new_tokens}}}  # longer responses are cut off",
        *([f"updates: {scale.updates}  # less memory, more time"] if scale.updates else []),
        "optimiser: {kl: 0.0}  # the learning rate follows the size of each model: `hacrl doctor` shows it",
        "evaluation: {every: 10, prompts: 100}  # before, after, and every 10 steps, on test prompts",
        "checkpoint: {every: 10}  # `hacrl train ... --resume` goes on from the last one",
        *(["runtime: ray"] if hardware == "ray" else []),
    ]


def _named(models: Sequence[str]) -> dict[str, str]:
    """Name -> model; a name that is not given is made of the model's own, and numbered if it is taken."""
    named: dict[str, str] = {}
    for model in models:
        name, given, rest = model.partition("=")
        chosen, model = (name, rest) if given else (_own_name(model), model)
        number, free = 2, chosen
        while free in named:
            free, number = f"{chosen}-{number}", number + 1
        named[free] = model
    return named


def _own_name(model: str) -> str:
    """`Qwen/Qwen3-1.7B` -> `qwen3-1.7b`, `toy:state-a` -> `state-a`."""
    last = re.split(r"[/:]", model.rstrip("/"))[-1]
    return re.sub(r"[^a-z0-9._-]+", "-", last.lower()).strip("-.") or "agent"


def _is_toy(model: str) -> bool:
    return model.partition("=")[2].startswith("toy:") or model.startswith("toy:")


def _scalar(text: str) -> str:
    """As YAML, in quotes only where it would not be the same text without them."""
    if not text.isprintable():
        raise ValueError(
            f"{text!r} cannot be written into a recipe: it has characters that are not printable"
        )
    plain = re.fullmatch(r"[\w./@-][\w./@:+-]*", text) is not None and not text.endswith(":")
    return text if plain and parse_yaml(text) == text else json.dumps(text, ensure_ascii=False)
