from collections import defaultdict

import pytest

from hacrl.bench.peer.result import Spread
from hacrl.bench.waiting import STEPS, Teams, compared, waiting_tables, with_interval
from hacrl.training.step_record import StepRecord


def stretch(step_seconds: float, *phases: tuple[float, float]) -> list[StepRecord]:
    """Steps that repeat what agents a and b take for drawing; each learns for a second."""
    return [
        StepRecord(
            step,
            elapsed=step_seconds,
            seconds=defaultdict(
                float,
                {"sample/a": a, "sample/b": b, "update/a": 1.0, "update/b": 1.0, "verify": 9.0},
            ),
        )
        for step in range(STEPS)
        for a, b in [phases[step % len(phases)]]
    ]


def test_ratios_are_within_a_round_and_the_bound_is_what_the_slowest_costs():
    in_turns, always_b = stretch(6.0, (1.0, 3.0), (3.0, 1.0)), stretch(3.0, (1.0, 2.0))
    free = [stretch(4.0, (0.0, 0.0)), stretch(3.0, (0.0, 0.0))]
    found = compared([in_turns, always_b], free, "ab")
    assert found.synchronous == Spread(900.0, 600.0, 1200.0)
    assert found.asynchronous == Spread(1050.0, 900.0, 1200.0)
    assert found.gain == Spread(1.25, 1.0, 1.5)
    # In turns: 3 + 1 seconds per step, but 2 + 1 of each agent on average. Always b: b never waits.
    assert found.bound == Spread(pytest.approx(7 / 6), 1.0, pytest.approx(4 / 3))
    [table] = waiting_tables(Teams(found, found))
    assert table.rows[0] == (
        "two large agents",
        "900",
        "1,050",
        "1.25 (1.00 to 1.50)",
        "1.17 (1.00 to 1.33)",
    )


@pytest.mark.parametrize(("count", "cut"), [(1, 0), (5, 0), (6, 0), (8, 0), (9, 1), (15, 3), (20, 5)])
def test_the_interval_is_that_of_the_sign_test(count: int, cut: int):
    """Tables of the binomial: of 15 values the fourth from either end, of 20 the sixth."""
    values = [float(n) for n in range(count)]
    assert with_interval(values[::-1]) == Spread((count - 1) / 2, cut, count - 1 - cut)
