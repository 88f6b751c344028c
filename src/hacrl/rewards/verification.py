"""Scores by a verifier, and whose fault it is if the verifier fails: the response's or the reference's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hacrl.rewards.scores import Batch, Call, Score, as_score
from hacrl.rewards.verifiers import Verifier

HARMLESS = "0"
"""A response on which a verifier fails only because of the reference."""
_DIED = ("timeout", "crash", "memory", "protocol")


class Verification:
    """Scores responses with a verifier.

    If the verifier fails on a response, but not on a harmless one with the same reference, the response is
    wrong: a policy must not escape a zero by writing what nobody can verify. If it fails on both, the
    response is unscorable.
    """

    def __init__(
        self,
        call: Call,
        verifier: Verifier,
        column: str,
        settings: Mapping[str, Any],
    ) -> None:
        self._call, self._verifier, self._column, self._settings = call, verifier, column, settings
        self._works_with: dict[str, bool] = {}
        """Whether the verifier scores a harmless response, by reference."""

    def __call__(self, batch: Batch) -> list[Score]:
        """One score per response."""
        golds = references(batch, self._column)
        scores = self._score(batch.completions, golds)
        if self._verifier.runs_response:
            return [_wrong(score) if score.cause in _DIED else score for score in scores]
        suspects = [gold for gold, score in zip(golds, scores, strict=True) if score.reward is None]
        self._try_references(suspects)
        return [
            _wrong(score) if score.reward is None and self._works_with[repr(gold)] else score
            for gold, score in zip(golds, scores, strict=True)
        ]

    def _score(self, responses: Sequence[str], golds: Sequence[Any]) -> list[Score]:
        samples = zip(responses, golds, strict=True)
        outcomes = self._call(
            [{"response": response, "gold": gold, **self._settings} for response, gold in samples]
        )
        return [
            Score(None, outcome.cause, outcome.detail) if outcome.cause else as_score(outcome.value)
            for outcome in outcomes
        ]

    def _try_references(self, golds: Sequence[Any]) -> None:
        new = {repr(gold): gold for gold in golds if repr(gold) not in self._works_with}
        scores = self._score([HARMLESS] * len(new), list(new.values()))
        self._works_with |= {key: score.reward is not None for key, score in zip(new, scores, strict=True)}


def _wrong(failed: Score) -> Score:
    return Score(0.0, detail=f"{failed.cause}: {failed.detail}")


def references(batch: Batch, column: str) -> list[Any]:
    """The prompts' references; a prompt without one is a mistake in the data."""
    for prompt in batch.prompts:
        if prompt.columns.get(column) is None:
            raise ValueError(
                f"prompt {prompt.id!r} has no column {column!r} with the reference; it has "
                f"{', '.join(map(repr, prompt.columns)) or 'no columns'}"
            )
    return [prompt.columns[column] for prompt in batch.prompts]
