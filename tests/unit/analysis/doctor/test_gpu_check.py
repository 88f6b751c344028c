"""`hacrl doctor --gpu-check`: the checks on a CPU, and what is made of those that fail."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from hacrl.analysis.doctor import gpu_check
from hacrl.analysis.doctor.gpu_check import CHECKS, Check, Result, obstacle, run_checks
from hacrl.cli.app import app


@pytest.mark.parametrize("name", ["backends", "other-backends", "bf16", "sharing"])
def test_a_check_finds_that_it_works(name: str, tmp_path: Path) -> None:
    found = CHECKS[name].run(tmp_path, "cpu")
    expected = {
        "backends": "llama, qwen3, gemma3_text",
        "other-backends": "checkpointing: FusedScorer; ranks: ShardedScorer",
        "bf16": "engine and trained model differ by",  # log-probs are computed again
    }
    assert expected.get(name, "2 steps of 2 agents") in found


def test_a_check_fails_if_nothing_is_learned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_check, "even_lengths", lambda prompts, **columns: [1.0] * len(prompts))
    with pytest.raises(RuntimeError, match="no gradient"):
        gpu_check._run(tmp_path, "cpu", {}, optimiser={"kl": 0.0})


def test_a_check_in_its_own_process_says_what_it_found() -> None:
    (result,) = run_checks(["other-backends"])
    assert (result.verdict, result.detail) == ("works", "checkpointing: FusedScorer; ranks: ShardedScorer")


@pytest.mark.parametrize(
    ("ended", "detail"),
    [
        (
            SimpleNamespace(returncode=1, stdout="", stderr="noise\nRuntimeError: NCCL\n\n"),
            "RuntimeError: NCCL",
        ),
        (SimpleNamespace(returncode=-11, stdout="", stderr=""), "exit code -11"),
        (subprocess.TimeoutExpired("x", 1.0), "did not end within 300 s"),
    ],
)
def test_a_crash_is_one_failed_check(monkeypatch: pytest.MonkeyPatch, ended: Any, detail: str) -> None:
    def run(*args: Any, **options: Any) -> Any:
        if isinstance(ended, Exception):
            raise ended
        return ended

    monkeypatch.setattr(gpu_check.subprocess, "run", run)
    results = list(run_checks(["fp32", "bf16"]))
    assert [(result.verdict, result.detail) for result in results] == [("fails", detail)] * 2


def test_what_cannot_be_tried_is_named_with_the_reason() -> None:
    gpus = Check("x", lambda folder, device: "", gpus=1)
    ranks = Check("x", lambda folder, device: "", gpus_if_any=4)
    assert obstacle(gpus, 0) == "needs 1 GPU, there are 0"
    assert obstacle(gpus, 1) is None
    assert obstacle(ranks, 0) is None  # on CPUs
    assert obstacle(ranks, 1) == "needs 4 GPUs, there is 1"
    assert (
        obstacle(Check("x", gpus.run, packages=("no_such_package",)), 8)
        == "needs the package no_such_package"
    )


def test_the_command_prints_every_result_and_fails_if_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    results = [Result("a", "works", "fine", 2.0), Result("b", "not tried", "needs 1 GPU", 0.0)]
    monkeypatch.setattr(gpu_check, "run_checks", lambda: iter(results))
    fine = CliRunner().invoke(app, ["doctor", "--gpu-check"])
    assert fine.exit_code == 0
    assert "works     a: fine (2 s)\nnot tried b: needs 1 GPU\n" in fine.output
    results.append(Result("c", "fails", "NCCL \x1b[31m", 1.0))
    failed = CliRunner().invoke(app, ["doctor", "--gpu-check"])
    assert failed.exit_code == 1
    assert "fails     c: NCCL \\x1b[31m (1 s)" in failed.output


def test_without_a_recipe_the_argument_is_named() -> None:
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 2
    assert "Missing argument 'RECIPE'" in result.output


def test_the_page_names_every_check() -> None:
    page = (Path(__file__).parents[4] / "docs" / "gpus.md").read_text()
    for check in CHECKS.values():
        assert f"| {check.title} |" in page, check.title
