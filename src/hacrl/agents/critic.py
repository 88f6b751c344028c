"""PPO's critic: a second model that predicts an agent's reward before every token of a response."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from hacrl.agents.backends.body import body_of
from hacrl.agents.backends.interfaces import Row, response_mask, right_padded
from hacrl.agents.batching import micro_batches
from hacrl.agents.errors import NonFiniteLoss
from hacrl.agents.optimiser import Optimiser, peak_learning_rate
from hacrl.agents.ranks import Ranks
from hacrl.agents.shared_base import share_frozen
from hacrl.agents.updater import pad_numbers
from hacrl.algorithm.critic import CriticParams, gae, value_loss, whitened
from hacrl.recipe.settings import OptimiserSettings, UpdatesSettings
from hacrl.types import Judgement, MiniBatch, TrainingRow

LEARNING_RATE_FACTOR = 10
"""Ratio of the critic's learning rate to its agent's, unless it is set."""


class ValueHead(nn.Linear):
    """One value per hidden state, all 0 at first."""

    def __init__(self, width: int, device: torch.device) -> None:
        super().__init__(width, 1, device=device)
        nn.init.zeros_(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, hidden: Tensor) -> Tensor:
        """[..., d] -> [...]; cloned, because FSDP warns about modules that return a view."""
        return super().forward(hidden).squeeze(-1).clone()


class ValueModel(nn.Module):
    """A language model's body with a value head in place of its vocabulary."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.body: nn.Module = share_frozen(body_of(model))
        self.head = ValueHead(model.get_output_embeddings().weight.shape[1], model.device)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Values [s, t] after every token."""
        body = self.body(input_ids=input_ids, attention_mask=attention_mask, use_cache=False)
        values: Tensor = self.head(body.last_hidden_state.float())
        return values


class Critic:
    """A copy of the agent's initial model with a value head instead of its vocabulary, and its own optimiser.

    It runs the plain padded forward, always without gradient checkpointing. With LoRA it trains adapters of
    its own and shares the frozen weights. The head starts at 0, so every value is 0 before the first update.
    """

    def __init__(
        self,
        agent: str,
        model: PreTrainedModel,
        params: CriticParams,
        optimiser: OptimiserSettings,
        updates: UpdatesSettings | None = None,
        total_steps: int | None = None,
        ranks: Ranks | None = None,
    ) -> None:
        """`optimiser`, `updates` and `total_steps` are the agent's."""
        self._agent = agent
        self._params = params
        self._budget = (updates or UpdatesSettings()).tokens_per_micro_batch
        self._device = model.device
        self._ranks = ranks or Ranks()
        self._network = ValueModel(model)
        self._ranks.shard(self._network, self._network.head)
        trained = {name: p for name, p in self._network.named_parameters() if p.requires_grad}
        rate = params.learning_rate or LEARNING_RATE_FACTOR * peak_learning_rate(optimiser)
        settings = optimiser.model_copy(update={"learning_rate": rate})
        self.optimiser = Optimiser(trained, settings, total_steps)

    def values(self, rows: Sequence[Row]) -> Tensor:
        """Values [s, t], each read before its response token; 0 where padded."""
        device = self._device
        ids, mask = right_padded([prompt + response for prompt, response in rows], device)
        everywhere = self._network(input_ids=ids, attention_mask=mask.long())
        real = response_mask(rows, device)
        before = torch.tensor([len(prompt) - 1 for prompt, _ in rows], device=device)
        places = (before[:, None] + torch.arange(real.shape[1], device=device)).clamp(max=ids.shape[1] - 1)
        return torch.where(real, everywhere.gather(1, places), 0.0)

    def judge(self, mini_batches: Sequence[MiniBatch]) -> tuple[MiniBatch, ...]:
        """The rows with values, returns and advantages of every token; `advantage` must be the plain reward.

        Advantages are whitened over the tokens of all mini-batches; a row's `advantage` becomes their mean.
        """
        rows = [row for mini_batch in mini_batches for row in mini_batch]
        if not rows:
            return tuple(mini_batches)
        tokens = [(row.prompt_ids, row.response_ids) for row in rows]
        mask = response_mask(tokens, torch.device("cpu"))
        values = torch.zeros(mask.shape)
        with self._ranks.gathered(self._network), torch.inference_mode():
            for batch in self._batches(tokens, self._ranks.share(range(len(rows)))):
                found = self.values([tokens[i] for i in batch]).cpu()
                values[batch, : found.shape[1]] = found
        values = self._ranks.total(values)
        rewards = torch.tensor([row.advantage for row in rows])
        raw, returns = gae(rewards, values, mask, self._params.gamma, self._params.lam)
        columns = (whitened(raw, mask).tolist(), values.tolist(), returns.tolist())
        judged = iter([_judged(row, *judgement) for row, *judgement in zip(rows, *columns, strict=True)])
        return tuple(tuple(next(judged) for _ in mini_batch) for mini_batch in mini_batches)

    def update(self, mini_batch: MiniBatch, steps_done: float | None = None) -> float:
        """One optimiser step on the mean over all tokens -> the loss before it."""
        tokens = [(row.prompt_ids, row.response_ids) for row in mini_batch]
        count = sum(len(response) for _, response in tokens)
        total = 0.0
        try:
            for batch in self._ranks.micro_batches(tokens, self._budget, shares_prompts=False):
                # A rank with fewer rows than the others still has to run the model; its loss counts 0.
                loss = self._loss([mini_batch[i] for i in batch or [0]]) * (1.0 if batch else 0.0) / count
                torch.autograd.backward(loss)
                self.optimiser.collect_gradients()
                total += loss.item()
            total = float(self._ranks.total(torch.tensor(total, dtype=torch.float64)))
            norm = self.optimiser.gradient_norm()
            if not math.isfinite(total) or not bool(norm.isfinite()):
                raise NonFiniteLoss(
                    f"agent {self._agent!r}: its critic's loss is {total}, the gradient norm {float(norm)}. "
                    "This mini-batch has not changed the critic. Check rewards, or lower critic_learning_rate"
                )
        except BaseException:  # a partial gradient must not leak into the next update
            self.optimiser.discard_gradients()
            raise
        self.optimiser.step(norm, steps_done)
        return total

    def move(self, device: torch.device) -> None:
        """Move all tensors to another device."""
        self._network.to(device)
        self.optimiser.move(device)

    def _batches(self, tokens: Sequence[Row], share: Sequence[int]) -> list[list[int]]:
        """Micro-batches of a share of the rows."""
        batches = micro_batches([tokens[i] for i in share], self._budget, shares_prompts=False)
        return [[share[i] for i in batch] for batch in batches]

    def _loss(self, rows: Sequence[TrainingRow]) -> Tensor:
        """Summed over the tokens of all rows."""
        tokens = [(row.prompt_ids, row.response_ids) for row in rows]
        mask = response_mask(tokens, self._device)
        judgements = [_judgement(row) for row in rows]
        return value_loss(
            self.values(tokens),
            pad_numbers([judgement.values for judgement in judgements], mask.shape[1], mask.device),
            pad_numbers([judgement.returns for judgement in judgements], mask.shape[1], mask.device),
            mask,
            self._params.value_clip,
        ).sum()


def _judged(
    row: TrainingRow, advantages: Sequence[float], values: Sequence[float], returns: Sequence[float]
) -> TrainingRow:
    """The row with its part of the padded columns."""
    length = len(row.response_ids)
    own = tuple(advantages[:length])
    judgement = Judgement(own, tuple(values[:length]), tuple(returns[:length]))
    return replace(row, advantage=sum(own) / length, judgement=judgement)


def _judgement(row: TrainingRow) -> Judgement:
    if row.judgement is None:
        raise ValueError(f"the row of prompt {row.prompt_id!r} has no judgement: call Policy.judge first")
    return row.judgement
