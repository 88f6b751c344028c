"""Whole runs of several agents: what changes a result, and what must not."""

import json
import os
import subprocess
import sys
from itertools import permutations

import pytest
import torch

from hacrl.agents.policy import Policy
from hacrl.recipe import RecipeError
from hacrl.recipe.settings import SamplingSettings
from hacrl.runs.files import StorageError
from hacrl.tasks import load
from hacrl.training.evaluation import evaluate
from hacrl.training.run import Stopped
from helpers_train import Silent, StopAt, final_weights, make_agent, metrics, outcome, recipe, run


@pytest.fixture(scope="session")
def agents(tmp_path_factory):
    """Different in weights, size, architecture and tokenizer."""
    folder = tmp_path_factory.mktemp("agents")
    return {
        "ada": make_agent(folder / "ada", 1),
        "bob": make_agent(folder / "bob", 2, arch="qwen3", width=48),
        "eve": make_agent(folder / "eve", 3, arch="gpt2", cut="digit-pairs"),
        "kim": make_agent(folder / "kim", 4, cut="digit-pairs"),
    }


def pair(agents):
    return {name: agents[name] for name in ("ada", "bob")}


CHOOSY = {
    "dynamic_sampling": 2,
    "sampling": {"max_new_tokens": 6, "stop": ["7", "ab"], "top_k": 40, "min_p": 0.01},
    "updates": {"mask_truncated": True},
}
"""Not all of what is drawn is trained on."""


@pytest.mark.parametrize("changes", [{}, CHOOSY], ids=["plain", "choosy"])
def test_a_stopped_and_resumed_run_is_bit_identical(agents, tmp_path, changes):
    settings = recipe(pair(agents), evaluation={"prompts": 6, "every": 2, "samples": 2}, **changes)
    run(settings, tmp_path / "whole")
    with pytest.raises(Stopped, match="after step 3"):
        run(settings, tmp_path / "stopped", display=StopAt(3))
    assert not (tmp_path / "stopped" / "summary.json").exists()
    run(settings, tmp_path / "stopped", resume=True)
    assert outcome(tmp_path / "stopped") == outcome(tmp_path / "whole")


def test_every_evaluation_is_made_once(agents, tmp_path, monkeypatch):
    """Also the one that is due at the last step, which is the one after training."""
    calls = []

    def counted(agent, *arguments):
        calls.append(agent.name)
        return evaluate(agent, *arguments)

    monkeypatch.setattr("hacrl.training.run.evaluate", counted)
    summary = run(recipe(pair(agents), steps=2, evaluation={"prompts": 6, "every": 1}), tmp_path / "run")
    assert calls == ["ada", "bob"] * 3
    last = metrics(tmp_path / "run")[-1]
    for name in pair(agents):
        assert (
            last[f"agent/{name}/eval/digits/greedy"]
            == summary["agents"][name]["after"]["digits"]["greedy"]["mean"]
        )


def test_one_agent_under_hacpo_is_gspo(agents, tmp_path):
    one = {"ada": agents["ada"]}
    run(recipe(one, method="hacpo"), tmp_path / "hacpo")
    run(recipe(one, method="gspo"), tmp_path / "gspo")
    assert outcome(tmp_path / "hacpo")["weights"] == outcome(tmp_path / "gspo")["weights"]
    assert metrics(tmp_path / "hacpo") == metrics(tmp_path / "gspo")


def test_the_order_of_agents_changes_nothing(agents, tmp_path):
    trio = [(name, agents[name]) for name in ("ada", "bob", "eve")]
    outcomes = []
    for number, order in enumerate(list(permutations(trio))[::2]):
        run(recipe(dict(order), steps=2), tmp_path / str(number))
        outcomes.append(outcome(tmp_path / str(number)))
    assert outcomes[0] == outcomes[1] == outcomes[2]


def test_the_micro_batch_size_changes_nothing_but_rounding(agents, tmp_path):
    for budget in (40, 100_000):
        changed = recipe(pair(agents), updates={"tokens_per_micro_batch": budget}, steps=2)
        run(changed, tmp_path / str(budget))
    for name in pair(agents):
        small, large = (final_weights(tmp_path / str(budget), name) for budget in (40, 100_000))
        for key, weight in small.items():
            torch.testing.assert_close(weight, large[key], rtol=0, atol=1e-5)


