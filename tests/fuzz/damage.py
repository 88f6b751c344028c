"""Ways to damage a file: any file, JSON at one of its keys, one line of many, the header of weights."""

from __future__ import annotations

import json
import os
import random
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Damage = Callable[[Path, random.Random], None]

VALUES: dict[str, Any] = {
    "null": None,
    "true": True,
    "minus one": -1,
    "a fraction": 0.5,
    "a billion": 10**9,
    "1e308": 1e308,
    "NaN": float("nan"),
    "infinity": float("inf"),
    "10^400": 10**400,
    "a word": "nonsense",
    "nothing": "",
    "a parent": "../../../../etc/passwd",
    "a huge text": "x" * 100_000,
    "markup and escapes": "[/b]\x1b[2J\n\0",
    "a lone surrogate": "\ud800",
    "a list": [1, "a", None],
    "an empty list": [],
    "a mapping": {"a": 1},
    "an empty mapping": {},
}


def _deep(brackets: int = 100_000) -> str:
    return "[" * brackets + "]" * brackets


def of_any_file() -> dict[str, Damage]:
    """Whatever is in it."""
    return {
        "is missing": lambda path, _: _remove(path),
        "is empty": lambda path, _: path.write_bytes(b""),
        "is cut off": lambda path, draw: _change(
            path, lambda old: old[: draw.randrange(1, max(2, len(old)))]
        ),
        "has a bit flipped": _flip,
        "is NULs": lambda path, _: path.write_bytes(b"\0" * 500),
        "is not UTF-8": lambda path, _: path.write_bytes(b'{"a": "\xff\xfe"}\n'),
        "has a byte order mark": lambda path, _: _change(path, lambda old: b"\xef\xbb\xbf" + old),
        "is a pipe": lambda path, _: _replace(path, os.mkfifo),
        "is a folder": lambda path, _: _replace(path, os.mkdir),
        "is a link to itself": lambda path, _: _replace(path, lambda p: os.symlink(p.name, p)),
        "is a link to nothing": lambda path, _: _replace(path, lambda p: os.symlink("nowhere", p)),
        "is nested 100,000 deep": lambda path, _: path.write_text(_deep()),
        "is another format": lambda path, _: path.write_bytes(b"\x80\x04\x95PK\x03\x04<html>"),
    }


UNREADABLE = (
    "is missing",
    "is empty",
    "is NULs",
    "is a pipe",
    "is a folder",
    "is a link to itself",
    "is a link to nothing",
    "is nested 100,000 deep",
    "is another format",
)
"""Damages that nothing can be made of."""


def of_json() -> dict[str, Damage]:
    """One of its keys, drawn at random, has another value."""
    found: dict[str, Damage] = {f"has {what} at a key": _set(value) for what, value in VALUES.items()}
    for what, text in {"a list": "[]", "a number": "1", "null": "null", "an object": "{}"}.items():
        found[f"is only {what}"] = lambda path, _, text=text: path.write_text(text)  # type: ignore[misc]
    return found | {"lacks a key": _delete, "has a deep value": _set_deep}


def of_lines() -> dict[str, Damage]:
    """One of its lines, drawn at random, has a key with another value, or is none."""
    found: dict[str, Damage] = {
        f"has {what} in a line": _in_line(_set(value)) for what, value in VALUES.items()
    }
    for what, line in {
        "an empty": b"",
        "a word as a": b"nonsense",
        "{} as a": b"{}",
        "[] as a": b"[]",
    }.items():
        found[f"has {what} line"] = _with_line(line)
    deep = _with_line(_deep().encode())
    return found | {"lacks a key in a line": _in_line(_delete), "has a deep line": deep}


