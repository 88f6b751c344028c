import pytest

from hacrl.bench import scaling
from hacrl.bench.peer.result import Spread
from hacrl.bench.scaling import Point, Scaling, scaling_tables
from hacrl.bench.two_cores import TwoCores, measure_two_cores
from helpers_peer import TINY

ONE = Spread(1.0, 1.0, 1.0)


def test_the_curves_reach_the_longest_promised_answers_on_four_layers() -> None:
    longest = scaling.POINTS["response tokens"][-1]
    assert (longest.max_new, longest.size.layers, longest.eos_hazard) == (4096, 4, 0.0)


def test_a_curve_shows_cost_and_work_per_token() -> None:
    points = [Point("prompts", 4, seconds=0.5, tokens=1000, flops=2_000_000_000)]
    prompts, _, _, cores = scaling_tables(
        Scaling(points, TwoCores(ONE, Spread(1.9, 1.8, 2.0), Spread(1.9, 1.8, 2.0)))
    )
    assert prompts.rows == [("4", "0.500", "500", "2.00", "4.0")]
    assert cores.rows[1] == ("two agents, two cores", "1.90", "1.90 (1.80 to 2.00)")


@pytest.mark.slow
def test_two_workers_run_side_by_side() -> None:
    found = measure_two_cores(TINY, rounds=1)
    assert found.gain.median == pytest.approx(found.together.median / found.alone.median)
