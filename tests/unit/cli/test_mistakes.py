"""Options that cannot work and commands that have moved end with a message and exit code 2."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from hacrl.cli.app import app


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        ("toy:state-a", ["--temperature", "0"], "temperature: expected a number greater than 0, got 0.0"),
        ("toy:state-a", ["--device", "gpu"], "device: expected auto, cpu, cuda or cuda:NUMBER, got 'gpu'"),
        ("nursery:state-a", [], "model: it is called 'toy:state-a' now, got 'nursery:state-a'"),
    ],
)
def test_eval_names_the_option(model: str, options: list[str], message: str) -> None:
    result = CliRunner().invoke(app, ["eval", model, "--task", "digits", *options])
    assert result.exit_code == 2
    assert message in result.output
    assert "pydantic" not in result.output


def test_bench_names_where_it_went() -> None:
    result = CliRunner().invoke(app, ["bench", "anything", "--repeats", "3"])
    assert result.exit_code == 2
    assert "`python -m benchmarks.trl`" in result.output
    assert " bench " not in CliRunner().invoke(app, ["--help"]).output
