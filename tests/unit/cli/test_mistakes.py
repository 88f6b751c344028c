"""Options that cannot work and commands that have moved end with a message and exit code 2."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hacrl.cli.app import app
from hacrl.runs.files import StorageError, write_atomic


def refused(*words: str) -> str:
    """The command's message; it has to be a single error."""
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == 2, (result.output, result.exception)
    assert isinstance(result.exception, SystemExit)
    assert result.stderr.startswith("error: ")
    assert "Traceback" not in result.output
    return result.stderr


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        ("toy:state-a", ["--temperature", "0"], "greater than or equal to 0.000001, got 0.0"),
        ("toy:state-a", ["--temperature", "1e-40"], "temperature: expected a number greater than"),
        ("toy:state-a", ["--device", "gpu"], "device: expected auto, cpu, cuda or cuda:NUMBER, got 'gpu'"),
        ("toy:state-a", ["--device", "cuda:99"], "agents.0.device: expected cpu or auto, got 'cuda:99'"),
        ("nursery:state-a", [], "model: it is called 'toy:state-a' now, got 'nursery:state-a'"),
    ],
)
def test_eval_names_the_option(model: str, options: list[str], message: str) -> None:
    error = refused("eval", model, "--task", "digits", *options)
    assert message in error
    assert "pydantic" not in error


@pytest.mark.parametrize(
    "words",
    [
        "eval m --task digits --prompts 0",
        "eval m --task digits --prompts -5",
        "eval m --task digits --samples -1",
        "eval m --task digits --seed -1",
        "eval m --task digits --max-new-tokens 0",
        "audit run --prompts 0",
        "audit run --prompts -5",
        "audit run --samples -1",
        "simulate recipe.yaml --prompt-tokens inf",
        "simulate recipe.yaml --prompt-tokens nan",
        "simulate recipe.yaml --response-tokens inf",
        "doctor recipe.yaml --gpu-gb inf",
        "compare recipe.yaml --seeds 1000000000",
        "compare recipe.yaml --first-seed -1",
        "watch run --port 70000",
        "trajectories run --limit 0",
        "train recipe.yaml --bogus 1",
    ],
)
def test_numbers_that_make_no_sense_are_refused_by_the_options_name(words: str) -> None:
    option = next(word for word in reversed(words.split()) if word.startswith("--"))
    assert option in refused(*words.split())


OUTPUTS = [
    ("report run", "--out"),
    ("eval model --task digits", "--json"),
    ("eval model --task digits", "--responses"),
    ("verify {rows} --verifier exact", "--out"),
    ("verify {rows} --verifier exact", "--json"),
    ("results plan.yaml", "--page"),
]
DIRECTORIES = [
    ("train r.yaml", "--out"),
    ("compare r.yaml", "--out"),
    ("demo r.yaml", "--out"),
    ("results p.yaml", "--out"),
]


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"response": "1", "answer": "1"}\n')
    return path


@pytest.mark.parametrize(("command", "option"), OUTPUTS)
def test_nothing_but_a_regular_file_is_written_to(
    command: str, option: str, rows: Path, tmp_path: Path
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    words = command.format(rows=rows).split()
    for special in (Path("/dev/null"), pipe, tmp_path):
        before = special.stat()
        error = refused(*words, option, str(special))
        assert f"'{option}': {special} is not a regular file" in error
        assert stat.S_IFMT(special.stat().st_mode) == stat.S_IFMT(before.st_mode)
        assert special.stat().st_ino == before.st_ino
    if option == "--page":  # its directory is made
        return
    missing = tmp_path / "none" / "file"
    assert f"'{option}': the directory {missing.parent} does not exist" in refused(
        *words, option, str(missing)
    )


@pytest.mark.parametrize(("command", "option"), DIRECTORIES)
def test_a_run_is_not_put_where_something_else_is(command: str, option: str, rows: Path) -> None:
    for path in (Path("/dev/null"), rows):
        error = refused(*command.split(), option, str(path))
        assert f"'{option}': {path} is not a directory" in error
    for path in (rows / "below", rows / "far" / "below"):
        assert str(rows) in refused(*command.split(), option, str(path))


def test_a_first_recipe_is_not_written_to_a_device_or_nowhere(tmp_path: Path) -> None:
    assert "/dev/null is not a regular file" in refused("init", "/dev/null", "--force")
    assert f"the directory {tmp_path / 'none'} does not exist" in refused(
        "init", str(tmp_path / "none" / "r.yaml")
    )


def test_no_writer_replaces_what_is_not_a_regular_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(StorageError, match="pipe is not a regular file"):
        write_atomic(pipe, b"")
    assert pipe.is_fifo()


def test_bench_names_where_it_went() -> None:
    assert "`python -m benchmarks.trl`" in refused("bench", "anything", "--repeats", "3")
    assert " bench " not in CliRunner().invoke(app, ["--help"]).output
