"""The run to compare with: found where demos and comparisons put it, never a wrong one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from hacrl.analysis.report import write_report
from hacrl.analysis.report.data import baseline_data, find_baseline
from hacrl.runs.files import StorageError
from hacrl.runs.reader import RunReader
from helpers_report import page_data


def change(run: Path, key: str, value: object) -> None:
    config = json.loads((run / "config.json").read_text())
    config["recipe"][key] = value
    (run / "config.json").write_text(json.dumps(config))


def is_alone(found: dict[str, Any] | None) -> bool:
    return found is not None and (found["name"], found["method"]) == ("alone", "gspo")


def test_a_demo_has_it_beside_the_run(copy: Path) -> None:
    assert is_alone(find_baseline(RunReader(copy)))
    assert find_baseline(RunReader(copy.parent / "alone")) is None


def test_a_comparison_has_it_under_the_same_seed(copy: Path, tmp_path: Path) -> None:
    for seed in (0, 1):
        for method, source in (("hacpo", copy), ("gspo", copy.parent / "alone")):
            shutil.copytree(source, tmp_path / "runs2" / method / f"seed_{seed}")
            change(tmp_path / "runs2" / method / f"seed_{seed}", "seed", seed)
    run = tmp_path / "runs2" / "hacpo" / "seed_1"
    found = find_baseline(RunReader(run))
    assert found is not None
    assert (found["name"], found["method"], found["seed"]) == ("seed_1", "gspo", 1)


@pytest.mark.parametrize(
    ("key", "value"),
    [("seed", 7), ("task", {"name": "other"}), ("agents", [{"name": "ann", "model": "elsewhere"}])],
)
def test_other_agents_tasks_and_seeds_are_no_baseline(copy: Path, key: str, value: object) -> None:
    change(copy.parent / "alone", key, value)
    assert find_baseline(RunReader(copy)) is None


@pytest.mark.parametrize(
    ("content", "told"),
    [("{}", False), ('{"model_type": "llama"}', False), ("", True), ("[]", True), ('{"recipe": 3}', True)],
)
def test_neighbours_that_are_no_runs_are_passed_by(copy: Path, content: str, told: bool) -> None:
    (copy.parent / "aaa").mkdir()
    (copy.parent / "aaa" / "config.json").write_text(content)
    warnings: list[str] = []
    assert is_alone(find_baseline(RunReader(copy), warnings.append))
    assert [str(copy.parent / "aaa" / "config.json") in text for text in warnings] == [True] * told


@pytest.mark.parametrize("file", ["metrics.jsonl", "summary.json", "config.json"])
def test_a_broken_neighbour_is_skipped_with_a_warning(
    copy: Path, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (copy.parent / "alone" / file).write_text("{oops}\n")
    page = write_report(copy).read_text()
    assert page_data(page)["runs"][0]["baseline"] is None
    told = capsys.readouterr().err
    assert told.startswith(f"warning: no comparison with {copy.parent / 'alone'}: ")
    assert f"{file}" in told
    with pytest.raises(StorageError, match=file):
        write_report(copy, baseline=copy.parent / "alone")


def test_a_baseline_without_an_agent_is_refused(copy: Path) -> None:
    change(copy.parent / "alone", "agents", [{"name": "ann", "model": "m"}, {"name": "bob", "model": "m"}])
    with pytest.raises(ValueError, match=r"--baseline .*alone: it has no agent cy"):
        baseline_data(copy.parent / "alone", RunReader(copy))
