"""The examples of clusters have the form that KubeRay and Slurm expect. Neither is run here."""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from hacrl.cli.app import app

EXAMPLES = Path(__file__).parents[3] / "examples" / "cluster"
RAY_JOB = {
    *("entrypoint", "backoffLimit", "shutdownAfterJobFinishes", "ttlSecondsAfterFinished", "rayClusterSpec"),
}
WORKER_GROUP = {"groupName", "replicas", "minReplicas", "maxReplicas", "rayStartParams", "template"}
CONTAINER = {"name", "image", "env", "ports", "resources", "volumeMounts"}
"""Fields of KubeRay's RayJob (ray.io/v1) and of Kubernetes that the example uses."""


@pytest.fixture(scope="module")
def job() -> Any:
    return yaml.safe_load((EXAMPLES / "rayjob.yaml").read_text())


def pods(job: Any) -> list[Any]:
    cluster = job["spec"]["rayClusterSpec"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    return [group["template"]["spec"] for group in groups]


def test_the_ray_job_has_only_fields_that_exist(job: Any) -> None:
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    assert set(job["spec"]) == RAY_JOB
    cluster = job["spec"]["rayClusterSpec"]
    assert set(cluster) == {"rayVersion", "authOptions", "headGroupSpec", "workerGroupSpecs"}
    assert cluster["authOptions"] == {"mode": "token"}
    assert tuple(map(int, cluster["rayVersion"].split("."))) >= (2, 52)  # the first with tokens
    assert set(cluster["headGroupSpec"]) == {"rayStartParams", "template"}
    for group in cluster["workerGroupSpecs"]:
        assert set(group) == WORKER_GROUP
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())


def test_every_volume_that_is_mounted_is_there_and_limits_are_requests(job: Any) -> None:
    for pod in pods(job):
        volumes = {volume["name"] for volume in pod["volumes"]}
        for container in pod["containers"]:
            assert set(container) <= CONTAINER
            assert {mount["name"] for mount in container["volumeMounts"]} == volumes
            assert container["resources"]["limits"] == container["resources"]["requests"]
            assert all(isinstance(value, str) for value in container["resources"]["limits"].values())


@pytest.mark.parametrize("begun", [False, True])
def test_the_entrypoint_begins_a_run_or_resumes_it(job: Any, tmp_path: Path, begun: bool) -> None:
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    python.chmod(0o755)
    out = tmp_path / "a run"
    if begun:
        out.mkdir()
        (out / "config.json").touch()
    words = subprocess.run(
        job["spec"]["entrypoint"],
        shell=True,
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "OUT": str(out), "RAY_ADDRESS": "10.0.0.1:6379"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    expected = ["-m", "hacrl", "train", "/recipe/recipe.yaml", "runtime.name=ray"]
    assert words[:6] == [*expected, "runtime.address=10.0.0.1:6379"]
    assert words[6:] == ["--out", str(out), *(["--resume"] if begun else [])]


def test_the_slurm_script_is_bash_and_its_options_exist() -> None:
    script = EXAMPLES / "slurm.sh"
    subprocess.run(["bash", "-n", str(script)], check=True)
    assert os.access(script, os.X_OK)
    known = {
        *("job-name", "nodes", "ntasks-per-node", "gpus-per-node", "cpus-per-task", "time", "signal"),
        *("requeue", "open-mode"),
    }
    text = script.read_text()
    options = re.findall(r"^#SBATCH --([a-z-]+)", text, re.MULTILINE)
    assert set(options) == known
    helped = CliRunner().invoke(app, ["train", "--help"], env={"COLUMNS": "200", "NO_COLOR": "1"}).output
    for flag in re.findall(r"--[a-z]+", text[text.index("hacrl train") :].splitlines()[0]):
        assert flag in helped


STUBS = {
    "scontrol": 'if [ "$1" = show ]; then printf "one\\ntwo\\n"; else echo "scontrol $*" >>"$LOG"; fi',
    "srun": 'case "$*" in *hostname*) echo 10.0.0.1;; *) echo "srun $*" >>"$LOG";; esac',
    "sleep": "exec /bin/true",
    "hacrl": 'trap "exit 143" TERM; echo "hacrl $*" >>"$LOG"; while [ -n "$HANG" ]; do /bin/sleep 0.1; done',
}
"""What the script calls, as far as it has to answer."""


@pytest.fixture
def slurm(tmp_path: Path) -> dict[str, str]:
    for name, body in STUBS.items():
        stub = tmp_path / name
        stub.write_text(f"#!/bin/bash\n{body}\n")
        stub.chmod(0o755)
    (tmp_path / "run").mkdir()
    return {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "LOG": str(tmp_path / "log"),
        "HANG": "",
        "SLURM_JOB_ID": "12345",
        "SLURM_JOB_NODELIST": "one,two",
    }


def test_the_slurm_script_starts_the_cluster_and_the_run(slurm: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "run" / "config.json").touch()
    command = [str(EXAMPLES / "slurm.sh"), "r.yaml", str(tmp_path / "run"), "steps=3"]
    subprocess.run(command, env=slurm, check=True)
    while len(lines := sorted(Path(slurm["LOG"]).read_text().splitlines())) < 3:
        time.sleep(0.05)  # what it started in the background may be about to write
    head, run = "10.0.0.1:22345", str(tmp_path / "run")
    assert (
        lines[0] == f"hacrl train r.yaml steps=3 runtime.name=ray runtime.address={head} --out {run} --resume"
    )
    assert "--nodelist=one ray start --head --node-ip-address=10.0.0.1 --port=22345" in lines[1]
    assert lines[2].endswith(f"--nodelist=two ray start --address={head} --block")
    assert not list(tmp_path.glob(".hacrl-ray-token*"))  # the token is gone with the job


def test_the_slurm_script_stops_the_run_before_the_limit_and_queues_again(
    slurm: dict[str, str], tmp_path: Path
) -> None:
    command = [str(EXAMPLES / "slurm.sh"), "r.yaml", str(tmp_path / "run")]
    with subprocess.Popen(command, env={**slurm, "HANG": "yes"}) as script:
        while not (Path(slurm["LOG"]).exists() and "hacrl train" in Path(slurm["LOG"]).read_text()):
            assert script.poll() is None
            time.sleep(0.05)
        script.terminate()  # as Slurm's --signal=B:TERM@1800
        assert script.wait(60) == 143
    assert "scontrol requeue 12345" in Path(slurm["LOG"]).read_text()
