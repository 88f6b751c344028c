"""Whatever a command is given, it ends in time, with the right exit code, and its message names the cause."""

from __future__ import annotations

from types import ModuleType

import pytest

from fuzz import commands, inputs, models, recipes, runs
from fuzz.contract import Worker

pytestmark = pytest.mark.slow

FAMILIES = (recipes, commands, inputs, runs, models)


@pytest.mark.parametrize(
    ("family", "group"),
    [
        pytest.param(family, group, id=f"{family.__name__.rpartition('.')[2]}: {group}")
        for family in FAMILIES
        for group in family.groups()
    ],
)
def test_bad_input_gets_a_message(family: ModuleType, group: str, worker: Worker) -> None:
    worker.check(family.cases(group, worker.shared))


@pytest.mark.parametrize("family", [commands, inputs, runs, models])
def test_good_input_works(family: ModuleType, worker: Worker) -> None:
    worker.check(family.undamaged(worker.shared))


def test_every_file_of_a_run_is_damaged(worker: Worker) -> None:
    run = worker.shared / "run"
    files = {path for path in run.rglob("*") if path.is_file()}
    assert files == {path for pattern in runs.READERS for path in run.glob(pattern) if path.is_file()}


def test_every_file_of_a_model_is_damaged(worker: Worker) -> None:
    damaged = {path.name for pattern in models.FILES for path in worker.shared.glob(pattern)}
    assert {path.name for path in (worker.shared / "ada").iterdir()} <= damaged


def test_there_are_1500_cases(worker: Worker) -> None:
    cases = [
        case
        for family in FAMILIES
        for group in family.groups()
        for case in family.cases(group, worker.shared)
    ]
    assert len({case.what for case in cases}) == len(cases) >= 1500
