"""Score a JSONL file of responses: the work of `hacrl verify`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hacrl.rewards.processes import Limits
from hacrl.rewards.rewarder import Reward, Rewarder
from hacrl.rewards.scores import Score
from hacrl.types import Prompt

MAX_REPORTED = 20
"""At most this many bad rows are listed."""


def read_rows(file: Path, gold: str, response: str) -> list[dict[str, Any]]:
    """All rows, each with a reference and a response; if some are bad, one error that lists them."""
    rows, bad = [], []
    with file.open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                rows.append(_read_row(line, gold, response))
            except ValueError as error:
                bad.append(f"{file}:{number}: {error}")
    if bad:
        more = [f"... and {len(bad) - MAX_REPORTED} more"] if len(bad) > MAX_REPORTED else []
        raise ValueError("\n".join(["these rows cannot be scored:", *bad[:MAX_REPORTED], *more]))
    if not rows:
        raise ValueError(f"{file}: there are no rows")
    return rows


def _read_row(line: str, gold: str, response: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(row, dict):
        raise ValueError(f"not an object but {type(row).__name__}")
    for column, option in ((gold, "--gold"), (response, "--response")):
        if row.get(column) is None:
            raise ValueError(f"no column {column!r} (it has {', '.join(row)}); name the column with {option}")
    if not isinstance(row[response], str):
        raise ValueError(f"column {response!r} is not text but {type(row[response]).__name__}")
    return row


def score_rows(
    rows: Sequence[Mapping[str, Any]], verifier: str, gold: str, response: str, deadline: float, workers: int
) -> list[Score]:
    """One score per row."""
    prompts = [Prompt(str(number), "", columns={gold: row[gold]}) for number, row in enumerate(rows, start=1)]
    reward = Reward(verifier, gold=gold)
    with Rewarder([reward], limits=Limits(deadline), workers=workers, max_unscorable=1.0) as rewarder:
        return rewarder.score(prompts, [row[response] for row in rows], [()] * len(rows))


def summarise(scores: Sequence[Score]) -> dict[str, Any]:
    """Accuracy is the mean reward of the rows that could be scored; None when there are none."""
    rewards = [score.reward for score in scores if score.reward is not None]
    causes = Counter(score.cause for score in scores if score.cause is not None)
    return {
        "rows": len(scores),
        "scored": len(rewards),
        "accuracy": sum(rewards) / len(rewards) if rewards else None,
        "unscorable": dict(causes.most_common()),
    }


def write_rows(file: Path, rows: Sequence[Mapping[str, Any]], scores: Sequence[Score]) -> None:
    """Write the rows, each with its reward, or the cause if it has none."""
    with file.open("w", encoding="utf-8") as lines:
        for row, score in zip(rows, scores, strict=True):
            scored = {**row, "reward": score.reward, "cause": score.cause}
            lines.write(json.dumps(scored, ensure_ascii=False) + "\n")


def write_json(file: Path, summary: Mapping[str, Any]) -> None:
    """Write the summary as JSON."""
    file.write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
