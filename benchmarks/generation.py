"""One side of `python -m benchmarks.vllm` in a process of its own: it generates what is asked for."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import torch

from benchmarks.real_models import RealModel, prompt_ids
from benchmarks.worker import answer_all

PROMPTS = 16
RESPONSES = (16, 128)
"""To `PROMPTS` prompts: one each, and eight each."""
SIDES = ("hacrl", "vllm")
CACHE_BYTES = 10**9
"""For vLLM's keys and values: room for all responses at once."""

Generate = Callable[[Sequence[tuple[int, ...]], int], int]
"""Draw so many responses to each of the prompts -> tokens drawn."""


def main(side: str, settings: dict[str, Any]) -> None:
    """In a worker: generate as many responses as are asked for."""
    torch.set_num_threads(1)
    model = RealModel(settings["directory"], settings["dtype"])
    max_new = settings["max_new"]
    generate = _ours(model, max_new) if side == "hacrl" else _theirs(model, max_new, settings["eager"])
    prompts = prompt_ids(model, PROMPTS, 0)

    def timed(question: str) -> dict[str, Any]:
        responses = int(question)
        begun = perf_counter()
        tokens = generate(prompts, responses // PROMPTS)
        seconds = perf_counter() - begun
        if tokens != responses * max_new:
            raise RuntimeError(f"{tokens} tokens were drawn instead of {responses} x {max_new}")
        return {"seconds": seconds}

    answer_all(timed)


def _ours(model: RealModel, max_new: int) -> Generate:
    """The built-in sampler, with log-probs; no token ends a response."""
    from hacrl.agents.backends.choice import choose_backends
    from hacrl.agents.sampler import Job, Stream, draw
    from hacrl.recipe import SamplingSettings

    network = model.load().eval()
    decoder = choose_backends(network).decoder

    @torch.inference_mode()
    def generate(prompts: Sequence[tuple[int, ...]], samples: int) -> int:
        jobs = [
            Job(ids, Stream(0, "ours", str(number), sample), max_new)
            for number, ids in enumerate(prompts)
            for sample in range(samples)
        ]
        drawn = draw(jobs, decoder, SamplingSettings(), [-1], torch.device("cpu"), str)
        return sum(len(response.token_ids) for response in drawn)

    return generate


def _theirs(model: RealModel, max_new: int, eager: bool) -> Generate:
    """vLLM as its documentation has it for one core, with the log-probs of what is drawn."""
    from hacrl.agents.backends.vllm import ENVIRONMENT

    os.environ.update(ENVIRONMENT)
    from vllm import LLM, SamplingParams

    llm = LLM(
        model.directory,
        dtype=model.dtype,
        skip_tokenizer_init=True,
        generation_config="vllm",
        enforce_eager=eager,
        max_model_len=1024,
        max_num_seqs=max(RESPONSES),
        block_size=32,  # the smallest: prompts shorter than a block are computed for every response
        kv_cache_memory_bytes=CACHE_BYTES,
        gpu_memory_utilization=0.01,  # checked at start-up, otherwise overridden by the line above
    )

    def generate(prompts: Sequence[tuple[int, ...]], samples: int) -> int:
        llm.reset_prefix_cache()  # else every round but the first would find its prompts computed
        parameters = SamplingParams(
            n=samples, temperature=1.0, max_tokens=max_new, ignore_eos=True, logprobs=0, detokenize=False
        )
        inputs = [{"prompt_token_ids": list(ids)} for ids in prompts]
        outputs = llm.generate(inputs, parameters, use_tqdm=False)
        return sum(len(response.token_ids) for output in outputs for response in output.outputs)

    return generate


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
