"""Impossible settings are refused by name, and greedy is temperature 0."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest
from pydantic import ValidationError

from hacrl.recipe.agent_settings import LoraSettings
from hacrl.recipe.settings import OptimiserSettings, SamplingSettings, UpdatesSettings


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SamplingSettings(max_new_tokens=0), "max_new_tokens\n.*greater than or equal to 1"),
        (lambda: SamplingSettings(temperature=0.0), "temperature\n.*greater than or equal to 0.000001"),
        (lambda: SamplingSettings(top_p=1.5), "top_p\n.*less than or equal to 1"),
        (lambda: SamplingSettings(max_rows=0), "max_rows\n.*greater than or equal to 1"),
        (lambda: OptimiserSettings(learning_rate=-1.0), "learning_rate\n.*greater than 0"),
        (lambda: OptimiserSettings(betas=(0.9, 1.0)), "betas.1\n.*less than 1"),
        (lambda: OptimiserSettings(weight_decay=-0.1), "weight_decay\n.*greater than or equal to 0"),
        (lambda: OptimiserSettings(schedule="step"), "schedule\n.*'constant', 'linear' or 'cosine'"),
        (lambda: OptimiserSettings(max_grad_norm=0.0), "max_grad_norm\n.*greater than 0"),
        (lambda: OptimiserSettings(kl=-1.0), "kl\n.*greater than or equal to 0"),
        (lambda: UpdatesSettings(tokens_per_micro_batch=0), "tokens_per_micro_batch\n.*equal to 1"),
        (lambda: LoraSettings(rank=0), "rank\n.*greater than or equal to 1"),
        (lambda: LoraSettings(alpha=0), "alpha\n.*greater than 0"),
        (lambda: LoraSettings(target_modules=()), "target_modules.*\n.*expected at least one entry"),
    ],
)
def test_impossible_settings(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        make()


def test_greedy_is_temperature_zero_and_survives_a_process() -> None:
    sampling = SamplingSettings(max_new_tokens=5, temperature=0.7)
    greedy = pickle.loads(pickle.dumps(sampling.as_greedy()))
    assert (greedy.temperature, greedy.max_new_tokens) == (0.0, 5)
    assert greedy.is_greedy
    assert not sampling.is_greedy
