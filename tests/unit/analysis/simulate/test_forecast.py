import json
import pickle
import random
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hacrl.analysis.doctor.models import ModelFacts, look_at
from hacrl.analysis.simulate.forecast import (
    BYTES_PER_DRAWN_TOKEN,
    BYTES_PER_TRAINED_TOKEN,
    AgentCost,
    StepCost,
    forecast,
)
from hacrl.analysis.simulate.hardware import GPUS, scaled_to
from hacrl.analysis.simulate.work import Lengths, sampling, updating, workload
from hacrl.cli.app import app
from hacrl.recipe import Recipe, parse_recipe, saved_recipe
from hacrl.runs.reader import RunReader
from hacrl.types import Rollout, TrainingRow
from helpers_report import lines
from helpers_train import make_agent, run
from helpers_train import recipe as small_recipe

H100 = GPUS["h100"]
LENGTHS = Lengths(prompt=200, response=1000, longest=4096)
MODELS = {"a": "Qwen/Qwen3-1.7B-Base", "b": "Qwen/Qwen3-4B-Base"}


@pytest.fixture(scope="module")
def facts() -> dict[str, ModelFacts]:
    return {name: facts for name, model in MODELS.items() if (facts := look_at(model, None))}


def recipe(**changes: Any) -> Recipe:
    agents = [{"name": name, "model": model, "resources": {"gpus": 1}} for name, model in MODELS.items()]
    return parse_recipe({"agents": agents, "task": "math", "runtime": "ray", **changes})


def step(facts: dict[str, ModelFacts], **changes: Any) -> StepCost:
    return forecast(recipe(**changes), facts, LENGTHS, H100, "math")


def test_agents_with_processes_of_their_own_work_at_the_same_time(facts: dict[str, ModelFacts]):
    parallel, sequential = step(facts), step(facts, runtime="local")
    assert parallel.agents["a"].sample < parallel.agents["b"].sample
    assert parallel.sample == parallel.agents["b"].sample
    assert sequential.sample == sequential.agents["a"].sample + sequential.agents["b"].sample
    assert parallel.total == parallel.sample + parallel.verify + parallel.exchange + parallel.update


def test_updates_cost_what_six_operations_per_weight_and_token_do(facts: dict[str, ModelFacts]):
    """The well-known rule, for a model that recomputes nothing and attends to little."""
    found = forecast(recipe(optimiser={"kl": 0.0}), facts, Lengths(1, 64, 64), H100, "math")
    trained = 2 * 128 * 8 * 64
    rule = 6 * facts["b"].parameters * trained * H100.update.per_flop
    assert rule < found.agents["b"].update < 1.5 * rule


def test_a_process_alone_receives_nothing_from_other_ranks(facts: dict[str, ModelFacts]):
    assert {agent.rank_bytes for agent in step(facts).agents.values()} == {0.0}


def test_ranks_fetch_weights_and_add_up_gradients(facts: dict[str, ModelFacts]):
    """Four ranks on one machine, then on two, whose network is slower than the links within."""

    def cost(nodes: int) -> AgentCost:
        resources = {"gpus": 1, "ranks": 4, "nodes": nodes}
        agents = [{"name": "b", "model": MODELS["b"], "resources": resources}]
        budget = {"mini_batches": 2, "tokens_per_micro_batch": 10**9}
        runtime = {"name": "ray", "address": "head:6379"}
        return step(facts, agents=agents, method="gspo", updates=budget, runtime=runtime).agents["b"]

    others = 0.75 * facts["b"].parameters
    assert cost(1).rank_bytes == pytest.approx(2 * others + 2 * (2 * 2 + 4) * others)
    assert cost(1).gather == pytest.approx(2 * others / H100.link)
    assert cost(2).shard == pytest.approx(cost(1).shard * H100.link / H100.network)


def test_without_peers_half_as_much_is_trained_on(facts: dict[str, ModelFacts]):
    alone, shared = step(facts, method="gspo"), step(facts)
    drawn = 128 * 8 * 1000
    assert alone.agents["a"].loop_bytes == drawn * (BYTES_PER_DRAWN_TOKEN + BYTES_PER_TRAINED_TOKEN)
    assert shared.agents["a"].loop_bytes == drawn * (BYTES_PER_DRAWN_TOKEN + 2 * BYTES_PER_TRAINED_TOKEN)
    assert alone.verify == shared.verify


