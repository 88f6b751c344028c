"""Properties of the algorithm core that hold for every input."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hacrl.algorithm import (
    Capability,
    HacpoParams,
    advantages,
    effective_sample_size,
    grpo_loss,
    gspo_loss,
    hacpo_loss,
    kl_low_variance,
    own_advantages,
    sequence_ratio,
    window_lower,
    window_shares,
)
from hacrl.algorithm.batch import SourceData
from hacrl.methods.hacpo import Hacpo
from hacrl.methods.naive import Naive

settings.register_profile("hacrl", max_examples=60, derandomize=True)
settings.load_profile("hacrl")

DTYPE = torch.float64
sizes = st.integers(1, 4)
seeds = st.integers(0, 2**31 - 1)
updates = st.integers(0, 12)
params = st.builds(
    HacpoParams,
    clip_low=st.floats(0, 0.5),
    clip_high=st.floats(0, 0.5),
    delta=st.floats(0, 1),
    delta_step=st.floats(0, 0.3),
    alpha=st.floats(0, 4),
    window=st.booleans(),
)


def generator(seed):
    return torch.Generator().manual_seed(seed)


def random_rewards(seed, agents, prompts, samples, binary=True):
    rewards = torch.rand(agents, prompts, samples, dtype=DTYPE, generator=generator(seed))
    return rewards.round() if binary else rewards


def random_omega(seed, agents):
    capability = Capability(agents)
    capability.update(torch.rand(agents, dtype=DTYPE, generator=generator(seed + 1)))
    return capability.omega


def random_responses(seed, rows=7, tokens=9, spread=1.0):
    """logps, mask, and the [s] columns of a loss; ratios on both sides of the window."""
    random = generator(seed)
    logps = -torch.rand(rows, tokens, dtype=DTYPE, generator=random) * 3 * spread
    lengths = torch.randint(1, tokens + 1, (rows,), generator=random)
    mask = torch.arange(tokens) < lengths[:, None]
    means = (logps * mask).sum(-1) / lengths
    source = means + torch.randn(rows, dtype=DTYPE, generator=random) * 0.2 * spread
    advantage = torch.randn(rows, dtype=DTYPE, generator=random)
    own = torch.rand(rows, generator=random) < 0.4
    omega = torch.rand(rows, dtype=DTYPE, generator=random) * 3
    return logps, mask, source, advantage, own, omega


def loss_and_gradient(loss_of, logps):
    logps = logps.clone().requires_grad_()
    loss = loss_of(logps)
    (gradient,) = torch.autograd.grad(loss.sum(), logps)
    return loss.detach(), gradient


# Advantages


@given(seeds, sizes, st.integers(1, 6))
def test_one_agent_gets_the_plain_group_advantage(seed, prompts, samples):
    rewards = random_rewards(seed, 1, prompts, samples)
    together, baseline = advantages(rewards, torch.ones(1, 1, dtype=DTYPE))
    centred = rewards[0] - rewards[0].mean(-1, keepdim=True)
    spread = rewards[0].std(-1, keepdim=True) if samples > 1 else torch.zeros(prompts, 1, dtype=DTYPE)
    torch.testing.assert_close(together[0, 0], centred / (spread + 1e-6), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(baseline[0], rewards[0].mean(-1))


@given(seeds, sizes, sizes, st.integers(1, 5), st.booleans())
def test_equal_capabilities_give_the_group_advantage_of_the_union(seed, agents, prompts, samples, binary):
    rewards = random_rewards(seed, agents, prompts, samples, binary)
    actual, _ = advantages(rewards, torch.ones(agents, agents, dtype=DTYPE))
    union = rewards.transpose(0, 1).reshape(1, prompts, agents * samples)
    expected, _ = advantages(union, torch.ones(1, 1, dtype=DTYPE))
    expected = expected.reshape(prompts, agents, samples).transpose(0, 1)
    torch.testing.assert_close(actual, expected.expand_as(actual), rtol=1e-9, atol=1e-9)


@given(seeds, sizes, sizes, st.floats(-5, 5))
def test_uniform_rewards_teach_nothing(seed, agents, samples, value):
    rewards = torch.full((agents, 3, samples), value, dtype=DTYPE)
    actual, baseline = advantages(rewards, random_omega(seed, agents), epsilon=0.0)
    assert not actual.any()
    torch.testing.assert_close(baseline, torch.full((agents, 3), value, dtype=DTYPE))


@given(seeds, st.integers(2, 4), sizes, sizes)
def test_permuting_agents_permutes_results(seed, agents, prompts, samples):
    rewards, omega = random_rewards(seed, agents, prompts, samples), random_omega(seed, agents)
    order = torch.randperm(agents, generator=generator(seed))
    actual, baseline = advantages(rewards, omega)
    permuted, permuted_baseline = advantages(rewards[order], omega[order][:, order])
    torch.testing.assert_close(permuted, actual[order][:, order], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(permuted_baseline, baseline[order], rtol=1e-12, atol=1e-12)


@given(seeds, sizes, sizes, st.integers(1, 4), st.integers(1, 3))
def test_masked_samples_are_as_if_they_were_not_there(seed, agents, prompts, samples, extra):
    rewards, omega = random_rewards(seed, agents, prompts, samples), random_omega(seed, agents)
    expected, expected_baseline = advantages(rewards, omega)
    padding = torch.full((agents, prompts, extra), torch.nan, dtype=DTYPE)
    mask = torch.cat([torch.ones_like(rewards), torch.zeros_like(padding)], -1).bool()
    actual, baseline = advantages(torch.cat([rewards, padding], -1), omega, mask=mask)
    torch.testing.assert_close(actual[..., :samples], expected, rtol=1e-12, atol=1e-12)
    assert not actual[..., samples:].any()
    torch.testing.assert_close(baseline, expected_baseline, rtol=1e-12, atol=1e-12)


@given(seeds, st.integers(2, 4), st.integers(1, 4), st.integers(1, 4))
def test_any_mask_gives_the_values_computed_prompt_by_prompt(seed, agents, prompts, samples):
    rewards, omega = random_rewards(seed, agents, prompts, samples, binary=False), random_omega(seed, agents)
    mask = torch.rand(rewards.shape, generator=generator(seed + 2)) < 0.6
    actual, baseline = advantages(rewards, omega, mask=mask)
    for k in range(agents):
        for b in range(prompts):
            answers = [(j, i) for j in range(agents) for i in range(samples) if mask[j, b, i]]
            values = [rewards[j, b, i].item() for j, i in answers]
            if len(set(values)) < 2:
                assert not actual[k, :, b].any()
                continue
            expected = sum(omega[k, j].item() * rewards[j, b, i].item() for j, i in answers) / len(answers)
            if expected > 1.0:
                own = [rewards[k, b, i].item() for i in range(samples) if mask[k, b, i]]
                expected = sum(own) / len(own) if own else sum(values) / len(values)
            mean = sum(values) / len(values)
            std = math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))
            assert baseline[k, b].item() == pytest.approx(expected, rel=1e-9)
            for j, i in answers:
                value = (rewards[j, b, i].item() - expected) / (std + 1e-6)
                assert actual[k, j, b, i].item() == pytest.approx(value, rel=1e-9, abs=1e-9)


@given(seeds, sizes, sizes, sizes)
def test_own_advantages_are_those_of_each_agent_alone(seed, agents, prompts, samples):
    rewards = random_rewards(seed, agents, prompts, samples, binary=False)
    actual, _ = own_advantages(rewards)
    for k in range(agents):
        alone, _ = advantages(rewards[k : k + 1], torch.ones(1, 1, dtype=DTYPE))
        torch.testing.assert_close(actual[k, k], alone[0, 0])
        actual[k, k] = 0.0
    assert not actual.any()


# Objectives


@given(seeds, updates, params)
def test_own_responses_are_under_gspo(seed, update, params):
    logps, mask, source, advantage, own, omega = random_responses(seed)
    own = torch.ones_like(own)
    actual = loss_and_gradient(
        lambda x: hacpo_loss(x, mask, source, advantage, own, omega, update, params), logps
    )
    expected = loss_and_gradient(
        lambda x: gspo_loss(x, mask, source, advantage, params.clip_low, params.clip_high), logps
    )
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)


@given(seeds, updates, params, st.integers(0, 5))
def test_padding_changes_nothing(seed, update, params, extra):
    logps, mask, *columns = random_responses(seed)
    padding = torch.full((len(logps), extra), torch.nan, dtype=DTYPE)
    wide_mask = torch.cat([mask, torch.zeros_like(padding, dtype=torch.bool)], -1)
    expected, expected_gradient = loss_and_gradient(
        lambda x: hacpo_loss(x, mask, *columns, update, params), logps
    )
    actual, gradient = loss_and_gradient(
        lambda x: hacpo_loss(x, wide_mask, *columns, update, params), torch.cat([logps, padding], -1)
    )
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(gradient[:, : logps.shape[1]], expected_gradient, rtol=1e-12, atol=1e-12)
    assert not gradient[:, logps.shape[1] :].any()


@given(seeds, updates, params, st.integers(1, 6))
def test_micro_batches_change_nothing(seed, update, params, cut):
    arguments = random_responses(seed)
    whole = hacpo_loss(*arguments, update, params)
    parts = [
        hacpo_loss(*[argument[part] for argument in arguments], update, params)
        for part in (slice(None, cut), slice(cut, None))
    ]
    torch.testing.assert_close(torch.cat(parts), whole, rtol=1e-12, atol=1e-12)


@given(seeds, updates, params, st.floats(0.2, 3))
def test_a_length_scale_raises_the_ratio_to_its_power(seed, update, params, scale):
    """Scaling the log-ratio is the same as moving the source's mean so that the ratio becomes s^scale."""
    logps, mask, source, *columns = random_responses(seed)
    means = (logps * mask).sum(-1) / mask.sum(-1)
    moved = means - scale * (means - source)
    scales = torch.full_like(source, scale)
    scaled = hacpo_loss(logps, mask, source, *columns, update, params, length_scale=scales)
    expected = hacpo_loss(logps, mask, moved, *columns, update, params)
    torch.testing.assert_close(scaled, expected, rtol=1e-9, atol=1e-12)


