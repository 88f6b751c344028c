from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hacrl.recipe import RecipeError, load_recipe
from hacrl.recipe.reading import parse_yaml, read_mapping


def ladder(first: str, rung: str, height: int) -> str:
    """Every value is made of aliases to the one before it."""
    rungs = (f"k{n}: &k{n} {rung.format(below=f'k{n - 1}')}\n" for n in range(1, height))
    return f"k0: &k0 {first.format('x')}\n{''.join(rungs)}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "the file is empty"),
        ("# nothing\n", "the file is empty"),
        ("- a\n", "expected a mapping of keys, got a list"),
        ("agents: [\n", "line 2, column 1"),
        ("steps: 3\nseed: 1\nsteps: 4\n", "line 3, column 1: the key 'steps' is given twice"),
        ("optimiser:\n  kl: 0\n  kl: 1\n", "line 3, column 3: the key 'kl' is given twice"),
        ("1: 2\n", "line 1, column 1: expected a word as key, got 1"),
        ("steps: 1\n---\nsteps: 2\n", "line 2, column 1"),
        ("a: &a [*a]\n", "line 1"),
        ("a: !!python/object/apply:os.system [ls]\n", "line 1, column 4"),
        ("a: !!int x\n", "'x'"),
        ("a: \x07\n", "not YAML"),
        ("a: !!int [1]\n", "line 1, column 4: the type '!!int' does not belong here"),
        ("a: !!str [1]\n", "line 1, column 4: the type '!!str' does not belong here"),
        ("a: !!timestamp abc\n", "line 1, column 4: the type '!!timestamp' does not belong here"),
        ("a: !!set {x}\n", "the type '!!set' does not belong here"),
        ("a: !own 1\n", "the type '!own' does not belong here"),
        ("a: !!bool maybe\n", "line 1, column 4: 'maybe' is not of type '!!bool'"),
        ("? [a, b]\n: 1\n", "line 1, column 3: expected a word as key, got ['a', 'b']"),
        ("a: \0\n", "not YAML: unacceptable character #x0000"),
        ("[" * 1500, "nested too deeply"),
        ("a: " + "[" * 60 + "]" * 60, "nested too deeply: more than 50 levels"),
        (ladder("[{}]", "[*{below}]", 900), "nested too deeply: more than 50 levels"),
        (ladder("[{}]", "[" + "*{below}, " * 10 + "]", 9), "its aliases expand to more than 1,048,576"),
        (ladder("{{k: 1}}", "{{<<: [" + "*{below}, " * 10 + "]}}", 9), "its aliases expand to more than"),
        ("a: " + "x" * 140_000, "larger than 131,072 bytes"),
    ],
)
def test_files_that_are_not_recipes(text: str, expected: str, tmp_path: Path):
    path = tmp_path / "recipe.yaml"
    path.write_text(text)
    with pytest.raises(RecipeError) as caught:
        load_recipe(path)
    assert str(caught.value).startswith(f"{path}: 1 problem\n  ")
    assert expected in str(caught.value)
    assert len(str(caught.value).splitlines()) == 2


def test_files_that_cannot_be_read(tmp_path: Path):
    (tmp_path / "binary.yaml").write_bytes(b"steps: \xff\xfe")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    for path, expected in (
        (tmp_path / "none.yaml", "No such file"),
        (tmp_path, "expected a file, but this is a directory"),
        (tmp_path / "pipe", "expected a file, but this is a pipe, a device or a socket"),
        (Path("/dev/zero"), "expected a file, but this is a pipe, a device or a socket"),
        (tmp_path / "loop", "Too many levels of symbolic links"),
        (tmp_path / ("x" * 300), "File name too long"),
        (tmp_path / "binary.yaml", "not UTF-8 text (byte 7)"),
    ):
        with pytest.raises(RecipeError, match=re.escape(expected)) as caught:
            load_recipe(path)
        assert str(path) in str(caught.value)


def test_a_byte_order_mark_and_harmless_aliases_are_read(tmp_path: Path):
    path = tmp_path / "recipe.yaml"
    path.write_text("\ufeffa: &a [1, 2]\nb: [*a, *a]\nc: &c {x: 1}\nd: {<<: *c, y: 2}\n", encoding="utf-8")
    assert read_mapping(path) == {"a": [1, 2], "b": [[1, 2], [1, 2]], "c": {"x": 1}, "d": {"x": 1, "y": 2}}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-6", 1e-6),
        ("1E6", 1e6),
        (".5", 0.5),
        ("-3", -3),
        ("010", 10),
        ("on", "on"),
        ("12:30", "12:30"),
        ("2024-01-01", "2024-01-01"),
        ("true", True),
        ("~", None),
        ("", None),
        ("9" * 30, float("9" * 30)),
        ("{a: [1, 2e1]}", {"a": [1, 20.0]}),
    ],
)
def test_yaml_numbers_are_numbers_and_words_are_words(text: str, value: object):
    parsed = parse_yaml(text)
    assert parsed == value
    assert type(parsed) is type(value)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_float_python_writes_is_read_back(value: float):
    assert parse_yaml(repr(value)) == value


@given(st.text(max_size=60))
def test_no_text_gives_anything_but_values_or_a_value_error(text: str):
    with contextlib.suppress(ValueError):
        parse_yaml(text)
