"""A run as a job of a Ray cluster: submitted from any machine, followed and resumed there (`hacrl launch`).

Only the recipe is uploaded. Code, models and data are those of the machines of the cluster.
"""

from __future__ import annotations

import re
import secrets
import shlex
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from hacrl.runtime.base import RuntimeFailure
from hacrl.runtime.cluster import import_ray, ray_environment

ADDRESS = re.compile(r"(https?://)?[A-Za-z0-9.-]+(:\d{1,5})?/?|(https?://)?\[[0-9A-Fa-f:]+\](:\d{1,5})?/?")
"""Nothing else is passed to Ray: it would import the module that another scheme names."""
RUN_KEY = "hacrl_out"
"""The run's directory in a job's metadata: how its jobs are found again."""
UPLOADED = "recipe.yaml"
POLL_SECONDS = 5.0
PATIENCE = 12
"""Polls in a row that may fail before the job server counts as lost."""
ENDED = ("SUCCEEDED", "FAILED", "STOPPED")
MISTAKE = 2
"""Exit code of a run that cannot work: it is not tried again."""


class JobClient(Protocol):
    """What is used of `ray.job_submission.JobSubmissionClient`."""

    def submit_job(
        self, *, entrypoint: str, submission_id: str, runtime_env: Any, metadata: dict[str, str]
    ) -> str:
        """Start a job."""

    def get_job_info(self, job_id: str) -> Any:
        """Status, exit code and message."""

    def get_job_logs(self, job_id: str) -> str:
        """Everything it has printed."""

    def list_jobs(self) -> list[Any]:
        """All jobs the cluster remembers."""


@dataclass(frozen=True)
class JobOutcome:
    """How a job ended."""

    status: str
    exit_code: int | None
    message: str

    @property
    def worth_resuming(self) -> bool:
        """Whether it failed for another reason than a mistake in the recipe or the command."""
        return self.status == "FAILED" and self.exit_code != MISTAKE


def open_client(address: str) -> JobClient:
    """The job server of a cluster: its dashboard, such as `http://head:8265`."""
    if not ADDRESS.fullmatch(address):
        raise RuntimeFailure(
            f"--cluster {address!r}: expected the address of the dashboard, such as http://10.0.0.1:8265"
        )
    with ray_environment():
        import_ray()
        from ray.job_submission import JobSubmissionClient

        url = address if "://" in address else f"http://{address}"
        try:
            client: JobClient = JobSubmissionClient(url)
        except OSError as error:
            raise RuntimeFailure(
                f"the job server at {url} cannot be reached: check the address and the firewall. It is the "
                "dashboard of a cluster whose machines have 'ray[default]'"
            ) from error
        except RuntimeError as error:
            raise RuntimeFailure(
                f"cannot use the job server at {url}: {str(error).strip()}\nThis machine needs pip install "
                "'ray[default]', and the cluster's token in ~/.ray/auth_token or RAY_AUTH_TOKEN"
            ) from error
        return client


def entrypoint(out: str, overrides: Sequence[str], *, resume: bool) -> str:
    """The shell command of the job; Ray sets RAY_ADDRESS to the cluster that runs it."""
    words = ["python", "-m", "hacrl", "train", UPLOADED, *overrides, "runtime.name=ray", "--out", out]
    return f"{shlex.join(words)}{' --resume' if resume else ''} runtime.address=$RAY_ADDRESS"


def submit(client: JobClient, recipe: Path, overrides: Sequence[str], out: str, *, resume: bool) -> str:
    """Upload the recipe and start its run in the directory `out` of the cluster -> the job's id."""
    active = [job for job in jobs_of(client, out) if job.status not in ENDED]
    if active:
        raise RuntimeFailure(
            f"job {active[-1].submission_id} of this cluster is already working in {out}: follow it with "
            "--follow"
        )
    name = re.sub(r"[^A-Za-z0-9]+", "-", Path(out).name).strip("-") or "run"
    with tempfile.TemporaryDirectory() as folder:
        shutil.copyfile(recipe, Path(folder) / UPLOADED)
        return client.submit_job(
            entrypoint=entrypoint(out, overrides, resume=resume),
            submission_id=f"hacrl-{name}-{secrets.token_hex(4)}",
            runtime_env={"working_dir": folder},
            metadata={RUN_KEY: out},
        )


def jobs_of(client: JobClient, out: str) -> list[Any]:
    """The jobs of one run, the newest last."""
    found = [job for job in client.list_jobs() if (job.metadata or {}).get(RUN_KEY) == out]
    return sorted(found, key=lambda job: job.start_time or 0)


def follow(client: JobClient, job: str, show: Callable[[str], None]) -> JobOutcome:
    """Show what the job prints until it ends."""
    shown = failures = 0
    while True:
        try:
            info = client.get_job_info(job)  # before the log: what it printed last is not missed
            log = client.get_job_logs(job)
        except (RuntimeError, OSError) as error:
            failures += 1
            if failures > PATIENCE:
                raise RuntimeFailure(
                    f"the job server cannot be reached any more ({error}); job {job} may still be running"
                ) from error
        else:
            failures = 0
            if log[shown:]:
                show(log[shown:])
            shown = len(log)
            if str(info.status) in ENDED:
                reason = str(info.message or "no message").partition("\n")[0]  # then the log follows again
                return JobOutcome(str(info.status), info.driver_exit_code, reason)
        time.sleep(POLL_SECONDS)


def launch(
    client: JobClient,
    start: Callable[[bool], str],
    show: Callable[[str], None],
    *,
    resume: bool,
    retries: int,
) -> JobOutcome:
    """Follow a run to its end; when it fails, resume it in a new job, at most `retries` times.

    `start` submits a job, a resumed one if it is called with True, and returns its id.
    """
    for left in range(retries, -1, -1):
        outcome = follow(client, start(resume), show)
        if not outcome.worth_resuming or not left:
            break
        with suppress(OSError):  # nobody may be reading any more
            show(f"The job failed ({outcome.message}); resuming the run, {left} more attempts.\n")
        resume = True
    return outcome