def of_weights() -> dict[str, Damage]:
    """The header of a safetensors file, or the numbers."""
    return {
        "has a header of 2^60 bytes": lambda path, _: _change(
            path, lambda old: struct.pack("<Q", 2**60) + old[8:]
        ),
        "has no header": lambda path, _: _change(path, lambda old: struct.pack("<Q", 0) + old[8:]),
        "has a header that is no JSON": lambda path, _: _header(path, lambda header, name: "nonsense"),
        "lacks a tensor": lambda path, _: _header(path, _without),
        "has a tensor of another name": lambda path, _: _header(path, _renamed),
        "has a shape of -1": _entry("shape", [-1, 4]),
        "has a shape of 2^62": _entry("shape", [2**62, 2**62]),
        "has another shape": _entry("shape", [1]),
        "has an unknown type": _entry("dtype", "F1"),
        "has offsets beyond the end": _entry("data_offsets", [0, 2**50]),
        "has offsets backwards": _entry("data_offsets", [8, 0]),
        "is NaN": lambda path, _: _numbers(path, struct.pack("<f", float("nan"))),
        "is infinite": lambda path, _: _numbers(path, struct.pack("<f", float("inf"))),
        "is huge": lambda path, _: _numbers(path, struct.pack("<f", 3e38)),
    }


def kinds_of(path: Path) -> dict[str, Damage]:
    """Every damage that fits a file, by its name."""
    special = {".json": of_json, ".yaml": of_json, ".jsonl": of_lines, ".safetensors": of_weights}
    return of_any_file() | special.get(path.suffix, dict)()


def _remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def _replace(path: Path, make: Callable[[Path], None]) -> None:
    _remove(path)
    make(path)


def _change(path: Path, change: Callable[[bytes], bytes]) -> None:
    path.write_bytes(change(path.read_bytes()))


def _flip(path: Path, draw: random.Random) -> None:
    content = bytearray(path.read_bytes())
    if content:
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    path.write_bytes(content)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container below a value with each of its keys."""
    keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from _places(value[key])


def _edit(path: Path, draw: random.Random, edit: Callable[[Any, Any], None]) -> None:
    values = json.loads(path.read_bytes())
    container, key = draw.choice(list(_places(values)))
    edit(container, key)
    path.write_text(json.dumps(values))


def _set(value: Any) -> Damage:
    return lambda path, draw: _edit(path, draw, lambda container, key: container.__setitem__(key, value))


def _delete(path: Path, draw: random.Random) -> None:
    _edit(path, draw, lambda container, key: container.__delitem__(key))


def _set_deep(path: Path, draw: random.Random) -> None:
    _set("HOLE")(path, draw)
    path.write_text(path.read_text().replace('"HOLE"', _deep()))


def _in_line(damage: Damage) -> Damage:
    """The damage of a JSON file, done to one line."""

    def damaged(path: Path, draw: random.Random) -> None:
        lines = path.read_bytes().splitlines()
        number = draw.randrange(len(lines))
        path.write_bytes(lines[number])
        damage(path, draw)
        lines[number] = path.read_bytes()
        path.write_bytes(b"\n".join(lines) + b"\n")

    return damaged


def _with_line(line: bytes) -> Damage:
    def damaged(path: Path, draw: random.Random) -> None:
        lines = path.read_bytes().splitlines()
        lines[draw.randrange(len(lines))] = line
        path.write_bytes(b"\n".join(lines) + b"\n")

    return damaged


def _header(path: Path, change: Callable[[dict[str, Any], str], Any]) -> None:
    """Rewrite the header, with its length; `change` is told the first tensor's name."""
    content = path.read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + size])
    name = next(key for key in header if key != "__metadata__")
    new = change(header, name)
    text = new if isinstance(new, str) else json.dumps(new)
    path.write_bytes(struct.pack("<Q", len(text)) + text.encode() + content[8 + size :])


def _without(header: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: entry for key, entry in header.items() if key != name}


def _renamed(header: dict[str, Any], name: str) -> dict[str, Any]:
    return {("nonsense" if key == name else key): entry for key, entry in header.items()}


def _entry(key: str, value: Any) -> Damage:
    return lambda path, _: _header(path, lambda header, name: header | {name: header[name] | {key: value}})


def _numbers(path: Path, number: bytes) -> None:
    """All weights are this number."""
    content = path.read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    rest = len(content) - 8 - size
    path.write_bytes(content[: 8 + size] + number * (rest // 4))
