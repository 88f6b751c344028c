from collections import defaultdict

import pytest

from benchmarks.timing import Spread
from benchmarks.waiting import STEPS, Teams, compared, waiting_table
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
    assert waiting_table(Teams(found, found)).rows[0] == (
        "two large agents",
        "900",
        "1,050",
        "1.25 (1.00 to 1.50)",
        "1.17 (1.00 to 1.33)",
    )
