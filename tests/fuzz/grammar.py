"""Values that nobody should give: for recipes as YAML, for options as words, for files as bytes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

MORE = int(os.environ.get("HACRL_FUZZ", "1"))
"""Draw so many times as many cases: `HACRL_FUZZ=5 pytest tests/fuzz`."""
LONG = "x" * 100_000
HOSTILE_TEXTS = {
    "empty": "",
    "space": " ",
    "markup": "[/b][red]x",
    "link": "[link=file:///etc/passwd]x[/link]",
    "escape": "\x1b[2J\x1b]0;owned\x07",
    "newline": "a\nb\rc",
    "surrogate": "a\udcffb",
    "bidi": "a\u202eb\u2066",
    "emoji": "\U0001f600" * 3,
    "parent": "../../../../etc/passwd",
    "option": "--help",
    "percent": "%s%n{0}{x!r}$HOME`id`",
    "long": LONG,
    "brackets": "[" * 3000,
}
"""Texts that break printing, paths or parsing."""


@dataclass(frozen=True)
class Value:
    """A value in YAML's flow style."""

    what: str
    yaml: str
    kind: str
    """text, number, integer, boolean, null, list, mapping; `overflow`, `deep` and `broken` are none."""


def yaml_values() -> list[Value]:
    """One of every kind first, then the extremes."""
    return [
        Value("a word", "nonsense", "text"),
        Value("a number", "0.5", "number"),
        Value("true", "true", "boolean"),
        Value("null", "null", "null"),
        Value("a list", "[nonsense, 1]", "list"),
        Value("a mapping", "{nonsense: 1}", "mapping"),
        *_numbers(),
        *_texts(),
        *_nested(),
        *_broken(),
    ]


def _numbers() -> Iterator[Value]:
    for text in ("-1", "0", "999999999999999999", "1000000000", "-999999999999999999"):
        yield Value(f"the integer {text}", text, "integer")
    for text in ("1e308", "-1e308", "1e-320", "1e-40", "1e300", "-0.0", "0.9999999999999999"):
        yield Value(f"the number {text}", text, "number")
    for text in (".nan", "nan", "NaN", ".inf", "-.inf", "inf", "1_000", "0x10", "1:30", "\uff12"):
        yield Value(f"the word {text}", text, "text")
    for text in ("1e999", "-1e999", "9" * 400, "-" + "9" * 5000):
        yield Value(f"the overflow {text[:6]}", text, "overflow")
    for tag in ("!!float .nan", "!!float .inf", "!!float nan", "!!int 99999999999999999999999"):
        yield Value(tag, tag, "overflow")


def _texts() -> Iterator[Value]:
    for what, text in HOSTILE_TEXTS.items():
        yield Value(f"the text {what}", _quoted(text), "text")


def _quoted(text: str) -> str:
    """As YAML's double quotes write it. Lone surrogates can only be escaped."""
    inner = "".join(c if " " <= c <= "~" and c not in '"\\' else _escaped(c) for c in text)
    return f'"{inner}"'


def _escaped(c: str) -> str:
    return f"\\U{ord(c):08x}"


def _nested() -> Iterator[Value]:
    yield Value("lists 60 deep", "[" * 60 + "]" * 60, "list")
    yield Value("lists 1,000 deep", "[" * 1000 + "]" * 1000, "deep")
    yield Value("mappings 500 deep", "{a: " * 500 + "1" + "}" * 500, "deep")
    yield Value("a list of 3,000", "[" + "1, " * 3000 + "1]", "list")
    yield Value("a mapping of 1,000", "{" + ", ".join(f"k{n}: 1" for n in range(1000)) + "}", "mapping")
    yield Value("an empty list", "[]", "list")
    yield Value("an empty mapping", "{}", "mapping")
    yield Value("a key of 1,000", "{" + "k" * 1000 + ": 1}", "mapping")
    yield Value("a key of markup", '{"[/b]\\e[2J": 1}', "mapping")
    bomb = "[&a [x,x,x,x,x,x,x,x,x,x]"
    bomb += "".join(
        f", &{b} [{','.join(['*' + a] * 10)}]" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
    )
    yield Value("nested aliases", bomb + "]", "list")


def _broken() -> Iterator[Value]:
    for what, text in {
        "a timestamp that is none": "!!timestamp abc",
        "an integer that is a list": "!!int [1]",
        "a float that is a mapping": "!!float {a: 1}",
        "an integer that is a word": "!!int abc",
        "a boolean that is a word": "!!bool abc",
        "base64 that is none": "!!binary '=='",
        "python's object": "!!python/object/apply:os.system [true]",
        "an unknown tag": "!own {a: 1}",
        "an alias of nothing": "*nothing",
        "a value that holds itself": "&a [*a]",
        "an open quote": "'abc",
        "an open list": "[1, 2",
        "a tab": "\t{",
        "a key twice": "{a: 1, a: 2}",
        "a key that is a list": "{[1]: 2}",
        "a merge of a word": "{<<: word}",
        "a set": "!!set {a, b}",
        "pairs": "!!omap [a, b]",
        "a NUL": "a\0b",
    }.items():
        yield Value(what, text, "broken")


def number_words() -> dict[str, str]:
    """Words for an option that wants a number and must not get one of these."""
    return {
        "nan": "nan",
        "inf": "inf",
        "-inf": "-inf",
        "overflow": "1e999",
        "a word": "nonsense",
        "empty": "",
        "hexadecimal": "0x10",
        "a list": "[1]",
        "markup": "[/b]",
        "surrogate": "1\udcff",
        "two": "1 2",
    }


def odd_numbers() -> dict[str, str]:
    """Numbers at the edges: an option may take or refuse them."""
    return {
        "minus one": "-1",
        "zero": "0",
        "underscore": "1_0",
        "a fraction": "0.5",
        "tiny": "1e-320",
        "negative and huge": "-" + "9" * 30,
    }
