"""Responses in a pool: a step's trajectories as entries, and others' entries as trajectories.

A reader trains only on what it can confirm: responses to training prompts of its own, whose reward its own
verifier gives again.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from hacrl.pool import POOL, Entry
from hacrl.types import Message, Prompt, Trajectory

UNKNOWN_TOKEN = 2**31 - 1
"""Entries have no tokens; their number is known."""
Score = Callable[[Sequence[Prompt], Sequence[str]], Sequence[float | None]]
"""The reader's own rewards of responses; None where it has none."""


class KnownPrompts:
    """The prompts of a task, found by their text: ids differ between trainers."""

    def __init__(self, train: Iterable[Prompt], test: Iterable[Prompt] = ()) -> None:
        self._train: dict[str, Prompt] = {}
        for prompt in train:
            self._train.setdefault(text_key(prompt.text), prompt)
        self._test = {text_key(prompt.text) for prompt in test}

    def find(self, text: str | tuple[Message, ...]) -> Prompt | None:
        """The training prompt with this text."""
        return self._train.get(text_key(text))

    def is_test(self, text: str | tuple[Message, ...]) -> bool:
        """Whether it is a test prompt, which nobody here may learn."""
        return text_key(text) in self._test


def text_key(text: str | tuple[Message, ...]) -> str:
    """The same for equal texts, and for equal messages whatever the order of their keys."""
    plain = text if isinstance(text, str) else [[m["role"], m["content"]] for m in text]
    return hashlib.blake2b(json.dumps(plain).encode(), digest_size=16).hexdigest()


def as_entries(
    trajectories: Iterable[Trajectory],
    prompts: Mapping[str, Prompt],
    *,
    task: str,
    verifier: str,
    writer: str,
    logps: bool = True,
) -> list[Entry]:
    """The scored responses of a step as entries. Without `logps` their log-probs do not travel."""
    return [
        Entry(
            task=task,
            prompt=prompts[t.prompt_id].text,
            response=t.text,
            reward=t.reward,
            verifier=verifier,
            writer=writer,
            source=t.source,
            version=t.step,
            sample=t.sample,
            tokens=t.logp_count or max(1, t.length),
            logp=t.logp_sum if logps and t.logp_count else None,
            kind=prompts[t.prompt_id].kind,
            finish_reason=t.finish_reason,
            stop=t.stop,
            ending=t.ending,
        )
        for t in trajectories
        if t.reward is not None
    ]


@dataclass(frozen=True)
class Confirmed:
    """What a reader trains on, of the entries that it took."""

    trajectories: tuple[Trajectory, ...]
    prompts: tuple[Prompt, ...]
    """Of these trajectories, each once."""
    entries: tuple[Entry, ...]
    refused: Counter[str]


def confirm(
    entries: Sequence[Entry],
    known: KnownPrompts,
    score: Score,
    *,
    step: int,
    trust: Collection[str] = (),
    needs_logps: bool = False,
) -> Confirmed:
    """Score the entries again; of those to prompts that are not known here, believe the sources in `trust`.

    Refused are `unknown_prompt`, `test_prompt`, `no_logp`, `reward_differs` and `reward_unconfirmed`.
    """
    refused: Counter[str] = Counter()
    asked: list[tuple[Entry, Prompt]] = []
    believed: list[tuple[Entry, Prompt]] = []
    for entry in entries:
        prompt = known.find(entry.prompt)
        if known.is_test(entry.prompt):
            refused["test_prompt"] += 1
        elif needs_logps and entry.logp is None:
            refused["no_logp"] += 1
        elif prompt is not None:
            asked.append((entry, prompt))
        elif entry.source in trust:
            believed.append((entry, _foreign_prompt(entry)))
        else:
            refused["unknown_prompt"] += 1
    rewards = score([prompt for _, prompt in asked], [entry.response for entry, _ in asked]) if asked else ()
    for (entry, prompt), reward in zip(asked, rewards, strict=True):
        if reward == entry.reward:
            believed.append((entry, prompt))
        else:
            refused["reward_unconfirmed" if reward is None else "reward_differs"] += 1
    return Confirmed(
        _trajectories(believed, step),
        tuple({prompt.id: prompt for _, prompt in believed}.values()),
        tuple(entry for entry, _ in believed),
        refused,
    )


def restored(entries: Sequence[Entry], known: KnownPrompts, step: int) -> Confirmed:
    """Entries that were confirmed before, in the same order."""
    found = [(entry, known.find(entry.prompt) or _foreign_prompt(entry)) for entry in entries]
    prompts = {prompt.id: prompt for _, prompt in found}
    return Confirmed(_trajectories(found, step), tuple(prompts.values()), tuple(entries), Counter())


def _foreign_prompt(entry: Entry) -> Prompt:
    return Prompt(f"pool/{text_key(entry.prompt)}", entry.prompt, entry.kind)


def _trajectories(pairs: Iterable[tuple[Entry, Prompt]], step: int) -> tuple[Trajectory, ...]:
    """One source's trajectories of the step, with as many equal log-probs as the response has tokens."""
    numbers: defaultdict[str, int] = defaultdict(int)
    found = []
    for entry, prompt in pairs:
        count = _drawn_tokens(entry)
        found.append(
            Trajectory(
                step=step,
                prompt_id=prompt.id,
                source=POOL,
                sample=numbers[prompt.id],
                fingerprint=f"{entry.writer}/{entry.source}/{entry.version}",
                text=entry.response,
                reward=entry.reward,
                finish_reason=entry.finish_reason,
                token_ids=(UNKNOWN_TOKEN,) * count,
                token_logps=((entry.logp or 0.0) / entry.tokens,) * count,
                stop=entry.stop,
                ending=entry.ending,
            )
        )
        numbers[prompt.id] += 1
    return tuple(found)


def _drawn_tokens(entry: Entry) -> int:
    """Tokens the source drew: an entry's number is without an EOS at the end, unless it is only that."""
    only_eos = entry.tokens == 1 and not entry.response + entry.ending
    ends_with_eos = entry.finish_reason == "stop" and entry.stop is None
    return entry.tokens + 1 if ends_with_eos and not only_eos else entry.tokens
