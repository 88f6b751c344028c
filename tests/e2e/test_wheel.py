"""A wheel in an empty environment, used outside a clone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest
import torch
import yaml

import hacrl

ROOT = Path(__file__).parents[2]
SOURCES = ("pyproject.toml", "README.md", "LICENSE")
HERE = {**os.environ, "PYTHONPATH": "", "HF_HUB_OFFLINE": "1"}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the wheel; its dependencies are those of this environment."""
    folder = tmp_path_factory.mktemp("wheel")
    clone, wheels, environment = folder / "clone", folder / "wheels", folder / "environment"
    shutil.copytree(ROOT / "src", clone / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    for name in SOURCES:
        shutil.copy(ROOT / name, clone)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    build = [
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        "--wheel-dir",
        str(wheels),
        str(clone),
    ]
    subprocess.run([*pip, *build], check=True, env=HERE)
    venv.create(environment, with_pip=False, symlinks=True)
    packages = next(environment.glob("lib/python*/site-packages"))
    packages.joinpath("dependencies.pth").write_text(f"{Path(torch.__file__).parents[1]}\n")
    (wheel,) = wheels.glob("*.whl")
    subprocess.run(
        [*pip, "--python", str(environment), "install", "--no-deps", "--no-index", str(wheel)], check=True
    )
    return environment / "bin"


def run(installed: Path, folder: Path, *words: str) -> str:
    command = [str(installed / "hacrl"), *words]
    done = subprocess.run(
        command, cwd=folder, env=HERE, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_version_is_the_wheels_own(installed: Path, tmp_path: Path) -> None:
    assert run(installed, tmp_path, "--version") == f"hacrl {hacrl.__version__}\n"
    where = subprocess.run(
        [installed / "python", "-c", "import hacrl; print(hacrl.__file__)"],
        cwd=tmp_path,
        env=HERE,
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(where.stdout).is_relative_to(installed.parent)
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == hacrl.__version__


def test_a_first_recipe_is_one_that_the_doctor_accepts(installed: Path, tmp_path: Path) -> None:
    run(installed, tmp_path, "init")
    assert "This recipe can run." in run(installed, tmp_path, "doctor", "recipe.yaml")


def test_the_demo_needs_no_clone(installed: Path, tmp_path: Path) -> None:
    shown = run(installed, tmp_path, "demo", "--steps", "6")
    assert "Accuracy on test problems" in shown
    assert "commons" in shown
    assert (tmp_path / "runs/demo/together/report.html").is_file()
