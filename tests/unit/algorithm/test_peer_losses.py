"""The published methods' losses on numbers small enough to check by hand."""

import math

import pytest
import torch

from hacrl.algorithm import (
    GspoObjective,
    LikelihoodObjective,
    SourceData,
    SplitObjective,
    admitted_loss,
    distillation_loss,
    likelihood_loss,
    shaped_loss,
    truncated_loss,
)

MASK = torch.tensor([[True, True], [True, False]])
"""A response of two tokens and one of one token; what is padded is NaN."""


def padded(*rows: tuple[float, float], grad: bool = True) -> torch.Tensor:
    values = torch.tensor(rows, dtype=torch.float64)
    return values.masked_fill(~MASK, math.nan).requires_grad_(grad)


def slopes(losses: torch.Tensor, logps: torch.Tensor) -> list[list[float]]:
    (gradient,) = torch.autograd.grad(losses.sum(), logps)
    return gradient.tolist()


def test_truncated_weights_are_the_ratio_up_to_the_truncation_at_every_token():
    logps = padded((-1.0, -1.0), (-1.0, 0.0))
    source = torch.tensor([[-1.0 + math.log(2), -4.0], [-1.5, 0.0]], dtype=torch.float64)
    advantage = torch.tensor([3.0, -1.0], dtype=torch.float64)
    losses = truncated_loss(logps, MASK, source, source.mean(1), advantage)
    # Ratios 1/2 and e^3 (cut at 2), halved by the mean over two tokens; then e^0.5 of one token.
    assert slopes(losses, logps) == [pytest.approx([-0.75, -3.0]), pytest.approx([math.exp(0.5), 0.0])]


def test_far_failures_are_filtered_and_successes_never():
    logps = padded((-4.0, -4.0), (-4.0, 0.0))
    source = torch.full((2, 2), -1.0, dtype=torch.float64)  # divergence 6 and 3 nats
    for sign, limit, expected in ((-1, 6.1, [1, 1]), (-1, 6, [0, 1]), (-1, 3, [0, 0]), (1, 0, [1, 1])):
        advantage = torch.full((2,), float(sign), dtype=torch.float64)
        losses = truncated_loss(logps, MASK, source, source[:, 0], advantage, kl_limit=limit)
        assert (losses != 0).tolist() == [bool(value) for value in expected]


def test_without_the_sources_tokens_the_truncated_weight_is_the_sequence_ratio():
    logps = padded((-1.0, -3.0), (-1.0, 0.0))
    unknown = torch.zeros(2, 2, dtype=torch.float64)
    mean = torch.tensor([-1.5, -5.0], dtype=torch.float64)
    advantage = torch.ones(2, dtype=torch.float64)
    losses = truncated_loss(logps, MASK, unknown, mean, advantage)
    half = -math.exp(-0.5) / 2  # mean -2 against -1.5; the other ratio is e^4, cut at 2
    assert slopes(losses, logps) == [pytest.approx([half, half]), pytest.approx([-2.0, 0.0])]
    # In another unit: the log-ratio of -0.5 counts threefold.
    scaled = truncated_loss(logps, MASK, unknown, mean, advantage, length_scale=3 * advantage)
    assert slopes(scaled, logps)[0] == pytest.approx([-math.exp(-1.5) / 2] * 2)


def test_only_likely_responses_are_admitted_and_never_with_more_than_their_advantage():
    logps = padded((-1.0, -1.2), (-1.0, 0.0))
    advantage = torch.tensor([2.0, -1.0], dtype=torch.float64)
    mean = torch.tensor([-1.0, -1.5], dtype=torch.float64)  # ratios e^-0.1 and e^0.5
    losses = admitted_loss(logps, MASK, mean, advantage)
    assert slopes(losses, logps) == [pytest.approx([-math.exp(-0.1)] * 2), pytest.approx([1.0, 0.0])]
    assert admitted_loss(logps, MASK, mean, advantage, floor=0.91)[0] == 0


def test_shaping_pulls_unlikely_tokens_harder_than_their_probability_does():
    logps = padded((math.log(0.1), 0.0), (math.log(0.5), 0.0))
    losses = shaped_loss(logps, MASK, torch.tensor([2.0, 1.0], dtype=torch.float64))
    # f(p) = p / (p + 0.1): f(0.1) = 1/2, f(1) = 10/11, f(0.5) = 5/6; slope over log p: 0.1 p / (p + 0.1)^2.
    assert losses.tolist() == pytest.approx([-(1 / 2 + 10 / 11), -5 / 6])
    assert slopes(losses, logps) == [
        pytest.approx([-0.25, -0.1 / 1.21]),
        pytest.approx([-0.05 / 0.36, 0.0]),
    ]


def test_likelihood_is_per_token():
    logps = padded((-1.0, -3.0), (-5.0, 0.0))
    losses = likelihood_loss(logps, MASK, torch.tensor([0.5, 2.0], dtype=torch.float64))
    assert losses.tolist() == [1.0, 10.0]
    assert slopes(losses, logps) == [[-0.25, -0.25], [-2.0, 0.0]]


def test_distillation_moves_every_token_towards_the_teacher():
    logps = padded((-1.0, -3.0), (-2.0, 0.0))
    teacher = torch.tensor([[-0.5, -4.0], [-2.0, 0.0]], dtype=torch.float64)
    losses = distillation_loss(logps, MASK, teacher, torch.tensor([1.0, 1.0], dtype=torch.float64))
    assert slopes(losses, logps) == [[-0.5, 1.0], [0.0, 0.0]]


def test_distillation_descends_the_reverse_kl_on_average():
    logits = torch.tensor([0.3, -0.2, 0.5], dtype=torch.float64, requires_grad=True)
    teacher = torch.tensor([0.1, 0.7, -0.4], dtype=torch.float64).log_softmax(0)
    logps = logits.log_softmax(0)
    each = distillation_loss(
        logps[:, None], torch.ones(3, 1).bool(), teacher[:, None], torch.ones(3, dtype=torch.float64)
    )
    (expected,) = torch.autograd.grad((logps.exp() * (logps - teacher)).sum(), logits, retain_graph=True)
    (found,) = torch.autograd.grad((logps.exp().detach() * each).sum(), logits)
    torch.testing.assert_close(found, expected)


def test_own_and_peers_responses_have_their_own_rule_in_one_update():
    logps = torch.tensor([[-1.0], [-1.0]], requires_grad=True)
    data = SourceData(
        source_mean_logp=torch.tensor([-1.0, -9.0]),
        source_logps=torch.tensor([[-1.0], [-9.0]]),
        advantage=torch.tensor([3.0, 0.5]),
        own=torch.tensor([True, False]),
        omega=torch.ones(2),
    )
    split = SplitObjective(GspoObjective(), LikelihoodObjective())
    losses = split(logps, torch.ones(2, 1).bool(), data, 0)
    assert losses.tolist() == [-3.0, 0.5]
    assert slopes(losses, logps) == [[-3.0], [-0.5]]
