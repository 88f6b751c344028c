"""Every number of a report, computed again from the run's own files."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from hacrl.analysis.report import series, write_report
from hacrl.training import evaluation as evaluate
from helpers_report import NAMES, lines, page_data


@pytest.fixture(scope="module")
def shown(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    page = write_report(finished, tmp_path_factory.mktemp("page") / "report.html")
    data = page_data(page.read_text())
    assert len(data["runs"]) == 1
    run: dict[str, Any] = data["runs"][0]
    return run


def same_curves(shown: dict[str, Any], metrics: list[dict[str, Any]], some: str = "") -> int:
    """Compares every value of every column with the metrics; returns how many there were."""
    assert shown["steps"] == [line["step"] for line in metrics]
    expected = {key for line in metrics for key in line if key != "step"}
    assert set(shown["series"]) == expected if not some else set(shown["series"]) < expected
    compared = 0
    for key, column in shown["series"].items():
        for value, line in zip(column, metrics, strict=True):
            assert value == (pytest.approx(line[key], rel=1e-5) if key in line else None), key
            compared += 1
    return compared


def test_measures_are_those_of_evaluations() -> None:
    assert series.MEASURES == evaluate.MEASURES


def test_curves_are_the_metrics(shown: dict[str, Any], finished: Path) -> None:
    metrics = lines(finished / "metrics.jsonl")
    assert same_curves(shown, metrics) > 7 * 100
    assert (shown["step"], shown["lines"], shown["finished"]) == (6, len(metrics), True)


def test_the_baseline_is_the_run_beside(shown: dict[str, Any], finished: Path) -> None:
    baseline = shown["baseline"]
    assert (baseline["name"], baseline["method"]) == ("alone", "gspo")
    assert same_curves(baseline, lines(finished.parent / "alone" / "metrics.jsonl"), "curves") > 7 * 3
    for name in NAMES:
        assert {f"agent/{name}/accuracy", f"agent/{name}/reward"} <= set(baseline["series"])


@pytest.mark.parametrize("which", ["together", "alone"])
def test_results_are_the_summary(shown: dict[str, Any], finished: Path, which: str) -> None:
    summary = json.loads((finished.parent / which / "summary.json").read_text())
    results = shown["outcomes"] if which == "together" else shown["baseline"]["outcomes"]
    assert set(results) == set(NAMES)
    for name, agent in summary["agents"].items():
        for cost in ("rollouts", "generated_tokens", "trained_tokens", "updates"):
            assert results[name][cost] == agent[cost]
        for task, after in agent["after"].items():
            for moment, evaluation in (("before", agent["before"][task]), ("after", after)):
                for measure in ("greedy", "mean_at_k", "pass_at_k"):
                    assert results[name]["tasks"][task][moment][measure] == pytest.approx(
                        evaluation[measure], rel=1e-5
                    )
    assert shown["seconds"] == json.loads((finished / "summary.json").read_text())["seconds"]


def test_histograms_count_the_update_log(shown: dict[str, Any], finished: Path) -> None:
    ratios = shown["ratios"]
    first, width = ratios["first"], ratios["width"]
    for pair, periods in ratios["counts"].items():
        source, learner = pair.split("->")
        for (begin, end), counts in zip(ratios["periods"], periods, strict=True):
            expected: Counter[int] = Counter()
            for step in range(begin, end + 1):
                for update in lines(finished / "updates" / f"step_{step:06d}.jsonl")[1:]:
                    if update["learner"] == learner:
                        for drawn_by, ratio in zip(update["source"], update["ratio"], strict=True):
                            if drawn_by == source and ratio is not None:
                                place = int((ratio + 1e-9 - first) // width)
                                expected[min(len(counts) - 1, max(0, place))] += 1
            assert counts == [expected[place] for place in range(len(counts))], pair
    assert min(sum(map(sum, periods)) for periods in ratios["counts"].values()) > 50


def test_effective_weights_are_shares_of_the_coefficients(shown: dict[str, Any], finished: Path) -> None:
    coefficients = shown["ratios"]["coefficients"]
    for place, step in enumerate(coefficients["steps"]):
        total: dict[str, float] = defaultdict(float)
        by_pair: dict[str, float] = defaultdict(float)
        for update in lines(finished / "updates" / f"step_{step:06d}.jsonl")[1:]:
            for source, value in zip(update["source"], update["coefficient"], strict=True):
                total[update["learner"]] += abs(value) / len(update["coefficient"])
                by_pair[f"{source}->{update['learner']}"] += abs(value) / len(update["coefficient"])
        for pair, column in coefficients["shares"].items():
            learner = pair.split("->")[1]
            expected = by_pair[pair] / total[learner] if total[learner] else None
            assert column[place] == (None if expected is None else pytest.approx(expected, rel=1e-5))


def test_responses_are_the_trajectories(shown: dict[str, Any], finished: Path) -> None:
    data = shown["responses"]
    kept = {
        (line["step"], line["prompt_id"], line["source"], line["sample"]): line
        for path in (finished / "trajectories").glob("step_*.jsonl")
        for line in lines(path)
    }
    assert data["in_all_of_steps"] == len(kept) == len(data["rows"])  # a tiny run fits completely
    for row in data["rows"]:
        line = kept.pop((row["step"], row["prompt"], NAMES[row["agent"]], row["sample"]))
        assert (row["text"], row["reward"]) == (line["text"], line["reward"])
        assert row["tokens"] == len(line["token_ids"]) == len(row["pieces"])
        assert sum(row["pieces"]) == len(row["text"])
        assert [logp / -100 for logp in row["logps"]] == pytest.approx(line["token_logps"], abs=0.0051)
        assert row["mean"] == pytest.approx(sum(line["token_logps"]) / len(line["token_logps"]), abs=1e-4)
        assert data["prompts"][row["prompt"]]["text"]
        assert {use[0] for use in row["updates"]} == {0, 1, 2}  # everybody received from everybody
    assert not kept


def test_updates_of_responses_are_those_kept(shown: dict[str, Any], finished: Path) -> None:
    kept = {}
    for step in range(1, 7):
        for line in lines(finished / "updates" / f"step_{step:06d}.jsonl")[1:]:
            for i, (source, prompt, sample) in enumerate(
                zip(line["source"], line["prompt_id"], line["sample"], strict=True)
            ):
                kept[step, line["learner"], source, prompt, sample] = line, i
    for row in shown["responses"]["rows"]:
        for learner, update, place, *numbers in row["updates"]:
            line, i = kept.pop(
                (row["step"], NAMES[learner], NAMES[row["agent"]], row["prompt"], row["sample"])
            )
            assert update == line["update"]
            assert [None, "inside", "below", "above"][place] == line["place"][i]
            for number, column in zip(numbers, ("advantage", "omega", "ratio", "coefficient"), strict=True):
                value = line[column][i]
                assert number == (None if value is None else pytest.approx(value, rel=1e-3, abs=1e-9))
    assert not kept
