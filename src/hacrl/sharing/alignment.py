"""A scorer's log-probs of a text, moved to the learner's tokens, however each of the two cuts the text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

LONGEST_CHARACTER = 8
"""Tokens after which a piece that is not part of the text is given up; UTF-8 needs at most four."""


class Span(NamedTuple):
    """The smallest piece of text that both sides write with whole tokens: a range of tokens on each side."""

    learner: range
    scorer: range


def token_ends(
    decode: Callable[[Sequence[int]], str], token_ids: Sequence[int], text: str, ended: bool
) -> dict[int, int]:
    """Characters of `text` -> how many of the tokens write exactly so many of them.

    Tokens that end inside a character are no such place: they count with the one that completes it. A
    decoder whose pieces do not add up to the text has only the beginning and the end. An EOS that `ended`
    the text counts as one character.
    """
    written = len(token_ids) - ended
    ends, place, first = {}, 0, 0
    for last in range(1, written + 1):
        piece = decode(token_ids[first:last])
        if text.startswith(piece, place):
            place, first = place + len(piece), last
            ends[place] = last
        elif last - first >= LONGEST_CHARACTER:
            break
    ends[len(text)] = written
    if ended:
        ends[len(text) + 1] = len(token_ids)
    return ends | {0: 0}  # tokens without text at the beginning belong to what follows


def common_spans(learner_ends: Mapping[int, int], scorer_ends: Mapping[int, int]) -> list[Span]:
    """The text between every two places where tokens of both sides end."""
    common = sorted(learner_ends.keys() & scorer_ends.keys())
    return [
        Span(range(learner_ends[start], learner_ends[end]), range(scorer_ends[start], scorer_ends[end]))
        for start, end in pairwise(common)
    ]


def shared_out(
    learner_logps: Sequence[float], scorer_logps: Sequence[float], aligned: Sequence[Span]
) -> tuple[float, ...]:
    """The scorer's log-probs per token of the learner: over every span, their sum is the scorer's.

    Within a span all tokens differ by the same from the learner's own log-probs: the scorer has judged them
    together, and where both agree on the span, no token is better or worse than another.
    """
    found: list[float] = []
    for span in aligned:
        own = [learner_logps[i] for i in span.learner]
        total = sum(scorer_logps[i] for i in span.scorer)
        share = (total - sum(own)) / len(own)
        found += [total] if len(own) == 1 else [logp + share for logp in own]
    return tuple(found)
