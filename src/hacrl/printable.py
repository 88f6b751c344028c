"""Texts of models, templates and files, made harmless for a terminal."""

from __future__ import annotations


def printable(text: str, most: int | None = None) -> str:
    """Line breaks and control characters escaped: none reaches the terminal; at most `most` characters."""
    cut = text if most is None or len(text) <= most else text[:most] + "..."
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in cut)


def valid_text(text: str) -> str:
    """The text without lone surrogates, which JSON can hold and UTF-8 cannot."""
    return text.encode(errors="replace").decode()
