"""On-policy distillation: own answers, scored by the strongest agent."""

from hacrl.algorithm import DistillationObjective
from hacrl.methods.gspo import Gspo
from hacrl.methods.opd import Opd
from helpers_methods import view


def test_own_answers_are_scored_by_the_strongest_agent_whatever_their_reward():
    seen = view("a")
    own, judged = Opd().loss_terms(seen)
    assert own.advantages.equal(Gspo().loss_terms(seen)[0].advantages)
    assert judged.mask.equal(seen.own)
    assert bool((judged.advantages[judged.mask] == 1).all())
    assert judged.objective == DistillationObjective()
    assert (judged.updates, judged.scorer) == (2, "b")
    assert Opd().needs_scores


def test_the_strongest_agent_learns_alone():
    (term,) = Opd().loss_terms(view("b"))
    assert term.mask.equal(view("b").own)
    assert term.scorer is None
