"""TRL trainers that learn from each other through a pool: for those who keep `GRPOTrainer`.

`PoolCallback` writes a trainer's scored completions to a pool and, after the updates on them, makes the
imitation pass of `commons` over them and over those of others. Its `rollout_func` puts others' right
completions into the groups of TRL's own loss instead, or as well.
"""

from __future__ import annotations

import functools
import inspect
import logging
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from transformers import TrainerCallback

from hacrl.agents.features import FEATURES
from hacrl.algorithm import Belief, ContextualCapability
from hacrl.integrations.trl_model import TrlModel
from hacrl.methods import View
from hacrl.methods.commons import Commons
from hacrl.pool import POOL, PoolClient, Reader, open_place, pool_key
from hacrl.rewards import Reward, Rewarder
from hacrl.sharing import LearnerBatch, Reencoder, arrange, build_batches
from hacrl.sharing.pooled import Confirmed, KnownPrompts, as_entries, confirm
from hacrl.training.beliefs import outcomes
from hacrl.training.model_scores import likelihood
from hacrl.types import Prompt, Trajectory

RewardFunc = Callable[..., Sequence[float | None]]
MARK = "from_pool"
"""Column of the reward functions that says which completions were not drawn by this trainer."""
MOST_KEPT = 10_000
"""Prompts whose right completions of others wait for `rollout_func`, at most."""
log = logging.getLogger(__name__)


def _prompts(rows: Iterable[Mapping[str, Any]]) -> list[Prompt]:
    """A data set's prompts with all their columns, which reward functions are given."""
    return [
        Prompt(
            id=f"row-{number}",
            text=row["prompt"] if isinstance(row["prompt"], str) else tuple(row["prompt"]),
            kind=str(row.get("kind", "")),
            columns={column: value for column, value in row.items() if column != "prompt"},
        )
        for number, row in enumerate(rows, start=1)
    ]


