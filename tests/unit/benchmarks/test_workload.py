import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from benchmarks import two_cores, waiting
from benchmarks.our_step import BEST, OurSide
from benchmarks.workload import Workload, workload_from_json
from hacrl.agents.updater import Updater
from hacrl.types import MiniBatch
from helpers_benchmarks import TINY, small_model


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


def test_a_step_in_half_precision_has_the_pass_that_training_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In fp32 the log-probs of sampling serve; in bf16 training scores own responses once more."""
    scored = []
    with_old_logps = Updater.with_old_logps

    def counted(updater: Updater, rows: MiniBatch) -> MiniBatch:
        scored.append(len(rows))
        return with_old_logps(updater, rows)

    monkeypatch.setattr(Updater, "with_old_logps", counted)
    model = small_model(tmp_path)
    for dtype, expected in (("float32", []), ("bfloat16", [8, 8])):
        work = replace(TINY, size=replace(model, dtype=dtype), prompts=4, samples=4, updates=2)
        OurSide(work, BEST).step(0)
        assert scored == expected