@given(updates, params)
def test_the_window_never_opens_within_a_step(update, params):
    assert window_lower(update, params) <= window_lower(update + 1, params) <= 1.0


@given(seeds, updates, params)
def test_a_peers_weight_never_exceeds_omega(seed, update, params):
    logps, mask, source, advantage, own, omega = random_responses(seed)
    params = HacpoParams(delta=params.delta, delta_step=params.delta_step, alpha=params.alpha)
    peers = torch.zeros_like(own)
    loss, gradient = loss_and_gradient(
        lambda x: hacpo_loss(x, mask, source, advantage, peers, omega, update, params), logps
    )
    bound = omega * advantage.abs() * (1 + 1e-12)
    assert (loss.abs() <= bound).all()
    assert (gradient.sum(-1).abs() <= bound).all()
    # The plain policy gradient -A, weighted by omega * s^(1 + alpha) inside the window and by 0 outside.
    ratio = sequence_ratio(logps, mask, source)
    inside = (ratio >= window_lower(update, params)) & (ratio <= 1.0)
    weights = torch.where(inside, omega * ratio ** (1.0 + params.alpha), 0.0)
    torch.testing.assert_close(gradient.sum(-1), -weights * advantage, rtol=1e-9, atol=1e-12)


@given(seeds, updates, st.floats(0, 4))
def test_no_gradient_flows_through_the_exponent(seed, update, alpha):
    logps, mask, source, advantage, own, omega = random_responses(seed)
    peers, plain, raised = torch.zeros_like(own), HacpoParams(alpha=0.0), HacpoParams(alpha=alpha)
    _, gradient = loss_and_gradient(
        lambda x: hacpo_loss(x, mask, source, advantage, peers, omega, update, plain), logps
    )
    _, weighted = loss_and_gradient(
        lambda x: hacpo_loss(x, mask, source, advantage, peers, omega, update, raised), logps
    )
    capped = sequence_ratio(logps, mask, source).clamp(window_lower(update, plain), 1.0)
    torch.testing.assert_close(weighted, gradient * capped[:, None] ** alpha, rtol=1e-9, atol=1e-15)


