"""A stand-in for the vllm package: just the parts that are used, with a transformers model inside."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer


class FakeLLM:
    """Responds greedily with the weights it holds, and records its calls."""

    made: ClassVar[list[FakeLLM]] = []
    noise = 0.0
    """Added to every log-prob that is reported."""
    forgetful = False
    """Whether new weights are taken without an error, but not used."""

    def __init__(self, folder: str, **settings: Any) -> None:
        self.settings = settings
        self.calls: list[str] = []
        config = AutoConfig.from_pretrained(folder)
        self.model = AutoModelForCausalLM.from_config(config).eval()
        self.model.load_weights = self._load_weights
        self.model_config = SimpleNamespace(max_model_len=config.max_position_embeddings)
        core = SimpleNamespace(shutdown=lambda: self.calls.append("shutdown"))
        self.llm_engine = SimpleNamespace(engine_core=core)
        self.tokenizer = None if settings["skip_tokenizer_init"] else AutoTokenizer.from_pretrained(folder)
        self.made.append(self)

    def _load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        self.calls.append("load")
        if not self.forgetful:
            own = dict(self.model.named_parameters())
            for name, value in weights:
                own[name].copy_(value)

    def apply_model(self, function: Callable[[Any], Any]) -> list[Any]:
        return [function(self.model)]

    def reset_prefix_cache(self) -> bool:
        self.calls.append("reset")
        return True

    def generate(
        self, prompts: Sequence[dict[str, list[int]]], parameters: Sequence[SimpleNamespace], use_tqdm: bool
    ) -> list[SimpleNamespace]:
        self.calls.append("generate")
        requests = zip(prompts, parameters, strict=True)
        return [
            SimpleNamespace(outputs=[self._respond(prompt["prompt_token_ids"], how)])
            for prompt, how in requests
        ]

    def _respond(self, prompt: list[int], how: SimpleNamespace) -> SimpleNamespace:
        ids: list[int] = []
        logprobs = []
        found = None
        while len(ids) < how.max_tokens and not (found or (ids and ids[-1] in how.stop_token_ids)):
            with torch.inference_mode():
                logps = self.model(torch.tensor([prompt + ids])).logits[0, -1].log_softmax(-1)
            ids.append(int(logps.argmax()))
            logprobs.append({ids[-1]: SimpleNamespace(logprob=float(logps.max()) + self.noise)})
            found = next((stop for stop in how.stop if stop in self._text(ids)), None)
        return SimpleNamespace(token_ids=ids, logprobs=logprobs, stop_reason=found)

    def _text(self, ids: list[int]) -> str:
        assert self.tokenizer is not None, "stop strings need a tokenizer"
        return str(self.tokenizer.decode(ids, skip_special_tokens=True))


def install(monkeypatch: pytest.MonkeyPatch, **behaviour: Any) -> type[FakeLLM]:
    """Let `import vllm` find the stand-in -> the class of its engines."""
    llm = type("LLM", (FakeLLM,), {"made": [], **behaviour})
    vllm, platforms, operations = (ModuleType(name) for name in NAMES)
    vllm.LLM, vllm.SamplingParams = llm, SimpleNamespace  # type: ignore[attr-defined]
    platforms.current_platform = SimpleNamespace(is_cpu=lambda: True)  # type: ignore[attr-defined]
    for name, module in zip(NAMES, (vllm, platforms, operations), strict=True):
        monkeypatch.setitem(sys.modules, name, module)
    vllm._custom_ops = operations  # type: ignore[attr-defined]
    return llm


NAMES = ("vllm", "vllm.platforms", "vllm._custom_ops")
