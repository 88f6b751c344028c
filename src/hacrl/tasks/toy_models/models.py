"""Toy models: tiny language models that are trained on first use and kept in the user's cache directory.

They are real Hugging Face models with real tokenizers, pretrained for seconds on prompts with right answers
until they are partly competent at a task: `digits`, `styles`, `varied`, or one of reasoning-gym. Pretraining
has stages. Models with the same first stages share the cached result, so `state-a` and `state-b` are forks
of one model.

`state-a@3` is made like `state-a` from other random weights and other questions: results that hold for many
such bases do not depend on the luck of one.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shutil
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
import transformers
from rich.console import Console
from rich.progress import track
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from hacrl.huggingface import no_progress_bar
from hacrl.tasks.task import TaskError
from hacrl.tasks.toy_models.pretraining import EVENLY, GymStage, Stage, TaskStage, reproducible, train
from hacrl.tasks.toy_models.tokenizers import Cut, make_tokenizer

VERSION = 1
"""Increase it when a change here or in `hacrl.tasks.procedural` changes a model's bits."""


@dataclass(frozen=True)
class Body:
    """A model before pretraining: architecture, size and tokenizer."""

    architecture: Literal["qwen3", "llama"]
    width: int
    layers: int
    heads: int
    cut: Cut


@dataclass(frozen=True)
class BaseAgent:
    """How a toy model is made. Those with the same body and first stages are forks of one model."""

    body: Body
    stages: tuple[Stage, ...]
    base: int = 0
    """Random weights and questions; agents with the same base are made to be trained together."""

    @property
    def task(self) -> str:
        """The task it is pretrained for."""
        return self.stages[-1].material[0]


MEDIUM = Body("qwen3", width=64, layers=2, heads=4, cut="characters")
SMALL = replace(MEDIUM, width=32)
LARGE = replace(MEDIUM, width=96)
LARGEST = replace(MEDIUM, width=192, layers=4)
DEEP = replace(MEDIUM, layers=3)

COMMON = Stage(steps=90, learning_rate=3e-3, weights=EVENLY)
VARIED = TaskStage(steps=220, learning_rate=3e-3, weights=(2, 1), task="varied", column="example")


def _fork(steps: int, learning_rate: float, weights: tuple[int, int, int]) -> BaseAgent:
    """A fork of the common model, with its own mixture of skills."""
    return BaseAgent(MEDIUM, (COMMON, Stage(steps, learning_rate, weights)))


def _alone(body: Body, steps: int, learning_rate: float, weights: tuple[int, int, int] = EVENLY) -> BaseAgent:
    """A model that shares nothing with the others."""
    return BaseAgent(body, (Stage(steps, learning_rate, weights),))


def _writer(steps: int, style: str) -> BaseAgent:
    """A fork of the common model that responds in one style."""
    return BaseAgent(MEDIUM, (COMMON, TaskStage(steps, 2e-3, EVENLY, task="styles", column=style)))


def _varied(weights: tuple[int, int]) -> BaseAgent:
    """A fork of the common model for tasks with many right answers, with its own mixture of skills."""
    return BaseAgent(MEDIUM, (VARIED, replace(VARIED, steps=50, learning_rate=1.5e-3, weights=weights)))


def _speller(shortest: int, longest: int) -> BaseAgent:
    """A fork of the common model that has spelled words of these lengths backward."""
    stages = [
        GymStage(
            steps, rate, (1,), "gym:spell_backward", "answer", {"min_word_len": least, "max_word_len": most}
        )
        for steps, rate, least, most in ((200, 5e-3, 3, 6), (100, 3e-3, shortest, longest))
    ]
    return BaseAgent(DEEP, tuple(stages))


AGENTS: dict[str, BaseAgent] = {
    "state-a": _fork(35, 1.5e-3, (6, 1, 1)),
    "state-b": _fork(35, 1.5e-3, (1, 1, 6)),
    "state-c": _fork(35, 1.5e-3, (1, 6, 1)),
    "state-d": _fork(35, 1.5e-3, (3, 3, 1)),
    "state-e": _fork(35, 1.5e-3, (1, 3, 3)),
    "state-f": _fork(35, 1.5e-3, (3, 1, 3)),
    "state-g": _fork(35, 1.5e-3, (2, 1, 1)),
    "state-h": _fork(35, 1.5e-3, (1, 1, 2)),
    "near-a": _fork(10, 8e-4, (6, 1, 1)),
    "near-b": _fork(10, 8e-4, (1, 1, 6)),
    "complementary-a": _fork(80, 2e-3, (2, 1, 0)),
    "complementary-b": _fork(80, 2e-3, (0, 1, 2)),
    "size-small": _alone(SMALL, 200, 6e-3, (2, 2, 3)),
    "size-large": _alone(LARGE, 120, 2e-3),
    "size-largest": _alone(LARGEST, 120, 1.5e-3),
    "model-llama": _alone(replace(MEDIUM, architecture="llama"), 180, 3e-3),
    "model-qwen": _alone(Body("qwen3", width=96, layers=1, heads=4, cut="digit-pairs"), 260, 5e-3),
    "gap-weak": _alone(SMALL, 90, 3e-3),
    "gap-strong": _alone(LARGE, 200, 2e-3),
    "fresh-a": _alone(Body("llama", width=48, layers=2, heads=4, cut="characters"), 160, 4e-3, (1, 2, 2)),
    "fresh-b": _alone(Body("qwen3", width=80, layers=2, heads=4, cut="digit-pairs"), 240, 4e-3, (3, 1, 1)),
    "style-a": _writer(140, "plain"),
    "style-b": _writer(180, "commas"),
    "varied-a": _varied((12, 1)),
    "varied-b": _varied((1, 6)),
    "words-a": _speller(3, 5),
    "words-b": _speller(4, 6),
}

