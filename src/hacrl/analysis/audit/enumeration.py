"""The true policy gradient and a method's expected gradient, over every response of a toy vocabulary.

Policies are tables of logits, one row for every prefix. Rewards are 0 or 1, so that a response's advantage
depends on the other rewards only through the number of right responses of each agent. The expectation over
all groups of responses is then a finite sum of binomials: nothing is sampled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from hacrl.algorithm import Objective, SourceData, own_advantages
from hacrl.defaults import CAPABILITY_FLOOR, OMEGA_CLAMP
from hacrl.methods.gspo import Gspo
from hacrl.methods.hacpo import JointGroup

DTYPE = torch.float64


@dataclass(frozen=True)
class Responses:
    """All responses `y` of at most `length` symbols; each ends with EOS unless it is cut at that length."""

    symbols: int
    """Without EOS, which is the last token: its number is `symbols`."""
    prefix: Tensor
    """[y, t] which row of the table the token is drawn from; 0 where padded."""
    token: Tensor
    """[y, t]"""
    mask: Tensor
    """[y, t] real tokens, EOS included: the tokens trained on in an own response."""
    exchanged: Tensor
    """[y, t] without EOS, unless that is the whole response: the tokens trained on in a peer's response."""
    prefixes: int

    @classmethod
    def enumerate(cls, symbols: int, length: int) -> Responses:
        """Every response once."""
        prefixes = [p for size in range(length) for p in product(range(symbols), repeat=size)]
        ended = [(*prefix, symbols) for prefix in prefixes]
        responses = [*ended, *product(range(symbols), repeat=length)]
        row = {prefix: number for number, prefix in enumerate(prefixes)}
        prefix = torch.zeros(len(responses), length, dtype=torch.long)
        token = torch.zeros_like(prefix)
        mask = torch.zeros_like(prefix, dtype=torch.bool)
        for y, response in enumerate(responses):
            token[y, : len(response)] = torch.tensor(response)
            prefix[y, : len(response)] = torch.tensor([row[response[:t]] for t in range(len(response))])
            mask[y, : len(response)] = True
        exchanged = mask & (token != symbols)
        exchanged[:, 0] = True  # a response that is only EOS keeps it
        return cls(symbols, prefix, token, mask, exchanged, len(prefixes))

    def logps(self, logits: Tensor) -> Tensor:
        """`logits[prefix, token]` of one prompt -> log-prob [y, t] of every token, 0 where padded."""
        chosen = logits.log_softmax(-1)[self.prefix, self.token]
        return torch.where(self.mask, chosen, 0.0)


Enumerable = JointGroup | Gspo
"""Methods whose expected gradient can be computed: one group of all agents' responses, or of own ones."""


@dataclass(frozen=True)
class ToyTeam:
    """Agents that respond to the same prompts with G responses each, and the reward of every response."""

    responses: Responses
    rewards: Tensor
    """[b, y] 0 or 1."""
    logits: Tensor
    """[agent, b, prefix, token]"""
    samples: int

    def probabilities(self) -> Tensor:
        """[agent, b, y]"""
        return torch.stack(
            [torch.stack([self.responses.logps(own).sum(-1).exp() for own in agent]) for agent in self.logits]
        )

    def success(self) -> Tensor:
        """[agent, b] expected reward: the perfect baseline."""
        return (self.probabilities() * self.rewards).sum(-1)

    def omega(self) -> Tensor:
        """[k, j] from the agents' true mean rewards over all prompts, clamped as in training."""
        capability = self.success().mean(-1).clamp(min=CAPABILITY_FLOOR)
        return (capability[:, None] / capability[None, :]).clamp(*OMEGA_CLAMP)

    def kl(self, source: int, learner: int) -> float:
        """KL(source || learner) between their responses, mean over prompts."""
        chances = self.probabilities()
        return float((chances[source] * (chances[source] / chances[learner]).log()).sum(-1).mean())


def true_gradient(team: ToyTeam, learner: int) -> Tensor:
    """Gradient of J = mean over prompts of E[R(y)], flat."""
    logits = team.logits[learner].clone().requires_grad_()
    chances = torch.stack([team.responses.logps(own).sum(-1).exp() for own in logits])
    (gradient,) = torch.autograd.grad((chances * team.rewards).sum(-1).mean(), logits)
    return gradient.flatten()


