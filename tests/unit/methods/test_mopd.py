"""On-policy distillation from several teachers: whoever is believed to be best at a prompt."""

from dataclasses import replace

import pytest
import torch

from hacrl.algorithm import Belief, DistillationObjective
from hacrl.methods.gspo import Gspo
from hacrl.methods.mopd import Mopd
from hacrl.methods.opd import Opd
from helpers_methods import ANSWERS, view

THREE = {**ANSWERS, "c": ANSWERS["a"]}


def believing(learner, agents, chances):
    mean = torch.tensor([chances[agent] for agent in agents], dtype=torch.float64)
    belief = Belief(mean, torch.full_like(mean, 0.01))
    return replace(view(learner, agents, THREE), belief=belief)


@pytest.mark.parametrize("agents", ["abc", "cab"])
def test_every_prompt_has_the_teacher_that_is_best_there(agents):
    chances = {"a": [0.5, 0.1], "b": [0.9, 0.2], "c": [0.2, 0.8]}
    seen = believing("a", agents, chances)
    own, taught = Mopd().loss_terms(seen)
    assert taught.scorer == {"p0": "b", "p1": "c"}
    assert taught.mask.equal(seen.own)
    assert own.advantages.equal(Gspo().loss_terms(seen)[0].advantages)
    assert (taught.objective, taught.updates) == (DistillationObjective(), 4)
    assert Mopd().teachers(believing("c", agents, chances)) == {"p0": "b"}
    assert Mopd().contextual


def test_the_best_agent_learns_alone_and_the_learner_wins_a_tie():
    seen = believing("a", "abc", {"a": [0.5, 0.8], "b": [0.5, 0.1], "c": [0.2, 0.8]})
    (own,) = Mopd().loss_terms(seen)
    assert own.scorer is None
    seen = believing("a", "abc", {"a": [0.5, 0.1], "b": [0.6, 0.1], "c": [0.6, 0.1]})
    _, taught = Mopd().loss_terms(seen)
    assert taught.scorer == {"p0": "b"}
    assert taught.mask.equal(seen.own & torch.tensor([True, False])[:, None])
    seen.table.mask[1] = False  # b is not heard
    assert Mopd().teachers(seen) == {"p0": "c"}


def test_without_a_belief_it_is_distillation_from_the_strongest():
    seen = view("a")
    (_, many), (_, one) = Mopd().loss_terms(seen), Opd().loss_terms(seen)
    assert many.scorer == {"p0": "b", "p1": "b"}
    assert one.scorer == "b"
    assert many.mask.equal(one.mask)
