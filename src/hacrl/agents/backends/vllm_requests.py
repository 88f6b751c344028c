"""A request for one response in vLLM's words, and its answer in ours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hacrl.agents.rendering import Rendering
from hacrl.agents.sampler import Drawn, Job
from hacrl.agents.stopping import StopWatch
from hacrl.recipe.settings import SamplingSettings

SEEDS = 1 << 63
"""vLLM takes seeds below this."""


def sampling_fields(job: Job, sampling: SamplingSettings, eos_ids: Sequence[int]) -> dict[str, Any]:
    """The fields that vLLM's `SamplingParams` and its server have in common."""
    greedy = sampling.is_greedy
    return {
        "temperature": sampling.temperature,
        "top_p": 1.0 if greedy else sampling.top_p,
        "top_k": 0 if greedy else sampling.top_k or 0,  # 0: all tokens
        "min_p": 0.0 if greedy else sampling.min_p,
        "max_tokens": job.max_new_tokens,
        "stop_token_ids": list(eos_ids),
        "stop": list(sampling.stop),
        "include_stop_str_in_output": sampling.include_stop,
        "seed": job.stream.key % SEEDS,
        "logprobs": 0,  # of the sampled token alone
    }


def drawn_response(
    ids: Sequence[int],
    logps: Sequence[float],
    stop_reason: object,
    sampling: SamplingSettings,
    encoder: Rendering,
) -> Drawn:
    """vLLM's response; where a stop string ends it is decided as in the built-in sampler."""
    ids, logps = tuple(ids), tuple(logps)
    if not ids or len(ids) != len(logps) or not all(map(math.isfinite, logps)):
        raise ValueError(f"it reported the log-probs {logps} of {len(ids)} tokens")
    ended = ids[-1] in encoder.eos_ids
    if not sampling.stop:
        return Drawn(ids, logps, ended)
    watch = StopWatch(sampling.stop, encoder.decode_response, 1)
    end = next((place for place, token in enumerate(ids, start=1) if watch.ends(0, token)), len(ids))
    found = watch.found.get(0, stop_reason if isinstance(stop_reason, str) else None)
    return Drawn(ids[:end], logps[:end], found is not None or ended, found)