PAIRS = {
    "state": ("state-a", "state-b"),
    "near": ("near-a", "near-b"),
    "size": ("size-small", "size-large"),
    "complementary": ("complementary-a", "complementary-b"),
    "model": ("model-llama", "model-qwen"),
    "gap": ("gap-weak", "gap-strong"),
    "fresh": ("fresh-a", "fresh-b"),
    "style": ("style-a", "style-b"),
    "varied": ("varied-a", "varied-b"),
    "words": ("words-a", "words-b"),
}
"""The kinds of heterogeneity, each as a pair; `state-a` to `state-h` also make groups of three to eight."""


def find(name: str) -> BaseAgent:
    """How the toy model `NAME` or `NAME@BASE` is made."""
    kind, _, base = name.partition("@")
    if kind not in AGENTS:
        raise TaskError(f"there is no toy model {kind!r}; there are: {', '.join(AGENTS)}")
    if "@" in name and not re.fullmatch("[0-9]{1,9}", base):
        raise TaskError(f"toy model {name!r}: expected a number after '@', as in {kind}@1")
    return replace(AGENTS[kind], base=int(base or 0))


def build(name: str) -> Path:
    """The `save_pretrained` directory of a toy model; made now if it is not in the cache."""
    return _cached(find(name), name)


def cache_directory() -> Path:
    """Where toy models are kept: below `$XDG_CACHE_HOME`, or `~/.cache` when it is not set."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hacrl" / "toy_models"


def _cached(agent: BaseAgent, label: str) -> Path:
    directory = cache_directory() / _digest(agent)
    if not directory.exists():
        _publish(*_pretrained(agent, label), agent, directory)
    return directory


def describe(agent: BaseAgent) -> dict[str, Any]:
    """Everything that determines the bits but versions; models without a base are described as ever."""
    described = asdict(agent)
    if not agent.base:
        del described["base"]
    return described


def _digest(agent: BaseAgent) -> str:
    """A hash of everything that determines the bits: recipe, version of this code, and library versions."""
    recipe = [VERSION, describe(agent), torch.__version__, transformers.__version__]
    return hashlib.sha256(json.dumps(recipe).encode()).hexdigest()[:16]


def _pretrained(agent: BaseAgent, label: str) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """Run the last stage on top of the cached result of the earlier ones."""
    *earlier, last = agent.stages
    tokenizer = make_tokenizer(agent.body.cut)
    with reproducible(agent.base), no_progress_bar():
        if earlier:
            parent = _cached(replace(agent, stages=tuple(earlier)), label)
            model = AutoModelForCausalLM.from_pretrained(parent)
        else:
            model = _untrained(agent.body, tokenizer)
        console = Console(stderr=True)
        for _ in track(
            train(model, tokenizer, last, agent.base),
            description=f"toy model {label}, stage {len(agent.stages)}",
            total=last.steps,
            console=console,
            transient=True,
            disable=not console.is_terminal,
        ):
            pass
    return model, tokenizer


def _untrained(body: Body, tokenizer: PreTrainedTokenizerFast) -> PreTrainedModel:
    """A model with random weights from torch's current random state."""
    config_class, model_class = {
        "qwen3": (Qwen3Config, Qwen3ForCausalLM),
        "llama": (LlamaConfig, LlamaForCausalLM),
    }[body.architecture]
    config = config_class(
        vocab_size=len(tokenizer),
        hidden_size=body.width,
        intermediate_size=body.width * 8 // 3 // 8 * 8,
        num_hidden_layers=body.layers,
        num_attention_heads=body.heads,
        num_key_value_heads=body.heads,
        head_dim=body.width // body.heads,
        max_position_embeddings=256,
        tie_word_embeddings=True,
        # With the usual 0.02, a model this narrow learns very slowly at first.
        initializer_range=0.8 / math.sqrt(body.width),
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    return model_class(config)


def _publish(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, agent: BaseAgent, directory: Path
) -> None:
    """Put the finished model in place atomically, so that readers never see an incomplete one.

    Two processes may make the same model at once. Both make the same bits; the first one is kept.
    """
    directory.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=".unfinished-", dir=directory.parent))
    try:
        with no_progress_bar():
            model.save_pretrained(unfinished)
        tokenizer.save_pretrained(unfinished)
        (unfinished / "toy_model.json").write_text(json.dumps(describe(agent), indent=2) + "\n")
        unfinished.rename(directory)
    except OSError:
        if not directory.exists():
            raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
