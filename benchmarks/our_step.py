"""One timed step of one agent: our side of the TRL comparison, and what `scaling` and `two_cores` run."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

import torch
from torch import nn
from transformers import PreTrainedModel

from benchmarks.flops import step_flops
from benchmarks.real_models import MICRO_BATCH_TOKENS, RealModel
from benchmarks.timing import StepTiming
from benchmarks.workload import Workload
from hacrl.agents.policy import Policy
from hacrl.agents.updater import UpdateReport
from hacrl.algorithm import GspoObjective, Objective, own_advantages
from hacrl.analysis.simulate.synthetic import rewards
from hacrl.recipe import OptimiserSettings, SamplingSettings, UpdatesSettings
from hacrl.types import MiniBatch, Rollout, TrainingRow

ENGINES = {
    "generic": {"decode": "CachedDecoder", "train": "SharedPrefixScorer"},
    "fused": {"decode": "FusedDecoder", "train": "FusedScorer"},
}
"""Our two ways of running the models measured here, and what `Policy.backends` calls them."""


BEST = "best"
"""Whichever of them the model gets."""


class OurSide:
    """A policy with its own copy of the model."""

    def __init__(self, work: Workload, engine: str) -> None:
        self.work = work
        self.prompts = work.make_prompts()
        self.model = work.make_model()
        if engine == "generic":
            _hide_from_fused_backend(self.model)
        # TRL's optimiser settings, which are transformers' defaults.
        optimiser = OptimiserSettings(
            learning_rate=work.learning_rate, weight_decay=0.0, max_grad_norm=1.0, kl=0.0
        )
        updates = UpdatesSettings()
        if isinstance(work.size, RealModel):
            updates = UpdatesSettings(tokens_per_micro_batch=MICRO_BATCH_TOKENS)
        self.policy = Policy("ours", self.model, work.make_tokenizer(), optimiser=optimiser, updates=updates)
        if engine == BEST:
            engine = next((name for name, used in ENGINES.items() if used == self.policy.backends), "generic")
        elif self.policy.backends != ENGINES[engine]:
            raise RuntimeError(
                f"the {engine} engine was asked for, but {self.policy.backends} runs the model"
            )
        self.engine = engine
        self.prompt_ids = {prompt.id: self.policy.encoder.encode_prompt(prompt) for prompt in self.prompts}

    def sample(self, seed: int) -> list[Rollout]:
        """Responses to all prompts, prompt by prompt."""
        sampling = SamplingSettings(max_new_tokens=self.work.max_new)
        return self.policy.sample(self.prompts, self.work.samples, sampling, seed)

    def update(self, batches: Sequence[MiniBatch], objective: Objective | None = None) -> list[UpdateReport]:
        """One update per mini-batch, by default with GSPO."""
        return self.policy.update(batches, objective or GspoObjective())

    def step(self, seed: int, replayed: list[Rollout] | None = None) -> StepTiming:
        """One timed step on fresh or replayed responses."""
        begun = perf_counter()
        rollouts = replayed or self.sample(seed)
        generated = perf_counter()
        batches = self.policy.prepare(self._mini_batches(rollouts))  # in bf16, old log-probs
        ready = perf_counter()
        self.update(batches)
        done = perf_counter()
        lengths = [len(rollout.token_ids) for rollout in rollouts]
        flops = step_flops(self.work, lengths)
        return StepTiming(generated - begun, done - ready, ready - generated, sum(lengths), flops)

    def _mini_batches(self, rollouts: Sequence[Rollout]) -> list[MiniBatch]:
        """Rewards, advantages and equal mini-batches of whole prompts."""
        scores = torch.tensor(rewards([rollout.token_ids for rollout in rollouts]))
        advantages, _ = own_advantages(scores.reshape(1, self.work.prompts, self.work.samples))
        rows = [
            training_row(rollout, self.prompt_ids[rollout.prompt_id], advantage)
            for rollout, advantage in zip(rollouts, advantages.flatten().tolist(), strict=True)
        ]
        size = len(rows) // self.work.updates
        return [tuple(rows[start : start + size]) for start in range(0, len(rows), size)]


class _OtherLinear(nn.Linear):
    """A linear layer of another type, as an adapter's would be."""


def _hide_from_fused_backend(model: PreTrainedModel) -> None:
    """The fused backend leaves models with unknown layers to the generic one; nothing else changes."""
    for module in model.base_model.modules():
        if type(module) is nn.Linear:
            module.__class__ = _OtherLinear


def training_row(rollout: Rollout, prompt_ids: tuple[int, ...], advantage: float) -> TrainingRow:
    """An own response as the update takes it."""
    logps = rollout.token_logps
    return TrainingRow(
        prompt_id=rollout.prompt_id,
        prompt_ids=prompt_ids,
        response_ids=rollout.token_ids,
        source="ours",
        own=True,
        source_mean_logp=sum(logps) / len(logps),
        source_logps=logps,
        advantage=advantage,
        omega=1.0,
    )
