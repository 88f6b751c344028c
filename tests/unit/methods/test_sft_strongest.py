"""One-way: everybody imitates the strongest agent, which learns alone."""

from dataclasses import replace

import torch

from hacrl.algorithm import ImitationObjective
from hacrl.methods.common import strongest
from hacrl.methods.commons import Commons
from hacrl.methods.gspo import Gspo
from hacrl.methods.sft_strongest import SftStrongest
from helpers_methods import ANSWERS, texts, view


def test_the_strongest_agents_distinct_verified_texts_are_imitated():
    seen = view("a")
    own, imitated = SftStrongest().loss_terms(seen)
    assert own.advantages.equal(Gspo().loss_terms(seen)[0].advantages)
    assert texts(seen, imitated.mask) == [("b", "p0", "7"), ("b", "p1", "5")]
    # Two prompts with one text of two tokens each: every token counts a half.
    assert imitated.advantages[imitated.mask].tolist() == [0.5, 0.5]
    assert imitated.objective == ImitationObjective()
    assert (imitated.updates, imitated.complete) == (2, True)


def test_as_many_passes_as_commons_are_as_many_updates():
    seen, method = view("a"), SftStrongest(passes=4)
    _, imitated = method.loss_terms(seen)
    assert (imitated.passes, imitated.updates) == (4, 2)
    assert imitated.advantages.equal(SftStrongest().loss_terms(seen)[1].advantages)
    assert [method.updates(2, 3, 2), Commons(passes=4).updates(2, 3, 2), method.updates(2, 3, 0)] == [
        18,
        18,
        2,
    ]


def test_the_strongest_agent_learns_alone():
    (term,) = SftStrongest().loss_terms(view("b"))
    assert term.mask.equal(view("b").own)


def test_strength_is_omegas_and_only_of_agents_that_are_heard():
    everybody = {**ANSWERS, "c": ANSWERS["a"]}
    seen = view("a", agents="cab", answers=everybody)
    assert seen.table.agents[strongest(seen)] == "b"
    seen.table.mask[2] = False  # b is not heard: a and c are equals, a comes first by name
    assert seen.table.agents[strongest(seen)] == "a"
    # Beyond the clamp of omega several agents look equally strong to a weak learner: the others tell.
    clamped = torch.tensor([[1.0, 0.1, 0.1], [10.0, 1.0, 0.5], [10.0, 2.0, 1.0]], dtype=torch.float64)
    seen = view("a", agents="abc", answers=everybody)
    object.__setattr__(seen, "omega", clamped)
    assert seen.table.agents[strongest(seen)] == "c"


def test_the_strongest_agent_is_waited_for_and_imitated_once():
    everybody = {**ANSWERS, "c": ANSWERS["a"]}
    before = view("a", "abc", {**everybody, "b": {}})
    _, nothing = SftStrongest().loss_terms(replace(before, awaited=frozenset("b")))
    assert not nothing.mask.any()  # c, as strong as a, does not take its place
    whole = view("a", "abc", everybody)
    _, late = SftStrongest().loss_terms(replace(whole, trained_on=frozenset("ac")))
    _, in_time = SftStrongest().loss_terms(whole)
    assert late.mask.equal(in_time.mask)
    assert late.advantages.equal(in_time.advantages)
    assert late.updates == in_time.updates == 4
    _, again = SftStrongest().loss_terms(replace(whole, trained_on=frozenset("ab")))
    assert not again.mask.any()
