"""A critic: a second model that foretells an agent's reward before every token of a response."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from hacrl.agents.engine import Row, response_mask, right_padded
from hacrl.agents.errors import NonFiniteLoss
from hacrl.agents.learner import micro_batches, padded
from hacrl.agents.optimiser import Optimiser
from hacrl.agents.settings import Optimisation
from hacrl.algorithm.critic import CriticParams, gae, value_loss, whitened
from hacrl.types import Judgement, MiniBatch, TrainingRow

LEARNING_RATE_FACTOR = 10
"""The critic's learning rate over its agent's, unless it is set."""


class Critic:
    """A copy of the agent's initial model with a value head in place of its vocabulary, trained by itself.

    It runs the plain padded forward, always without gradient checkpointing. With LoRA it trains adapters of
    its own. The head begins at 0: every value is 0 before the first update.
    """

    def __init__(
        self, agent: str, model: PreTrainedModel, params: CriticParams, optimisation: Optimisation
    ) -> None:
        self._agent = agent
        self._params = params
        self._budget = optimisation.tokens_per_micro_batch
        self._body: nn.Module = copy.deepcopy(model.base_model)
        self._head = nn.Linear(model.get_output_embeddings().weight.shape[1], 1, device=model.device)
        nn.init.zeros_(self._head.weight)
        nn.init.zeros_(self._head.bias)
        network = nn.ModuleDict({"body": self._body, "head": self._head})
        trained = {name: p for name, p in network.named_parameters() if p.requires_grad}
        rate = params.learning_rate or LEARNING_RATE_FACTOR * optimisation.learning_rate
        self._optimiser = Optimiser(trained, replace(optimisation, learning_rate=rate))

    def values(self, rows: Sequence[Row]) -> Tensor:
        """Values [s, t], each read before its response token; 0 where padded."""
        device = self._head.weight.device
        ids, mask = right_padded([prompt + response for prompt, response in rows], device)
        hidden = self._body(input_ids=ids, attention_mask=mask.long(), use_cache=False).last_hidden_state
        everywhere = self._head(hidden.float()).squeeze(-1)
        real = response_mask(rows, device)
        before = torch.tensor([len(prompt) - 1 for prompt, _ in rows], device=device)
        places = (before[:, None] + torch.arange(real.shape[1], device=device)).clamp(max=ids.shape[1] - 1)
        return torch.where(real, everywhere.gather(1, places), 0.0)

    def judge(self, mini_batches: Sequence[MiniBatch]) -> tuple[MiniBatch, ...]:
        """The rows with a judgement of every token; their `advantage` has to be the plain reward.

        It becomes the mean over the response's tokens. Whitened over the tokens of all mini-batches.
        """
        rows = [row for mini_batch in mini_batches for row in mini_batch]
        if not rows:
            return tuple(mini_batches)
        tokens = [(row.prompt_ids, row.response_ids) for row in rows]
        mask = response_mask(tokens, torch.device("cpu"))
        values = torch.zeros(mask.shape)
        with torch.inference_mode():
            for batch in micro_batches(tokens, self._budget, shares_prompts=False):
                found = self.values([tokens[i] for i in batch]).cpu()
                values[batch, : found.shape[1]] = found
        rewards = torch.tensor([row.advantage for row in rows])
        raw, returns = gae(rewards, values, mask, self._params.gamma, self._params.lam)
        columns = (whitened(raw, mask).tolist(), values.tolist(), returns.tolist())
        judged = iter([_judged(row, *judgement) for row, *judgement in zip(rows, *columns, strict=True)])
        return tuple(tuple(next(judged) for _ in mini_batch) for mini_batch in mini_batches)

    def update(self, mini_batch: MiniBatch) -> float:
        """One optimiser step on the mean over all tokens -> the loss before it."""
        tokens = [(row.prompt_ids, row.response_ids) for row in mini_batch]
        count = sum(len(response) for _, response in tokens)
        total = 0.0
        try:
            for batch in micro_batches(tokens, self._budget, shares_prompts=False):
                loss = self._loss([mini_batch[i] for i in batch]) / count
                torch.autograd.backward(loss)
                total += loss.item()
            norm = self._optimiser.gradient_norm()
            if not math.isfinite(total) or not bool(norm.isfinite()):
                raise NonFiniteLoss(
                    f"agent {self._agent!r}: its critic's loss is {total}, the gradient norm {float(norm)}. "
                    "The critic is as before this mini-batch. Check rewards, or lower critic_learning_rate"
                )
        except BaseException:  # half a mini-batch's gradient must not leak into the next update
            self._optimiser.discard_gradients()
            raise
        self._optimiser.step(norm)
        return total

    def state(self) -> dict[str, Tensor]:
        """A copy of what training needs to go on exactly."""
        return self._optimiser.state()

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Go on where `state` was taken."""
        self._optimiser.load_state(state)

    def _loss(self, rows: Sequence[TrainingRow]) -> Tensor:
        """Summed over the tokens of all rows."""
        tokens = [(row.prompt_ids, row.response_ids) for row in rows]
        mask = response_mask(tokens, self._head.weight.device)
        judgements = [_judgement(row) for row in rows]
        return value_loss(
            self.values(tokens),
            padded([judgement.values for judgement in judgements], mask.shape[1], mask.device),
            padded([judgement.returns for judgement in judgements], mask.shape[1], mask.device),
            mask,
            self._params.value_clip,
        ).sum()


def _judged(
    row: TrainingRow, advantages: Sequence[float], values: Sequence[float], returns: Sequence[float]
) -> TrainingRow:
    """The row with its own part of the padded columns."""
    length = len(row.response_ids)
    own = tuple(advantages[:length])
    judgement = Judgement(own, tuple(values[:length]), tuple(returns[:length]))
    return replace(row, advantage=sum(own) / length, judgement=judgement)


def _judgement(row: TrainingRow) -> Judgement:
    if row.judgement is None:
        raise ValueError(f"the row of prompt {row.prompt_id!r} has no judgement: call Policy.judge before")
    return row.judgement
