"""Methods that share nothing see one group: their own."""

import pytest
import torch

from hacrl.algorithm import GrpoObjective, GspoObjective
from hacrl.methods import grpo, gspo, gspo_x2
from helpers_methods import view


@pytest.mark.parametrize("method", [gspo(), grpo(), gspo_x2()])
def test_own_answers_are_compared_with_their_own_group(method):
    seen = view("a")
    (lesson,) = method.lessons(seen)
    spread = 0.5 + 1e-6  # sample deviation of 1, 0, 1, 1
    expected = torch.tensor([0.25, -0.75, 0.25, 0.25], dtype=torch.float64) / spread
    torch.testing.assert_close(lesson.advantages[0, 0], expected)
    assert not lesson.advantages[0, 1].any()
    assert lesson.mask.equal(seen.own)
    assert lesson.mask[0].all()
    assert not lesson.mask[1].any()
    assert lesson.updates is None


def test_epochs_repeat_the_lesson_and_settings_reach_the_objective():
    (lesson,) = gspo(epochs=2).lessons(view())
    assert lesson.passes == 2
    assert gspo(0.1, 0.2).objective == GspoObjective(0.1, 0.2)
    assert grpo().objective == GrpoObjective(0.2, 0.28)
    assert [method.rollout_factor for method in (gspo(), gspo_x2(), grpo())] == [1, 2, 1]
