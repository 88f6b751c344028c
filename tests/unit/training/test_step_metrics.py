"""What a step says of itself, recomputed from its trajectories."""

import json
import math

import pytest

from hacrl.agents.policy import Policy
from hacrl.sharing import read_step
from hacrl.tasks import load
from helpers_train import make_agent, metrics, recipe, run


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """One step with a learning rate so small that every ratio is that of the initial weights."""
    folder = tmp_path_factory.mktemp("run")
    agents = {"ada": make_agent(folder / "ada", 1), "eve": make_agent(folder / "eve", 3, cut="digit-pairs")}
    settings = recipe(agents, steps=1, optimiser={"learning_rate": 1e-12, "kl": 0.0})
    run(settings, folder / "run")
    trajectories = list(read_step(folder / "run" / "trajectories" / "step_000001.jsonl"))
    return agents, trajectories, metrics(folder / "run")[-1]


def test_numbers_of_one_agent(finished):
    _, trajectories, last = finished
    own = [t for t in trajectories if t.source == "ada"]
    rewards = [t.reward for t in own]
    assert last["agent/ada/reward"] == pytest.approx(sum(rewards) / len(rewards))
    assert last["agent/ada/num_tokens"] == sum(len(t.token_ids) for t in own)
    assert last["agent/ada/completions/clipped_ratio"] == sum(t.finish_reason == "length" for t in own) / 16
    groups = {t.prompt_id: {u.reward for u in own if u.prompt_id == t.prompt_id} for t in own}
    assert last["agent/ada/frac_reward_zero_std"] == sum(len(g) == 1 for g in groups.values()) / len(groups)
    assert last["agent/ada/updates"] + last["agent/ada/skipped_updates"] == 4


def test_phases_of_a_step_follow_each_other(finished):
    """In one process agents take turns, and the step contains all of its phases."""
    agents, *_ = finished
    last = json.loads((agents["ada"].parent / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    order = ["sample/ada", "sample/eve", "verify", "exchange", "update/ada", "update/eve"]
    edges = [last[f"time/{edge}/{phase}"] for phase in order for edge in ("begin", "end")]
    assert edges == sorted(edges)
    assert edges[0] >= 0
    assert edges[-1] <= last["time/step"] + 1e-3
    for phase in order:
        assert last[f"time/{phase}"] <= last[f"time/end/{phase}"] - last[f"time/begin/{phase}"] + 1e-9
    assert last["runtime/ada/memory/0"] > 1e8  # this process, with torch in it


def test_updates_without_gradient_are_counted_apart(finished, tmp_path):
    """With a window that is closed from the start, no peer's response has a gradient."""
    agents, *_ = finished
    closed = {"name": "hacpo", "delta": 0.0}
    optimiser = {"learning_rate": 1e-4, "kl": 0.0}
    summary = run(recipe(agents, steps=1, method=closed, optimiser=optimiser), tmp_path / "run")
    last = metrics(tmp_path / "run")[-1]
    assert (last["agent/ada/updates"], last["agent/ada/skipped_updates"]) == (2, 2)
    assert summary["agents"]["ada"]["skipped_updates"] == 2


def test_numbers_of_a_pair(finished):
    agents, trajectories, last = finished
    learner = Policy.load("eve", agents["eve"])
    prompts = {prompt.id: prompt for prompt in load("digits", train=90, test=30).train}
    ratios = []
    for t in (t for t in trajectories if t.source == "ada"):
        response = (
            learner.encoder.encode_response(t.text) if t.logp_count and t.text else (learner.encoder.eos_id,)
        )
        (logps,) = learner.score([(learner.encoder.encode_prompt(prompts[t.prompt_id]), response)])
        ratios.append(math.exp(sum(logps) / len(logps) - t.logp_sum / t.logp_count))
    assert last["cross/ada->eve/rows"] == len(ratios)
    assert last["cross/ada->eve/ratio/mean"] == pytest.approx(sum(ratios) / len(ratios), rel=1e-4)
    assert last["cross/ada->eve/above"] == sum(ratio > 1 for ratio in ratios) / len(ratios)
    shares = [last[f"cross/ada->eve/{side}"] for side in ("inside", "below", "above")]
    assert sum(shares) == pytest.approx(1.0)
    strong, weak = last["agent/ada/capability"], last["agent/eve/capability"]
    assert last["cross/ada->eve/omega"] == pytest.approx(min(10.0, max(0.1, strong / max(weak, 1e-8))))


def test_a_method_without_a_window_has_no_shares_inside_it(finished, tmp_path):
    agents, *_ = finished
    run(recipe(agents, steps=1, method="naive"), tmp_path / "run")
    last = metrics(tmp_path / "run")[-1]
    assert last["cross/ada->eve/rows"] == 16
    assert "cross/ada->eve/ratio/mean" in last
    assert not {f"cross/ada->eve/{side}" for side in ("inside", "below", "above")} & last.keys()


@pytest.mark.parametrize(("method", "shown"), [("hacpo", True), ("naive", True), ("commons", False)])
def test_only_a_baseline_of_the_methods_own_has_a_bias(finished, tmp_path, method, shown):
    agents, *_ = finished
    run(recipe(agents, steps=1, method=method), tmp_path / "run")
    assert ("agent/ada/baseline_bias" in metrics(tmp_path / "run")[-1]) == shown
