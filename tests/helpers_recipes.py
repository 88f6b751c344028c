"""A valid recipe that writes out every key, and several hundred wrong ones made from it by mutation."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

VALID: dict[str, Any] = {
    "agents": [
        {
            "name": "small",
            "model": "toy:state-a",
            "lora": {"rank": 8, "alpha": 16.0, "target_modules": ["q_proj", "v_proj"]},
            "learning_rate": 1e-5,
            "device": "cpu",
            "samples_per_prompt": 4,
            "resources": {"cpus": 2.0, "gpus": 0.5, "ranks": 1, "nodes": 1},
        },
        {"name": "large", "model": "toy:state-b"},
        {"name": "third", "model": "toy:state-c"},
    ],
    "task": {"name": "digits", "train": 300},
    "method": {
        "name": "hacpo",
        "delta": 0.3,
        "delta_step": 0.02,
        "alpha": 2.0,
        "clip_low": 1e-3,
        "clip_high": 2e-3,
        "without": ["exponent"],
    },
    "steps": 7,
    "prompts_per_step": 16,
    "samples_per_prompt": 8,
    "seed": 3,
    "sampling": {"max_new_tokens": 16, "temperature": 0.9, "top_p": 0.95, "max_rows": 64},
    "updates": {
        "mini_batches": 2,
        "tokens_per_micro_batch": 4096,
        "gradient_checkpointing": True,
        "train_eos": False,
    },
    "optimiser": {
        "learning_rate": 2e-6,
        "betas": [0.9, 0.98],
        "weight_decay": 0.1,
        "schedule": "cosine",
        "warmup_steps": 3,
        "skip_empty_updates": False,
        "max_grad_norm": 0.5,
        "kl": 0.01,
    },
    "capability": {"window": 3, "floor": 1e-6, "clamp": [0.2, 5.0], "measure": "positive_rate"},
    "exchange": {
        "topology": "star",
        "hub": "large",
        "length_norm": "learner",
        "peer_order": "sequential",
        "reverify": True,
        "asynchronous": {"max_staleness": 1, "wait_seconds": 60.0},
    },
    "reward": {
        "functions": [{"path": "rewards:brevity", "weight": 0.5}],
        "deadline_seconds": 5.0,
        "max_unscorable": 0.25,
        "maximum": 2.0,
    },
    "evaluation": {"every": 2, "before": False, "prompts": 30, "samples": 4, "tasks": ["reverse"]},
    "checkpoint": {"every": 2, "keep": 3},
    "logging": {"to": ["tensorboard"], "every": 2, "trajectories": False},
    "audit": {"every": 3},
    "runtime": {
        "name": "ray",
        "share_devices": False,
        "address": "10.0.0.1:6379",
        "on_failure": "degrade",
        "start_seconds": 60.0,
        "deadline_seconds": 600.0,
    },
}

NULL_IS_FINE = {
    "exchange.reverify",
    "agents.0.lora",
    "agents.0.learning_rate",
    "optimiser.learning_rate",
    "agents.0.samples_per_prompt",
    "exchange.asynchronous",
    "exchange.asynchronous.wait_seconds",
    "runtime.address",
    "reward.verifier",
    "task.train",
}
ANY_NUMBER = {"reward.maximum", "reward.functions.0.weight", "task.train"}


@dataclass(frozen=True)
class Wrong:
    """A recipe with one mistake, and the key an error message has to name."""

    what: str
    key: str
    values: dict[str, Any]


def changed(**changes: Any) -> dict[str, Any]:
    """The valid recipe with dotted keys (`__` for the dot) set to other values."""
    values = copy.deepcopy(VALID)
    for key, value in changes.items():
        _parent(values, key.replace("__", "."))[_last(key.replace("__", "."))] = value
    return values


def wrong_recipes() -> list[Wrong]:
    """All of them, always the same."""
    return [*_misspelt(), *_mistyped(), *_out_of_range(), *_missing(), *_contradictory()]


def _paths(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every dotted path below a value, sections and lists included."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        below = f"{path}.{key}" if path else str(key)
        yield below, inner
        yield from _paths(inner, below)


def _parent(values: Any, path: str) -> Any:
    for part in path.split(".")[:-1]:
        values = values[int(part)] if isinstance(values, list) else values[part]
    return values


def _last(path: str) -> Any:
    last = path.rsplit(".", 1)[-1]
    return int(last) if last.isdecimal() else last


def _with(path: str, value: Any) -> dict[str, Any]:
    values = copy.deepcopy(VALID)
    _parent(values, path)[_last(path)] = value
    return values


def _misspelt() -> Iterator[Wrong]:
    """Every key with its second letter doubled, its last letter lost."""
    for path, value in _paths(VALID):
        key = _last(path)
        if isinstance(key, int) or path == "task.train":
            continue
        for misspelt in dict.fromkeys((key[:2] + key[1:], key[:-1])):
            values = copy.deepcopy(VALID)
            section = _parent(values, path)
            del section[key]
            if misspelt in section or path == "task.name" or not misspelt:
                continue
            section[misspelt] = value
            yield Wrong("misspelt", path.removesuffix(key) + misspelt, values)


def _mistyped() -> Iterator[Wrong]:
    for path, value in _paths(VALID):
        if path.startswith("task"):
            continue
        wrong: list[Any] = [{"nonsense": 1}]
        if isinstance(value, bool | int | float):
            wrong += ["nonsense", [value]]
        if isinstance(value, str | list | dict):
            wrong += [7]
        if path not in NULL_IS_FINE and path != "exchange.hub":
            wrong += [None]
        for replacement in wrong:
            yield Wrong(f"mistyped as {replacement!r}", path, _with(path, replacement))


def _out_of_range() -> Iterator[Wrong]:
    for path, value in _paths(VALID):
        if isinstance(value, int | float) and not isinstance(value, bool) and path not in ANY_NUMBER:
            yield Wrong("out of range", path, _with(path, -1))
        elif isinstance(value, str) and path not in ("agents.0.model", "agents.1.model", "agents.2.model"):
            replacement = "" if path.endswith(("name", "tasks.0")) or "modules" in path else "../nonsense"
            if path != "method.name":
                yield Wrong("no such value", path, _with(path, replacement))


def _missing() -> Iterator[Wrong]:
    for path in ("agents", "task", "task.name", "agents.0.name", "agents.2.model", "reward.functions.0.path"):
        values = copy.deepcopy(VALID)
        del _parent(values, path)[_last(path)]
        yield Wrong("missing", path, values)


def _contradictory() -> Iterator[Wrong]:
    for key, changes in (
        ("agents.1.name", {"agents__1__name": "SMALL", "exchange__hub": "third"}),
        ("agents.2.name", {"agents__2__name": "large"}),
        ("agents.0.name", {"agents__0__name": "../../etc/passwd"}),
        ("agents.0.name", {"agents__0__name": "a/b"}),
        ("agents.0.name", {"agents__0__name": ".."}),
        ("agents.0.name", {"agents__0__name": "a" * 65}),
        ("agents.0.name", {"agents__0__name": "a\nb"}),
        ("agents", {"agents": []}),
        ("exchange.hub", {"exchange__hub": None}),
        ("exchange.hub", {"exchange__hub": "lrge"}),
        ("exchange.hub", {"exchange__topology": "ring"}),
        ("exchange.topology.0", {"exchange__topology": [["small", "nobody"]], "exchange__hub": None}),
        ("exchange.topology.0", {"exchange__topology": [["small", "small"]], "exchange__hub": None}),
        ("exchange.topology.1", {"exchange__topology": [["small", "large"]] * 2, "exchange__hub": None}),
        ("exchange.topology.0", {"exchange__topology": [["small"]], "exchange__hub": None}),
        ("exchange.topology", {"exchange__topology": [], "exchange__hub": None}),
        ("exchange.topology", {"method": "gspo"}),
        ("exchange.topology", {"method": "grpo"}),
        ("exchange.topology", {"method": "gspo_x2"}),
        ("method.delta", {"method": {"name": "gspo", "delta": 0.2}}),
        ("method.alpha", {"method": {"name": "grpo", "alpha": 1.0}}),
        ("method.without", {"method": {"name": "naive", "without": ["exponent"]}}),
        ("method.without", {"method": {"name": "hacpo", "without": ["exponent", "exponent"]}}),
        ("method", {"method": "hacpoo"}),
        ("method", {"method": "gspo-no_exponent"}),
        ("method.without.0", {"method": "hacpo-no_clip"}),
        ("method.delta", {"method__delta": 1.5}),
        ("updates.mini_batches", {"updates__mini_batches": 17}),
        ("optimiser.warmup_steps", {"optimiser__warmup_steps": 7}),
        ("optimiser.betas.1", {"optimiser__betas": [0.9, 1.0]}),
        ("capability.clamp.0", {"capability__clamp": [2.0, 5.0]}),
        ("capability.clamp.1", {"capability__clamp": [0.1, 0.5]}),
        ("reward.verifier", {"reward__verifier": "math"}),
        ("logging.to", {"logging__to": ["wandb", "wandb"]}),
        ("evaluation.tasks", {"evaluation__tasks": ["sort", "sort"]}),
        ("sampling.temperature", {"sampling__temperature": 0}),
        ("steps", {"steps": 0}),
        ("steps", {"steps": 2.0}),
        ("seed", {"seed": 2**64}),
        ("optimiser.learning_rate", {"optimiser__learning_rate": float("inf")}),
    ):
        yield Wrong("contradictory", key, changed(**changes))
