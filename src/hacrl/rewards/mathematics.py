r"""Mathematical equality of a response's final answer and the reference.

The outer structure (lists, sets, tuples, intervals, unions, matrices), words and plain numbers are compared
here; all other expressions are compared by math-verify. math-verify alone would accept `(2, 1)` for `1, 2`,
`listen` for `silent` and 0.0000672 for 0.0000671.

Run this only in a worker process: on a short formula sympy may not terminate, or may use all memory.
"""

from __future__ import annotations

import functools
import itertools
import logging
import re
from typing import Any

from hacrl.rewards.extract import final_answer, gold_answer
from hacrl.rewards.notation import MAX_LENGTH, as_number, compact, tidy

try:
    import math_verify
except ImportError as error:
    raise ImportError(
        "the verifier `math` needs math-verify: pip install 'hacrl[math]' (or use the verifier `numeric`)"
    ) from error

logging.getLogger("math_verify").setLevel(logging.CRITICAL)
_TARGET = [math_verify.LatexExtractionConfig()]

RELATIVE_TOLERANCE = 1e-6
"""Between a decimal number and another value: six digits must agree."""

_LABEL = re.compile(
    r"([A-Za-z](?:_\{?\w+\}?)?(?:\([A-Za-z]\))?|\((?:[A-Za-z], ?)+[A-Za-z]\))"
    r"\s*(?:=|\\in(?![A-Za-z]))\s*(?=[^=])"
)
_BASE = re.compile(r"([0-9A-Fa-f]+)_\{?\s*(\d+)\s*\}?")
_WORDS = re.compile(r"(?i:yes|no)|[A-Za-z][A-Za-z'\- ]{3,}")
_CHOICE = re.compile(r"\(?([A-Z])\)?")
_MATRIX = re.compile(r"\\begin\{pmatrix\}(.*)\\end\{pmatrix\}", re.DOTALL)
_RELATION = re.compile(r"[<>]|\\(?:leq|geq|neq|lt|gt)(?![A-Za-z])")
_COMMAND_OR_LETTER = re.compile(r"\\[A-Za-z]+|[A-Za-z]")
_OPENING, _CLOSING = "([{", ")]}"


def verify(response: str, gold: Any) -> float:
    """1.0 when the response's final answer equals the reference, else 0.0."""
    return float(equal(gold_answer(gold), final_answer(response)))


def equal(gold: str, answer: str) -> bool:
    """Whether two written answers mean the same."""
    if len(answer) > MAX_LENGTH:
        return False
    return _equal(tidy(gold), tidy(answer))


def _equal(gold: str, answer: str) -> bool:
    if not gold or not answer:
        return False
    if compact(gold) == compact(answer):
        return True
    for compare in (_as_numbers, _as_bases, _as_words, _as_labelled, _as_structures):
        verdict = compare(gold, answer)
        if verdict is not None:
            return verdict
    return _symbolically_equal(gold, answer)


def _as_numbers(gold: str, answer: str) -> bool | None:
    """Plain numbers; `50%` equals 50 (the question asked for a percentage) and 0.5."""
    expected, given = as_number(gold.replace("%", "")), as_number(answer.replace("%", ""))
    if expected is None or given is None:
        return None
    readings = {given}
    if ("%" in gold) != ("%" in answer):
        readings.add(given * 100 if "%" in gold else given / 100)
    exact = "." not in gold + answer
    slack = 0 if exact else abs(expected) * RELATIVE_TOLERANCE
    return any(abs(reading - expected) <= slack for reading in readings)


def _as_bases(gold: str, answer: str) -> bool | None:
    """`204_5` equals `204_{5}`, and `204`: the question named the base."""
    expected, given = _BASE.fullmatch(gold), _BASE.fullmatch(answer)
    if expected is None:
        return False if given and as_number(gold) is not None else None
    return expected.groups() == given.groups() if given else expected.group(1) == answer


def _as_words(gold: str, answer: str) -> bool | None:
    """Names and words by their letters, choices like `(B)` by the letter."""
    if (expected := _CHOICE.fullmatch(gold)) and (given := _CHOICE.fullmatch(answer)):
        return expected.group(1) == given.group(1)
    if expected and (given := re.match(r"\(([A-Z])\)", answer)):
        return expected.group(1) == given.group(1)
    if _WORDS.fullmatch(gold) or _WORDS.fullmatch(answer):
        return gold.casefold().split() == answer.casefold().split()
    return None


def _as_labelled(gold: str, answer: str) -> bool | None:
    r"""`x = 5` and `x \in [1, 2]` equal `5` and `[1, 2]`, but not `y = 5`."""
    expected, given = _LABEL.match(gold), _LABEL.match(answer)
    if not expected and not given:
        return None
    if len(split(gold, ",")) > 1 or len(split(answer, ",")) > 1:
        return None
    if expected and given:
        if expected.group(1) != given.group(1):
            return _symbolically_equal(gold, answer)
        return _equal(gold[expected.end() :], answer[given.end() :]) or _symbolically_equal(gold, answer)
    bare_gold, bare_answer = (
        gold[expected.end() :] if expected else gold,
        answer[given.end() :] if given else answer,
    )
    if _RELATION.search(bare_gold) or _RELATION.search(bare_answer) or "=" in bare_gold + bare_answer:
        return _symbolically_equal(gold, answer)
    return _equal(bare_gold, bare_answer)


