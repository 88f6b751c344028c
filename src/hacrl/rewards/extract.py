r"""Find the final answer in a response: `\boxed{...}`, `#### ...`, or "the answer is ..."."""

from __future__ import annotations

import re

_BOXED = re.compile(r"\\(?:boxed|fbox)\s*\{")
_HASHES = re.compile(r"####[ \t]*(.*)")
_PHRASE = re.compile(r".*\banswer(?:\s+is)?\s*(?::|\bis\b)\s*(.+)", re.IGNORECASE)
_MATHS = re.compile(r"\$\$(.+?)\$\$|(?<!\\)\$(.+?)(?<!\\)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)

MAX_LINE = 2000
"""Formulas are looked for in this many characters at the end of an unmarked answer's line."""


def closing_brace(text: str, start: int) -> int | None:
    r"""Where the brace opened just before `start` closes, or None; `\{` and `\}` do not count."""
    depth = 1
    position = start
    while position < len(text):
        character = text[position]
        if character == "\\":
            position += 1
        elif character == "{":
            depth += 1
        elif character == "}":
            depth -= 1
            if depth == 0:
                return position
        position += 1
    return None


def last_boxed(text: str) -> str | None:
    r"""The content of the last complete `\boxed{...}`; a box cut off at the token limit does not count.

    Linear in the length of the text: some models repeat `\boxed{` a thousand times.
    """
    boxes = {match.end() for match in _BOXED.finditer(text)}
    opened: list[int] = []
    best = (-1, 0)
    position = 0
    while position < len(text):
        character = text[position]
        if character == "\\":
            position += 1
        elif character == "{":
            opened.append(position + 1)
        elif character == "}" and opened:
            start = opened.pop()
            if start in boxes and start > best[0]:
                best = (start, position)
        position += 1
    return None if best[0] < 0 else text[best[0] : best[1]].strip()


def after_hashes(text: str) -> str | None:
    """The text after the last `####`, up to the end of its line."""
    found = _HASHES.findall(text)
    return found[-1].strip() if found else None


def marked_answer(text: str) -> str | None:
    r"""The explicitly marked answer: the last `\boxed{...}`, or else the last `####`."""
    boxed = last_boxed(text)
    return boxed if boxed is not None else after_hashes(text)


def final_answer(text: str) -> str:
    """The marked answer, or else what follows "the answer is", or else the last line."""
    marked = marked_answer(text)
    if marked is not None:
        return marked
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return ""
    phrases = [match.group(1) for line in lines if (match := _PHRASE.match(line))]
    line = phrases[-1] if phrases else lines[-1]
    formulas = _MATHS.findall(line[-MAX_LINE:])
    return next(filter(None, formulas[-1])).strip() if formulas else line.strip().strip("*").strip()


def gold_answer(gold: object) -> str:
    """The reference as text: of a worked solution only the marked answer, of a list its members joined."""
    if isinstance(gold, list | tuple):
        return ", ".join(map(gold_answer, gold))
    text = str(gold).strip()
    marked = marked_answer(text)
    return text if marked is None else marked
