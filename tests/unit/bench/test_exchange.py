from __future__ import annotations

import pytest

from hacrl.bench import exchange


def test_every_agent_trains_on_every_response(monkeypatch: pytest.MonkeyPatch) -> None:
    """The measured step does the whole work: no response is left out for any of the learners."""
    batches = []

    def recording(*arguments: object) -> None:
        batches.append(build(*arguments))  # type: ignore[arg-type]

    build = exchange.build_batches
    monkeypatch.setattr(exchange, "build_batches", recording)
    assert exchange.measure_exchange(agents=3, prompts=4, samples=2, repeats=2) > 0
    assert len(batches) == 2 * 3
    for batch in batches:
        rows = [row for mini_batch in batch.mini_batches for row in mini_batch]
        assert (len(rows), sum(row.own for row in rows)) == (3 * 4 * 2, 4 * 2)
        assert not batch.left_out
