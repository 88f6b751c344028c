import dataclasses
import json
from collections.abc import Iterator

import pytest

from benchmarks.memory import Memory
from benchmarks.our_step import ENGINES
from benchmarks.trl import compare
from benchmarks.trl.result import Comparison, comparison_tables
from helpers_benchmarks import TINY

pytest.importorskip("trl", reason='TRL is not installed: pip install "hacrl[bench]"')


@pytest.fixture(scope="module")
def found() -> Iterator[Comparison]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compare, "measure_memory", lambda work, side: Memory(peak=2.0, after_imports=1.0))
        yield compare.compare_with_trl(dataclasses.replace(TINY, replay=True), repeats=1)


def test_every_side_is_measured_and_agrees(found: Comparison) -> None:
    assert [side.name for side in found.sides] == ["trl", *ENGINES]
    assert found.agrees
    assert max(check.difference for check in found.parity if check.quantity == "loss") < 5e-6
    for side in found.sides:
        parts = side.generate.median + side.update.median + side.other.median
        assert parts == pytest.approx(side.total.median)


def test_replayed_sides_train_on_the_same_tokens(found: Comparison) -> None:
    tokens = {round(side.tokens_per_second.median * side.total.median) for side in found.sides}
    assert len(tokens) == 1
    shares = {
        round(side.gemm_share.median * side.total.median * found.gemm_gflops.median, 9)
        for side in found.sides
    }
    assert len(shares) == 1


def test_the_json_has_everything_the_tables_show(found: Comparison) -> None:
    data = json.loads(json.dumps(dataclasses.asdict(found)))
    assert set(data) == {
        "workload",
        "parameters",
        "repeats",
        "environment",
        "gemm_gflops",
        "sides",
        "parity",
    }
    assert data["workload"]["size"]["hidden"] == TINY.size.hidden
    assert set(data["environment"]) == {"cpu", "python", "hacrl", "trl", "transformers", "torch"}
    assert set(data["sides"][0]["speedup"]) == {"median", "low", "high"}
    assert data["sides"][0]["speedup"] == {"median": 1.0, "low": 1.0, "high": 1.0}
    assert [len(table.rows) for table in comparison_tables(found)] == [
        1 + len(ENGINES),
        1 + len(ENGINES),
        4 * len(ENGINES),
    ]
