"""Verifiers of short answers: fast, and all but `regex` are safe to run in the trainer itself."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

from hacrl.rewards.extract import final_answer, gold_answer, last_boxed
from hacrl.rewards.notation import as_number, compact, tidy

_NUMBER_IN_TEXT = re.compile(r"-?(?:\d[\d,]*(?:\.\d+)?|\.\d+)")
_LETTER = re.compile(r"(?<![A-Za-z])\(?([A-Za-z])\)?(?![A-Za-z'])")


def exact(response: str, gold: Any) -> float:
    """The whole response equals the reference, ignoring surrounding whitespace."""
    return float(stripped(response) == str(gold).strip())


def stripped(response: str) -> str:
    """What `exact` compares."""
    return response.strip()


def boxed(response: str, gold: Any) -> float:
    r"""The last `\boxed{...}` equals the reference, ignoring differences in LaTeX spelling."""
    answer = last_boxed(response)
    return float(answer is not None and compact(tidy(answer)) == compact(tidy(gold_answer(gold))))


def numeric(response: str, gold: Any, tolerance: float = 1e-6) -> float:
    r"""The number after `####`, in `\boxed{...}`, or last in the final answer equals the reference.

    `tolerance` is relative.
    """
    expected, given = read_number(gold_answer(gold)), given_number(response)
    if expected is None:
        raise ValueError(f"the reference {str(gold)[-80:]!r} has no number")
    return float(given is not None and abs(given - expected) <= tolerance * abs(expected))


def given_number(response: str) -> Fraction | None:
    """The number that `numeric` compares."""
    return read_number(final_answer(response))


def read_number(text: str) -> Fraction | None:
    """The text as a number, or else the last number in it."""
    value = as_number(tidy(text).rstrip("%"))
    if value is not None:
        return value
    found = _NUMBER_IN_TEXT.findall(text)
    return as_number(found[-1].replace(",", "")) if found else None


def choice(response: str, gold: Any) -> float:
    """The letter chosen in a multiple-choice question."""
    expected, given = read_letter(gold_answer(gold)), given_letter(response)
    if expected is None:
        raise ValueError(f"the reference {str(gold)[-80:]!r} is not a letter like B or (B)")
    return float(given == expected)


def given_letter(response: str) -> str | None:
    """The letter that `choice` compares."""
    return read_letter(final_answer(response))


def read_letter(text: str) -> str | None:
    """The first letter that stands alone: `(B)`, `B. Paris`, `option B`; prefers capitals and brackets."""
    plain = tidy(text)
    found = [
        match for match in _LETTER.finditer(plain) if len(match.group()) == 3 or match.group(1).isupper()
    ]
    if found:
        return found[0].group(1).upper()
    return plain.upper() if len(plain) == 1 and plain.isalpha() else None


def regex(response: str, gold: Any) -> float:
    """The regular expression given as the reference matches somewhere in the response."""
    return float(re.search(str(gold), response, re.DOTALL) is not None)
