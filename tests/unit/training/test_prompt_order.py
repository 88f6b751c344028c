import pytest

from hacrl.training.prompt_order import PromptOrder
from hacrl.types import Prompt

PROMPTS = [Prompt(str(number), f"question {number}") for number in range(10)]


def ids(order, step):
    return [prompt.id for prompt in order.batch(step)]


def test_an_epoch_passes_over_all_prompts_but_a_remainder_once():
    order = PromptOrder(PROMPTS, 3, seed=0)
    assert order.steps_per_epoch == 3
    for epoch in range(3):
        seen = [prompt for step in range(1, 4) for prompt in ids(order, 3 * epoch + step)]
        assert len(seen) == len(set(seen)) == 9


def test_a_batch_depends_on_seed_and_step_alone():
    forwards, backwards = PromptOrder(PROMPTS, 4, seed=1), PromptOrder(PROMPTS, 4, seed=1)
    expected = [ids(forwards, step) for step in range(1, 9)]
    assert [ids(backwards, step) for step in range(8, 0, -1)] == expected[::-1]
    assert [ids(PromptOrder(PROMPTS, 4, seed=2), step) for step in range(1, 9)] != expected
    assert expected[:2] != expected[2:4]  # every epoch has an order of its own


def test_more_prompts_per_step_than_there_are_is_an_error():
    with pytest.raises(ValueError, match="prompts_per_step is 11, but the task has only 10"):
        PromptOrder(PROMPTS, 11, seed=0)