@given(seeds, updates)
def test_without_all_mechanisms_hacpo_is_naive_sharing(seed, update):
    stripped = Hacpo(without=("capability_baseline", "coefficient", "exponent", "stepwise", "clipping"))
    logps, mask, source, advantage, own, _ = random_responses(seed)
    omega = random_omega(seed, 3)
    rewards = random_rewards(seed, 3, 2, 4)
    torch.testing.assert_close(stripped.coefficients(omega), Naive().coefficients(omega), rtol=0, atol=0)
    torch.testing.assert_close(
        stripped.advantages(rewards, omega), Naive().advantages(rewards, omega), rtol=0, atol=0
    )
    ones = torch.ones_like(advantage)
    data = SourceData(source, torch.zeros_like(logps), advantage, own, ones)
    torch.testing.assert_close(
        loss_and_gradient(lambda x: stripped.objective(x, mask, data, update), logps),
        loss_and_gradient(lambda x: Naive().objective(x, mask, data, update), logps),
        rtol=0,
        atol=0,
    )


extreme_logps = st.sampled_from([0.0, -1e-30, -1.0, -700.0, -1e4, -1e30])


@given(
    st.lists(st.tuples(extreme_logps, extreme_logps, st.booleans()), min_size=1, max_size=5),
    st.floats(-1e6, 1e6),
    st.floats(0, 10),
    updates,
    params,
    st.sampled_from([torch.float32, torch.float64]),
)
def test_nothing_overflows(rows, advantage, omega, update, params, dtype):
    """Single tokens, log-probs of -1e4 and beyond, on either side of the ratio, in both precisions."""
    logps = torch.tensor([[learner] for learner, _, _ in rows], dtype=dtype)
    mask = torch.ones_like(logps, dtype=torch.bool)
    source = torch.tensor([source for _, source, _ in rows], dtype=dtype)
    own = torch.tensor([is_own for _, _, is_own in rows])
    advantages_s = torch.full_like(source, advantage)
    omegas = torch.full_like(source, omega)
    for loss_of in (
        lambda x: hacpo_loss(x, mask, source, advantages_s, own, omegas, update, params),
        lambda x: gspo_loss(x, mask, source, advantages_s),
        lambda x: grpo_loss(x, mask, source[:, None], advantages_s),
        lambda x: kl_low_variance(x, source[:, None], mask),
    ):
        loss, gradient = loss_and_gradient(loss_of, logps)
        assert loss.isfinite().all()
        assert gradient.isfinite().all()