def _as_structures(gold: str, answer: str) -> bool | None:
    """Compare part by part if both have the same outer structure; None: math-verify has to decide."""
    if (expected_rows := _matrix(gold)) and (given_rows := _matrix(answer)):
        return len(expected_rows) == len(given_rows) and all(map(_all_equal, expected_rows, given_rows))
    gold, answer = _without_sign_choice(gold), _without_sign_choice(answer)
    expected_parts, given_parts = split(gold, r"\cup "), split(answer, r"\cup ")
    if len(expected_parts) > 1 and len(given_parts) == len(expected_parts):
        return _same_members(expected_parts, given_parts)
    expected, given = _collection(gold), _collection(answer)
    if expected and given:
        return _same_collection(expected, given)
    one_sided = expected or given
    return False if one_sided and not _may_be_one_value(one_sided) else None


Collection = tuple[str, list[str]]
"""Its brackets (`()`, `[)`, ..., `{}`; empty for a bare list) and its members."""


def _collection(text: str) -> Collection | None:
    r"""Read `a, b`, `(a, b)`, `[a, b)` or `\{a, b\}`; None when the text is one value."""
    if text.startswith(r"\{") and text.endswith(r"\}"):
        return "{}", split(text[2:-2], ",")
    parts = split(text, ",")
    if len(parts) > 1 and as_number(text) is None:
        return "", parts
    if text[0] in "([" and text[-1] in ")]" and _is_balanced(text[1:-1]):
        inner = split(text[1:-1], ",")
        if len(inner) > 1:
            return text[0] + text[-1], inner
    return None


def _is_balanced(text: str) -> bool:
    """Whether every closing bracket was opened within the text: not so in `1) + (2`."""
    depths = itertools.accumulate((char in _OPENING) - (char in _CLOSING) for char in text)
    return min(depths, default=0) >= 0


def _may_be_one_value(collection: Collection) -> bool:
    r"""An interval may equal an inequality, and `\{5\}` is 5: math-verify decides."""
    brackets, members = collection
    is_interval = brackets not in ("", "{}") and len(members) == 2
    return is_interval or len(members) < 2


def _same_collection(expected: Collection, given: Collection) -> bool:
    """Order matters in tuples and intervals, not in sets and bare lists; a bare list may be a tuple."""
    brackets = {expected[0], given[0]}
    if brackets <= {"", "{}"}:
        return _same_members(expected[1], given[1])
    if len(brackets) == 1 or brackets == {"", "()"}:
        return _all_equal(expected[1], given[1])
    return False


def _all_equal(expected: list[str], given: list[str]) -> bool:
    return len(expected) == len(given) and all(map(_equal, expected, given))


def _same_members(expected: list[str], given: list[str]) -> bool:
    """Whether the members can be paired off, each with an equal one."""
    left = list(given)
    for member in expected:
        match = next((other for other in left if _equal(member.strip(), other.strip())), None)
        if match is None:
            return False
        left.remove(match)
    return not left


def _matrix(text: str) -> list[list[str]] | None:
    """The entries, row by row."""
    match = _MATRIX.fullmatch(text.strip())
    if match is None:
        return None
    return [[cell.strip() for cell in row.split("&")] for row in match.group(1).split(r"\\") if row.strip()]


def _without_sign_choice(text: str) -> str:
    r"""Write `a \pm b` out as `a + b, a - b`, member by member."""
    if r"\pm" not in text:
        return text
    braces = text.startswith(r"\{") and text.endswith(r"\}")
    members = split(text[2:-2] if braces else text, ",")
    written = [
        member.replace(r"\pm ", sign)
        for member in members
        for sign in (("+", "-") if r"\pm" in member else ("",))
    ]
    joined = ", ".join(part.removeprefix("+") for part in written)
    return rf"\{{{joined}\}}" if braces else joined


def split(text: str, separator: str) -> list[str]:
    """Split at the separators that are outside all brackets; thousands separators do not count."""
    if separator == "," and as_number(text) is not None:
        return [text]
    parts, depth, start = [], 0, 0
    for position, character in enumerate(text):
        depth += (character in _OPENING) - (character in _CLOSING)
        if depth == 0 and text.startswith(separator, position):
            parts.append(text[start:position].strip())
            start = position + len(separator)
    parts.append(text[start:].strip())
    return [part for part in parts if part]


def _symbolically_equal(gold: str, answer: str) -> bool:
    """math-verify's verdict, without its own timeouts: the pool's deadline applies instead."""
    expected, given = (_parse(text) for text in _apart(gold, answer))
    if not expected or not given:
        return False
    return bool(math_verify.verify(expected, given, timeout_seconds=None, allow_set_relation_comp=True))


@functools.lru_cache(1024)
def _parse(text: str) -> list[Any]:
    """The formula as sympy expressions; empty if it cannot be parsed."""
    return list(math_verify.parse(f"${text}$", _TARGET, fallback_mode="no_fallback", parsing_timeout=None))


def _apart(*texts: str) -> list[str]:
    """Give a capital an index if its lower case occurs too: math-verify reads `R` as `r`."""
    letters = set(_COMMAND_OR_LETTER.findall(" ".join(texts)))
    capitals = {letter for letter in letters if letter.isupper() and letter.lower() in letters}
    return [
        _COMMAND_OR_LETTER.sub(lambda m: f"{m[0].lower()}_{{0}}" if m[0] in capitals else m[0], text)
        for text in texts
    ]
