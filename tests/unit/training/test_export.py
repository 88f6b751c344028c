"""Model cards: how the agent was trained, with whom, and what was measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helpers_train import make_agent, recipe, run


def test_the_card_says_how_prompts_were_written(tmp_path: Path) -> None:
    values = recipe({"ann": make_agent(tmp_path / "ann", 0)}, steps=1, evaluation={"prompts": 3})
    values["agents"][0]["prompt_template"] = "1+1=2, {prompt}"
    values["sampling"] = {"max_new_tokens": 3, "stop": ["\n"]}
    run(values, tmp_path / "run")
    card = (tmp_path / "run" / "agents" / "ann" / "README.md").read_text()
    assert '- prompts: `{"prompt_template": "1+1=2, {prompt}", "stop": ["\\n"]}`' in card


@pytest.mark.parametrize("method", ["hacpo", "gspo"])
def test_the_card_says_what_the_run_did(tmp_path: Path, method: str) -> None:
    agents = {name: make_agent(tmp_path / name, seed) for seed, name in enumerate(("ann", "bob"))}
    run(recipe(agents, steps=2, method=method, evaluation={"prompts": 6, "samples": 2}), tmp_path / "run")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())["agents"]["ann"]
    card = (tmp_path / "run" / "agents" / "ann" / "README.md").read_text()
    assert f"from `ann` on the task `digits` with the method `{method}`" in card
    peers = "its own responses and those of bob (`bob`)"
    assert ("learned from: " + (peers if method == "hacpo" else "its own responses alone")) in card
    assert "2 steps of 4 prompts, 4 responses each at temperature 1, at most 6 tokens, seed 0" in card
    assert f"{summary['rollouts']:,} rollouts" in card
    for measure, name in (("greedy", "greedy"), ("mean_at_k", "mean@2"), ("pass_at_k", "pass@2")):
        before, after = (summary[moment]["digits"][measure] for moment in ("before", "after"))
        shown = [
            f"{share['mean']:.3f} [{share['low']:.3f}, {share['high']:.3f}]" for share in (before, after)
        ]
        assert f"| digits | {name} | {shown[0]} | {shown[1]} | 6 |" in card
    assert str(tmp_path) not in card
