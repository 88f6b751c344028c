"""A model and its tokenizer from a directory or the hub, with errors that say what is missing."""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from hacrl.agents.errors import AgentError
from hacrl.agents.model_files import (
    ADAPTER_CONFIG,
    base_model,
    check_base,
    check_directory,
    check_settings,
    find_directory,
    stored_shapes,
)
from hacrl.agents.quantised import four_bits, keep_trainable
from hacrl.agents.shared_base import SharedBases
from hacrl.huggingface import no_progress_bar, no_warnings, panics_as_errors
from hacrl.printable import printable
from hacrl.recipe.agent_settings import LoraSettings

MOST_NAMED = 5
"""Tensors named in a message."""
ROOM = 500_000_000
"""Weights that a configuration may describe beyond twice those stored: the others would be made first."""


def load_model(
    model: str | Path,
    device: torch.device,
    dtype: torch.dtype,
    bases: SharedBases | None = None,
    *,
    in_4_bits: bool = False,
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """All weights, from safetensors only; no remote code. An adapter's directory gives the adapted model.

    With `bases` the weights are frozen, and in memory once for all agents that get the same ones. Those of
    linear layers can be quantised to 4 bits, which can no longer be trained.
    """
    directory = find_directory(model)
    check_directory(directory)
    base = directory
    if (directory / ADAPTER_CONFIG).exists():
        base = find_directory(base_model(directory))
        check_base(base, directory)
    with explain_model_errors(str(model)), no_progress_bar(), no_warnings():
        how = four_bits(device, dtype) if in_4_bits else {}
        load = partial(_load_network, base, dtype, **how)
        key = (base, device, dtype, in_4_bits)
        network: Any = bases.get(key, load) if bases and base == directory else load()
        tokenizer = _load_tokenizer(directory)
        if base != directory:
            network = _load_adapter(network, directory)
    return network.to(device), tokenizer


def load_tokenizer(model: str | Path) -> PreTrainedTokenizerBase:
    """A model's tokenizer alone."""
    directory = find_directory(model, weights=False)
    check_settings(directory)
    with explain_model_errors(str(model)):
        return _load_tokenizer(directory)


@contextmanager
def explain_model_errors(model: str) -> Iterator[None]:
    """Name the model in whatever its libraries raise: strange files make them fail in any way."""
    try:
        with panics_as_errors():
            yield
    except AgentError:
        raise
    except Exception as error:
        reason = printable(" ".join(str(error).split()), 500)
        raise AgentError(
            f"cannot load {model!r} as a causal language model: {reason or type(error).__name__}"
        ) from error


def _load_network(directory: Path, dtype: torch.dtype, **quantised: Any) -> PreTrainedModel:
    _refuse_missing_bulk(directory)
    network, found = AutoModelForCausalLM.from_pretrained(
        str(directory),
        dtype=dtype,
        use_safetensors=True,
        trust_remote_code=False,
        local_files_only=True,
        ignore_mismatched_sizes=True,  # so that all of them are named here
        output_loading_info=True,
        **quantised,
    )
    keep_trainable(network)
    different = [
        f"{name} ({list(stored)} in the file, {list(expected)} in the model)"
        for name, stored, expected in sorted(found["mismatched_keys"])
    ]
    missing = found["missing_keys"] - {name for name, _, _ in found["mismatched_keys"]}
    _refuse_other_tensors(directory, missing, found["unexpected_keys"], different)
    return network


def _refuse_missing_bulk(directory: Path) -> None:
    """Refuse a configuration of a much larger model, before memory is taken for its weights."""
    config = AutoConfig.from_pretrained(str(directory), trust_remote_code=False, local_files_only=True)
    if getattr(config, "quantization_config", None) is not None:
        return  # packed: fewer numbers are stored
    stored = sum(math.prod(shape) for shape in stored_shapes(directory).values())
    with torch.device("meta"):
        described = AutoModelForCausalLM.from_config(config).num_parameters()
    if described > 2 * stored + ROOM:
        raise AgentError(
            f"{directory / 'config.json'} describes a model of {described:,} weights, but the files beside "
            f"it hold {stored:,}: they do not belong together"
        )


def _refuse_other_tensors(
    directory: Path, missing: Collection[str], unexpected: Collection[str], different: Collection[str] = ()
) -> None:
    """Raise unless the files hold the model's tensors, no fewer and no others."""
    problems = [
        f"{what}: {', '.join(sorted(names)[:MOST_NAMED])}"
        + (f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else "")
        for what, names in (("missing", missing), ("unexpected", unexpected), ("another shape", different))
        if names
    ]
    if problems:
        raise AgentError(
            f"the weights in {str(directory)!r} are not those of the model that its configuration describes "
            f"({printable('; '.join(problems), 1500)}): complete the download, or save the model again"
        )


def _load_tokenizer(directory: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(str(directory), trust_remote_code=False, local_files_only=True)


def _load_adapter(network: PreTrainedModel, directory: Path) -> Any:
    """The model with a saved adapter; everything else is frozen."""
    peft = import_peft()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about missing tensors, which are refused
        adapted = peft.PeftModel.from_pretrained(network, str(directory), is_trainable=True)
        state = peft.get_peft_model_state_dict(adapted, save_embedding_layers=False)
    stored = stored_shapes(directory)
    embeddings = {key for key in stored if key.endswith((".embed_tokens.weight", ".lm_head.weight"))}
    _refuse_other_tensors(directory, state.keys() - stored, stored.keys() - state.keys() - embeddings)
    return adapted


def import_peft() -> Any:
    """The peft package, or an error that names the extra to install."""
    # peft imports bitsandbytes where it is installed, which then recommends a package that we do not use.
    logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)
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


def freeze_beside_text(model: PreTrainedModel) -> None:
    """Freeze what no text passes through, such as a vision tower: it would only be decayed."""
    if model.config.get_text_config() is model.config:
        return
    parts = model.get_decoder(), model.get_input_embeddings(), model.get_output_embeddings()
    passed = {id(weight) for part in parts for weight in part.parameters()}
    for weight in model.parameters():
        if id(weight) not in passed:
            weight.requires_grad_(False)


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


def check_finite(model: PreTrainedModel, agent: str) -> None:
    """Refuse weights that hold NaN or infinities: every response and every loss would."""
    for name, weights in model.named_parameters():
        if weights.numel() and not all(bool(edge.isfinite()) for edge in torch.aminmax(weights.detach())):
            raise AgentError(f"agent {agent!r}: its weights hold NaN or infinite numbers, in {name}")


def context_length(model: PreTrainedModel) -> int | None:
    """Most tokens a sequence may have, if the model has a limit."""
    config = model.config.get_text_config()
    limit = getattr(config, "max_position_embeddings", None)
    return int(limit) if limit is not None else None
