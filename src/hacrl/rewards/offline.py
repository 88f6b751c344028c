"""Score a JSONL file of responses: the work of `hacrl verify`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hacrl.printable import printable
from hacrl.rewards.processes import Limits
from hacrl.rewards.rewarder import Reward, Rewarder
from hacrl.rewards.scores import Score
from hacrl.runs.files import write_atomic
from hacrl.types import Prompt

MAX_REPORTED = 20
"""At most this many bad rows are listed."""


def read_rows(file: Path, gold: str, response: str) -> list[dict[str, Any]]:
    """All rows, each with a reference and a response; if some are bad, one error that lists them."""
    if not file.is_file():
        raise ValueError(f"{file} is not a regular file")  # reading a pipe or a device may never end
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
    except RecursionError:
        raise ValueError("not JSON that can be read: nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(row, dict):
        raise ValueError(f"not an object but {type(row).__name__}")
    for column, option in ((gold, "--gold"), (response, "--response")):
        if row.get(column) is None:
            columns = printable(", ".join(row), 200)
            raise ValueError(f"no column {column!r} (it has {columns}); name the column with {option}")
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
    """Write all rows, each with its reward, or the cause if it has none; nothing is written on an error."""
    lines = [
        _line({**row, "reward": score.reward, "cause": score.cause})
        for row, score in zip(rows, scores, strict=True)
    ]
    write_atomic(file, b"".join(lines))


def _line(row: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(row, ensure_ascii=False).encode() + b"\n"
    except UnicodeEncodeError:  # half of a surrogate pair, which only an escape sequence can express
        return json.dumps(row).encode() + b"\n"
