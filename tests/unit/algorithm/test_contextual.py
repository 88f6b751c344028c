"""Capability as a function of the prompt: against the closed form, and on agents whose skill is known."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hacrl.algorithm import Belief, ContextualCapability
from hacrl.algorithm.contextual import RATIOS, UNKNOWN

FEATURES = 6


def draw(prompts: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(prompts, FEATURES, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def share(chance: torch.Tensor, samples: int = 4, seed: int = 0) -> torch.Tensor:
    """[j, b]: what agents with these chances make of a few samples."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.rand(*chance.shape, samples, generator=generator, dtype=torch.float64)
    return (drawn < chance[..., None]).double().mean(-1)


def everything(shares: torch.Tensor) -> torch.Tensor:
    return torch.ones_like(shares, dtype=torch.bool)


def test_before_any_outcome_a_share_is_as_good_as_uniform():
    belief = ContextualCapability(2, FEATURES).believe(draw(3))
    torch.testing.assert_close(belief.mean, torch.full((2, 3), 0.5, dtype=torch.float64))
    torch.testing.assert_close(belief.variance, torch.full((2, 3), 1 / 12, dtype=torch.float64))
    assert belief.better(0).tolist() == [[0.5] * 3] * 2


def test_the_sums_give_the_posterior_of_the_regression_on_the_data_themselves():
    """Each hypothesis by the textbook's formula with all rows at hand, averaged by its evidence."""
    old, new, asked = draw(30, 1) * 3 + 5, draw(20, 2) * 3 + 5, draw(4, 3) * 3 + 5
    shares = share(torch.sigmoid(torch.cat([old, new])[:, 0] - 5), seed=4)
    memory = 0.5
    found = ContextualCapability(1, FEATURES, memory)
    found.observe(old, shares[None, :30], everything(shares[None, :30]))
    found.forget()
    found.observe(new, shares[None, 30:], everything(shares[None, 30:]))
    belief = found.believe(asked)

    weight = torch.cat([torch.full((30,), memory), torch.ones(20)]).double()
    rows, count = torch.cat([old, new]), float(weight.sum())
    centre, level = weight @ rows / count, weight @ shares / count
    scale = (FEATURES * (weight @ (rows - centre).square() / count)).sqrt()
    inputs, residuals = (rows - centre) / scale, shares - level
    place = (asked - centre) / scale
    means, variances, evidence = [], [], []
    for ratio in RATIOS[1:]:
        precision = inputs.T @ (weight[:, None] * inputs) + torch.eye(FEATURES) / ratio
        weights = torch.linalg.solve(precision, inputs.T @ (weight * residuals))
        rss = weight @ residuals.square() - weights @ (inputs.T @ (weight * residuals))
        noise = float((rss + UNKNOWN) / (count + 1))
        means.append(((level * count + 0.5) / (count + 1) + place @ weights).clamp(0, 1))
        inverse = torch.linalg.inv(precision)
        variances.append(noise * (1 / (count + 1) + (place @ inverse * place).sum(1)))
        sign = torch.linalg.slogdet(precision * ratio).logabsdet
        evidence.append(-0.5 * (count * math.log(noise) + float(sign)))
    constant = float((weight @ residuals.square() + UNKNOWN) / (count + 1))
    means.insert(0, torch.full((4,), float((level * count + 0.5) / (count + 1)), dtype=torch.float64))
    variances.insert(0, torch.full((4,), constant / (count + 1), dtype=torch.float64))
    evidence.insert(0, -0.5 * count * math.log(constant))
    trust = torch.tensor(evidence, dtype=torch.float64).softmax(0)[:, None]
    mean = (trust * torch.stack(means)).sum(0)
    spread = (trust * (torch.stack(variances) + torch.stack(means).square())).sum(0) - mean.square()
    torch.testing.assert_close(belief.mean[0], mean)
    torch.testing.assert_close(belief.variance[0], spread)


def test_agents_that_complement_each_other_are_told_apart_without_labels():
    """One is right where the first feature is positive, the other where it is negative."""
    found = ContextualCapability(2, FEATURES)
    for step in range(5):
        prompts = draw(64, step)
        right = (prompts[:, 0] > 0).double()
        chance = torch.stack([0.9 * right, 0.9 * (1 - right)])
        tried = torch.zeros(2, 64, dtype=torch.bool)
        tried[0, :32], tried[1, 32:] = True, True  # each has seen other prompts
        found.forget()
        found.observe(prompts, share(chance, seed=step), tried)
    asked = torch.zeros(2, FEATURES, dtype=torch.float64)
    asked[:, 0] = torch.tensor([1.5, -1.5])
    better = found.believe(asked).better(0)[1]
    assert better[0] < 0.01
    assert better[1] > 0.99


