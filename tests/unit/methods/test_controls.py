"""Controls do what a sharing method does, with nothing shared."""

from dataclasses import replace

import pytest
import torch

from hacrl.algorithm import HacpoObjective, HacpoParams, ImitationObjective, SourceData, SurrogateObjective
from hacrl.methods.gspo import Gspo
from hacrl.methods.hacpo import Hacpo
from hacrl.methods.hacpo_controls import HacpoCopies, HacpoMuted
from hacrl.methods.pool import OwnPool
from hacrl.methods.replay import Replay
from hacrl.recipe import parse_recipe
from hacrl.recipe.settings import OptimiserSettings
from helpers_agents import random_rows, tiny_policy, training_rows
from helpers_methods import texts, view


def test_replay_is_gspo_and_then_the_own_successes_again():
    seen = view("a")
    own, again = Replay().loss_terms(seen)
    (alone,) = Gspo().loss_terms(seen)
    assert own.mask.equal(alone.mask)
    assert own.advantages.equal(alone.advantages)
    assert texts(seen, again.mask) == [("a", "p0", "+7"), ("a", "p0", "7"), ("a", "p0", "7")]
    assert again.advantages.equal(alone.advantages)
    assert again.objective == SurrogateObjective()
    assert again.updates == 2  # one peer, two mini-batches
    assert Replay(name="replay_x2").rollout_factor(2) == 2
    assert Replay(name="replay_x2").loss_terms(seen)[1].updates == 4


def test_the_own_pool_holds_each_text_once_and_every_prompt_counts_the_same():
    seen = view("b")
    own, pooled = OwnPool(passes=1).loss_terms(seen)
    assert own.mask.equal(seen.own)
    assert texts(seen, pooled.mask) == [("b", "p0", "7"), ("b", "p1", "5")]
    seen = view("a")
    _, pooled = OwnPool(passes=1).loss_terms(seen)
    assert texts(seen, pooled.mask) == [("a", "p0", "+7"), ("a", "p0", "7")]
    # Two rows, one prompt with two texts of 2 and 3 tokens (EOS included): 2 / (1 * 2 * 2.5).
    assert pooled.advantages[pooled.mask].tolist() == [0.4, 0.4]
    assert not pooled.advantages[~pooled.mask].any()
    assert pooled.objective == ImitationObjective()
    assert pooled.complete
    assert OwnPool().loss_terms(seen)[1].passes == 4
    assert OwnPool(name="pool_x2").loss_terms(seen)[1].updates == 4


def test_muted_peers_keep_their_place_but_have_no_gradient():
    seen = view("a")
    (full,), (muted,) = Hacpo().loss_terms(seen), HacpoMuted().loss_terms(seen)
    assert muted.mask.equal(full.mask)
    assert muted.objective == full.objective
    assert muted.advantages.equal(full.advantages)
    assert muted.advantages[1].any(), "they are computed: the optimiser makes its step"
    assert full.coefficients.tolist() == [1.0, 2.0]
    assert not muted.coefficients.any()


def test_more_prompts_are_more_updates_of_gspo_on_mini_batches_of_the_same_size():
    """Three agents with two mini-batches each; `commons` makes 18 updates, 16 of them on its pool."""
    for factor, prompts, gspo, pool in ((1, 8, 2, 18), (2, 16, 4, 20), ("agents", 24, 6, 22)):
        alone, pooled = Gspo(prompt_factor=factor), OwnPool(prompt_factor=factor)
        assert alone.prompts_each(8, 3) == pooled.prompts_drawn(8, 3) == prompts
        assert (alone.updates(2, 3, 0), pooled.updates(2, 3, 0)) == (gspo, pool)
        assert pooled.assign([*"abcdef"], ["x", "y"]) == {"x": [*"abcdef"], "y": [*"abcdef"]}
        assert pooled.loss_terms(view("a"))[1].updates == 2
        agents = [{"name": name, "model": "m"} for name in "abc"]
        method = {"name": "pool", "prompt_factor": factor}
        recipe = parse_recipe({"agents": agents, "task": "digits", "method": method, "prompts_per_step": 8})
        assert (recipe.prompts_each, recipe.own_mini_batches) == (prompts, gspo)


@pytest.mark.parametrize("skips", [True, False])
def test_muted_peers_make_optimiser_steps_only_as_in_the_paper(skips):
    """Then momentum moves the weights, whether peers' gradient is 0 or there is none at all."""
    own = training_rows(random_rows(3, 4))
    peer = tuple(replace(row, own=False, omega=0.0) for row in own)
    silent = tuple(replace(row, advantage=0.0) for row in peer)
    objective = HacpoObjective(HacpoParams())
    prints = []
    for second in ((), silent, peer):
        optimiser = OptimiserSettings(learning_rate=1e-3, kl=0.0, skip_empty_updates=skips)
        policy = tiny_policy("qwen3", optimiser)
        policy.update([own, second], objective)
        prints.append(policy.fingerprint())
    assert prints[1] == prints[2]
    assert (prints[0] == prints[1]) is skips


def test_copies_are_further_answers_of_ones_own_treated_as_a_peers():
    seen = view("a")
    own, copies = HacpoCopies().loss_terms(seen)
    sample = torch.arange(4)
    assert own.mask.equal(seen.own & (sample < 2))
    assert copies.mask.equal(seen.own & (sample >= 2))
    assert own.advantages.equal(Gspo().loss_terms(seen)[0].advantages)
    assert (own.updates, copies.updates) == (2, 2)
    assert [HacpoCopies().rollout_factor(agents) for agents in (3, 2)] == [3, 2]
    # Above ratio 1 a peer has no gradient; an own answer with advantage -1 has one.
    logps = torch.tensor([[-0.5]], requires_grad=True)
    data = SourceData(
        source_mean_logp=torch.tensor([-1.0]),
        source_logps=torch.tensor([[-1.0]]),
        advantage=torch.tensor([-1.0]),
        own=torch.tensor([True]),
        omega=torch.tensor([1.0]),
    )
    gradients = [
        torch.autograd.grad(term.objective(logps, torch.tensor([[True]]), data, 0).sum(), logps)[0].item()
        for term in (own, copies)
    ]
    assert gradients[0] > 1.0
    assert gradients[1] == 0.0
    assert isinstance(copies.objective, HacpoObjective)
