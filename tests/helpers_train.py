"""Tiny untrained agents and small recipes: whole runs in a second."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, PreTrainedConfig, Qwen3Config

from hacrl.rewards.processes import descendants
from hacrl.tasks.toy_models.tokenizers import Cut, make_tokenizer
from hacrl.training.display import Metrics
from hacrl.training.team import Team
from hacrl.training.trainer import train

SHAPES: dict[str, dict[str, Any]] = {
    "llama": {"num_attention_heads": 2, "intermediate_size": 48},
    "qwen3": {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "intermediate_size": 48},
    "gpt2": {"n_head": 2},
}
CONFIGS: dict[str, type[PreTrainedConfig]] = {
    "llama": LlamaConfig,
    "qwen3": Qwen3Config,
    "gpt2": GPT2Config,
}


def make_agent(
    directory: Path, seed: int, arch: str = "llama", width: int = 32, cut: Cut = "characters"
) -> Path:
    """An untrained model that ends its answers after a few tokens."""
    tokenizer = make_tokenizer(cut)
    torch.manual_seed(seed)
    common = {"vocab_size": len(tokenizer), "hidden_size": width, "num_hidden_layers": 2}
    tokens = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    config = CONFIGS[arch](**common, **SHAPES[arch], **tokens, max_position_embeddings=64, pad_token_id=0)
    model = AutoModelForCausalLM.from_config(config)
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory


def short_answers(prompts: Sequence[str], completions: Sequence[str], **columns: Any) -> list[float]:
    """A reward that untrained agents sometimes earn."""
    return [float(len(completion) % 2 == 0 and completion < "n") for completion in completions]


def recipe(agents: Mapping[str, Path], **changes: Any) -> dict[str, Any]:
    base = {
        "agents": [{"name": name, "model": str(path)} for name, path in agents.items()],
        "task": {"name": "digits", "train": 90, "test": 30},
        "steps": 4,
        "prompts_per_step": 4,
        "samples_per_prompt": 4,
        "sampling": {"max_new_tokens": 6},
        "optimiser": {"learning_rate": 1e-3},
        "method": {"name": "hacpo", "delta": 0.8},
        "evaluation": {"prompts": 6},
    }
    return base | changes


class Silent:
    """Shows nothing, remembers warnings."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def start(self, team: Team, step: int) -> None: ...

    def status(self, text: str) -> None: ...

    def step(self, step: int, metrics: Metrics) -> None: ...

    def warn(self, text: str) -> None:
        self.warnings.append(text)

    def close(self) -> None: ...


class StopAt(Silent):
    """Sends the process a signal once a step is finished."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self._step = step

    def step(self, step: int, metrics: Metrics) -> None:
        if step == self._step:
            os.kill(os.getpid(), signal.SIGINT)


def run(settings: Mapping[str, Any], out: Path, **options: Any) -> dict[str, Any]:
    return train(settings, out, **({"reward_funcs": [short_answers], "display": Silent()} | options))


@contextmanager
def no_process_left() -> Iterator[None]:
    """Check that every process started inside has ended; those of earlier tests may go on."""
    before = set(descendants(os.getpid()))
    yield
    assert set(descendants(os.getpid())) <= before


def final_weights(out: Path, name: str) -> dict[str, torch.Tensor]:
    weights: dict[str, torch.Tensor] = load_file(out / "agents" / name / "model.safetensors")
    return weights


def responses(out: Path) -> list[dict[str, Any]]:
    """Texts and rewards of all steps, without log-probs."""
    lines = [line for path in sorted(out.glob("trajectories/*")) for line in path.read_text().splitlines()]
    kept = ("prompt_id", "sample", "text", "token_ids", "reward")
    return [{key: value for key, value in json.loads(line).items() if key in kept} for line in lines]


def metrics(out: Path) -> list[dict[str, float]]:
    """All lines without what depends on where and how fast they were computed."""
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    elsewhere = ("time/", "runtime/")
    return [{key: value for key, value in line.items() if not key.startswith(elsewhere)} for line in lines]


def outcome(out: Path) -> dict[str, Any]:
    """Everything of a finished run that must not depend on how it got there."""
    summary = json.loads((out / "summary.json").read_text())
    for spent in ("seconds", "cpu_seconds"):
        summary.pop(spent)
    return {
        "weights": {
            path.parent.name: path.read_bytes() for path in sorted(out.glob("agents/*/model.safetensors"))
        },
        "metrics": metrics(out),
        "trajectories": {path.name: path.read_bytes() for path in sorted(out.glob("trajectories/*"))},
        "evaluations": {path.name: path.read_bytes() for path in sorted(out.glob("evaluations/*"))},
        "summary": summary,
    }
