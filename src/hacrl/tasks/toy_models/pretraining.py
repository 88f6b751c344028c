"""Pretraining of toy models: supervised steps on prompts with right answers, reproducible bit for bit."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from pydantic import JsonValue
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from hacrl.tasks.gym import load_gym
from hacrl.tasks.procedural import TASKS, DrawnPrompts
from hacrl.types import Prompt

BATCH = 64
QUESTIONS = 3000
"""Different questions of each skill."""
LENGTHS = (3, 6)
IGNORED = -100
EVENLY = (1, 1, 1)


@dataclass(frozen=True)
class Stage:
    """Supervised steps on the task `digits`; `weights` are those of its skills, in order."""

    steps: int
    learning_rate: float
    weights: tuple[int, ...]

    @property
    def material(self) -> tuple[str, str]:
        """The task, and the column that holds its right answers."""
        return "digits", "answer"

    def questions(self, base: int) -> list[Sequence[Prompt]]:
        """Of each skill, for training only: no toy model ever sees the test split."""
        skills = TASKS[self.material[0]]
        return [DrawnPrompts(skill, "train", QUESTIONS, base, LENGTHS) for skill in skills]


@dataclass(frozen=True)
class TaskStage(Stage):
    """Supervised steps on another task.

    A separate class, because the fields of a stage are part of the digest that names a model in the cache.
    """

    task: str
    column: str

    @property
    def material(self) -> tuple[str, str]:
        """The task, and the column that holds its right answers."""
        return self.task, self.column


@dataclass(frozen=True)
class GymStage(TaskStage):
    """Supervised steps on a task of reasoning-gym."""

    config: dict[str, JsonValue]

    def questions(self, base: int) -> list[Sequence[Prompt]]:
        """For training only."""
        drawn = load_gym(self.task, train=QUESTIONS, test=1, seed=base, config=self.config, by_text=True)
        return [drawn.train]


@contextmanager
def reproducible(base: int = 0) -> Iterator[None]:
    """One torch thread and a base's random stream; the caller's are restored afterwards."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(base)
            yield
    finally:
        torch.set_num_threads(threads)


def train(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, stage: Stage, base: int = 0
) -> Iterator[int]:
    """Run one stage in place, yielding after every step."""
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=stage.learning_rate, betas=(0.9, 0.98), weight_decay=0.0
    )
    model.train()
    for step, pairs in enumerate(_batches(stage, base)):
        loss = model(**_encode(pairs, tokenizer)).loss
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        yield step


def _batches(stage: Stage, base: int) -> Iterator[list[tuple[str, str]]]:
    """Questions and answers."""
    stream = random.Random(f"{base}/{stage!r}" if base else repr(stage))
    _, column = stage.material
    pools = stage.questions(base)
    for _ in range(stage.steps):
        prompts = [stream.choice(pool) for pool in stream.choices(pools, stage.weights, k=BATCH)]
        yield [(str(prompt.text), prompt.columns[column]) for prompt in prompts]


def _encode(pairs: list[tuple[str, str]], tokenizer: PreTrainedTokenizerFast) -> dict[str, torch.Tensor]:
    """Prompt, answer, EOS, padded on the right; the loss is on answer and EOS only."""
    questions = tokenizer([question for question, _ in pairs]).input_ids
    answers = tokenizer([answer for _, answer in pairs], add_special_tokens=False).input_ids
    rows = [
        (question, [*answer, tokenizer.eos_token_id])
        for question, answer in zip(questions, answers, strict=True)
    ]
    width = max(len(question) + len(answer) for question, answer in rows)
    input_ids = torch.full((len(rows), width), tokenizer.pad_token_id)
    labels = torch.full((len(rows), width), IGNORED)
    for row, (question, answer) in enumerate(rows):
        end = len(question) + len(answer)
        input_ids[row, :end] = torch.tensor(question + answer)
        labels[row, len(question) : end] = torch.tensor(answer)
    return {
        "input_ids": input_ids,
        "attention_mask": (input_ids != tokenizer.pad_token_id).long(),
        "labels": labels,
    }
