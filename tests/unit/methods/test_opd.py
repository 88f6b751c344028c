"""On-policy distillation: own answers, scored by the strongest agent."""

from hacrl.algorithm import DistillationObjective
from hacrl.methods import gspo, opd
from helpers_methods import view


def test_own_answers_are_scored_by_the_strongest_agent_whatever_their_reward():
    seen = view("a")
    own, judged = opd().lessons(seen)
    assert own.advantages.equal(gspo().lessons(seen)[0].advantages)
    assert judged.mask.equal(seen.own)
    assert bool((judged.advantages[judged.mask] == 1).all())
    assert judged.objective == DistillationObjective()
    assert (judged.updates, judged.scorer) == (2, "b")
    assert opd().one_tokenizer


def test_the_strongest_agent_learns_alone():
    (lesson,) = opd().lessons(view("b"))
    assert lesson.mask.equal(view("b").own)
    assert lesson.scorer is None