@pytest.mark.parametrize("count", [2, 3, 4, 8])
def test_any_number_and_mix_of_agents(agents, tmp_path, count):
    """State, size, architecture and tokenizer mixed, with different numbers of samples."""
    kinds = list(agents.values())
    team = {f"agent{number}": kinds[number % len(kinds)] for number in range(count)}
    settings = recipe(team, steps=1)
    for number, agent in enumerate(settings["agents"]):
        agent["samples_per_prompt"] = 2 + number % 3
    run(settings, tmp_path / "run")
    last = metrics(tmp_path / "run")[-1]
    for number, learner in enumerate(team):
        samples = 4 * (2 + number % 3)  # four prompts
        own = json.loads((tmp_path / "run" / "summary.json").read_text())["agents"][learner]
        assert own["rollouts"] == samples
        assert own["updates"] + own["skipped_updates"] == 2 * count
        left_out = sum(v for key, v in last.items() if key.startswith(f"agent/{learner}/left_out/"))
        received = sum(last.get(f"cross/{source}->{learner}/rows", 0) for source in team if source != learner)
        everything = sum(4 * (2 + other % 3) for other in range(count))
        assert received + left_out == everything - samples
        before = Policy.load("x", team[learner]).fingerprint()
        assert Policy.load("x", tmp_path / "run" / "agents" / learner).fingerprint() != before


def test_methods_draw_and_update_as_often_as_they_say(agents, tmp_path):
    expected = {"gspo": (16, 2), "grpo": (16, 2), "gspo_x2": (32, 4), "naive": (16, 4), "hacpo": (16, 4)}
    for method, (rollouts, updates) in expected.items():
        summary = run(recipe(pair(agents), method=method, steps=1), tmp_path / method)
        for agent in summary["agents"].values():
            assert (agent["rollouts"], agent["updates"] + agent["skipped_updates"]) == (rollouts, updates)
    # The first step's responses do not depend on the method, only what is made of them.
    first = {method: outcome(tmp_path / method)["trajectories"] for method in ("gspo", "naive", "hacpo")}
    assert first["gspo"] == first["naive"] == first["hacpo"]
    weights = [outcome(tmp_path / method)["weights"]["ada"] for method in ("gspo", "naive", "hacpo")]
    assert len(set(weights)) == 3


