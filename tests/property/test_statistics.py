"""What holds for every comparison."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hacrl.analysis.compare.statistics import ALPHA, compare, holm_levels, measure, verdict_of

p_values = st.lists(st.floats(0.0001, 1), min_size=1, max_size=12)


@st.composite
def differences(draw: st.DrawFn) -> np.ndarray:
    """[seed, problem] of the differences of two agents' mean 0/1 outcomes."""
    seeds, problems = draw(st.integers(2, 8)), draw(st.integers(1, 30))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    shift = draw(st.sampled_from([0.0, 0.1, 0.4]))
    return np.clip(rng.integers(-2, 3, (seeds, problems)) / 2 + shift, -1, 1)


@given(differences())
@settings(max_examples=50)
def test_the_other_way_round_is_the_mirror_image(values):
    there, back = measure(values).interval(), measure(-values).interval()
    assert (back.mean, back.low, back.high) == pytest.approx(
        (-there.mean, -there.high, -there.low), abs=1e-12
    )
    opposite = {"better": "worse", "worse": "better"}
    assert verdict_of(back) == opposite.get(verdict_of(there), "no difference seen")


@given(differences(), st.randoms(use_true_random=False))
@settings(max_examples=50)
def test_the_order_of_seeds_changes_nothing_and_that_of_problems_only_the_draws(values, random):
    seeds, problems = list(range(values.shape[0])), list(range(values.shape[1]))
    random.shuffle(seeds)
    random.shuffle(problems)
    before = measure(values).interval()
    by_seed, by_problem = measure(values[seeds]).interval(), measure(values[:, problems]).interval()
    assert (by_seed.low, by_seed.high) == pytest.approx((before.low, before.high), abs=1e-6)
    width = before.high - before.low
    assert by_problem.mean == pytest.approx(before.mean, abs=1e-12)
    assert by_problem.high == pytest.approx(before.high, abs=0.04 * width + 1e-9)


@given(differences(), st.floats(-0.5, 0.5))
@settings(max_examples=50)
def test_a_constant_moves_the_interval_and_nothing_else(values, constant):
    before, after = measure(values).interval(), measure(values + constant).interval()
    assert after.low == pytest.approx(before.low + constant, abs=1e-6)
    assert after.high == pytest.approx(before.high + constant, abs=1e-6)


@given(differences(), st.floats(0.002, 0.5))
@settings(max_examples=50)
def test_the_interval_holds_0_exactly_when_p_is_above_the_level(values, level):
    found = measure(values)
    interval = found.interval(level)
    assert (interval.low > 0 or interval.high < 0) == (found.p <= level)
    stricter = found.interval(level / 2)
    assert stricter.low <= interval.low
    assert stricter.high >= interval.high


@given(p_values)
def test_holm_rejects_at_least_what_bonferroni_does_and_at_most_what_no_correction_does(values):
    levels = holm_levels(values)
    for p, level in zip(values, levels, strict=True):
        assert ALPHA / len(values) <= level * (1 + 1e-12) <= ALPHA * (1 + 1e-9)
        assert p > ALPHA / len(values) or p <= level
    rejected = [p for p, level in zip(values, levels, strict=True) if p <= level]
    kept = [p for p, level in zip(values, levels, strict=True) if p > level]
    assert not rejected or not kept or max(rejected) < min(kept)


@given(p_values, st.data())
def test_a_smaller_p_never_loses_a_verdict(values, data):
    index = data.draw(st.integers(0, len(values) - 1))
    smaller = list(values)
    smaller[index] *= data.draw(st.floats(0.01, 1))
    before, after = holm_levels(values), holm_levels(smaller)
    for p, level, p_after, level_after in zip(values, before, smaller, after, strict=True):
        assert p > level or p_after <= level_after


def test_holm_by_hand():
    assert holm_levels([0.04, 0.001, 0.03, 0.015]) == pytest.approx([0.025, 0.0125, 0.025, 0.05 / 3])


def test_verdicts_of_a_family_come_from_the_corrected_intervals():
    rng = np.random.default_rng(0)
    noise = rng.normal(0, 0.05, (5, 50))
    family = {"much": noise + 0.5, "less": noise - 0.5, "none": noise - noise.mean()}
    found = compare(family)
    assert {key: difference.verdict for key, difference in found.items()} == {
        "much": "better",
        "less": "worse",
        "none": "no difference seen",
    }
    assert found["none"].interval.level == ALPHA
    alone = compare({"much": noise + 0.5})["much"].interval
    corrected = found["much"].interval
    assert corrected.low < alone.low
    assert corrected.high > alone.high


def test_two_copies_of_one_run_differ_in_nothing():
    found = compare({"copy": np.zeros((5, 40))})["copy"]
    assert (found.interval.low, found.interval.high, found.p) == (0, 0, 1)
    assert found.verdict == "no difference seen"


def test_one_seed_is_refused():
    with pytest.raises(ValueError, match="at least 2 seeds"):
        measure(np.ones((1, 10)))


def test_an_interval_needs_enough_draws():
    with pytest.raises(ValueError, match="too few"):
        measure(np.eye(3), draws=10).interval(0.001)