def test_features_that_say_nothing_are_not_believed():
    found = ContextualCapability(1, FEATURES)
    for step in range(5):
        found.forget()
        shares = share(torch.full((1, 64), 0.4), seed=step)
        found.observe(draw(64, step), shares, everything(shares))
    belief = found.believe(draw(200, 9))
    assert float((belief.mean - 0.4).abs().max()) < 0.1
    assert float(belief.mean.std()) < 0.02


def test_the_variance_is_that_of_the_error():
    """Over many data sets, the chance is as far from its estimate as the variance says."""
    ratios = []
    for seed in range(40):
        found = ContextualCapability(1, FEATURES)
        prompts, asked = draw(100, 3 * seed), draw(50, 3 * seed + 1)
        slope = 0.1 * draw(1, 3 * seed + 2)[0]
        chance, truth = ((0.5 + x @ slope).clamp(0, 1) for x in (prompts, asked))
        shares = share(chance[None], seed=seed)
        found.observe(prompts, shares, everything(shares))
        belief = found.believe(asked)
        ratios.append(float(((belief.mean[0] - truth).square() / belief.variance[0]).mean()))
    assert 0.7 < sum(ratios) / len(ratios) < 1.4


def test_what_was_long_ago_counts_less():
    found = ContextualCapability(1, FEATURES, memory=0.5)
    prompts, shares = draw(8), torch.zeros(1, 8, dtype=torch.float64)
    found.observe(prompts, shares, everything(shares))
    for _ in range(10):
        found.forget()
    belief = found.believe(prompts)
    assert float(belief.mean.min()) > 0.49  # 8 / 2^10 prompts are left
    assert float(belief.variance.min()) > 0.08


@settings(max_examples=30)
@given(seed=st.integers(0, 1000), agents=st.integers(1, 4), scale=st.sampled_from([0.0, 1e-9, 1.0, 1e6]))
def test_a_belief_is_finite_and_survives_the_checkpoint(seed: int, agents: int, scale: float):
    found = ContextualCapability(agents, FEATURES)
    prompts = scale * draw(5, seed) + scale
    generator = torch.Generator().manual_seed(seed)
    shares = torch.rand(agents, 5, generator=generator, dtype=torch.float64)
    tried = torch.rand(agents, 5, generator=generator) < 0.7
    found.observe(prompts, shares, tried)
    belief = found.believe(prompts)
    assert bool(((belief.mean >= 0) & (belief.mean <= 1)).all())
    assert bool(((belief.variance >= 0) & belief.variance.isfinite()).all())
    assert bool(belief.better(0).isfinite().all())
    again = ContextualCapability(agents, FEATURES)
    again.load_state_dict(found.state_dict())
    assert again.believe(prompts).mean.equal(belief.mean)
    assert again.believe(prompts).variance.equal(belief.variance)


def test_better_is_the_normal_probability_of_the_lead():
    mean = torch.tensor([[0.2], [0.5]], dtype=torch.float64)
    belief = Belief(mean, torch.tensor([[0.01], [0.03]], dtype=torch.float64))
    # 0.3 / sqrt(0.04) = 1.5 standard deviations.
    assert float(belief.better(0)[1, 0]) == pytest.approx(0.9331928, abs=1e-6)
    assert float(belief.better(1)[0, 0]) == pytest.approx(1 - 0.9331928, abs=1e-6)


def test_mistakes_are_named():
    found = ContextualCapability(2, FEATURES)
    with pytest.raises(ValueError, match=r"tried: expected 3 along axis b"):
        found.observe(draw(3), torch.zeros(2, 3), torch.zeros(2, 4, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"shares\[0, 0\]: expected a finite number of magnitude at most 1"):
        found.observe(draw(1), torch.full((2, 1), 2.0), torch.ones(2, 1, dtype=torch.bool))
    with pytest.raises(ValueError, match="moments: expected 2 x 36 numbers, got"):
        found.load_state_dict({"features": FEATURES, "moments": [[0.0]]})
