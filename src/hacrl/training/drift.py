"""How far training moves an agent from its start: KL on its own responses, perplexity of plain text.

Neither needs a copy of the first weights. Before the first step an agent responds to test prompts; after the
last one it scores the same responses again. The mean fall of their log-probs is an unbiased estimate of
KL(start || now).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from statistics import fmean
from typing import Any

from hacrl.agents.backends.interfaces import Row
from hacrl.recipe.settings import EvaluationSettings
from hacrl.training.team import Member, Team

SAMPLES = 2
"""Responses to each prompt."""
PIECE = 256
"""Most tokens of a piece of plain text; a shorter context has shorter pieces."""


@dataclass(frozen=True)
class Start:
    """What one agent did before training."""

    rows: list[Row]
    """Its responses to test prompts."""
    logps: list[float]
    """The log-prob of each."""
    text_logp: float | None
    """Mean log-prob of a token of plain text; None: another run of the comparison measures it, or none."""


class Drift:
    """Measures the start of every agent once, and its distance from there at the end."""

    def __init__(self, settings: EvaluationSettings) -> None:
        self._prompts = settings.drift_prompts
        self._words = settings.text_words
        self._before = settings.before
        self.starts: dict[str, Start] = {}

    @property
    def is_on(self) -> bool:
        """Whether the recipe asks for any of it."""
        return bool(self._prompts or self._words)

    def begin(self, team: Team) -> None:
        """Before the first step."""
        if self.is_on:
            self.starts = team.each(lambda member: self._start(team, member), team.present)

    def found(self, team: Team) -> dict[str, dict[str, float]]:
        """Agent -> what is measured, now; nothing for agents whose start is unknown."""
        known = [member for member in team.present if member.name in self.starts]
        return team.each(self._distance, known) if known else {}

    def _start(self, team: Team, member: Member) -> Start:
        prompts = team.task.test[: self._prompts]
        drawn = member.policy.sample(prompts, SAMPLES, team.sampling, team.seed("drift")) if prompts else []
        encoded = {prompt.id: member.policy.encoder.encode_prompt(prompt) for prompt in prompts}
        rows = [(encoded[rollout.prompt_id], rollout.token_ids) for rollout in drawn]
        # Scored again rather than taken from sampling: rounding must not look like a difference.
        text_logp = self._text_logp(member) if self._before else None
        return Start(rows, [sum(logps) for logps in member.policy.score(rows)], text_logp)

    def _distance(self, member: Member) -> dict[str, float]:
        start, found = self.starts[member.name], {}
        if start.rows:
            now = [sum(logps) for logps in member.policy.score(start.rows)]
            found["kl"] = fmean(was - is_ for was, is_ in zip(start.logps, now, strict=True))
        if start.text_logp is not None:
            found["perplexity_before"] = math.exp(-start.text_logp)
        text_logp = self._text_logp(member)
        if text_logp is not None:
            found["perplexity"] = math.exp(-text_logp)
        return found

    def _text_logp(self, member: Member) -> float | None:
        if not self._words:
            return None
        piece = min(PIECE, (member.policy.context_length or PIECE) - 1)
        tokens = member.policy.encoder.encode_response(plain_text(self._words))
        before = member.policy.encoder.start_ids
        rows = [(before, tuple(part)) for part in _pieces(tokens, piece)]
        logps = [logp for row in member.policy.score(rows) for logp in row]
        return fmean(logps)

    def state_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {name: asdict(start) for name, start in self.starts.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict`."""
        for name, start in state.items():
            rows = [(tuple(prompt), tuple(response)) for prompt, response in start["rows"]]
            self.starts[name] = Start(rows, start["logps"], start["text_logp"])


def plain_text(words: int) -> str:
    """Text that no task has: Python's language reference, which is part of every Python (65,000 words)."""
    from pydoc_data.topics import topics

    return " ".join(islice((word for topic in sorted(topics) for word in topics[topic].split()), words))


def _pieces(tokens: Sequence[int], length: int) -> Iterator[Sequence[int]]:
    for start in range(0, len(tokens), length):
        yield tokens[start : start + length]
