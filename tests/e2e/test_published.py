"""Every rival trains whole teams, with different tokenizers where it is defined for them."""

import json
import math

import pytest

from helpers_train import final_weights, make_agent, metrics, recipe, run


@pytest.fixture(scope="module")
def agents(tmp_path_factory):
    folder = tmp_path_factory.mktemp("published methods")
    return {
        "ada": make_agent(folder / "ada", 1),
        "bob": make_agent(folder / "bob", 2, arch="qwen3", width=48),
        "eve": make_agent(folder / "eve", 3, cut="digit-pairs"),
    }


@pytest.mark.parametrize("name", ["ftis", "sgt", "swarm", "luffy", "graft", "sft_strongest"])
def test_peers_responses_pull_learners_of_other_tokenizers_too(name, agents, tmp_path):
    out = tmp_path / name
    run(recipe(agents, method=name, steps=3, samples_per_prompt=2, prompts_per_step=16), out)
    updates = [
        json.loads(line)
        for path in sorted(out.glob("updates/*.jsonl"))
        for line in path.read_text().splitlines()[1:]
    ]
    pulled = {
        (source, update["learner"])
        for update in updates
        for source, coefficient in zip(update["source"], update["coefficient"], strict=True)
        if source != update["learner"] and coefficient
    }
    assert any("eve" in pair for pair in pulled)
    assert all(math.isfinite(value) for line in metrics(out) for key, value in line.items() if "loss" in key)


@pytest.mark.parametrize("name", ["xgrpo", "opd", "mopd"])
def test_own_responses_teach_otherwise_than_alone(name, agents, tmp_path):
    """`xgrpo` for every agent, `opd` for every agent but the strongest; with another tokenizer, too."""
    team = {agent: agents[agent] for agent in ("ada", "eve")}
    for method in (name, "gspo"):
        run(recipe(team, method=method, steps=1), tmp_path / method)
    changed = [
        agent
        for agent in team
        if any(
            not weights.equal(final_weights(tmp_path / "gspo", agent)[key])
            for key, weights in final_weights(tmp_path / name, agent).items()
        )
    ]
    assert len(changed) >= (2 if name == "xgrpo" else 1)
    assert name != "opd" or len(changed) == 1
