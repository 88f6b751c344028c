"""PPO's critic: an advantage for every token from rewards and values, and the loss of the values."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hacrl.algorithm.checks import LARGEST_REWARD, as_token_mask, check_finite, check_number, check_shapes


@dataclass(frozen=True, slots=True)
class CriticParams:
    """The settings of PPO's critic; the defaults are those of verl and OpenRLHF."""

    gamma: float = 1.0
    """Discount per token."""
    lam: float = 1.0
    """GAE's lambda: 1 compares with the final reward only, 0 with the next token's value only."""
    value_clip: float = 0.5
    """A value that has moved this far from the one before the step, towards its return, has no gradient."""
    learning_rate: float | None = None
    """None: ten times the agent's."""

    def __post_init__(self) -> None:
        check_number("gamma", self.gamma, low=0.0, high=1.0)
        check_number("lam", self.lam, low=0.0, high=1.0)
        check_number("value_clip", self.value_clip, low=0.0)


def gae(
    rewards: Tensor, values: Tensor, mask: Tensor, gamma: float = 1.0, lam: float = 1.0
) -> tuple[Tensor, Tensor]:
    """`rewards[s]` at the last token, `values[s, t]` before each token -> `(advantages, returns)[s, t]`.

    Generalised advantage estimation (arXiv 1506.02438): the value after the last token is 0. Padding follows
    the response and is 0 in both results, whatever its values are.
    """
    check_shapes(rewards=(rewards, "s"), values=(values, "st"), mask=(mask, "st"))
    check_finite("rewards", rewards, LARGEST_REWARD)
    mask = as_token_mask(mask)
    values = torch.where(mask, values, 0.0)
    rows = torch.arange(len(rewards), device=mask.device)
    received = torch.zeros_like(values)
    received[rows, mask.sum(1) - 1] = rewards.to(values)
    td_error = received + gamma * torch.nn.functional.pad(values[:, 1:], (0, 1)) - values
    advantages = torch.zeros_like(values)
    later = torch.zeros_like(values[:, 0])
    for t in reversed(range(values.shape[1])):
        later = torch.where(mask[:, t], td_error[:, t] + gamma * lam * later, 0.0)
        advantages[:, t] = later
    return advantages, advantages + values


def whitened(advantages: Tensor, mask: Tensor, epsilon: float = 1e-8) -> Tensor:
    """`advantages[s, t]` with mean 0 and variance 1 over all real tokens; 0 where padded."""
    check_shapes(advantages=(advantages, "st"), mask=(mask, "st"))
    real = advantages[as_token_mask(mask)]
    centred = torch.where(mask, advantages - real.mean(), 0.0)
    return centred * (real.var(correction=0) + epsilon).rsqrt()


def value_loss(values: Tensor, old_values: Tensor, returns: Tensor, mask: Tensor, clip: float) -> Tensor:
    """Half the squared error of each response's values, summed over its tokens `[s]`.

    The worse of the value itself and the value kept within `clip` of the one before the step: a value that
    has moved that far towards its return has no gradient.
    """
    check_shapes(
        values=(values, "st"), old_values=(old_values, "st"), returns=(returns, "st"), mask=(mask, "st")
    )
    near = old_values + (values - old_values).clamp(-clip, clip)
    errors = torch.maximum((values - returns).square(), (near - returns).square())
    return 0.5 * torch.where(as_token_mask(mask), errors, 0.0).sum(-1)
