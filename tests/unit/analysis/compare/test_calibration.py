"""Simulated methods: wrong verdicts are as rare as promised, and true differences are found."""

import pytest

from benchmarks.calibration import NULL_WORLDS, World, any_wrong_verdict, plain_bootstrap, verdict_shares


@pytest.mark.parametrize("name", ["as usual", "seeds differ much", "equal on average, not by problem"])
def test_two_equal_methods_differ_in_the_nominal_share_of_comparisons(name):
    better, worse = verdict_shares(NULL_WORLDS[name], 2000)
    assert 0.035 < better + worse < 0.065
    assert 0.015 < better < 0.035


@pytest.mark.parametrize("name", ["seeds hardly differ", "20 problems", "3 seeds", "10 seeds"])
def test_wrong_verdicts_are_no_more_frequent_in_odd_worlds(name):
    assert sum(verdict_shares(NULL_WORLDS[name], 1000)) < 0.065


def test_the_plain_bootstrap_would_be_wrong_twice_as_often():
    world = NULL_WORLDS["seeds differ much"]
    assert plain_bootstrap(world, 300, draws=200) > 0.09


def test_two_seeds_that_happen_to_agree_are_not_believed():
    assert sum(verdict_shares(World(seeds=2, problems=10), 1000)) < 0.03


def test_a_family_of_comparisons_is_wrong_as_rarely_as_one():
    assert any_wrong_verdict(World(), 300, methods=6) < 0.075


@pytest.mark.parametrize(("seeds", "power"), [(5, 0.85), (10, 0.99)])
def test_a_difference_of_seven_points_is_found(seeds, power):
    better, worse = verdict_shares(World(shift=0.4, seeds=seeds), 500)
    assert better > power
    assert worse == 0


def test_the_other_direction_is_called_worse():
    better, worse = verdict_shares(World(shift=-0.4), 500)
    assert better == 0
    assert worse > 0.85
