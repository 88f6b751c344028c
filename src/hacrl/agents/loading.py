"""A model and its tokenizer from a directory or the hub, with errors that say what is missing."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from hacrl.agents.errors import AgentError
from hacrl.huggingface import no_progress_bar
from hacrl.recipe.settings import LoraSettings

ADAPTER_CONFIG = "adapter_config.json"


def load_model(
    model: str | Path, device: torch.device, dtype: torch.dtype
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Safetensors weights only, no remote code. A peft adapter's directory gives the adapted model."""
    directory = Path(model)
    local = directory.is_dir()
    if local:
        check_directory(directory)
    elif isinstance(model, Path) or model.startswith((".", "/", "~")):
        raise AgentError(f"model directory {str(model)!r} does not exist: check the path")
    source = str(directory) if local else str(model)
    base = base_model(directory) if local else source
    try:
        with no_progress_bar() if local else nullcontext():
            network = AutoModelForCausalLM.from_pretrained(
                base, dtype=dtype, use_safetensors=True, trust_remote_code=False
            )
            tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
    except (OSError, ValueError, SafetensorError) as error:
        raise AgentError(f"cannot load {source!r} as a causal language model: {error}") from error
    if base != source:
        network = import_peft().PeftModel.from_pretrained(network, source, is_trainable=True)
    return network.to(device), tokenizer


def base_model(directory: Path) -> str:
    """The directory itself, or what the adapter in it was trained on."""
    adapter = directory / ADAPTER_CONFIG
    if not adapter.is_file():
        return str(directory)
    return str(json.loads(adapter.read_text())["base_model_name_or_path"])


def check_directory(directory: Path) -> None:
    """Refuse a directory that holds neither an adapter nor a configuration with safetensors weights."""
    if (directory / ADAPTER_CONFIG).is_file():
        return
    if not (directory / "config.json").is_file():
        raise AgentError(
            f"{str(directory)!r} has no config.json: give the directory that save_pretrained wrote, "
            "with config.json, model.safetensors and tokenizer.json"
        )
    if any(directory.glob("*.safetensors")):
        return
    pickled = sorted(path.name for pattern in ("*.bin", "*.pt", "*.pth") for path in directory.glob(pattern))
    if pickled:
        raise AgentError(
            f"{str(directory)!r} has its weights only as pickle ({pickled[0]}), which can run code when "
            "loaded: load it once in a place you trust and save_pretrained it again, which writes safetensors"
        )
    raise AgentError(f"{str(directory)!r} has no weights: a model.safetensors is expected")


def import_peft() -> Any:
    """The peft package, or an error that names the extra to install."""
    try:
        import peft
    except ImportError as error:
        raise AgentError("LoRA needs the peft package: pip install 'hacrl[lora]'") from error
    return peft


def with_adapters(model: PreTrainedModel, settings: LoraSettings, seed: int) -> Any:
    """The model with fresh, trainable low-rank adapters; everything else is frozen."""
    peft = import_peft()
    targets = settings.target_modules
    config = peft.LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        target_modules=targets if isinstance(targets, str) else list(targets),
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return peft.get_peft_model(model, config)


def eos_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """Every token that ends a response, from the tokenizer, the generation config and the model's config."""
    found: list[int] = []
    for source in (tokenizer, getattr(model, "generation_config", None), model.config.get_text_config()):
        ids = getattr(source, "eos_token_id", None)
        found += [] if ids is None else [ids] if isinstance(ids, int) else list(ids)
    return tuple(dict.fromkeys(found))


def check_vocabulary(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, agent: str) -> None:
    """Refuse a tokenizer that writes tokens the model has no embedding for."""
    size = model.get_input_embeddings().weight.shape[0]
    if len(tokenizer) > size:
        raise AgentError(
            f"agent {agent!r}: the tokenizer has {len(tokenizer)} tokens but the model only {size} "
            "embeddings: use the model's own tokenizer, or model.resize_token_embeddings and save it again"
        )


def context_length(model: PreTrainedModel) -> int | None:
    """Most tokens a sequence may have, if the model has a limit."""
    config = model.config.get_text_config()
    limit = getattr(config, "max_position_embeddings", None)
    return int(limit) if limit is not None else None
