"""The files of a model, checked before transformers or peft open them.

A model may come from anybody. Weights are read from safetensors files alone, never from pickles, whichever
file names them: the directory, an index of weights, the configuration, or the adapter's. A model from the hub
is downloaded without its pickles and its code, and is then a directory like any other.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from hacrl.agents.errors import AgentError
from hacrl.printable import printable
from hacrl.runs.files import StorageError, open_regular
from hacrl.runs.json_files import read_json

CONFIG, ADAPTER_CONFIG = "config.json", "adapter_config.json"
WEIGHTS, INDEX, ADAPTER_WEIGHTS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "adapter_model.safetensors",
)
_SETTINGS = (
    CONFIG,
    "generation_config.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
)
"""JSON files that transformers reads if they are there."""
_DOWNLOADED = ["*.json", "*.jinja", "*.txt", "*.model"]
_SHARD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\.safetensors")
_MOST_LAYERS = 10_000
_LARGEST_SIZE = 2**40
_ADAPTER_KEYS = frozenset(
    {
        *("peft_type", "peft_version", "task_type", "base_model_name_or_path", "revision", "inference_mode"),
        *("r", "rank_pattern", "lora_alpha", "alpha_pattern", "lora_dropout", "lora_bias", "bias"),
        *("target_modules", "target_parameters", "exclude_modules", "modules_to_save"),
        *("layers_to_transform", "layers_pattern", "trainable_token_indices", "ensure_weight_tying"),
        *("init_lora_weights", "fan_in_fan_out", "use_rslora", "use_dora", "use_qalora", "qalora_group_size"),
    }
)
"""What an adapter's configuration may set; other keys make peft import modules or read other files."""
_ADAPTER_DEFAULTS = {"megatron_core": "megatron.core"}


def find_directory(model: str | Path, *, weights: bool = True) -> Path:
    """The model's directory; a hub id is looked up in the cache, or downloaded, with or without `weights`."""
    directory = Path(model)
    if directory.is_dir():
        return directory
    if isinstance(model, Path) or model.startswith((".", "/", "~")):
        raise AgentError(f"model directory {str(model)!r} does not exist: check the path")
    return _download(model, weights)


def _download(model: str, weights: bool) -> Path:
    """A hub model's settings and then the weights that they name."""
    from huggingface_hub import snapshot_download

    try:
        directory = Path(snapshot_download(model, allow_patterns=_DOWNLOADED))
        if weights:
            snapshot_download(model, allow_patterns=weight_files(directory))
    except (OSError, ValueError) as error:
        reason = printable(" ".join(str(error).split()), 500)
        raise AgentError(f"cannot get {model!r} from the Hugging Face hub: {reason}") from error
    return directory


def base_model(directory: Path) -> str:
    """The directory itself, or what the adapter in it was trained on."""
    if not (directory / ADAPTER_CONFIG).exists():
        return str(directory)
    base = _settings(directory / ADAPTER_CONFIG).get("base_model_name_or_path")
    if not isinstance(base, str) or not base:
        raise AgentError(f"{directory / ADAPTER_CONFIG}: base_model_name_or_path names no model")
    return base


def check_directory(directory: Path) -> None:
    """Refuse a directory that holds neither an adapter nor a configuration with safetensors weights."""
    if (directory / ADAPTER_CONFIG).exists():
        _check_adapter(directory)
    else:
        if not (directory / CONFIG).exists():
            raise AgentError(
                f"{str(directory)!r} has no config.json: give the directory that save_pretrained wrote, "
                "with config.json, model.safetensors and tokenizer.json"
            )
        _check_config(directory / CONFIG)
    check_settings(directory)
    for name in weight_files(directory):
        if not (directory / name).exists():
            raise _no_weights(directory, name)
        _check_regular(directory / name)


def check_settings(directory: Path) -> None:
    """Refuse settings that are not JSON, and tokenizers that are not regular files."""
    for name in _SETTINGS:
        if (directory / name).exists():
            _settings(directory / name)
    for path in (*directory.glob("*.jinja"), *directory.glob("tokenizer.*")):
        _check_regular(path)


