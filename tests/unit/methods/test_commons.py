"""Division of labour: prompts of one's own, verified answers for all."""

import torch

from hacrl.algorithm import ImitationObjective
from hacrl.methods import commons, gspo, pool
from hacrl.types import Prompt
from helpers_methods import ANSWERS, texts, view


def test_nobody_answers_the_same_prompt_and_the_order_of_agents_does_not_matter():
    prompts = [Prompt(f"p{n}", "?") for n in range(6)]
    method = commons()
    assert method.prompts_drawn(2, agents=3) == 6
    shares = method.assign(prompts, ["c", "a", "b"])
    assert {name: [prompt.id for prompt in own] for name, own in shares.items()} == {
        "a": ["p0", "p1"],
        "b": ["p2", "p3"],
        "c": ["p4", "p5"],
    }
    assert shares == method.assign(prompts, ["a", "b", "c"])


def test_everybodys_distinct_verified_texts_are_learned_by_all():
    seen = view("a")
    own, pooled = commons(passes=1).lessons(seen)
    (alone,) = gspo().lessons(seen)
    assert own.mask.equal(alone.mask)
    assert own.advantages.equal(alone.advantages)
    expected = [("a", "p0", "+7"), ("a", "p0", "7"), ("b", "p1", "5")]
    assert texts(seen, pooled.mask) == expected
    assert texts(view("b"), commons().lessons(view("b"))[1].mask) == expected
    weights = pooled.advantages[pooled.mask]
    # Three texts of 2, 3 and 2 tokens for two prompts: p0's two texts share what p1's one has.
    per_token = 3 / 2 / (7 / 3)
    torch.testing.assert_close(weights, torch.tensor([0.5, 0.5, 1.0], dtype=torch.float64) * per_token)
    assert pooled.objective == ImitationObjective()
    assert (pooled.updates, pooled.passes, pooled.complete) == (2, 1, True)


def test_without_peers_it_is_gspo_and_with_silent_peers_the_own_pool():
    alone = view("a", agents="a")
    (lesson,) = commons().lessons(alone)
    (plain,) = gspo().lessons(alone)
    assert lesson.mask.equal(plain.mask)
    assert lesson.advantages.equal(plain.advantages)
    wrong = {"p0": [("9", 0.0)] * 4, "p1": [("9", 0.0)] * 4}
    seen = view("a", answers={"a": ANSWERS["a"], "b": wrong})
    _, pooled = commons().lessons(seen)
    _, control = pool().lessons(seen)
    assert pooled.passes == control.passes == 4
    assert pooled.mask.equal(control.mask)
    assert pooled.advantages.equal(control.advantages)
