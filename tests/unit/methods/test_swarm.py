"""SAPO: informative groups of peers, as many as own ones, as if they were own."""

from hacrl.algorithm import GrpoObjective
from hacrl.methods.gspo import Gspo
from hacrl.methods.swarm import Swarm
from helpers_methods import ANSWERS, texts, view


def test_whole_groups_that_teach_something_are_drawn():
    seen = view("a")
    own, peers = Swarm().loss_terms(seen)
    assert own.advantages.equal(Gspo().loss_terms(seen)[0].advantages)
    assert peers.mask[1].all()
    assert not peers.mask[0].any()
    assert peers.advantages[1, 1].tolist()[0] > 1.49  # 0.75 over a spread of a half
    assert peers.objective == GrpoObjective(0.2, 0.28)
    assert (peers.updates, peers.scorer, peers.complete) == (2, "a", True)
    silent = {"a": ANSWERS["a"], "b": {**ANSWERS["b"], "p0": [("9", 0.0)] * 4}}
    seen = view("a", answers=silent)
    mask = Swarm().loss_terms(seen)[1].mask
    assert {prompt for _, prompt, _ in texts(seen, mask)} == {"p1"}


def test_external_groups_are_a_share_of_the_own_ones():
    for external, groups in ((0.0, 0), (0.5, 1), (1.0, 2)):
        _, peers = Swarm(external=external).loss_terms(view("a"))
        assert int(peers.mask.any(2).sum()) == groups
    three = {**ANSWERS, "c": ANSWERS["b"]}
    seen = view("a", agents="abc", answers=three)
    _, peers = Swarm().loss_terms(seen)
    assert int(peers.mask.any(2).sum()) == 2  # of four
    assert bool((peers.mask.any(2) == peers.mask.all(2)).all())
