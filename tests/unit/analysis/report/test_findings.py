"""Findings name the symptoms in a run's last steps, and nothing else."""

from __future__ import annotations

from hacrl.analysis.report.findings import findings, regressions
from hacrl.methods.hacpo import HACPO_SYMPTOMS
from hacrl.symptoms import with_own

SYMPTOMS = list(with_own(HACPO_SYMPTOMS).values())
WELL = {
    "agent/a/frac_reward_zero_std": [0.3] * 12,
    "agent/a/accuracy": [0.0, 0.4] + [0.5] * 10,
    "agent/a/completions/clipped_ratio": [0.5, 0.5] + [0.0] * 10,
    "agent/a/unscored": [0] * 12,
    "cross/b->a/inside": [0.01, 0.02] + [0.4] * 10,
    "cross/a->b/inside": [0.3] * 12,
}


def test_a_healthy_run_has_none() -> None:
    assert findings(WELL, SYMPTOMS) == []


def test_each_symptom_is_found_in_the_last_steps() -> None:
    for key, column, word in (
        ("agent/a/frac_reward_zero_std", [0.1] * 2 + [0.9] * 10, "a: 90% of its prompts had equal rewards"),
        ("agent/a/accuracy", [0.5] * 2 + [0.0] * 10, "a: none of its responses was right"),
        ("agent/a/completions/clipped_ratio", [0.0] * 2 + [0.25] * 10, "25% of its responses were cut"),
        ("agent/a/unscored", [0] * 2 + [2] * 10, "could not be scored"),
        ("cross/b->a/inside", [0.9] * 2 + [0.01] * 10, "b->a: only 1.0% of the source's responses"),
    ):
        found = findings({**WELL, key: column}, SYMPTOMS)
        assert len(found) == 1
        assert word in found[0]["title"]
        assert len(found[0]["text"]) > 60


def test_a_regression_is_found_when_the_intervals_do_not_overlap() -> None:
    def outcome(low: float, high: float) -> dict[str, object]:
        before = {"greedy": {"mean": 0.5, "low": 0.45, "high": 0.55, "problems": 100}}
        after = {"greedy": {"mean": (low + high) / 2, "low": low, "high": high, "problems": 100}}
        return {"a": {"tasks": {"t": {"samples": 0, "before": before, "after": after}}}}

    assert [finding["title"] for finding in regressions(outcome(0.3, 0.4))] == [
        "a got worse: greedy on t 0.500 to 0.350"
    ]
    assert regressions(outcome(0.4, 0.5)) == regressions(outcome(0.7, 0.8)) == regressions(None) == []
