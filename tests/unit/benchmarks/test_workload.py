import json
from dataclasses import asdict, replace

import pytest

from benchmarks import two_cores, waiting
from benchmarks.our_step import OurSide
from benchmarks.workload import Workload, workload_from_json
from helpers_benchmarks import TINY


def test_a_workload_survives_json() -> None:
    assert workload_from_json(json.dumps(asdict(TINY))) == TINY


@pytest.mark.parametrize("work", [two_cores.WORK, waiting.LARGE, waiting.SMALL])
def test_where_steps_are_repeated_their_responses_keep_their_lengths(work: Workload) -> None:
    side = OurSide(replace(TINY, learning_rate=work.learning_rate), "fused")
    before = side.sample(0)
    for step in range(10):
        side.step(step)
    for old, new in zip(before, side.sample(0), strict=True):
        assert new.token_ids == old.token_ids
        assert new.token_logps == pytest.approx(old.token_logps, abs=1e-6)
