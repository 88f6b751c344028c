"""Impossible settings are refused by name and value."""

from __future__ import annotations

import re

import pytest

from hacrl.agents.settings import LoraSettings, Optimisation, Sampling


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Sampling(max_new_tokens=0), "max_new_tokens is 0: it must be at least 1"),
        (lambda: Sampling(temperature=0.0), "temperature is 0.0: it must be above 0 (or set greedy)"),
        (lambda: Sampling(top_p=1.5), "top_p is 1.5: it must be above 0 and at most 1"),
        (lambda: Sampling(max_rows=0), "max_rows is 0"),
        (lambda: Optimisation(learning_rate=-1.0), "learning_rate is -1.0"),
        (lambda: Optimisation(betas=(0.9, 1.0)), "betas is (0.9, 1.0)"),
        (lambda: Optimisation(weight_decay=-0.1), "weight_decay is -0.1"),
        (lambda: Optimisation(schedule="step"), "schedule is 'step': it must be constant, linear or cosine"),
        (lambda: Optimisation(schedule="cosine"), "total_updates is None: it must be set"),
        (lambda: Optimisation(schedule="linear", warmup_updates=9, total_updates=9), "above warmup_updates"),
        (lambda: Optimisation(max_grad_norm=0.0), "max_grad_norm is 0.0"),
        (lambda: Optimisation(kl=-1.0), "kl is -1.0"),
        (lambda: Optimisation(tokens_per_micro_batch=0), "tokens_per_micro_batch is 0"),
        (lambda: LoraSettings(rank=0), "lora rank is 0"),
        (lambda: LoraSettings(alpha=0), "lora alpha is 0"),
        (lambda: LoraSettings(target_modules=()), "lora target_modules is ()"),
    ],
)
def test_impossible_settings(make: type, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        make()
