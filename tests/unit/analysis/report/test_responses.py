"""Which responses are shown: a choice that their content cannot influence, within a budget."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from hacrl.analysis.report import responses
from hacrl.analysis.report.responses import response_data
from hacrl.runs.reader import RunReader
from helpers_report import lines


def rewrite(run: Path, change: Any) -> None:
    """Change every trajectory of a run."""
    for path in (run / "trajectories").glob("*.jsonl"):
        path.write_text("".join(json.dumps(change(line)) + "\n" for line in lines(path)))


def shown(run: Path) -> dict[str, Any]:
    data = response_data(RunReader(run))
    assert data is not None
    return data


def chosen(data: dict[str, Any]) -> list[tuple[int, str]]:
    return sorted({(row["step"], row["prompt"]) for row in data["rows"]})


def test_the_choice_does_not_depend_on_rewards(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(responses, "BUDGET", 40_000)
    before = shown(copy)
    rewrite(copy, lambda line: {**line, "reward": 1.0 - line["reward"]})
    after = shown(copy)
    assert chosen(before) == chosen(after)
    assert [row["reward"] for row in before["rows"]] != [row["reward"] for row in after["rows"]]
    assert 0 < len(before["rows"]) < before["in_all_of_steps"]


def test_every_step_shows_equally_many_whole_prompts(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(responses, "BUDGET", 60_000)
    data = shown(copy)
    prompts = chosen(data)
    per_step = [sum(step == one for step, _ in prompts) for one in data["steps"]]
    assert len(set(per_step)) == 1
    assert per_step[0] >= 1
    assert len(data["rows"]) == len(prompts) * 3 * 4  # three agents, four samples each


@pytest.mark.parametrize("characters", [10, 3_000, 20_000])
def test_long_responses_fit_the_budget(copy: Path, characters: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Characters, tokens and prompts grow; what is shown does not (but one prompt is always shown)."""
    monkeypatch.setattr(responses, "BUDGET", 250_000)

    def longer(line: dict[str, Any]) -> dict[str, Any]:
        draw = random.Random(line["sample"])
        text = (f"{draw.random()} \n" * characters)[:characters]
        tokens = characters // 4
        return {
            **line,
            "text": text,
            "token_ids": [5] * tokens,
            "token_logps": [-1.0 - draw.random()] * tokens,
        }

    rewrite(copy, longer)
    data = shown(copy)
    size = len(json.dumps(data["rows"], separators=(",", ":")))
    assert size < 1.3 * responses.BUDGET
    row = data["rows"][0]
    assert len(row["text"]) == min(characters, responses.LONGEST)
    assert row.get("characters") == (characters if characters > responses.LONGEST else None)
    assert row["tokens"] == characters // 4
    assert "pieces" not in row  # these tokens do not spell the text


def test_runs_without_an_update_log_still_show_responses(copy: Path) -> None:
    for path in (copy / "updates").iterdir():
        path.unlink()
    data = shown(copy)
    assert all(row["updates"] == [] for row in data["rows"])
    assert len(data["rows"]) == data["in_all_of_steps"]


def test_no_trajectories_no_browser(copy: Path) -> None:
    for path in (copy / "trajectories").iterdir():
        path.unlink()
    assert response_data(RunReader(copy)) is None
