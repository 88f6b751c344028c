"""The model of a TRL trainer as a learner: its tokens as TRL writes them, log-probs, updates."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from hacrl.agents.backends.interfaces import Row, response_mask
from hacrl.agents.backends.padded import PlainScorer
from hacrl.agents.batching import micro_batches
from hacrl.agents.features import prompt_features
from hacrl.agents.rendering import Rendering
from hacrl.agents.updater import source_data
from hacrl.algorithm.batch import Objective
from hacrl.recipe.settings import UpdatesSettings
from hacrl.sharing import Learner, LearnerBatch
from hacrl.types import MiniBatch, Prompt

BUDGET = UpdatesSettings().tokens_per_micro_batch


class TrlEncoder(Rendering):
    """Prompts in TRL's way: a text as it is, messages by the chat template."""

    def __init__(self, tokenizer: Any, variables: dict[str, Any], eos_ids: Sequence[int]) -> None:
        super().__init__(tokenizer, eos_ids=eos_ids)
        self._trl_tokenizer, self._variables = tokenizer, variables

    def encode_prompt(self, prompt: Prompt) -> tuple[int, ...]:
        """The tokens that `GRPOTrainer` generates from."""
        if isinstance(prompt.text, str):
            return tuple(self._trl_tokenizer(text=prompt.text)["input_ids"])
        messages = [dict(message) for message in prompt.text]
        written = self._trl_tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=True, return_dict=True, **self._variables
        )
        return tuple(written["input_ids"])


class TrlModel:
    """Scores and updates the trainer's model in place."""

    def __init__(self, name: str, model: PreTrainedModel, tokenizer: Any, args: Any) -> None:
        self.name = name
        self._model = model
        self._scorer = PlainScorer(model)
        self._bf16, self._max_grad_norm = bool(args.bf16), args.max_grad_norm
        own_eos = model.generation_config.eos_token_id if model.generation_config is not None else None
        eos = {tokenizer.eos_token_id, *(own_eos if isinstance(own_eos, list) else [own_eos])} - {None}
        self.encoder = TrlEncoder(tokenizer, args.chat_template_kwargs or {}, sorted(eos))
        room = getattr(model.config, "max_position_embeddings", None)
        self.learner = Learner(name, self.encoder, context_length=room)

    def score(self, rows: Sequence[Row]) -> list[tuple[float, ...]]:
        """Per-token log-probs of the responses."""
        found: dict[int, tuple[float, ...]] = {}
        with torch.no_grad(), self._computing():
            for batch in micro_batches(rows, BUDGET, shares_prompts=False):
                logps = self._scorer.logps([rows[i] for i in batch]).float().tolist()
                found |= {i: tuple(line[: len(rows[i][1])]) for i, line in zip(batch, logps, strict=True)}
        return [found[i] for i in range(len(rows))]

    def features(self, prompts: Sequence[Prompt]) -> Tensor:
        """[b, FEATURES] of the prompts."""
        model = self._model.get_base_model() if hasattr(self._model, "get_base_model") else self._model
        tokens = [self.encoder.encode_prompt(prompt) for prompt in prompts]
        with torch.no_grad(), self._computing():
            return prompt_features(PlainScorer(model), tokens).double()

    def update(self, batch: LearnerBatch, optimiser: Any) -> None:
        """One step of TRL's optimiser for every mini-batch, at the learning rate it has now."""
        done = 0
        for group in batch.update_groups:
            for mini_batch in group.updates:
                with self._computing():
                    self._backward(mini_batch, group.objective, done)
                if self._max_grad_norm:
                    nn.utils.clip_grad_norm_(self._model.parameters(), self._max_grad_norm)
                optimiser.step()
                optimiser.zero_grad()
                done += 1

    def _backward(self, mini_batch: MiniBatch, objective: Objective, done: int) -> None:
        """The gradient of the mean loss over the rows, a micro-batch at a time."""
        rows = [(row.prompt_ids, row.response_ids) for row in mini_batch]
        device = self._model.device
        for part in micro_batches(rows, BUDGET, shares_prompts=False):
            mask = response_mask([rows[i] for i in part], device)
            logps: Tensor = self._scorer.logps([rows[i] for i in part])
            losses = objective(logps, mask, source_data([mini_batch[i] for i in part], device), done)
            torch.autograd.backward(losses.sum() / len(mini_batch))

    @contextmanager
    def _computing(self) -> Any:
        """Dropout off, and in the precision that TRL computes in."""
        was_training = self._model.training
        self._model.eval()
        cast: AbstractContextManager[Any] = (
            torch.autocast(self._model.device.type, torch.bfloat16) if self._bf16 else nullcontext()
        )
        try:
            with cast:
                yield
        finally:
            self._model.train(was_training)
