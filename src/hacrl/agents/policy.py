"""An agent in this process: it samples, scores, updates, saves and loads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict, Unpack

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hacrl.agents import loading, training_state
from hacrl.agents.backends.choice import choose_backends
from hacrl.agents.backends.interfaces import Row
from hacrl.agents.batched_scorer import BatchedScorer
from hacrl.agents.context import Context
from hacrl.agents.critic import Critic
from hacrl.agents.engines import make_engine
from hacrl.agents.errors import AgentError, explain_out_of_memory
from hacrl.agents.fingerprint import fingerprint
from hacrl.agents.memory_use import bytes_in_use, give_back
from hacrl.agents.optimiser import Optimiser
from hacrl.agents.precision import SMALL
from hacrl.agents.ranks import Ranks, whole_state
from hacrl.agents.reference import FrozenCopy, ReferenceLogps, without_adapters
from hacrl.agents.rendering import Rendering
from hacrl.agents.responder import Responder
from hacrl.agents.shared_base import SharedBases
from hacrl.agents.updater import Updater, UpdateReport
from hacrl.algorithm.batch import Objective
from hacrl.algorithm.critic import CriticParams
from hacrl.defaults import usual_learning_rate
from hacrl.huggingface import no_progress_bar
from hacrl.recipe.agent_settings import LoraSettings, PromptSettings, VllmSettings
from hacrl.recipe.settings import OptimiserSettings, SamplingSettings, UpdatesSettings
from hacrl.runs.files import explain_library_errors
from hacrl.types import MiniBatch, Prompt, Rollout

OFFLOAD_DEVICE = torch.device("cpu")
"""Where an agent is while others have its device."""
CRITIC = "critic/"
"""Prefix of the critic's tensors in a training state."""


class PolicyOptions(TypedDict, total=False):
    """What `Policy` takes besides a name, a model and a tokenizer; see there."""

    optimiser: OptimiserSettings | None
    updates: UpdatesSettings | None
    total_steps: int | None
    lora: LoraSettings | None
    critic: CriticParams | None
    engine: VllmSettings | None
    sampling: SamplingSettings | None
    prompting: PromptSettings | None
    seed: int
    ranks: Ranks | None
    bases: SharedBases | None
    shares_device: bool