def test_saved_agents_need_no_hacrl(agents, tmp_path):
    run(recipe(pair(agents), steps=1), tmp_path / "run")
    saved = tmp_path / "run" / "agents" / "bob"
    prompts = load("digits", train=90, test=30).test[:5]
    rollouts = Policy.load("bob", saved).sample(prompts, 1, SamplingSettings(max_new_tokens=6).as_greedy(), 0)
    script = (
        "import json, sys\n"
        "from transformers import AutoModelForCausalLM, AutoTokenizer\n"
        f"model = AutoModelForCausalLM.from_pretrained({str(saved)!r})\n"
        f"tokenizer = AutoTokenizer.from_pretrained({str(saved)!r})\n"
        "responses = []\n"
        f"for text in {[prompt.text for prompt in prompts]!r}:\n"
        "    inputs = tokenizer(text, return_tensors='pt', return_token_type_ids=False)\n"
        "    ids = model.generate(**inputs, max_new_tokens=6, do_sample=False)[0]\n"
        "    drawn = ids[inputs['input_ids'].shape[1]:]\n"
        "    responses.append(tokenizer.decode(drawn, skip_special_tokens=True))\n"
        "assert not any(name.startswith('hacrl') for name in sys.modules)\n"
        "print(json.dumps(responses))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1]) == [rollout.text for rollout in rollouts]
    assert "bob" in (saved / "README.md").read_text()


def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(agents, tmp_path):
    settings = recipe(pair(agents))
    run(settings, tmp_path / "whole")
    with pytest.raises(Stopped):
        run(settings, tmp_path / "damaged", display=StopAt(3))
    (victim,) = (tmp_path / "damaged" / "checkpoints" / "step_00000003" / "agents" / "ada").iterdir()
    content = bytearray(victim.read_bytes())
    content[len(content) // 2] ^= 1
    victim.write_bytes(content)
    display = Silent()
    run(settings, tmp_path / "damaged", resume=True, display=display)
    assert any(str(victim) in warning for warning in display.warnings)
    assert outcome(tmp_path / "damaged") == outcome(tmp_path / "whole")


def test_another_recipe_is_refused_with_the_differences(agents, tmp_path):
    with pytest.raises(Stopped):
        run(recipe(pair(agents)), tmp_path / "run", display=StopAt(2))
    changed = recipe({"ada": agents["ada"], "kim": agents["kim"]}, samples_per_prompt=5)
    with pytest.raises(RecipeError) as error:
        run(changed, tmp_path / "run", resume=True)
    for word in ("samples_per_prompt", "bob", "kim"):
        assert word in str(error.value)


def test_a_directory_holds_one_run(agents, tmp_path):
    run(recipe(pair(agents), steps=1), tmp_path / "run")
    with pytest.raises(StorageError, match="already holds a run"):
        run(recipe(pair(agents), steps=1), tmp_path / "run")
    with pytest.raises(StorageError, match="holds no run"):
        run(recipe(pair(agents), steps=1), tmp_path / "empty", resume=True)


def test_a_full_disk_leaves_a_run_that_can_be_resumed(agents, tmp_path, monkeypatch):
    settings = recipe(pair(agents))
    run(settings, tmp_path / "whole")
    real, calls = os.fsync, []

    def full(descriptor):
        calls.append(descriptor)
        if len(calls) > 40:
            raise OSError(28, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match=r"No space left on device.*free some space"):
        run(settings, tmp_path / "full")
    monkeypatch.undo()
    run(settings, tmp_path / "full", resume=True)
    assert outcome(tmp_path / "full") == outcome(tmp_path / "whole")


def test_an_agent_whose_loss_is_not_finite_retires_and_the_others_go_on(agents, tmp_path, monkeypatch):
    real = Policy.update

    def poisoned(self, mini_batches, objective, *counts):
        def broken(*arguments):
            return objective(*arguments) * float("nan" if self.name == "ada" else "1")

        return real(self, mini_batches, broken, *counts)

    monkeypatch.setattr(Policy, "update", poisoned)
    display = Silent()
    summary = run(recipe(pair(agents), steps=5), tmp_path / "run", display=display)
    assert "3 steps in a row" in summary["agents"]["ada"]["retired"]
    assert summary["agents"]["ada"]["rollouts"] == 3 * 16
    assert summary["agents"]["bob"]["rollouts"] == 5 * 16
    bob = summary["agents"]["bob"]
    assert bob["updates"] + bob["skipped_updates"] == 3 * 4 + 2 * 2
    before = Policy.load("x", agents["ada"]).fingerprint()
    assert Policy.load("x", tmp_path / "run" / "agents" / "ada").fingerprint() == before
    assert any("'ada'" in text and "has not changed the weights" in text for text in display.warnings)


def test_runs_that_do_not_learn_say_so_once(agents, tmp_path):
    def never(prompts, completions, **columns):
        return [0.0] * len(completions)

    display = Silent()
    run(recipe(pair(agents), steps=12), tmp_path / "run", reward_funcs=[never], display=display)
    for found in ("none of its responses was right", "every advantage was 0"):
        said = [warning for warning in display.warnings if found in warning]
        assert len(said) == 2
        assert all("10 times in a row" in warning for warning in said)


def test_unscorable_responses_are_masked_and_counted(agents, tmp_path):
    def sometimes(prompts, completions, **columns):
        return [None if number % 4 == 0 else float(number % 4 == 1) for number in range(len(completions))]

    run(recipe(pair(agents), steps=1), tmp_path / "run", reward_funcs=[sometimes])
    last = metrics(tmp_path / "run")[-1]
    assert last["unscorable/none"] == 2 * 4
    assert last["agent/ada/unscored"] == 4
    assert last["agent/ada/reward"] == pytest.approx(1 / 3)
    left_out = sum(v for key, v in last.items() if key.startswith("agent/ada/left_out/"))
    assert last["cross/bob->ada/rows"] + left_out == 12
