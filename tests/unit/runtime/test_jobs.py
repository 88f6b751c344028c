"""Runs as jobs of a cluster, with a stand-in for its job server."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from hacrl.cli.app import app
from hacrl.runtime import RuntimeFailure, jobs

OUT = "/shared/runs/my run"


class Server:
    """Jobs that print and end as they are told: (what is printed at each poll, exit code)."""

    def __init__(self, *fates: tuple[list[str], int]) -> None:
        self.fates = list(fates)
        self.jobs: list[Any] = []
        self.uploaded: list[str] = []
        self.broken = 0

    def submit_job(self, *, entrypoint: str, submission_id: str, runtime_env: Any, metadata: Any) -> str:
        self.uploaded.append((Path(runtime_env["working_dir"]) / "recipe.yaml").read_text())
        job = SimpleNamespace(
            submission_id=submission_id, entrypoint=entrypoint, metadata=metadata, status="RUNNING"
        )
        job.start_time, job.log, (job.fate, job.code) = len(self.jobs), "", self.fates.pop(0)
        self.jobs.append(job)
        return submission_id

    def get_job_info(self, job_id: str) -> Any:
        if self.broken:
            self.broken -= 1
            raise ConnectionError("gone")
        (job,) = (job for job in self.jobs if job.submission_id == job_id)
        if job.fate:
            job.log += job.fate.pop(0)
        else:
            job.status = "FAILED" if job.code else "SUCCEEDED"
        code = job.code if job.status != "RUNNING" else None
        return SimpleNamespace(status=job.status, driver_exit_code=code, message=f"exit {job.code}\nmore")

    def get_job_logs(self, job_id: str) -> str:
        return next(job.log for job in self.jobs if job.submission_id == job_id)

    def list_jobs(self) -> list[Any]:
        return [SimpleNamespace(metadata=None, start_time=0), *self.jobs]


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text("agents: [{name: a, model: toy:state-a}]\ntask: digits\n")
    return path


def launch(server: Server, recipe: Path, monkeypatch: pytest.MonkeyPatch, *words: str) -> Any:
    monkeypatch.setattr(jobs, "open_client", lambda address: server)
    monkeypatch.setattr(jobs, "POLL_SECONDS", 0.0)
    return CliRunner().invoke(app, ["launch", str(recipe), "--out", OUT, *words])


def test_a_run_is_submitted_and_followed(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server((["step 1\n", "step 2\n", "\x1b[31mred\n"], 0))
    result = launch(server, recipe, monkeypatch, "steps=7")
    assert result.exit_code == 0
    assert "step 1\nstep 2\n\\x1b[31mred\n" in result.output
    assert "has succeeded" in result.output
    assert server.uploaded == [recipe.read_text()]
    (job,) = server.jobs
    assert job.submission_id.startswith("hacrl-my-run-")
    assert job.metadata == {jobs.RUN_KEY: OUT}


def test_the_entrypoint_is_the_command_that_a_shell_runs() -> None:
    """The cluster's own address, and words with blanks or dollars as they are."""
    command = jobs.entrypoint(OUT, ["agents.a.system_prompt=costs $5; rm -rf /"], resume=True)
    shown = subprocess.run(
        ["sh", "-c", command.replace("python -m hacrl", "printf '%s\\n'", 1)],
        env={**os.environ, "RAY_ADDRESS": "10.0.0.1:6379"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert shown == [
        *("train", "recipe.yaml", "agents.a.system_prompt=costs $5; rm -rf /", "runtime.name=ray"),
        *("--out", OUT, "--resume", "runtime.address=10.0.0.1:6379"),
    ]


def test_a_failed_job_is_resumed_as_often_as_asked(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server((["first\n"], 1), (["second\n"], 1), (["third\n"], 0))
    result = launch(server, recipe, monkeypatch, "--retries", "2")
    assert result.exit_code == 0
    assert result.output.count("resuming the run") == 2
    assert [job.entrypoint.count("--resume") for job in server.jobs] == [0, 1, 1]
    assert server.jobs[1].fate == []


def test_a_mistake_is_not_tried_again_and_the_exit_code_is_the_runs(
    recipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server((["error: no such model\n"], 2), ([], 0))
    assert launch(server, recipe, monkeypatch, "--retries", "5").exit_code == 2
    assert len(server.jobs) == 1
    again = Server(([], 1), ([], 1))
    assert launch(again, recipe, monkeypatch, "--retries", "1").exit_code == 1
    assert len(again.jobs) == 2


def test_one_job_at_a_time_works_in_a_directory(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server((["step 1\n", "step 2\n"], 0), ([], 0))
    assert launch(server, recipe, monkeypatch, "--detach").exit_code == 0
    refused = launch(server, recipe, monkeypatch)
    assert refused.exit_code == 2
    assert "already working in /shared/runs/my run: follow it" in refused.output
    followed = launch(server, recipe, monkeypatch, "--follow")
    assert followed.exit_code == 0
    assert "step 1\nstep 2\n" in followed.output
    assert launch(server, recipe, monkeypatch, "--resume").exit_code == 0
    assert [job.entrypoint.count("--resume") for job in server.jobs] == [0, 1]


def test_following_needs_a_job(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = launch(Server(), recipe, monkeypatch, "--follow")
    assert result.exit_code == 2
    assert "has no job of a run in /shared/runs/my run" in result.output


def test_a_short_silence_of_the_server_is_not_the_end(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server((["step 1\n"], 0))
    server.broken = jobs.PATIENCE
    assert launch(server, recipe, monkeypatch).exit_code == 0
    lost = Server(([], 0))
    lost.broken = jobs.PATIENCE + 1
    result = launch(lost, recipe, monkeypatch)
    assert result.exit_code == 2
    assert "may still be running" in result.output


@pytest.mark.parametrize("address", ["os://x", "ray://head:10001", "http://a b", "auto:x", "", "file:///etc"])
def test_only_a_dashboard_is_an_address(address: str) -> None:
    """Ray would import the module that a scheme names."""
    with pytest.raises(RuntimeFailure, match="expected the address of the dashboard"):
        jobs.open_client(address)


def test_mistakes_show_before_anything_is_sent(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server()
    result = launch(server, recipe, monkeypatch, "stepz=3")
    assert result.exit_code == 2
    assert "stepz" in result.output
    relative = launch(server, recipe, monkeypatch, "--out", "runs/x")
    assert relative.exit_code == 2
    assert "expected an absolute path" in relative.output
