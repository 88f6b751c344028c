"""Hugging Face modules over padded rows: works for every model."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from hacrl.agents.backends.body import body_of
from hacrl.agents.backends.head import OutputHead, target_logps
from hacrl.agents.backends.interfaces import Row, Tokens, response_mask, right_padded
from hacrl.agents.ranks import as_forward

METHOD = "token_logps"
"""Name of the method that a sharded model computes log-probs in."""


def padded_states(model: PreTrainedModel, prompts: Sequence[Tokens]) -> tuple[Tensor, Tensor]:
    """The last layer's states [b, t, d] of all tokens of each prompt, and where there is one."""
    ids, mask = right_padded(prompts, model.device)
    states: Tensor = body_of(model)(
        input_ids=ids, attention_mask=mask.long(), use_cache=False
    ).last_hidden_state
    return states, mask


class PlainScorer:
    """The model's own forward, logits included: what all other backends are checked against."""

    shares_prompts = False

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        self._cuts_logits = _cuts_logits(model)

    def logps(self, rows: Sequence[Row]) -> Tensor:
        """Log-probs [s, t] of the response tokens; 0 where padded."""
        ids, mask = right_padded([prompt + response for prompt, response in rows], self._model.device)
        skipped = min(len(prompt) for prompt, _ in rows) - 1 if self._cuts_logits else 0
        cut = {"logits_to_keep": ids.shape[1] - skipped} if self._cuts_logits else {}
        logits = self._model(input_ids=ids, attention_mask=mask.long(), use_cache=False, **cut).logits
        width = max(len(response) for _, response in rows)
        result = []
        for row, (prompt, response) in enumerate(rows):
            start = len(prompt) - 1 - skipped
            targets = ids[row, len(prompt) : len(prompt) + len(response)]
            logps = target_logps(logits[row, start : start + len(response)], targets)
            result.append(F.pad(logps, (0, width - len(response))))
        return torch.stack(result)

    def states(self, prompts: Sequence[Tokens]) -> tuple[Tensor, Tensor]:
        """The last layer's states [b, t, d] of all tokens of each prompt, and where there is one."""
        return padded_states(self._model, prompts)


class PaddedScorer:
    """Prompt and response of every row in one padded batch; the head only where a token is predicted.

    A sharded model has to run as a whole, because FSDP gathers weights around the calls of its modules. So
    log-probs are computed in a method that FSDP treats like the model's `forward`.
    """

    shares_prompts = False

    def __init__(self, model: PreTrainedModel, checkpointing: bool = False) -> None:
        self._model = model
        self._body: nn.Module = body_of(model)
        self._head = OutputHead(model)
        self._checkpointed: list[nn.Module] = []
        if checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": False})
            self._checkpointed = [m for m in model.modules() if isinstance(m, GradientCheckpointingLayer)]

    def logps(self, rows: Sequence[Row]) -> Tensor:
        """Log-probs [s, t] of the response tokens; 0 where padded."""
        device = self._model.device
        ids, mask = right_padded([prompt + response for prompt, response in rows], device)
        asked = response_mask(rows, device)
        before = torch.tensor([len(prompt) - 1 for prompt, _ in rows], device=device)
        states = before[:, None] + torch.arange(asked.shape[1], device=device)
        row, _ = places = asked.nonzero(as_tuple=True)
        with self._recomputing():
            logps = as_forward(self._model, METHOD, self._logps)(ids, mask.long(), row, states[asked])
        return logps.new_zeros(asked.shape).index_put(places, logps)

    def states(self, prompts: Sequence[Tokens]) -> tuple[Tensor, Tensor]:
        """The last layer's states [b, t, d] of all tokens of each prompt, and where there is one."""
        return padded_states(self._model, prompts)

    def _logps(self, ids: Tensor, mask: Tensor, rows: Tensor, states: Tensor) -> Tensor:
        """Log-probs [n] of the tokens that follow these states of these rows."""
        hidden = self._body(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
        return self._head.logps(hidden[rows, states], ids[rows, states + 1])

    @contextmanager
    def _recomputing(self) -> Iterator[None]:
        """Recompute activations in the backward pass, with dropout off.

        Transformers does so only in training mode. Dropout has to stay off, so that the policy that is
        updated is the one that was sampled from: only the checkpointed layers get that mode, not their parts.
        """
        for layer in self._checkpointed:
            layer.training = torch.is_grad_enabled()
        try:
            yield
        finally:
            for layer in self._checkpointed:
                layer.training = False


class RecomputingDecoder:
    """Runs the whole sequence again for every token: slow, but needs nothing from the model's cache."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model

    def start(self, prompts: Sequence[Tokens], prompt_of_row: Tensor) -> tuple[Tensor, _RecomputingSession]:
        """Logits of every row's first token, and the session."""
        ids, mask = right_padded(prompts, self._model.device)
        session = _RecomputingSession(self._model, ids[prompt_of_row], mask.sum(1)[prompt_of_row])
        return session.logits(), session


class _RecomputingSession:
    def __init__(self, model: PreTrainedModel, ids: Tensor, lengths: Tensor) -> None:
        self._model, self._ids, self._lengths = model, ids, lengths
        self._cuts_logits = _cuts_logits(model)

    def logits(self) -> Tensor:
        mask = torch.arange(self._ids.shape[1], device=self._ids.device) < self._lengths[:, None]
        ends, column = torch.unique(self._lengths - 1, return_inverse=True)
        cut = {"logits_to_keep": ends} if self._cuts_logits else {}
        logits = self._model(input_ids=self._ids, attention_mask=mask.long(), use_cache=False, **cut).logits
        rows = torch.arange(len(self._ids), device=self._ids.device)
        last: Tensor = logits[rows, column if self._cuts_logits else self._lengths - 1]
        return last

    def advance(self, tokens: Tensor) -> Tensor:
        if int(self._lengths.max()) == self._ids.shape[1]:
            self._ids = F.pad(self._ids, (0, 1))
        self._ids.scatter_(1, self._lengths[:, None], tokens[:, None])
        self._lengths = self._lengths + 1
        return self.logits()

    def keep(self, rows: Tensor) -> None:
        self._ids, self._lengths = self._ids[rows], self._lengths[rows]


def _cuts_logits(model: PreTrainedModel) -> bool:
    """Whether it computes logits of chosen positions only."""
    return "logits_to_keep" in inspect.signature(model.forward).parameters
