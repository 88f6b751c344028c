"""A stand-in for the vllm package: just the parts that are used, with a transformers model inside."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
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
        self.asked: list[int] = []
        """How many responses each call was to draw."""
        config = AutoConfig.from_pretrained(folder)
        self.model = AutoModelForCausalLM.from_config(config).eval()
        self.model.load_weights = self._load_weights
        self.model_config = SimpleNamespace(max_model_len=config.max_position_embeddings)
        core = SimpleNamespace(shutdown=lambda: self.calls.append("shutdown"))
        self.llm_engine = SimpleNamespace(engine_core=core, add_lora=self._add_lora)
        if settings["load_format"] == "safetensors":
            self._load_weights(load_file(next(Path(folder).glob("*.safetensors"))).items())
        if settings.get("enable_lora"):
            self.model.lora_manager = self._adapters(settings["max_loras"], settings["max_lora_rank"])
        self.tokenizer = None if settings["skip_tokenizer_init"] else AutoTokenizer.from_pretrained(folder)
        self.made.append(self)

    @torch.no_grad()
    def _load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        self.calls.append("load")
        if not self.forgetful:
            own = dict(self.model.named_parameters())
            for name, value in weights:
                own[name].copy_(value)

    def _adapters(self, count: int, rank: int) -> SimpleNamespace:
        """Room for adapters, as vLLM has it."""
        modules = {
            name: SimpleNamespace(
                lora_a_stacked=(torch.zeros(count, 1, rank, layer.in_features),),
                lora_b_stacked=(torch.zeros(count, 1, layer.out_features, rank),),
            )
            for name, layer in self.model.named_modules()
            if isinstance(layer, nn.Linear) and name != "lm_head"
        }
        return SimpleNamespace(
            modules=modules, lora_index_to_id=[None] * count, packed_modules_mapping={"unused": ["parts"]}
        )

    def _add_lora(self, request: SimpleNamespace) -> None:
        self.calls.append(f"adapter {request.lora_name}")
        assert request.load_inplace
        manager: Any = self.model.lora_manager
        if self.forgetful:
            return
        if request.lora_int_id not in manager.lora_index_to_id:
            manager.lora_index_to_id[manager.lora_index_to_id.index(None)] = request.lora_int_id
        slot = manager.lora_index_to_id.index(request.lora_int_id)
        config = json.loads((Path(request.lora_path) / "adapter_config.json").read_text())
        tensors = load_file(Path(request.lora_path) / "adapter_model.safetensors")
        for name, layer in manager.modules.items():
            a, b = (tensors.pop(f"base_model.model.{name}.lora_{kind}.weight") for kind in "AB")
            layer.lora_a_stacked[0][slot, 0, : len(a)] = a
            layer.lora_b_stacked[0][slot, 0, :, : len(a)] = b * (config["lora_alpha"] / config["r"])
        assert not tensors

    @contextmanager
    def _adapted(self, request: SimpleNamespace | None) -> Iterator[None]:
        """The model with an adapter that was loaded."""
        if request is None:
            yield
            return
        manager: Any = self.model.lora_manager
        slot = manager.lora_index_to_id.index(request.lora_int_id)
        saved = {name: weight.clone() for name, weight in self.model.state_dict().items()}
        with torch.no_grad():
            for name, layer in manager.modules.items():
                delta = layer.lora_b_stacked[0][slot, 0] @ layer.lora_a_stacked[0][slot, 0]
                self.model.get_submodule(name).weight += delta
        yield
        self.model.load_state_dict(saved)

    def apply_model(self, function: Callable[[Any], Any]) -> list[Any]:
        return [function(self.model)]

    def sleep(self, level: int) -> None:
        self.calls.append(f"sleep {level}")

    def wake_up(self, tags: list[str]) -> None:
        self.calls.append(f"wake {' '.join(tags)}")

    def reset_prefix_cache(self) -> bool:
        self.calls.append("reset")
        return True

    def generate(
        self,
        prompts: Sequence[dict[str, list[int]]],
        parameters: Sequence[SimpleNamespace],
        use_tqdm: bool,
        lora_request: SimpleNamespace | None = None,
    ) -> list[SimpleNamespace]:
        self.calls.append("generate")
        self.asked.append(len(prompts))
        requests = zip(prompts, parameters, strict=True)
        with self._adapted(lora_request):
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


def FakeLoRARequest(name: str, number: int, path: str, load_inplace: bool = False) -> SimpleNamespace:
    return SimpleNamespace(lora_name=name, lora_int_id=number, lora_path=path, load_inplace=load_inplace)


def install(monkeypatch: pytest.MonkeyPatch, **behaviour: Any) -> type[FakeLLM]:
    """Let `import vllm` find the stand-in -> the class of its engines."""
    llm = type("LLM", (FakeLLM,), {"made": [], **behaviour})
    vllm, platforms, operations, lora, request = (ModuleType(name) for name in NAMES)
    request.LoRARequest = FakeLoRARequest  # type: ignore[attr-defined]
    vllm.LLM, vllm.SamplingParams = llm, SimpleNamespace  # type: ignore[attr-defined]
    platforms.current_platform = SimpleNamespace(is_cpu=lambda: True)  # type: ignore[attr-defined]
    for name, module in zip(NAMES, (vllm, platforms, operations, lora, request), strict=True):
        monkeypatch.setitem(sys.modules, name, module)
    vllm._custom_ops = operations  # type: ignore[attr-defined]
    return llm


NAMES = ("vllm", "vllm.platforms", "vllm._custom_ops", "vllm.lora", "vllm.lora.request")