class PoolCallback(TrainerCallback):  # type: ignore[misc]
    """Give it to `GRPOTrainer(callbacks=[...])`, and its `reward_funcs` in place of your own."""

    def __init__(
        self,
        url: str,
        name: str,
        reward_funcs: RewardFunc | Sequence[RewardFunc],
        train_dataset: Iterable[Mapping[str, Any]],
        *,
        eval_dataset: Iterable[Mapping[str, Any]] | None = None,
        reward_weights: Sequence[float] | None = None,
        key_env: str = "HACRL_POOL_KEY",
        password_env: str | None = None,
        task: str = "trl",
        imitate: bool = True,
        method: Commons | None = None,
        mini_batches: int = 2,
        reward_max: float = 1.0,
        trust: Sequence[str] = (),
        quota: int = 1024,
        max_staleness: int = 4,
        wait_seconds: float = 5.0,
        wait_for: int = 0,
        start_seconds: float = 300.0,
    ) -> None:
        """`name` is this trainer's among those of the pool, `url` the pool's.

        With `imitate`, every generation ends with `method.passes` times `mini_batches` updates by TRL's
        optimiser. The other arguments are those of `exchange.pool` in a recipe.
        """
        functions = [reward_funcs] if callable(reward_funcs) else list(reward_funcs)
        for function in functions:
            if inspect.iscoroutinefunction(function) or not inspect.isroutine(function):
                shown = getattr(function, "__name__", type(function).__name__)
                raise ValueError(f"reward_funcs: expected plain functions, got {shown}")
        weights = list(reward_weights or [1.0] * len(functions))
        rewards = [Reward(function, weight) for function, weight in zip(functions, weights, strict=True)]
        password = None if password_env is None else pool_key(password_env).decode()
        key = pool_key(key_env)
        self.name = name
        self.reward_funcs = [self._recording(number, function) for number, function in enumerate(functions)]
        """The same functions; what they score is noted."""
        self.refused: Counter[str] = Counter()
        """Entries that were not used, by cause, since the beginning."""
        self.imitated: Counter[str] = Counter()
        """Responses of the last imitation pass, `own` and `pool`."""
        self._known = KnownPrompts(_prompts(train_dataset), _prompts(eval_dataset or ()))
        self._rewarder = Rewarder(rewards)
        self._weights = weights
        self._task, self._trust = task, trust
        self._method = (method or Commons()) if imitate else None
        self._mini_batches, self._reward_max = mini_batches, reward_max
        self._verifier = "+".join(getattr(function, "__name__", "reward") for function in functions)[:200]
        self._writer = f"{name[:31]}-{uuid.uuid4().hex}"
        self._client = PoolClient(
            open_place(url, password=password, seconds=wait_seconds),
            key,
            Reader(key, max_staleness=max_staleness, quota=quota),
            self._writer,
            wait_seconds=wait_seconds,
        )
        self._wait_for, self._start_seconds = wait_for, start_seconds
        self._capability = ContextualCapability(2, FEATURES)
        self._noted: list[dict[str, Any]] = []
        self._first = 0
        """Where the newest batch begins in it."""
        self._version = 0
        self._waiting: dict[str, list[Trajectory]] = {}

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Look at the model and its tokenizer."""
        if args.world_size > 1:
            raise ValueError("PoolCallback is for trainers of one process")
        self._model = TrlModel(self.name, kwargs["model"], kwargs["processing_class"], args)
        self._client.join(self._wait_for, self._start_seconds)
        self._steps = max(
            1, args.steps_per_generation * args.num_iterations // args.gradient_accumulation_steps
        )

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """After the last update on a generation: exchange, then imitate."""
        if state.global_step % self._steps:
            return
        self._version += 1
        own, prompts = self._own()
        taken = self._client.exchange(
            as_entries(
                own,
                prompts,
                task=self._task,
                verifier=self._verifier,
                writer=self._writer,
                logps=False,
            )
        )
        if taken.trouble:
            log.warning("the pool is not available: %s", taken.trouble)
        found = confirm(taken.entries, self._known, self._score, step=self._version, trust=self._trust)
        self.refused += taken.refused + found.refused
        self._keep(found)
        if self._method is not None:
            batch = self._batch(own, prompts, found)
            rows = [row for mini_batch in batch.mini_batches for row in mini_batch]
            self.imitated = Counter("own" if row.own else POOL for row in rows)
            self._model.update(batch, kwargs["optimizer"])

    def rollout_func(self, prompts: list[Any], trainer: Any) -> dict[str, Any]:
        """TRL's own completions; the last of a group gives way to another trainer's right one, if there is.

        TRL computes the old log-probs of all of them with its own model.
        """
        prompt_ids, _, _ = trainer._tokenize_prompts(prompts)  # TRL has no public call for its generation
        completion_ids, logprobs = trainer._generate_single_turn(
            prompt_ids,
            None,
            {},
            trainer.num_generations if trainer.model.training else trainer.num_generations_eval,
        )
        marks = [False] * len(prompts)
        for place, prompt in enumerate(prompts):
            last_of_group = place + 1 == len(prompts) or prompts[place + 1] != prompt
            tokens = self._take_waiting(prompt) if last_of_group and trainer.model.training else None
            if tokens is not None:
                completion_ids[place], marks[place] = tokens, True
        if any(marks):
            logprobs = None  # those of others would be wrong
        return {
            "prompt_ids": prompt_ids,
            "completion_ids": completion_ids,
            "logprobs": logprobs,
            MARK: marks,
        }

    def _recording(self, number: int, function: RewardFunc) -> RewardFunc:
        """The reward function, which also notes what it scored."""

        @functools.wraps(function)
        def scored(prompts: list[Any], completions: list[Any], **columns: Any) -> Sequence[float | None]:
            marks = columns.pop(MARK, [False] * len(prompts))
            rewards = list(function(prompts=prompts, completions=completions, **columns))
            ids = columns["completion_ids"]
            self._note(number, zip(prompts, completions, ids, rewards, marks, strict=True))
            return rewards

        return scored

    def _note(self, number: int, scored: Iterable[tuple[Any, ...]]) -> None:
        """TRL calls the functions one after the other for the same batch: the first one begins it."""
        if number == 0:
            self._first = len(self._noted)
        for place, (prompt, completion, ids, reward, mark) in enumerate(scored, start=self._first):
            if number == 0:
                known = self._known.find(prompt if isinstance(prompt, str) else tuple(prompt))
                text = completion if isinstance(completion, str) else completion[0]["content"]
                self._noted.append({"prompt": known, "text": text, "ids": ids, "rewards": {}, "pool": mark})
            if reward is not None:
                self._noted[place]["rewards"][number] = float(reward)

    def _own(self) -> tuple[list[Trajectory], dict[str, Prompt]]:
        """What was drawn since the last exchange for training prompts, as trajectories of a step."""
        noted, self._noted = self._noted, []
        numbers: defaultdict[str, int] = defaultdict(int)
        found, prompts = [], {}
        for each in noted:
            prompt = each["prompt"]
            if prompt is None or each["pool"] or not each["ids"]:
                continue
            rewards = each["rewards"]
            prompts[prompt.id] = prompt
            found.append(
                Trajectory(
                    step=self._version,
                    prompt_id=prompt.id,
                    source=self.name,
                    sample=numbers[prompt.id],
                    fingerprint=f"{self._version}",
                    text=each["text"],
                    reward=sum(self._weights[n] * r for n, r in rewards.items()) if rewards else None,
                    finish_reason="stop" if each["ids"][-1] in self._model.encoder.eos_ids else "length",
                    token_ids=tuple(each["ids"]),
                    token_logps=(0.0,) * len(each["ids"]),  # not known, and not used by imitation
                )
            )
            numbers[prompt.id] += 1
        return found, prompts

    def _score(self, prompts: Sequence[Prompt], texts: Sequence[str]) -> list[float | None]:
        ids = [self._model.encoder.encode_response(text) for text in texts]
        scores = self._rewarder.score(prompts, texts, ids, limit_unscorable=False)
        return [score.reward for score in scores]

    def _batch(self, own: Sequence[Trajectory], prompts: dict[str, Prompt], found: Confirmed) -> LearnerBatch:
        """The imitation pass of `commons` over own and others' responses, as mini-batches."""
        assert self._method is not None
        by_id = prompts | {prompt.id: prompt for prompt in found.prompts}
        table = arrange(self._version, (*own, *found.trajectories), [self.name, POOL], list(by_id))
        tokens = Reencoder(self._model.learner, by_id)
        view = View(
            self.name,
            table,
            torch.ones(2, 2, dtype=torch.float64),
            self._reward_max,
            self._mini_batches,
            likelihood=lambda chosen: self._likelihood(tokens, table, chosen),
        )
        if by_id:
            view = replace(view, belief=self._learn_outcomes(view, list(by_id.values())))
        terms = self._method.loss_terms(view)[1:]  # TRL has made the updates of the first
        return build_batches(table, tokens, terms, mini_batches=self._mini_batches)

    def _learn_outcomes(self, view: View, prompts: Sequence[Prompt]) -> Belief:
        """Who is good at which of the prompts, as in `hacrl.training.beliefs`."""
        features, shares = self._model.features(prompts), outcomes(view)
        self._capability.forget()
        self._capability.observe(features, shares.nan_to_num(0.0), ~shares.isnan())
        return self._capability.believe(features)

    def _likelihood(self, tokens: Reencoder, table: Any, chosen: Tensor) -> Tensor:
        return likelihood(self._model, tokens, table, chosen, changed=True)  # type: ignore[arg-type]

    def _keep(self, found: Confirmed) -> None:
        """Others' right responses, for `rollout_func`."""
        for t in found.trajectories:
            if t.reward is not None and t.reward >= self._reward_max:
                self._waiting.setdefault(t.prompt_id, []).append(t)
        for prompt_id in list(self._waiting)[: max(0, len(self._waiting) - MOST_KEPT)]:
            del self._waiting[prompt_id]

    def _take_waiting(self, prompt: Any) -> list[int] | None:
        """Another trainer's right response to the prompt in this model's tokens, each once."""
        known = self._known.find(prompt if isinstance(prompt, str) else tuple(prompt))
        waiting = self._waiting.get(known.id, []) if known is not None else []
        while known is not None and waiting:
            tokens = Reencoder(self._model.learner, {known.id: known})
            encoded = tokens.encode(waiting.pop(), complete=True)
            if not isinstance(encoded, str):
                return list(encoded.response_ids)
        return None
