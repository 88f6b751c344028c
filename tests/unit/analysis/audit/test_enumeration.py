"""The toy vocabulary: expectations against brute force and against results derived by hand."""

from itertools import product

import pytest
import torch

from hacrl.algorithm import advantages, gspo_loss, hacpo_loss
from hacrl.algorithm.diagnostics import cosine
from hacrl.analysis.audit.enumeration import (
    Responses,
    ToyTeam,
    expected_gradients,
    random_team,
    true_gradient,
)
from hacrl.analysis.audit.toy import toy_rows
from hacrl.methods.gspo import Gspo
from hacrl.methods.hacpo import Hacpo
from hacrl.methods.naive import Naive

DTYPE = torch.float64


def one_token_team(*agents, samples):
    """One prompt, two possible responses of one symbol and the empty one; the first symbol is right."""
    responses = Responses.enumerate(symbols=2, length=1)
    rewards = (responses.token[:, 0] == 0).to(DTYPE)[None]
    return ToyTeam(responses, rewards, torch.tensor(agents, dtype=DTYPE)[:, None, None], samples)


def test_every_response_is_there_once_and_probabilities_sum_to_one():
    responses = Responses.enumerate(symbols=2, length=3)
    assert len(responses.token) == 1 + 2 + 4 + 8  # ended after 0, 1 and 2 symbols, or cut at 3
    texts = {tuple(t[m].tolist()) for t, m in zip(responses.token, responses.mask, strict=True)}
    assert len(texts) == 15
    team = random_team((0.0, 1.0), prompts=3, symbols=2, length=3, samples=2, seed=0)
    torch.testing.assert_close(team.probabilities().sum(-1), torch.ones(2, 3, dtype=DTYPE))
    only_eos = responses.token[:, 0] == 2
    assert responses.exchanged[only_eos].sum() == 1
    assert responses.exchanged[~only_eos].sum() == responses.mask[~only_eos].sum() - (2 + 4)


def test_one_token_by_hand():
    """Softmax of three logits: dJ/dlogit = p * (1[right] - p_right)."""
    team = one_token_team([1.0, 0.0, -1.0], samples=2)
    p = torch.tensor([1.0, 0.0, -1.0], dtype=DTYPE).softmax(0)
    by_hand = p * (torch.tensor([1.0, 0.0, 0.0]) - p[0])
    torch.testing.assert_close(true_gradient(team, 0), by_hand)
    # Two responses have a gradient only when their rewards differ: advantages +-(1/2) / sqrt(1/2). The
    # chance is 2pq, the expected gradient 2pq * sqrt(1/2) * (mean score of right - mean score of wrong) / 2.
    own, peers = expected_gradients(team, 0, Gspo())
    right = float(p[0])
    torch.testing.assert_close(own, by_hand * 2**-0.5, rtol=1e-5, atol=0.0)  # epsilon = 1e-6
    assert right * (1 - right) > 0
    assert peers.count_nonzero() == 0


def test_alone_with_responses_of_one_length_gspo_is_the_policy_gradient_up_to_the_spread():
    team = random_team((0.3,), prompts=1, symbols=4, length=1, samples=6, seed=3)
    own, _ = expected_gradients(team, 0, Gspo())
    assert cosine(own, true_gradient(team, 0)) == pytest.approx(1.0, abs=1e-12)


def test_equal_agents_give_the_same_gradient_under_naive_and_hacpo():
    team = one_token_team([1.0, 0.0, -1.0], [1.0, 0.0, -1.0], samples=3)
    naive = expected_gradients(team, 0, Naive())
    hacpo = expected_gradients(team, 0, Hacpo())
    torch.testing.assert_close(naive[0], naive[1])  # a copy's responses are as good as the learner's own
    for ours, other in zip(hacpo, naive, strict=True):
        torch.testing.assert_close(ours, other)


@pytest.mark.parametrize("method", [Naive(), Hacpo(delta=0.6, alpha=2.0)])
def test_expectation_is_the_sum_over_all_groups(method):
    """Every pair of groups of two responses, one after the other through the real losses."""
    team = one_token_team([0.1, 0.3, 0.0], [0.6, 0.0, -0.5], samples=2)
    own, peers = expected_gradients(team, 0, method)
    omega = team.omega()
    scale = omega if isinstance(method, Hacpo) else torch.ones(2, 2, dtype=DTYPE)
    logits = team.logits[0, 0, 0].clone().requires_grad_()
    old = team.logits[:, 0, 0].log_softmax(-1)
    order = team.responses.token[:, 0]
    total = {0: logits.sum() * 0.0, 1: logits.sum() * 0.0}
    for group in product(range(3), repeat=4):
        drawn = torch.tensor(group).reshape(2, 2)  # [j, i], places in the list of responses
        chance = old[torch.arange(2)[:, None], order[drawn]].sum().exp()
        found, _ = advantages(team.rewards[0][drawn][:, None], scale)
        for j in range(2):
            tokens = order[drawn[j]]
            logps = logits.log_softmax(-1)[tokens][:, None]
            mask, source, advantage = torch.ones_like(logps, dtype=torch.bool), old[j][tokens], found[0, j, 0]
            if isinstance(method, Naive):
                losses = gspo_loss(logps, mask, source, advantage)
            else:
                is_own = torch.tensor([j == 0] * 2)
                weight = omega[j, 0].repeat(2)
                losses = hacpo_loss(logps, mask, source, advantage, is_own, weight, 0, method.params)
            total[j] = total[j] - chance * losses.mean()
    for ours, brute in zip((own, peers), total.values(), strict=True):
        torch.testing.assert_close(ours, torch.autograd.grad(brute, logits)[0])
        assert ours.norm() > 1e-3


def test_the_window_closes_with_the_updates():
    team = random_team((0.0, 0.5), prompts=2, symbols=3, length=2, samples=4, seed=1)
    norms = [float(expected_gradients(team, 0, Hacpo(), update)[1].norm()) for update in (0, 8)]
    assert norms[0] > 0.01
    assert norms[1] == 0.0  # 1 - 0.2 + 8 * 0.025


def test_golden_rows():
    """Fixed numbers: a change of any loss or advantage shows here."""
    rows = {(row.distance, row.method): row for row in toy_rows((Gspo(), Naive(), Hacpo()))}
    assert rows[0.0, "gspo"].cosine == pytest.approx(0.93997, abs=1e-5)
    assert rows[0.0, "naive"].peers_cosine == pytest.approx(0.86530, abs=1e-5)
    assert rows[1.0, "hacpo"].kl == pytest.approx(0.574, abs=1e-3)
    for key, expected in {
        (0.0, "hacpo"): (0.91504, 1.54701),
        (1.0, "naive"): (0.857, 1.161),
        (1.0, "hacpo"): (0.931, 0.552),
    }.items():
        assert (rows[key].cosine, rows[key].bias) == pytest.approx(expected, abs=1e-3)