class Policy:
    """One agent: a causal language model, its tokenizer and its optimiser.

    Dropout is always off, so that the policy that is updated is the policy that was sampled from.
    """

    def __init__(
        self,
        name: str,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        optimiser: OptimiserSettings | None = None,
        updates: UpdatesSettings | None = None,
        total_steps: int | None = None,
        lora: LoraSettings | None = None,
        critic: CriticParams | None = None,
        engine: VllmSettings | None = None,
        sampling: SamplingSettings | None = None,
        prompting: PromptSettings | None = None,
        seed: int = 0,
        ranks: Ranks | None = None,
        bases: SharedBases | None = None,
        shares_device: bool = False,
    ) -> None:
        """Use a model in memory as an agent; it is trained in place.

        Without `optimiser` the agent samples and scores but cannot be trained: it has neither moments nor a
        copy of its initial weights. A learning rate that decays needs `total_steps`, those of the
        whole run. `seed` initialises the LoRA adapters. With `critic` a second model judges its
        responses (`prepare`), which PPO needs. With `engine` vLLM draws its responses and is started
        for these `sampling` settings, otherwise the built-in sampler. `prompting` says how its prompts are
        written (see `Rendering`).
        With `ranks` this is one of several processes that hold the agent together: all have to make the same
        calls. Agents with the same `bases` share an engine. On a device that it `shares`, its engine is
        asleep except while it draws, and then everything else is in CPU memory.
        """
        self.name = name
        if optimiser is not None and optimiser.learning_rate is None:
            usual = usual_learning_rate(int(model.num_parameters()), adapters=lora is not None)
            optimiser = optimiser.model_copy(update={"learning_rate": usual})
        self._updates = updates or UpdatesSettings()
        self._tokenizer = tokenizer
        self._whole: Any = loading.with_adapters(model, lora, seed) if lora else model
        """What is saved: the model itself, or peft's wrapper around it."""
        adapted = hasattr(self._whole, "disable_adapter")
        self._model: PreTrainedModel = self._whole.get_base_model() if adapted else self._whole
        self._model.eval()
        loading.freeze_beside_text(self._model)
        self.encoder = _make_encoder(name, self._model, tokenizer, prompting)
        self._ranks = ranks or Ranks()
        # The critic and the reference copy the model, so they are made before it is sharded.
        self._critic = self._make_critic(critic, optimiser, total_steps)
        checkpointing = self._updates.gradient_checkpointing
        loading.check_finite(self._model, name)
        self._backends = choose_backends(self._model, checkpointing, sharded=self._ranks.several)
        self._reference = self._make_reference(optimiser)
        self._ranks.shard(self._model)
        self._updater = self._make_updater(optimiser, total_steps)
        self._engine = make_engine(
            name,
            self._model,
            tokenizer,
            engine,
            sampling or SamplingSettings(),
            trains=optimiser is not None,
            ranks=self._ranks,
            bases=bases,
            shares_device=shares_device,
        )
        takes_turns = shares_device and engine is not None and engine.url is None
        if self._engine is not None and takes_turns:
            self._engine.sleep()
        self._context = Context(name, self.context_length)
        self._scorer = BatchedScorer(name, self._backends.scorer, self._updates.tokens_per_micro_batch)
        self._responder = Responder(
            name,
            self._model,
            self.encoder,
            self._backends.decoder,
            self._engine,
            self._ranks,
            context=self._context,
            score=self._scorer.logps,
            away=self._away if takes_turns else None,
        )

    @classmethod
    def load(
        cls,
        name: str,
        model: str | Path,
        *,
        device: str | torch.device = "cpu",
        dtype: torch.dtype | None = None,
        **options: Unpack[PolicyOptions],
    ) -> Policy:
        """An agent from a `save_pretrained` directory or a hub id; by default fp32 on CPU, bf16 on GPU.

        Agents with `lora` that get the same `bases` have the frozen weights of the same model in common.
        """
        device = torch.device(device)
        dtype = dtype or (torch.float32 if device.type == "cpu" else torch.bfloat16)
        lora = options.get("lora")
        if lora is None:
            options["bases"] = None
        in_4_bits = lora is not None and lora.base_bits == 4
        network, tokenizer = loading.load_model(
            model, device, dtype, options.get("bases"), in_4_bits=in_4_bits
        )
        return cls(name, network, tokenizer, **options)

    @property
    def backends(self) -> dict[str, str]:
        """Which implementation decodes and which one trains this model."""
        return self._backends.names

    def sample(
        self, prompts: Sequence[Prompt], samples: int, sampling: SamplingSettings, seed: int
    ) -> list[Rollout]:
        """Draw `samples` responses to each prompt, in order of prompts, then samples.

        Each response has its own random stream, a function of seed, agent, prompt and sample: neither the
        batch it is decoded in nor the order of calls changes it, up to rounding. The log-probs are those of
        the policy at temperature 1 over all tokens, which is what training compares with. Of several ranks
        each draws its share.
        """
        with self._leaving_no_heap():
            return self._responder.sample(prompts, samples, sampling, seed)

    def start_sampling(
        self, prompts: Sequence[Prompt], samples: int, sampling: SamplingSettings, seed: int
    ) -> bool:
        """Have the engine draw what `sample` draws, by the present weights, while other calls follow.

        False, and nothing happens, if it cannot: only an engine with devices of its own can.
        """
        return self._responder.start(prompts, samples, sampling, seed)

    def finish_sampling(self) -> list[Rollout]:
        """Wait for what `start_sampling` started.

        If the agent has been updated meanwhile, the log-probs are the engine's: the weights that drew the
        responses are not there any more to check them.
        """
        with self._leaving_no_heap():
            return self._responder.finish()

    def score(self, rows: Sequence[Row]) -> list[tuple[float, ...]]:
        """Log-prob of every response token of (prompt ids, response ids) pairs; of several ranks, a share."""
        self._context.check(rows)
        with self._leaving_no_heap(), self._ranks.gathered(self._model):
            return self._scorer.logps(self._ranks.share(rows))

    def features(self, prompts: Sequence[Prompt]) -> list[tuple[float, ...]]:
        """What the model makes of each prompt (see `hacrl.agents.features`); of several ranks, a share.

        Of a prompt that is too long for the model, it reads the end.
        """
        end = slice(-(self.context_length or 0), None)
        tokens = [self.encoder.encode_prompt(prompt)[end] for prompt in self._ranks.share(prompts)]
        with self._leaving_no_heap(), self._ranks.gathered(self._model):
            return self._scorer.features(tokens)

    def prepare(self, mini_batches: Sequence[MiniBatch], ratios: bool = True) -> tuple[MiniBatch, ...]:
        """A step's rows, before its first update, with what only the agent itself can tell.

        With a critic these are its values and advantages. In half precision, decoding and training round
        differently: if the objective takes `ratios`, own rows get the log-probs that training computes.
        """
        prepared = tuple(mini_batches)
        for mini_batch in prepared:
            self._context.check([(row.prompt_ids, row.response_ids) for row in mini_batch])
        with (
            self._leaving_no_heap(),
            explain_out_of_memory(self.name, "scoring", "tokens_per_micro_batch"),
        ):
            if self._critic is not None:
                prepared = self._critic.judge(prepared)
            if ratios and self._model.dtype != torch.float32:
                prepared = tuple(rows and self._trained().with_old_logps(rows) for rows in prepared)
        return prepared

    def update(
        self,
        mini_batches: Sequence[MiniBatch],
        objective: Objective,
        done: int = 0,
        steps_done: float | None = None,
    ) -> list[UpdateReport]:
        """One optimiser step per mini-batch that has rows; the objective gets the number of earlier ones.

        A critic is updated too, on the same rows. `done` counts the updates already made in this step, and
        `steps_done` the steps of the run: a learning rate with warm-up or decay needs them.
        """
        updater = self._trained()
        reports: list[UpdateReport] = []
        with self._leaving_no_heap():
            for number, mini_batch in enumerate(mini_batches, start=done):
                if not mini_batch:
                    continue
                self._context.check([(row.prompt_ids, row.response_ids) for row in mini_batch])
                with explain_out_of_memory(
                    self.name, "updating", "tokens_per_micro_batch (or set gradient_checkpointing)"
                ):
                    value_loss = self._critic.update(mini_batch, steps_done) if self._critic else 0.0
                    report = updater.update(mini_batch, objective, done + len(reports), number, steps_done)
                    reports.append(replace(report, value_loss=value_loss))
        return reports

    def gradient(self, mini_batch: MiniBatch, objective: Objective, update: int) -> Tensor:
        """Flat gradient of one update's loss, without the KL term; weights and moments stay as they are."""
        updater = self._trained()
        self._context.check([(row.prompt_ids, row.response_ids) for row in mini_batch])
        with explain_out_of_memory(
            self.name, "auditing", "tokens_per_micro_batch (or set gradient_checkpointing)"
        ):
            return updater.gradient(mini_batch, objective, update)

    def save(self, directory: str | Path) -> None:
        """Write model, tokenizer and generation config in `save_pretrained` form (with LoRA: the adapter)."""
        weights = whole_state(self._whole)
        if self._ranks.rank == 0:
            with no_progress_bar(), explain_library_errors(Path(directory), "write"):
                self._whole.save_pretrained(directory, state_dict=weights, safe_serialization=True)
                self._tokenizer.save_pretrained(directory)

    def write_state(self, folder: str | Path) -> None:
        """Write the exact training state: trained weights, moments, number of updates.

        It includes the critic's, which `save` leaves out.
        """
        training_state.write_state(Path(folder), self._optimisers, self._ranks)

    def read_state(self, folder: str | Path) -> None:
        """Restore a state of the same model and settings, written by any number of ranks."""
        training_state.read_state(Path(folder), self._optimisers, self._ranks)

    def move(self, device: torch.device) -> None:
        """Move all tensors to another device; the agent can only work on the one it was made on."""
        self._whole.to(device)
        if self._updater is not None:
            self._updater.optimiser.move(device)
        if isinstance(self._reference, FrozenCopy):
            self._reference.model.to(device)
        if self._critic is not None:
            self._critic.move(device)

    @contextmanager
    def _away(self) -> Iterator[None]:
        """The agent leaves its device to its engine."""
        device = self.device
        self.move(OFFLOAD_DEVICE)
        yield
        self.move(device)

    @contextmanager
    def _leaving_no_heap(self) -> Iterator[None]:
        """What one phase has freed would add to the next one's peak; toy models do not free enough."""
        try:
            yield
        finally:
            if self.parameters >= SMALL:
                give_back(self.device)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        device: torch.device = self._model.device
        return device

    @property
    def parameters(self) -> int:
        """How many weights the model has."""
        return int(self._model.num_parameters())

    @property
    def context_length(self) -> int | None:
        """Most tokens of a prompt and its response together; None when the model sets no limit."""
        own = loading.context_length(self._model)
        if self._engine is None:
            return own
        room = self._engine.context_length
        return room if own is None else min(own, room)

    def memory(self) -> list[int]:
        """Bytes in use by this process: on a GPU, the most since the last call."""
        return [bytes_in_use(self.device)]

    def fingerprint(self) -> str:
        """16 hex digits that change when a weight changes, and only then (see `hacrl.agents.fingerprint`)."""
        return fingerprint(self._model.named_parameters())

    def _make_critic(
        self, params: CriticParams | None, optimiser: OptimiserSettings | None, total_steps: int | None
    ) -> Critic | None:
        if params is None:
            return None
        if optimiser is None:
            raise AgentError(f"agent {self.name!r}: a critic has to be trained, pass `optimiser` as well")
        return Critic(
            self.name, self._model, params, optimiser, self._updates, total_steps, ranks=self._ranks
        )

    def _make_reference(self, optimiser: OptimiserSettings | None) -> ReferenceLogps | None:
        """Log-probs under the policy before training; None if the loss has no KL term."""
        if optimiser is None or optimiser.kl == 0:
            return None
        if self._whole is not self._model:
            return without_adapters(self._whole, self._backends.scorer)
        return FrozenCopy(self._model, self._backends.scorer, self._ranks)

    def _make_updater(self, optimiser: OptimiserSettings | None, total_steps: int | None) -> Updater | None:
        if optimiser is None:
            return None
        trainable = {name: p for name, p in self._model.named_parameters() if p.requires_grad}
        return Updater(
            self.name,
            self._backends.scorer,
            Optimiser(trainable, optimiser, total_steps),
            self._updates.tokens_per_micro_batch,
            self._model.device,
            self._ranks,
            optimiser.kl,
            self._reference,
            looks_first=self.parameters >= SMALL,
        )

    def _trained(self) -> Updater:
        """What updates the weights; an error if the agent was loaded without an optimiser."""
        if self._updater is None:
            raise AgentError(
                f"agent {self.name!r} was made without an optimiser and cannot be trained: "
                "pass optimiser=OptimiserSettings(...)"
            )
        return self._updater

    @property
    def _optimisers(self) -> dict[str, Optimiser]:
        """All optimisers, by the prefix of their tensors' names in a training state."""
        critic = {} if self._critic is None else {CRITIC: self._critic.optimiser}
        return {"": self._trained().optimiser, **critic}


def _make_encoder(
    agent: str,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompting: PromptSettings | None,
) -> Rendering:
    """The agent's encoder, after a check that model and tokenizer belong together."""
    loading.check_vocabulary(model, tokenizer, agent)
    eos_ids = loading.eos_ids(model, tokenizer)
    if not eos_ids:
        raise AgentError(
            f"agent {agent!r} has no EOS token, so no response could ever end: "
            "set eos_token in the tokenizer or eos_token_id in generation_config.json"
        )
    return Rendering(tokenizer, prompting, eos_ids=eos_ids, agent=agent)
