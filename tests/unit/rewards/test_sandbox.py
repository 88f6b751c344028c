"""What `Pool.isolation` reports holds against code that tries to break out."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

as_root = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="only root can give workers a user id of their own"
)

TRAINER = """
    import ctypes, json, sys
    from hacrl.rewards import Limits, Pool

    PR_CAPBSET_DROP, CAP_SYS_ADMIN = 24, 21
    if "no namespaces" in sys.argv:  # as in a default container: every unshare and mount of a worker fails
        assert ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_SYS_ADMIN, 0, 0, 0) == 0
    with Pool("hacrl.rewards.verifiers:python_tests", Limits(30, calls=1), workers=2) as pool:
        isolation = pool.isolation()
        rounds = [[o.value for o in pool.run([{"response": code, "gold": "pass"} for code in responses])]
                  for responses in json.load(sys.stdin)]
    print(json.dumps([isolation, rounds]))
"""

PLANT = """
    import os, sysconfig
    from pathlib import Path

    home = Path(os.environ["HOME"])
    site = home / ".local/lib" / f"python{sysconfig.get_python_version()}" / "site-packages"
    def plant(folder):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "x.pth").write_text(f"import os; {run}\\n")
        for module in ("usercustomize", "sitecustomize", "json", "hacrl"):
            (folder / f"{module}.py").write_text(f"import os; {run}\\n")
    plant(site)
    plant(Path.cwd())
"""
"""Leaves what a Python interpreter with this home or working directory would run when it starts."""

LOOK_AROUND = """
    import os
    from pathlib import Path

    own = Path(os.environ["HOME"])
    assert Path(os.environ["TMPDIR"]) == own == Path.cwd()
    assert os.getuid() != 0
    assert (own.stat().st_uid, own.stat().st_mode & 0o777) == (os.getuid(), 0o700)
    assert os.listdir(own) == [], "left by the worker before"
    def change(place):
        for act in (lambda: (place / "x").touch(), lambda: place.rename(own / "x"), place.rmdir):
            try:
                act()
            except OSError:
                continue
            raise AssertionError(f"changed {place}")
    scratches = [folder / "scratch" for folder in temporary.glob("hacrl-*")]
    assert own in scratches and len(scratches) > 1
    for scratch in scratches:
        change(scratch.parent)
        if scratch != own:
            change(scratch)
"""
"""Fails if the scratch directory is not the worker's own, or if that of another worker can be changed."""


@pytest.fixture
def public() -> Iterator[Path]:
    """A directory that every user may write to."""
    folder = Path(tempfile.mkdtemp(prefix="public-"))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


def run_pool(responses: list[list[str]], *options: str, temporary: Path) -> tuple[dict[str, bool], list[Any]]:
    """Run rounds of code responses with a trainer outside any virtual environment."""
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "TMPDIR": str(temporary),
    }
    done = subprocess.run(
        [sys._base_executable, "-c", textwrap.dedent(TRAINER), *options],  # type: ignore[attr-defined]
        input=json.dumps(responses),
        env=environment,
        capture_output=True,
        text=True,
        cwd=temporary,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    isolation, rounds = json.loads(done.stdout)
    return isolation, rounds


@as_root
@pytest.mark.parametrize("options", [(), ("no namespaces",)])
def test_code_of_one_response_cannot_run_in_the_next_worker(public: Path, options: tuple[str, ...]) -> None:
    proof = public / "proof"
    run = f"open({str(proof)!r}, 'a').write(str(os.getuid()) + chr(10))"
    attack = f"run = {run!r}\n" + textwrap.dedent(PLANT)
    look = f"from pathlib import Path\ntemporary = Path({str(public)!r})\n" + textwrap.dedent(LOOK_AROUND)
    responses = [[attack, attack], [look, look, attack], [look]]
    isolation, rounds = run_pool(responses, *options, temporary=public)
    assert not proof.exists(), f"planted code ran as user {proof.read_text().split()}"
    assert rounds == [[1.0, 1.0], [1.0, 1.0, 1.0], [1.0]]
    assert isolation["user"]
    if options:
        assert isolation == {"processes": False, "network": False, "files": False, "user": True}
    assert not list(public.iterdir()), "scratch directories are left"


REMOUNT = """
    import ctypes, json, os, sys
    from hacrl.rewards import processes
    from hacrl.rewards.processes import Limits
    from hacrl.rewards.scratch import make_scratch
    from hacrl.rewards.worker import WorkerJob, isolate

    NOBODY, PR_SET_DUMPABLE, MS_REMOUNT, MS_BIND = 65534, 4, 32, 4096
    libc = ctypes.CDLL(None, use_errno=True)
    output = os.fdopen(os.dup(1), "w")
    os.setresuid(NOBODY, NOBODY, NOBODY)
    libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)  # or /proc/self would belong to root, unlike that of a user
    job = WorkerJob("", Limits(), [], NOBODY, make_scratch(NOBODY), -1, lifeline=-1)
    has_namespace = processes.new_process_namespace()
    if os.fork() != 0:
        os.wait()
        sys.exit()
    report = isolate(job, has_namespace)
    for place in (b"/", b"/tmp"):
        libc.mount(None, place, None, MS_REMOUNT | MS_BIND, None)
    try:
        open(sys.argv[1], "w").write("lost")
    except OSError:
        pass
    output.write(json.dumps(report))
"""


@as_root
def test_a_worker_cannot_undo_its_read_only_mounts(public: Path) -> None:
    """Without root a worker owns its namespaces, and could remount what it finds there."""
    precious = public / "precious"
    precious.write_text("kept")
    precious.chmod(0o666)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(REMOUNT), str(precious)],
        env=os.environ | {"TMPDIR": str(public)},
        capture_output=True,
        text=True,
        check=True,
    )
    report = json.loads(done.stdout)
    assert not report["user"], "it has the trainer's user id"
    assert precious.read_text() == ("kept" if report["files"] else "lost")
