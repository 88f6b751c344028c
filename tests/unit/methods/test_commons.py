"""Division of labour: prompts of one's own, verified answers for all."""

from dataclasses import replace

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hacrl.algorithm import ImitationObjective
from hacrl.methods.commons import Commons
from hacrl.methods.gspo import Gspo
from hacrl.methods.pool import OwnPool
from hacrl.types import Prompt
from helpers_methods import ANSWERS, texts, view


def test_nobody_answers_the_same_prompt_and_the_order_of_agents_does_not_matter():
    prompts = [Prompt(f"p{n}", "?") for n in range(6)]
    method = Commons()
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
    own, pooled = Commons(passes=1).loss_terms(seen)
    (alone,) = Gspo().loss_terms(seen)
    assert own.mask.equal(alone.mask)
    assert own.advantages.equal(alone.advantages)
    expected = [("a", "p0", "+7"), ("a", "p0", "7"), ("b", "p1", "5")]
    assert texts(seen, pooled.mask) == expected
    assert texts(view("b"), Commons().loss_terms(view("b"))[1].mask) == expected
    weights = pooled.advantages[pooled.mask]
    # Three texts of 2, 3 and 2 tokens for two prompts: p0's two texts share what p1's one has.
    per_token = 3 / 2 / (7 / 3)
    torch.testing.assert_close(weights, torch.tensor([0.5, 0.5, 1.0], dtype=torch.float64) * per_token)
    assert pooled.objective == ImitationObjective()
    assert (pooled.updates, pooled.passes, pooled.complete) == (2, 1, True)


def test_without_peers_it_is_gspo_and_with_silent_peers_the_own_pool():
    alone = view("a", agents="a")
    (term,) = Commons().loss_terms(alone)
    (plain,) = Gspo().loss_terms(alone)
    assert term.mask.equal(plain.mask)
    assert term.advantages.equal(plain.advantages)
    wrong = {"p0": [("9", 0.0)] * 4, "p1": [("9", 0.0)] * 4}
    seen = view("a", answers={"a": ANSWERS["a"], "b": wrong})
    _, pooled = Commons().loss_terms(seen)
    _, control = OwnPool().loss_terms(seen)
    assert pooled.passes == control.passes == 4
    assert pooled.mask.equal(control.mask)
    assert pooled.advantages.equal(control.advantages)


def test_what_a_peer_answers_later_is_a_pool_of_its_own():
    before = view("a", answers={"a": ANSWERS["a"], "b": {}})
    own, first = Commons().loss_terms(replace(before, awaited=frozenset("b")))
    _, second = Commons().loss_terms(replace(view("a"), trained_on=frozenset("a")))
    control = OwnPool().loss_terms(before)[1]
    assert own.mask.equal(before.own)
    assert first.mask.equal(control.mask)
    assert first.advantages.equal(control.advantages)
    assert texts(view("a"), second.mask) == [("b", "p1", "5")]
    assert second.advantages[second.mask].tolist() == [0.5]  # one text of two tokens
    assert (first.updates, second.updates) == (1, 1)
    assert (first.passes, second.passes) == (4, 4)


RIGHT = st.sampled_from([("7", 1.0), ("seven", 1.0), ("9", 0.0)])


@settings(max_examples=40)
@given(
    answers=st.lists(st.lists(RIGHT, min_size=2, max_size=2), min_size=6, max_size=6),
    chances=st.fixed_dictionaries({agent: st.floats(0, 1) for agent in "abc"}),
    likely=st.floats(-1, 1),
    heard=st.lists(st.integers(0, 2), min_size=2, max_size=2),
    mini_batches=st.integers(1, 4),
)
def test_whenever_peers_are_heard_every_answer_passes_the_same_gate_once(
    answers, chances, likely, heard, mini_batches
):
    """Two prompts for each of three agents; b and c are heard at any of three times, a at the first."""
    prompts = [f"p{n}" for n in range(6)]
    given_by = {
        agent: dict(zip(prompts[2 * n : 2 * n + 2], answers[2 * n : 2 * n + 2], strict=True))
        for n, agent in enumerate("abc")
    }
    times = {"a": 0, "b": heard[0], "c": heard[1]}

    def at(time):
        here = {agent: given_by[agent] if times[agent] <= time else {} for agent in "abc"}
        seen = view("a", "abc", here, prompts, {"seven": likely}, chances)
        trained_on, awaited = (
            {agent for agent in "abc" if test(times[agent])} for test in (time.__gt__, time.__lt__)
        )
        return replace(
            seen, mini_batches=mini_batches, trained_on=frozenset(trained_on), awaited=frozenset(awaited)
        )

    whole = Commons().loss_terms(replace(at(2), trained_on=frozenset()))[1]
    parts = [Commons().loss_terms(at(time))[1] for time in sorted(set(times.values()))]
    assert sum(part.mask.int() for part in parts).equal(whole.mask.int())
    assert sum(part.updates for part in parts) == whole.updates == 2 * mini_batches
    for part in parts:
        rows, asked = int(part.mask.sum()), int(part.mask.any(2).any(0).sum())
        lengths = [len(at(2).table.samples[j][b][i].token_ids) for j, b, i in part.mask.nonzero().tolist()]
        # Every prompt counts the same among those of its part.
        by_prompt = part.advantages.sum((0, 2))[part.mask.any(2).any(0)]
        expected = rows / max(1, asked) / (sum(lengths) / max(1, rows) or 1.0)
        torch.testing.assert_close(by_prompt, torch.full_like(by_prompt, expected))
