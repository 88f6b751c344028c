import pytest

from benchmarks.timing import Spread


def test_a_spread_is_the_median_with_its_range() -> None:
    spread = Spread.of([3.0, 1.0, 7.0, 2.0])
    assert spread == Spread(median=2.5, low=1.0, high=7.0)
    assert f"{spread:.2f}" == "2.50 (1.00 to 7.00)"


@pytest.mark.parametrize(("count", "cut"), [(1, 0), (5, 0), (6, 0), (8, 0), (9, 1), (15, 3), (20, 5)])
def test_the_interval_is_that_of_the_sign_test(count: int, cut: int) -> None:
    """Tables of the binomial: of 15 values the fourth from either end, of 20 the sixth."""
    values = [float(n) for n in range(count)]
    assert Spread.with_interval(values[::-1]) == Spread((count - 1) / 2, cut, count - 1 - cut)
