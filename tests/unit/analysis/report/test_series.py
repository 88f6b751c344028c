"""Columns of long runs are thinned evenly, and evaluations stay."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from hacrl.analysis.report.series import MOST_EVALUATIONS, MOST_STEPS, columns, spread


@given(st.integers(0, 3000), st.integers(2, 500))
def test_spread_is_even_and_keeps_both_ends(count: int, most: int) -> None:
    items = list(range(count))
    chosen = spread(items, most)
    assert chosen == sorted(set(chosen))
    assert len(chosen) == min(count, most)
    if count:
        assert (chosen[0], chosen[-1]) == (0, count - 1)
    gaps = {b - a for a, b in pairwise(chosen)}
    assert not gaps or max(gaps) - min(gaps) <= 1


def test_long_runs_keep_their_evaluations() -> None:
    metrics = [{"step": step, "time/step": step / 7} for step in range(1, 5001)]
    for line in metrics[999::1000]:
        line["agent/a/eval/t/greedy"] = line["step"] / 5000
    found = columns(metrics)
    assert MOST_STEPS <= len(found["steps"]) <= MOST_STEPS + MOST_EVALUATIONS
    values = dict(zip(found["steps"], found["series"]["agent/a/eval/t/greedy"], strict=True))
    assert {step: value for step, value in values.items() if value} == {
        1000: 0.2, 2000: 0.4, 3000: 0.6, 4000: 0.8, 5000: 1.0
    }  # fmt: skip
    assert found["series"]["time/step"][-1] == 714.286


def test_wanted_keys_alone() -> None:
    found = columns([{"step": 1, "a": 1.0, "b": 2.0}, {"step": 2, "b": 3.0}], lambda key: key == "b")
    assert found == {"steps": [1, 2], "series": {"b": [2.0, 3.0]}}
