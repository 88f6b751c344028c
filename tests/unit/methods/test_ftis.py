"""F-TIS: whole groups of peers with the peers' own advantages."""

import torch

from hacrl.algorithm import TruncatedObjective
from hacrl.methods.ftis import Ftis
from hacrl.methods.gspo import Gspo
from hacrl.types import Prompt
from helpers_methods import view


def test_own_answers_then_every_peers_compared_with_its_own_group():
    seen = view("a")
    own, peers = Ftis(truncation=3.0, kl_limit=5.0).loss_terms(seen)
    assert own.mask.equal(seen.own)
    assert own.advantages.equal(Gspo().loss_terms(seen)[0].advantages)
    assert peers.mask[1].all()
    assert not peers.mask[0].any()
    once = torch.tensor([0.75, -0.25, -0.25, -0.25], dtype=torch.float64) / (0.5 + 1e-6)
    torch.testing.assert_close(peers.advantages[1], torch.stack([once, once]))
    assert peers.objective == TruncatedObjective(3.0, 5.0)
    assert (peers.updates, peers.complete, peers.scorer) == (None, False, None)


def test_agents_answer_prompts_of_their_own():
    prompts = [Prompt(f"p{n}", "?") for n in range(4)]
    assert Ftis().prompts_drawn(2, agents=2) == 4
    assert Ftis().assign(prompts, ["b", "a"]) == {"a": prompts[:2], "b": prompts[2:]}
