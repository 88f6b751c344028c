"""`hacrl pool`: who wrote what, and what a trainer would refuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hacrl.cli.app import app
from hacrl.pool import open_place
from helpers_pool import KEY, OTHER_KEY, entry, lines


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Three good entries of two agents, one that is replayed and one that nobody signed."""
    monkeypatch.setenv("HACRL_POOL_KEY", KEY.decode())
    place = open_place(str(tmp_path / "pool"))
    good = lines(entry(1), entry(2, reward=0.0, version=7), entry(3, source="ada"))
    place.append("theirs", [*good, good[0], *lines(entry(4), key=OTHER_KEY)])
    return str(tmp_path / "pool")


def run(*words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["pool", *words])
    return result.exit_code, result.stdout, result.stderr


def test_status_counts_by_writer_and_source(pool: str):
    code, out, _ = run(pool, "--json")
    assert code == 0
    assert list(map(json.loads, out.splitlines())) == [
        {"writer": "theirs", "source": "ada", "entries": 1, "right": 1, "newest_step": 1},
        {"writer": "theirs", "source": "eve", "entries": 2, "right": 1, "newest_step": 7},
        {"refused": {"replayed": 1, "signature": 1}},
    ]
    assert "3 entries; refused: replayed 1, signature 1" in run(pool)[1]


def test_verify_says_so_with_its_exit_code(pool: str, tmp_path: Path):
    code, _, error = run(pool, "--verify")
    assert code == 1
    assert "2 lines would be refused" in error
    open_place(str(tmp_path / "good")).append("theirs", lines(entry()))
    assert run(str(tmp_path / "good"), "--verify")[0] == 0


def test_show_lists_the_newest(pool: str):
    code, out, _ = run(pool, "--show", "--json", "--source", "eve", "--limit", "1")
    assert code == 0
    assert [json.loads(line)["prompt"] for line in out.splitlines()] == ["sort 2="]
    assert "sort 3=" in run(pool, "--show")[1]


def test_without_a_key_signatures_are_not_checked(pool: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("HACRL_POOL_KEY")
    code, out, _ = run(pool)
    assert code == 0
    assert "4 entries; refused: replayed 1" in out
    assert "Signatures were not checked" in out
    assert run(pool, "--verify")[0] == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nowhere",), "nowhere holds no pool"),
        (("",), "URL: expected a directory"),
        (("{pool}", "--source", "bob"), "--source bob: not in this pool, which has ada, eve"),
        (("{pool}", "--key-env", "NONE"), "the environment variable NONE is not set"),
        (("{pool}", "--password-env", "NONE"), "the environment variable NONE is not set"),
    ],
)
def test_mistakes_are_named(pool: str, words: tuple[str, ...], message: str):
    code, _, error = run(*(word.replace("{pool}", pool) for word in words))
    assert code == 2
    assert message in error
