"""When checkpoints are written: a fixed number of steps apart, or as often as 5% of the time allows."""

from __future__ import annotations

import pytest

from hacrl.runs.checkpoints import SaveCost
from hacrl.training.cadence import SHARE, SMALL, Cadence


def saved_steps(
    every: object, cost: SaveCost, steps: int, seconds: float, in_background: int = 0
) -> list[int]:
    """The steps a run saves whose steps take `seconds`; a checkpoint is finished some steps later."""
    now, last = [0.0], [-steps]

    def found() -> SaveCost | None:
        return cost if step - last[0] > in_background else None

    cadence = Cadence(every, found, lambda: now[0])  # type: ignore[arg-type]
    saved = []
    for step in range(1, steps + 1):
        now[0] += seconds
        if cadence.due(step):
            now[0] += cost.seconds
            last[0] = step
            saved.append(step)
            cadence.saved()
    return saved


@pytest.mark.parametrize("every", [1, 3, 10])
def test_a_fixed_number_of_steps_whatever_they_cost(every: int) -> None:
    assert saved_steps(every, SaveCost(1e6, 10**12), 12, 1.0) == list(range(every, 13, every))


def test_small_checkpoints_are_written_after_every_step() -> None:
    assert saved_steps("auto", SaveCost(1e6, SMALL), 6, 1.0) == [1, 2, 3, 4, 5, 6]


def test_large_ones_wait_until_they_are_a_small_part_of_the_time() -> None:
    """A save of 2 s has to be followed by 40 s of training: four steps of 10 s."""
    assert saved_steps("auto", SaveCost(2.0, SMALL + 1), 13, 10.0) == [1, 5, 9, 13]
    assert saved_steps("auto", SaveCost(0.5, SMALL + 1), 3, 10.0) == [1, 2, 3]


def test_none_begins_while_another_is_being_written() -> None:
    assert saved_steps("auto", SaveCost(0.5, SMALL + 1), 7, 10.0, in_background=2) == [1, 4, 7]


@pytest.mark.parametrize("seconds", [0.3, 7.0, 100.0])
def test_the_share_of_the_time_is_kept(seconds: float) -> None:
    cost = SaveCost(11.0, SMALL + 1)
    saves = len(saved_steps("auto", cost, 5000, seconds)) - 1  # the first one measures the cost
    assert saves * cost.seconds <= SHARE * 5000 * seconds
