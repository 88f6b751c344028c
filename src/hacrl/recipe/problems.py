"""Mistakes in a recipe, reported with the key, the value and what was expected."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

MOST_SHOWN = 10
LONGEST_VALUE = 60


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake: the dotted key it is at, and what is wrong there."""

    key: str
    message: str

    def __str__(self) -> str:
        return f"{self.key}: {self.message}" if self.key else self.message


class Contradiction(ValueError):
    """Settings that do not go together."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = tuple(problems)


class RecipeError(ValueError):
    """A recipe that cannot be used. The message lists every mistake on at most one screen."""

    def __init__(self, where: str, problems: Sequence[Problem]) -> None:
        self.where = where
        self.problems = tuple(problems)
        count = len(self.problems)
        lines = [f"{where}: {count} problem{'s' if count > 1 else ''}"]
        lines += [f"  {problem}" for problem in self.problems[:MOST_SHOWN]]
        if count > MOST_SHOWN:
            lines.append(f"  ... and {count - MOST_SHOWN} more")
        super().__init__("\n".join(lines))


def nearest(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` for the known word that is most like it, or nothing."""
    lower = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower(), lower, n=1, cutoff=0.6)
    return f"; did you mean {lower[close[0]]!r}?" if close else ""


def shown(value: object) -> str:
    """A value for a message: as YAML writes it where that differs, never longer than a line."""
    words = {None: "null", True: "true", False: "false"}
    if value is None or isinstance(value, bool):
        return words[value]
    text = re.sub(r"\s+", " ", repr(value))
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}..."