def expected_gradients(
    team: ToyTeam, learner: int, method: Enumerable, update: int = 0
) -> tuple[Tensor, Tensor]:
    """Expected ascent direction of the method's objective: the part of own responses, and that of the peers'.

    Both are flat, and means over responses as in a mini-batch of their own. Every policy is its old policy;
    `update` only narrows the window.
    """
    logits = team.logits[learner].clone().requires_grad_()
    weights = _expected_advantages(team, learner, method)  # [b, j, r]
    own = logits.sum() * 0.0
    peers = logits.sum() * 0.0
    for b in range(len(team.rewards)):
        for j in range(len(team.logits) if method.shares else 0):
            if j != learner:
                peers = peers - _expected_loss(team, logits[b], b, learner, j, method, weights[b, j], update)
        own = own - _expected_loss(team, logits[b], b, learner, learner, method, weights[b, learner], update)
    parts = [torch.autograd.grad(part / len(team.rewards), logits)[0].flatten() for part in (own, peers)]
    return parts[0], parts[1]


def _expected_loss(
    team: ToyTeam,
    logits: Tensor,
    b: int,
    learner: int,
    source: int,
    method: Enumerable,
    advantage: Tensor,
    update: int,
) -> Tensor:
    """E over the source's response y of the loss; `advantage[r]` is E[A | reward r].

    Right responses have advantages >= 0 and wrong ones <= 0, so every loss is linear in the advantage, and
    its mean is the loss at the mean advantage.
    """
    responses = team.responses
    own = source == learner
    mask = responses.mask if own else responses.exchanged
    old = responses.logps(team.logits[source, b])
    source_mean = (old * mask).sum(-1) / mask.sum(-1)
    chances = old.sum(-1).exp()
    per_response = advantage[team.rewards[b].long()]
    logps = responses.logps(logits)
    objective: Objective = method.own_objective
    weight = torch.ones((), dtype=DTYPE)
    if isinstance(method, JointGroup):
        objective, weight = method.objective, method.coefficients(team.omega())[learner, source]
    data = SourceData(
        source_mean_logp=source_mean,
        source_logps=old,
        advantage=per_response,
        own=torch.full_like(chances, own, dtype=torch.bool),
        omega=weight.expand_as(chances),
    )
    losses = objective(logps, mask, data, update)
    return (chances * losses).sum()


def _expected_advantages(team: ToyTeam, learner: int, method: Enumerable) -> Tensor:
    """[b, j, r]: the expected advantage of a response of source j with reward r, over all groups."""
    agents, samples = len(team.logits), team.samples
    counts = torch.tensor(list(product(range(samples + 1), repeat=agents)))  # right responses [group, j]
    rewards = (torch.arange(samples) < counts.T[..., None]).to(DTYPE)  # [j, group, i]
    if isinstance(method, JointGroup):
        found, _ = method.advantages(rewards, team.omega())
    else:
        found, _ = own_advantages(rewards)
    by_reward = torch.stack(  # [r, j, group]: mean over i of the advantages of responses with reward r
        [torch.where(rewards == r, found[learner], 0.0).mean(-1) for r in (0, 1)]
    )
    success = team.success().T  # [b, j]
    chance = _binomial(counts, samples, success)  # [b, group]
    share = torch.stack([1.0 - success, success])  # [r, b, j]: the chance of a response with reward r
    expected = torch.einsum("rjg,bg->rbj", by_reward, chance) / share.clamp(min=1e-300)
    return expected.permute(1, 2, 0)


def _binomial(counts: Tensor, samples: int, success: Tensor) -> Tensor:
    """[b, group]: the chance that every agent j has `counts[group, j]` right responses."""
    ways = torch.tensor([math.comb(samples, right) for right in range(samples + 1)], dtype=DTYPE)
    chance = success[:, None, :]
    return (ways[counts] * chance**counts * (1.0 - chance) ** (samples - counts)).prod(-1)


def random_team(
    distances: Sequence[float], *, prompts: int, symbols: int, length: int, samples: int, seed: int
) -> ToyTeam:
    """Agents around a common random policy, each at its distance, in a random direction."""
    random = torch.Generator().manual_seed(seed)
    responses = Responses.enumerate(symbols, length)
    shape = (prompts, responses.prefixes, symbols + 1)
    centre = torch.randn(shape, dtype=DTYPE, generator=random)
    logits = [centre + d * torch.randn(shape, dtype=DTYPE, generator=random) for d in distances]
    rewards = (torch.rand(prompts, len(responses.token), generator=random) < 0.3).to(DTYPE)
    return ToyTeam(responses, rewards, torch.stack(logits), samples)
