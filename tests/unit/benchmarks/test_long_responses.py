import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks import long_responses
from benchmarks.long_responses import LONGEST, SIZE, _Reply, app


def test_the_most_of_any_rank_is_shown_beside_what_logits_and_scores_would_take(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = []

    def ranks(tokens: int, count: int) -> list[_Reply]:
        asked.append((tokens, count))
        used = {"decode": "FusedDecoder", "train": "ShardedScorer"}
        return [_Reply(used, (500.0, 510.0, tokens / 2)), _Reply(used, (490.0, 520.0, tokens / 4))]

    monkeypatch.setattr(long_responses, "_run", ranks)
    result = CliRunner().invoke(app, ["--markdown", "--json", str(tmp_path / "figures.json")])
    assert result.exit_code == 0, result.output
    assert asked == [(2048, 2), (4096, 2), (8192, 2), (16_384, 2)]
    assert "2 ranks, FusedDecoder and ShardedScorer" in result.stdout
    assert "| 16,384 | 500 | 520 | 8,192 | 2,048 | 1,024 |" in result.stdout
    last = json.loads((tmp_path / "figures.json").read_text())["points"][-1]
    assert last["logits"] * 2**20 == 4 * LONGEST * SIZE.vocab
    assert last["scores"] * 2**20 == 4 * LONGEST * LONGEST
