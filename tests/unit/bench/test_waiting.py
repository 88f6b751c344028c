from collections import defaultdict

import pytest

from hacrl.bench.peer.result import Spread
from hacrl.bench.waiting import Waiting, _way, waiting_tables
from hacrl.training.train import StepRecord


def stretch(step_seconds: float, sample: float, update: float) -> list[StepRecord]:
    """Four equal steps."""
    seconds = defaultdict(float, {"sample/small": sample, "update/small": update, "wait/small": 9.0})
    return [StepRecord(step, elapsed=step_seconds, seconds=seconds) for step in range(4)]


def test_steps_per_hour_and_who_works_are_of_whole_stretches():
    waited = _way([stretch(2.0, 0.5, 0.5), stretch(4.0, 0.5, 0.5)], ["small"])
    assert waited.steps_per_hour == Spread(1350.0, 900.0, 1800.0)
    assert waited.busy["small"] == Spread(pytest.approx(0.375), 0.25, 0.5)
    free = _way([stretch(1.0, 0.5, 0.25)], ["small"])
    [table] = waiting_tables(Waiting(waited, free, Spread(2.0, 1.5, 2.5)))
    assert table.header == ("", "steps per hour", "gain", "small at work")
    assert table.rows == [
        ("synchronous", "1,350", "", "38%"),
        ("asynchronous", "3,600", "2.00 (1.50 to 2.50)", "75%"),
    ]