def check_base(directory: Path, adapter: Path) -> None:
    """Refuse an adapter's base that is not a whole model."""
    if (directory / ADAPTER_CONFIG).exists():
        raise AgentError(
            f"{adapter / ADAPTER_CONFIG}: base_model_name_or_path {str(directory)!r} is an adapter itself: "
            "merge that one into its base first"
        )
    check_directory(directory)


def weight_files(directory: Path) -> list[str]:
    """The names of the files that hold the weights."""
    if (directory / ADAPTER_CONFIG).exists():
        return [ADAPTER_WEIGHTS]
    if (directory / WEIGHTS).exists() or not (directory / INDEX).exists():
        return [WEIGHTS]
    names = _settings(directory / INDEX).get("weight_map")
    if not isinstance(names, dict) or not names:
        raise AgentError(f"{directory / INDEX} has no weight_map: it does not say where the weights are")
    for tensor, name in names.items():
        if not isinstance(name, str) or not _SHARD.fullmatch(name):
            raise AgentError(
                f"{directory / INDEX}: the weights of {printable(tensor, 80)!r} are said to be in "
                f"{printable(str(name), 80)!r}: expected the name of a .safetensors file in the same "
                "directory; other formats can run code when loaded"
            )
    return sorted(set(names.values()))


def stored_shapes(directory: Path) -> dict[str, tuple[int, ...]]:
    """The shapes of all tensors in a model's or an adapter's files."""
    shapes: dict[str, tuple[int, ...]] = {}
    for name in weight_files(directory):
        path = directory / name
        try:
            with safe_open(path, framework="pt") as file:
                shapes |= {key: tuple(file.get_slice(key).get_shape()) for key in file.keys()}  # noqa: SIM118
        except (OSError, SafetensorError) as error:
            raise AgentError(f"{path} is not a safetensors file: {printable(str(error), 200)}") from error
    return shapes


def _settings(path: Path) -> dict[str, Any]:
    try:
        return read_json(path)
    except StorageError as error:
        raise AgentError(str(error)) from error


def _check_regular(path: Path) -> None:
    try:
        with open_regular(path):
            pass
    except StorageError as error:
        raise AgentError(str(error)) from error


def _no_weights(directory: Path, name: str) -> AgentError:
    pickled = sorted(path.name for pattern in ("*.bin", "*.pt", "*.pth") for path in directory.glob(pattern))
    if pickled:
        return AgentError(
            f"{str(directory)!r} has its weights only as pickle ({pickled[0]}), which can run code when "
            "loaded: load it once in a place you trust and save_pretrained it again, which writes safetensors"
        )
    return AgentError(f"{str(directory)!r} has no weights: a {name} is expected")


def _check_config(path: Path) -> None:
    config = _settings(path)
    if config.get("transformers_weights") is not None:
        raise AgentError(f"{path}: transformers_weights names other weights: only {WEIGHTS} is read")
    _check_values(path, "", config)


def _check_values(path: Path, prefix: str, values: dict[str, Any]) -> None:
    """Refuse code from the hub and sizes that no model has, in sections too."""
    for key, value in values.items():
        name = prefix + printable(key, 80)
        if isinstance(value, dict):
            _check_values(path, f"{name}.", value)
        elif key.endswith("_implementation") and isinstance(value, str) and "/" in value:
            raise AgentError(f"{path}: {name} asks for code from the hub ({printable(value, 80)!r})")
        elif isinstance(value, int) and abs(value) > (_MOST_LAYERS if "layer" in key else _LARGEST_SIZE):
            raise AgentError(f"{path}: {name}: no model has {printable(json.dumps(value), 30)}")


def _check_adapter(directory: Path) -> None:
    path = directory / ADAPTER_CONFIG
    config = _settings(path)
    if config.get("peft_type") != "LORA":
        raise AgentError(
            f"{path}: only LoRA adapters are read, this is {printable(str(config.get('peft_type')), 80)!r}"
        )
    for key, value in config.items():
        if key not in _ADAPTER_KEYS and value and value != _ADAPTER_DEFAULTS.get(key):
            raise AgentError(
                f"{path}: {printable(key, 80)} is not supported: it can make peft run other code"
            )