def test_bytes_per_token_are_those_of_what_is_sent():
    rng = random.Random(0)
    ids = [tuple(rng.randrange(150_000) for _ in range(1000)) for _ in range(32)]
    logps = [tuple(-rng.random() for _ in range(1000)) for _ in range(32)]
    drawn = [
        Rollout(str(i), 0, f"{i:04}" * 1000, ids[i], logps[i], "stop")  # four letters a token
        for i in range(32)
    ]
    trained = [
        TrainingRow(str(i), ids[i][:200], ids[i], "a", True, -0.5, logps[i], 0.3, 1.0) for i in range(32)
    ]
    assert len(pickle.dumps(drawn, protocol=5)) / 32_000 == pytest.approx(BYTES_PER_DRAWN_TOKEN, rel=0.05)
    assert len(pickle.dumps(trained, protocol=5)) / 32_000 == pytest.approx(BYTES_PER_TRAINED_TOKEN, rel=0.05)


def test_a_measured_run_is_met_exactly(facts: dict[str, ModelFacts], tmp_path: Path):
    """A run three times slower in sampling and twice as fast in updates than the figures say."""
    planned = recipe()
    cost = forecast(planned, facts, Lengths(200, 1000, 1000), H100, "math")
    line: dict[str, float] = {"step": 1}
    for name, agent in cost.agents.items():
        line[f"time/sample/{name}"] = 3 * agent.sample
        line[f"time/update/{name}"] = agent.update / 2
        line[f"agent/{name}/completions/mean_length"] = 1000
        line[f"agent/{name}/completions/max_length"] = 1000
        line[f"agent/{name}/trained_tokens"] = 2 * 128 * 8 * 1000
    config = {"recipe": planned.resolved(), "versions": {}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    found = scaled_to(tmp_path, 200, H100)
    assert found.sample.per_flop == pytest.approx(3 * H100.sample.per_flop)
    assert found.update.per_pass == pytest.approx(H100.update.per_pass / 2)
    assert replace(found, origin="", sample=H100.sample, update=H100.update) == replace(H100, origin="")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real run of two tiny agents."""
    directory = tmp_path_factory.mktemp("simulate")
    agents = {name: make_agent(directory / name, seed) for seed, name in enumerate(("ann", "bob"))}
    settings = small_recipe(agents, steps=2, evaluation={"prompts": 2, "before": False})
    run(settings, directory / "run")
    return directory / "run"


def test_the_phases_of_a_real_run_are_met(finished: Path):
    """The simulated step, with the lengths that were drawn, takes the median seconds of the run."""
    metrics = lines(finished / "metrics.jsonl")
    found = scaled_to(finished, 8, GPUS["h100"])
    saved = saved_recipe(RunReader(finished))
    predicted = {"sample": 0.0, "update": 0.0}
    measured = dict(predicted)
    for agent in saved.agents:
        facts = look_at(agent.model, None)
        assert facts is not None
        mean, longest, trained = (
            statistics.median(line[f"agent/{agent.name}/{key}"] for line in metrics)
            for key in ("completions/mean_length", "completions/max_length", "trained_tokens")
        )
        load = replace(
            workload(saved, agent.name, Lengths(8, mean, longest), found.width), trained_tokens=trained
        )
        predicted["sample"] += found.sample.seconds(sampling(facts, load))
        predicted["update"] += found.update.seconds(updating(facts, load))
        for phase in measured:
            measured[phase] += statistics.median(line[f"time/{phase}/{agent.name}"] for line in metrics)
    assert predicted == pytest.approx(measured)


def test_the_command_takes_a_real_run(finished: Path, tmp_path: Path):
    path = tmp_path / "recipe.yaml"
    path.write_text(json.dumps({"agents": [{"name": "a", "model": MODELS["a"]}], "task": "digits"}))
    result = CliRunner().invoke(app, ["simulate", str(path), "method=gspo", "--from", str(finished)])
    assert result.exit_code == 0, result.output
    assert "as measured in" in " ".join(result.stdout.split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "give a recipe, or --check"),
        (["{recipe}", "--hardware", "h200"], "--hardware 'h200': choose one of h100, a100, here"),
        (
            ["{recipe}", "--from", "nowhere"],
            "nowhere holds no run (no config.json): give the --out of hacrl train",
        ),
        (["{recipe}", "agents.0.model=some/model"], "agent a: nothing is known of some/model"),
    ],
)
def test_mistakes_end_with_a_message(words: list[str], message: str, tmp_path: Path):
    path = tmp_path / "recipe.yaml"
    path.write_text(json.dumps({"agents": [{"name": "a", "model": MODELS["a"]}], "task": "digits"}))
    result = CliRunner().invoke(app, ["simulate", *(word.format(recipe=path) for word in words)])
    assert result.exit_code == 2
    assert message in result.stderr
