import pytest

from benchmarks import two_cores
from benchmarks.timing import Spread
from benchmarks.two_cores import TwoCores, measure_two_cores, two_cores_table
from helpers_benchmarks import TINY


def test_the_gain_of_two_agents_is_shown_with_its_range() -> None:
    found = TwoCores(Spread(1.0, 1.0, 1.0), Spread(1.9, 1.8, 2.0), Spread(1.9, 1.8, 2.0))
    assert two_cores_table(found).rows == [
        ("one agent, one core", "1.00", ""),
        ("two agents, two cores", "1.90", "1.90 (1.80 to 2.00)"),
    ]


@pytest.mark.slow
def test_two_workers_run_side_by_side() -> None:
    found = measure_two_cores(TINY, repeats=1)
    assert found.gain.median == pytest.approx(found.together.median / found.alone.median)


@pytest.mark.slow
def test_a_worker_that_ends_early_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(two_cores, "_work", print)  # says what it is asked, and ends
    with pytest.raises(RuntimeError, match="a worker ended early"):
        measure_two_cores(TINY, repeats=1)
