"""The run to compare with: found where demos and comparisons put it, never a wrong one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from hacrl.analysis.report.data import baseline_data, find_baseline
from hacrl.runs.reader import RunReader


def change(run: Path, key: str, value: object) -> None:
    config = json.loads((run / "config.json").read_text())
    config["recipe"][key] = value
    (run / "config.json").write_text(json.dumps(config))


def test_a_demo_has_it_beside_the_run(copy: Path) -> None:
    assert find_baseline(RunReader(copy)) == copy.parent / "alone"
    assert find_baseline(RunReader(copy.parent / "alone")) is None


def test_a_comparison_has_it_under_the_same_seed(copy: Path, tmp_path: Path) -> None:
    for seed in (0, 1):
        for method, source in (("hacpo", copy), ("gspo", copy.parent / "alone")):
            shutil.copytree(source, tmp_path / "runs2" / method / f"seed_{seed}")
            change(tmp_path / "runs2" / method / f"seed_{seed}", "seed", seed)
    run = tmp_path / "runs2" / "hacpo" / "seed_1"
    assert find_baseline(RunReader(run)) == tmp_path / "runs2" / "gspo" / "seed_1"


@pytest.mark.parametrize(
    ("key", "value"),
    [("seed", 7), ("task", {"name": "other"}), ("agents", [{"name": "ann", "model": "elsewhere"}])],
)
def test_other_agents_tasks_and_seeds_are_no_baseline(copy: Path, key: str, value: object) -> None:
    change(copy.parent / "alone", key, value)
    assert find_baseline(RunReader(copy)) is None


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"recipe": 3}'])
def test_neighbours_that_are_no_runs_are_passed_by(copy: Path, content: str) -> None:
    (copy.parent / "aaa").mkdir()
    (copy.parent / "aaa" / "config.json").write_text(content)
    assert find_baseline(RunReader(copy)) == copy.parent / "alone"


def test_a_baseline_without_an_agent_is_refused(copy: Path) -> None:
    change(copy.parent / "alone", "agents", [{"name": "ann", "model": "m"}, {"name": "bob", "model": "m"}])
    with pytest.raises(ValueError, match=r"--baseline .*alone: it has no agent cy"):
        baseline_data(copy.parent / "alone", RunReader(copy))
