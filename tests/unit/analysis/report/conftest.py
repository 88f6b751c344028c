"""One tiny run for all tests of the report; a test that changes files works on a copy."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from helpers_report import make_runs


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_runs(tmp_path_factory.mktemp("report"))


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    shutil.copytree(
        finished.parent, tmp_path / "runs", ignore=shutil.ignore_patterns("checkpoints", "models")
    )
    return tmp_path / "runs" / "together"
