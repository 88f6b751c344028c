"""Unusual runs: unfinished, just started, long, with the same name; and directories without a run."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from hacrl.analysis.report import report_data, write_report
from hacrl.analysis.report.responses import BUDGET
from hacrl.runs.files import StorageError
from helpers_report import lines

MOST = 3_000_000


def test_an_unfinished_run_is_shown_as_far_as_it_is(copy: Path) -> None:
    (copy / "summary.json").unlink()
    with (copy / "metrics.jsonl").open("a") as file:
        file.write('{"step": 7, "agent/ann/accur')  # being written
    run = report_data([copy])["runs"][0]
    assert (run["finished"], run["outcomes"], run["step"]) == (False, None, 6)


def test_a_run_before_its_first_step(copy: Path) -> None:
    for name in ("metrics.jsonl", "summary.json"):
        (copy / name).unlink()
    for path in [*(copy / "trajectories").iterdir(), *(copy / "updates").iterdir()]:
        path.unlink()
    run = report_data([copy])["runs"][0]
    assert (run["step"], run["series"], run["ratios"], run["responses"]) == (0, {}, None, None)


def test_warnings_are_passed_on(copy: Path) -> None:
    (copy / "warnings.jsonl").write_text(json.dumps({"step": 3, "message": "<b>flat</b>"}) + "\n")
    assert report_data([copy])["runs"][0]["warnings"] == [{"step": 3, "message": "<b>flat</b>"}]


def test_runs_have_different_names(copy: Path) -> None:
    other = copy.parent.parent / "more" / "together"
    other.parent.mkdir()
    copy.rename(other)
    alone = copy.parent / "alone"
    (copy.parent / "together").symlink_to(alone)
    assert [run["name"] for run in report_data([other, alone])["runs"]] == ["together", "alone"]


def test_a_directory_without_a_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"holds no run \(no config.json\)"):
        report_data([tmp_path])


def test_two_hundred_steps_of_four_agents_stay_below_three_megabytes(copy: Path) -> None:
    """All metrics of such a run, and responses up to the budget."""
    metrics = lines(copy / "metrics.jsonl")
    names = [*("ann", "bob", "cy"), "dee"]
    keys = set().union(*metrics[1:]) - {"step"}
    agent = {key.removeprefix("agent/ann/") for key in keys if key.startswith("agent/ann/")}
    pair = {key.removeprefix("cross/ann->bob/") for key in keys if key.startswith("cross/ann->bob/")}
    every = [f"agent/{name}/{key}" for name in names for key in agent]
    every += [f"cross/{j}->{k}/{key}" for j in names for k in names if j != k for key in pair]
    every += [f"time/{phase}/{name}" for name in names for phase in ("sample", "update", "tokens_per_second")]
    draw = random.Random(0)
    with (copy / "metrics.jsonl").open("w") as file:
        for step in range(1, 201):
            file.write(json.dumps({"step": step, **{key: draw.random() for key in every}}) + "\n")
    assert len(every) > 250
    report = write_report(copy)
    responses = len(json.dumps(report_data([copy])["runs"][0]["responses"], separators=(",", ":")))
    assert report.stat().st_size - responses + 1.3 * BUDGET < MOST
