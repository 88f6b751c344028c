"""Which training prompts are short enough for all agents (`max_prompt_tokens`)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from hacrl.types import Encoder, Prompt


def short_enough(prompts: Sequence[Prompt], encoders: Sequence[Encoder], limit: int) -> list[Prompt]:
    """The prompts with at most `limit` tokens for every agent; warns how many were left out."""
    kept = [
        prompt
        for prompt in prompts
        if all(len(encoder.encode_prompt(prompt)) <= limit for encoder in encoders)
    ]
    if len(kept) < len(prompts):
        warnings.warn(
            f"max_prompt_tokens: {len(prompts) - len(kept)} of {len(prompts)} training prompts have more "
            f"than {limit} tokens and were left out",
            stacklevel=2,
        )
    return kept
