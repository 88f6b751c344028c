"""A worker process: runs calls of one function within limits; calls and replies are JSON lines.

It forks. The parent is a supervisor that runs only our code: it adopts orphaned descendants and kills all of
them when the trainer exits. The child is isolated, and only then loads the function and runs the calls.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
from dataclasses import asdict, dataclass
from typing import Any, TextIO

from hacrl.rewards import processes
from hacrl.rewards.calls import describe, run_call
from hacrl.rewards.processes import Limits
from hacrl.rewards.scratch import remove_scratch
from hacrl.rewards.verifiers import load


@dataclass(frozen=True, slots=True)
class WorkerJob:
    """What a worker is started with."""

    function: str
    """`module:function`."""
    limits: Limits
    path: list[str]
    """The trainer's `sys.path`."""
    user: int
    scratch: str
    channel: int
    """The socket to the trainer."""
    lifeline: int
    """A pipe that the trainer holds open as long as the worker is needed."""

    def to_json(self) -> str:
        """As a command-line argument."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> WorkerJob:
        """Read what `to_json` wrote."""
        fields = json.loads(text)
        return cls(**fields | {"limits": Limits(**fields["limits"])})


def main(job: WorkerJob) -> None:
    """Run the job until the trainer closes the channel."""
    processes.adopt_orphans()
    has_namespace = processes.new_process_namespace()
    if os.fork() != 0:
        supervise(job)
    os.close(job.lifeline)
    with socket.socket(fileno=job.channel) as channel, channel.makefile("rw", encoding="utf-8") as lines:
        report = isolate(job, has_namespace)
        sys.path[:] = job.path  # not before: as root nothing but hacrl and the standard library is imported
        serve(lines, job.function, job.limits, report)


def supervise(job: WorkerJob) -> None:
    """Wait until the trainer closes its end of the lifeline or dies, then remove every trace and exit."""
    os.close(job.channel)
    while not select.select([job.lifeline], [], [], 1.0)[0]:
        processes.reap()
    processes.kill_descendants(os.getpid())
    processes.reap()
    remove_scratch(job.scratch)
    os._exit(0)


def isolate(job: WorkerJob, has_namespace: bool) -> dict[str, bool]:
    """Isolate and limit this process; returns what could be isolated."""
    silence()
    report = {"processes": has_namespace}
    if job.limits.confined:
        report |= {"network": processes.leave_network(), "files": processes.protect_files(job.scratch)}
        os.chdir(job.scratch)
    report["user"] = processes.drop_privileges(job.user, job.path)
    processes.forbid_new_privileges()
    processes.die_with_parent(signal.SIGKILL)
    processes.apply_limits(job.limits, others=0 if has_namespace else processes.tasks_of_this_user())
    return report


def silence() -> None:
    """Discard what the function prints and give it empty input."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nowhere, standard)
    os.close(nowhere)


def serve(lines: TextIO, path: str, limits: Limits, report: dict[str, bool]) -> None:
    """Load the function, report that, and run calls until the trainer closes the channel."""
    try:
        function = load(path)
    except BaseException as error:
        send(lines, {"failed": describe(error)})
        return
    send(lines, {"ready": report})
    worker = os.getpid()
    for line in lines:
        call = json.loads(line)
        processes.allow_cpu_seconds(limits.deadline)
        reply = asdict(run_call(function, call["arguments"]))
        if os.getpid() != worker:  # the function forked, and this is its child
            os._exit(0)
        send(lines, {"id": call["id"]} | reply)


def send(lines: TextIO, reply: dict[str, Any]) -> None:
    """One JSON line to the trainer."""
    lines.write(json.dumps(reply) + "\n")
    lines.flush()
