"""One agent whose responses vLLM draws, in a process of its own: `python -m benchmarks.engines` asks it."""

from __future__ import annotations

import json
import sys
from time import perf_counter
from typing import Any

import torch

from benchmarks.worker import answer_all
from benchmarks.workload import workload_from_json
from hacrl.agents.policy import Policy
from hacrl.recipe import SamplingSettings
from hacrl.recipe.agent_settings import VllmSettings

CACHE_GIGABYTES = 1.0
"""Room for all responses at once."""


def main(settings: str) -> None:
    """In a worker: draw a step's responses with old and with new weights, and score them."""
    torch.set_num_threads(1)
    work = workload_from_json(settings)
    model, prompts = work.make_model(), work.make_prompts()
    sampling = SamplingSettings(max_new_tokens=work.max_new)
    engine = VllmSettings(cache_gigabytes=CACHE_GIGABYTES)
    policy = Policy("a", model, work.make_tokenizer(), engine=engine, sampling=sampling)

    def sample(seed: int) -> tuple[float, Any]:
        begun = perf_counter()
        drawn = policy.sample(prompts, work.samples, sampling, seed)
        return perf_counter() - begun, drawn

    def timed(question: str) -> dict[str, Any]:
        seed = int(question)
        with torch.no_grad():  # every weight is another one, and none of them matters
            for weight in model.parameters():
                weight.mul_(1.0 + 1e-6)
        changed, _ = sample(seed)
        same, drawn = sample(seed + 1)
        encoded = {prompt.id: policy.encoder.encode_prompt(prompt) for prompt in prompts}
        rows = [(encoded[rollout.prompt_id], rollout.token_ids) for rollout in drawn]
        begun = perf_counter()
        policy.score(rows)
        score = perf_counter() - begun
        tokens = sum(len(response) for _, response in rows)
        return {"changed": changed, "same": same, "score": score, "tokens": tokens}

    answer_all(timed)


if __name__ == "__main__":
    main(json.dumps(json.loads(sys.argv[1])))