@given(
    st.lists(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=2), min_size=1, max_size=8),
    st.sampled_from([torch.float32, torch.float64]),
)
def test_advantages_are_finite_for_any_capability(history, dtype):
    capability = Capability(2)
    for means in history:
        capability.update([0.0, abs(means[0])])
    rewards = torch.tensor(history, dtype=dtype).T[:, None, :]
    for epsilon in (0.0, 1e-6):
        actual, baseline = advantages(rewards, capability.omega, epsilon=epsilon)
        assert actual.isfinite().all()
        assert baseline.isfinite().all()


@given(seeds)
def test_low_variance_kl_is_positive_and_points_to_the_reference(seed):
    logps, mask, *_ = random_responses(seed)
    reference = logps + torch.randn(logps.shape, dtype=DTYPE, generator=generator(seed))
    kl, gradient = loss_and_gradient(lambda x: kl_low_variance(x, reference, mask), logps)
    assert (kl >= 0).all()
    assert ((gradient * (logps - reference))[mask] >= 0).all()
    assert not kl_low_variance(logps, logps, mask).any()


# Capability and diagnostics


@given(st.lists(st.lists(st.floats(0, 1), min_size=3, max_size=3), min_size=1, max_size=9))
def test_omega_is_reciprocal_within_its_bounds(history):
    capability = Capability(3)
    for means in history:
        capability.update(means)
    omega = capability.omega
    assert (omega.diagonal() == 1).all()
    torch.testing.assert_close(omega * omega.T, torch.ones_like(omega))
    assert ((omega >= 0.1) & (omega <= 10)).all()
    restored = Capability(3)
    restored.load_state_dict(capability.state_dict())
    capability.update([0.5, 0.1, 0.9])
    restored.update([0.5, 0.1, 0.9])
    assert torch.equal(restored.omega, capability.omega)


@given(st.lists(st.floats(0, 1e6), max_size=20), st.floats(1e-3, 1e3))
def test_effective_sample_size_is_between_one_and_the_count(weights, scale):
    tensor = torch.tensor(weights, dtype=DTYPE)
    size = effective_sample_size(tensor)
    if tensor.any():
        assert 1 - 1e-9 <= size <= (tensor > 0).sum().item() + 1e-9
        assert size == pytest.approx(effective_sample_size(tensor * scale), rel=1e-9)
    else:
        assert size == 0.0


@given(seeds, updates, params)
def test_window_shares_are_the_rows_with_gradient(seed, update, params):
    logps, mask, source, advantage, own, omega = random_responses(seed, rows=30)
    params = HacpoParams(delta=params.delta, delta_step=params.delta_step)
    ratio = sequence_ratio(logps, mask, source)
    shares = window_shares(ratio, update, params)
    assert shares.inside + shares.below + shares.above == pytest.approx(1.0)
    _, gradient = loss_and_gradient(
        lambda x: hacpo_loss(x, mask, source, advantage, torch.zeros_like(own), omega + 0.1, update, params),
        logps,
    )
    assert (gradient != 0).any(-1).double().mean().item() == pytest.approx(shares.inside)
