"""The benchmarks of pools: everything that is written arrives."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import pool
from benchmarks.pool import PoolCosts, measure_exchange, measure_reopening, pool_table
from benchmarks.pool_learning import AGENTS, Learning, learning_table
from benchmarks.timing import Spread


def test_an_exchange_reads_what_the_others_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pool, "RESPONSES", 16)
    seconds, size = measure_exchange(str(tmp_path), 2)
    assert seconds.low > 0
    assert 7 * 16 * 4096 < size < 7 * 16 * 5000


def test_a_large_pool_is_read_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pool, "NEW", 80)
    assert measure_reopening(tmp_path, 800, 1).median > 0
    assert sum(len(path.read_bytes().splitlines()) for path in tmp_path.iterdir()) == 800


def test_tables():
    costs = PoolCosts(Spread(2.0, 1.0, 3.0), 17.0, 400.0, 0.005, 10**6, Spread(0.5, 0.4, 0.6))
    assert ("share of the step", "0.50%") in pool_table(costs).rows
    found = learning_table(Learning({"alone": {agent: [0.4, 0.5, 0.6] for agent in AGENTS}}))
    assert found.rows[0] == ("sorter", "0.500 [0.252, 0.748]")
