from __future__ import annotations

import copy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    Gemma3Config,
    Gemma3TextConfig,
    GPT2Config,
    LlamaConfig,
    LlamaForCausalLM,
    Mamba2Config,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from typer.testing import CliRunner

from hacrl.agents.loading import with_adapters
from hacrl.agents.precision import Precision
from hacrl.analysis.doctor import backends, examine, warnings_for
from hacrl.analysis.doctor import memory as memory_module
from hacrl.analysis.doctor.advice import DeviceMemory, device_memory, needed_on
from hacrl.analysis.doctor.backends import planned_backends
from hacrl.analysis.doctor.examination import AgentPlan, Diagnosis
from hacrl.analysis.doctor.memory import KEPT_PER_LAYER, Memory, estimate, in_units
from hacrl.analysis.doctor.models import ModelFacts, is_elsewhere, look_at
from hacrl.analysis.doctor.prompts import written_for
from hacrl.cli.app import app
from hacrl.methods.gspo import Gspo
from hacrl.recipe import AgentSettings, LoraSettings, Recipe, parse_recipe
from hacrl.recipe.agent_settings import VllmSettings
from hacrl.tasks.toy_models.tokenizers import make_tokenizer
from hacrl.training.team_setup import load_task
from hacrl.types import Prompt
from helpers_recipes import Wrong, wrong_recipes

ROOT = Path(__file__).parents[4]
SIZES = {
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 100,
    "max_position_embeddings": 128,
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = tmp_path_factory.mktemp("model")
    Qwen3ForCausalLM(Qwen3Config(**SIZES)).save_pretrained(directory)
    make_tokenizer("characters").save_pretrained(directory)
    return str(directory)


@pytest.fixture(autouse=True)
def no_cached_toy_models(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def recipe_with(model: str, **sections: Any) -> dict[str, Any]:
    """A recipe of two agents nothing is wrong with, and changes."""
    agents = [{"name": "a", "model": model, "device": "cpu"}, {"name": "b", "model": "toy:state-b"}]
    values = {
        "agents": agents,
        "task": {"name": "digits", "train": 300},
        "prompts_per_step": 16,
        "sampling": {"max_new_tokens": 24},
    }
    return {**values, **sections}


def warned(values: dict[str, Any]) -> list[str]:
    found = examine(parse_recipe(values))
    assert found.errors == []
    return [warning.key for warning in warnings_for(found)]


# --- the command ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", wrong_recipes()[::12], ids=lambda wrong: f"{wrong.key}-{wrong.what}")
def test_a_wrong_recipe_ends_with_exit_code_2_and_its_key(wrong: Wrong, tmp_path: Path):
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(wrong.values))
    result = CliRunner().invoke(app, ["doctor", str(path)])
    assert result.exit_code == 2
    assert isinstance(result.exception, SystemExit)
    assert f"  {wrong.key}" in result.stderr
    assert len(result.stderr.splitlines()) < 25


@pytest.mark.parametrize("content", ["steps: [\n", "agents: []\n", None])
def test_no_traceback_from_the_command_itself(content: str | None, tmp_path: Path):
    path = tmp_path / "recipe.yaml"
    if content is not None:
        path.write_text(content)
    command = [sys.executable, "-c", "from hacrl.cli import main; main()", "doctor", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {path}: ")
    assert "Traceback" not in done.stderr


def test_the_report_of_a_recipe_that_can_run(model: str, tmp_path: Path):
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe_with(model)))
    result = CliRunner().invoke(app, ["doctor", str(path), "method.delta=0.4", "agents.b.model=toy:state-c"])
    assert result.exit_code == 0, result.output
    for expected in (
        "0.65 0.675",
        "Task digits: 300 training and 600 test prompts, scored by exact",
        "58 steps of 16 prompts: 3.1 passes over the task, 14,848 responses drawn in all",
        "a: decodes with ",
        "This recipe can run.",
    ):
        assert expected in result.stdout
    assert "warning" not in result.stdout


ALIKE = {"hidden_size": 16, "num_hidden_layers": 8, "num_attention_heads": 2, "num_key_value_heads": 1}
MODELS: dict[str, Any] = {
    "fused": Gemma3TextConfig(**ALIKE, head_dim=8, intermediate_size=16, vocab_size=262_144),
    # Gemma-3-4B: its vision tower is made with one of its 27 layers.
    "vision": Gemma3Config(
        text_config={"hidden_size": 2560, "intermediate_size": 10_240, "num_hidden_layers": 34},
        vision_config={"hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27},
    ),
    "other": GPT2Config(n_embd=16, n_layer=8, n_head=2, vocab_size=50_000),
    # Llama-3.1-8B: two of its layers have 436M weights, more than doctor makes.
    "wide": LlamaConfig(
        hidden_size=4096,
        intermediate_size=14_336,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=128,
    ),
}


@pytest.mark.parametrize(
    ("kind", "changes", "expected"),
    [
        ("fused", {}, "decodes with FusedDecoder and trains with FusedScorer"),
        (
            "other",
            {},
            "decodes with CachedDecoder and trains with SharedPrefixScorer; not with FusedDecoder, "
            "FusedScorer: the fused backend does not support the architecture 'gpt2'",
        ),
        ("fused", {"lora": {"rank": 2}}, "decodes with FusedDecoder and trains with FusedScorer"),
        (
            "fused",
            {"lora": {"rank": 2, "base_bits": 4}},
            "decodes with CachedDecoder and trains with SharedPrefixScorer; not with FusedDecoder, "
            "FusedScorer: the fused backend does not support quantised layers, or adapters other than plain "
            "LoRA without dropout",
        ),
        ("vision", {}, "decodes with FusedDecoder and trains with FusedScorer"),
        ("wide", {}, "decodes with FusedDecoder and trains with FusedScorer"),
        (
            "fused",
            {"resources": {"ranks": 2}},
            "decodes with FusedDecoder and trains with ShardedScorer",
        ),
        (
            "other",
            {"resources": {"ranks": 2}},
            "decodes with CachedDecoder and trains with PaddedScorer; not with SharedPrefixScorer: several "
            "ranks hold the model, and it would run more often on some of them; not with FusedDecoder, "
            "ShardedScorer: the fused backend does not support the architecture 'gpt2'",
        ),
    ],
    ids=["fused", "generic", "adapters", "4 bits", "vision", "wide", "ranks", "generic ranks"],
)
def test_the_backends_of_an_agent_and_why_no_faster_ones(
    kind: str, changes: dict[str, Any], expected: str, tmp_path: Path
):
    """Tried on a small model: neither the 8 layers nor the vocabulary are made."""
    MODELS[kind].save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").touch()
    agent = {"name": "a", "model": str(tmp_path), **changes}
    runtime = {"name": "ray"} if "resources" in changes else {}
    recipe = parse_recipe(recipe_with("", agents=[agent], runtime=runtime))
    assert str(planned_backends(recipe, recipe.agents[0], recipe.agents[0].resources.ranks)) == expected


def test_every_agent_has_a_line_about_its_backends(tmp_path: Path):
    """Whatever its architecture; of a model that is not here, it says that they are not known."""
    Mamba2Config(hidden_size=64, num_hidden_layers=2, num_heads=8, head_dim=16).save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").touch()
    named = {"a": str(tmp_path), "b": "some-owner/some-model", "c": "toy:state-c"}
    agents = [{"name": name, "model": model} for name, model in named.items()]
    first, second = backends.backend_lines(examine(parse_recipe(recipe_with("", agents=agents))))
    assert first.startswith("a: decodes with RecomputingDecoder and trains with PaddedScorer; not with ")
    assert second == "b, c: backends are not known until the model is on this machine"


def test_the_quickstart_recipe_can_run():
    result = CliRunner().invoke(app, ["doctor", str(ROOT / "recipes" / "quickstart.yaml")])
    assert result.exit_code == 0, result.output
    assert "warning" not in result.stdout


# --- what is worked out -----------------------------------------------------------------------------------


def test_the_plan_of_every_agent(model: str):
    agents = [
        {"name": "a", "model": model, "samples_per_prompt": 4},
        {"name": "b", "model": "toy:state-b", "learning_rate": 1e-5},
        {"name": "c", "model": "toy:state-c"},
    ]
    values = recipe_with(model, agents=agents, exchange={"topology": "star", "hub": "b"})
    plans = {plan.name: plan for plan in examine(parse_recipe(values)).agents}
    assert {name: plan.peers for name, plan in plans.items()} == {"a": ("b",), "b": ("a", "c"), "c": ("b",)}
    assert [plans[name].rollouts for name in "abc"] == [64, 128, 128]
    assert [plans[name].learned for name in "abc"] == [192, 320, 256]
    assert [plans[name].updates for name in "abc"] == [4, 6, 4]
    assert plans["a"].tokens == 64 * 24
    assert plans["a"].columns == {"window": "0.85 0.875"}
    assert plans["b"].columns == {"window": "0.85 0.875 0.9 0.925"}
    assert plans["b"].learning_rate == 1e-5
    assert plans["a"].facts
    assert plans["b"].facts is None


def test_without_clipping_hacpo_shows_no_window(model: str):
    plan = examine(parse_recipe(recipe_with(model, method="hacpo-no_clipping"))).agents[0]
    assert plan.columns == {"window": "-"}


@pytest.mark.parametrize("method", ["gspo", "naive", "commons"])
def test_nothing_of_hacpo_is_shown_with_another_method(method: str, model: str, tmp_path: Path):
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe_with(model, method=method)))
    result = CliRunner().invoke(app, ["doctor", str(path)])
    assert result.exit_code == 0, result.output
    for word in ("window", "omega", "delta"):
        assert word not in result.stdout


class Labelled(Gspo):
    """GSPO with a column of its own in the table of a step."""

    name: str = ""

    def columns(self, recipe: Recipe, agent: str) -> dict[str, str]:
        return {"label": f"agent-{agent}"}


def test_the_columns_of_a_method_are_shown_for_every_agent(model: str, tmp_path: Path):
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe_with(model, method=f"{__name__}:Labelled")))
    result = CliRunner().invoke(app, ["doctor", str(path)], env={"COLUMNS": "120"})
    assert result.exit_code == 0, result.output
    for text in ("label", "agent-a", "agent-b"):
        assert text in result.stdout


def test_without_the_stepwise_mechanism_the_window_stays(model: str):
    plan = examine(parse_recipe(recipe_with(model, method="hacpo-no_stepwise"))).agents[0]
    assert plan.columns == {"window": "0.8 0.8"}


def test_model_facts_are_those_of_the_model(model: str):
    network = Qwen3ForCausalLM(Qwen3Config(**SIZES))
    facts = look_at(model, None)
    expected = network.num_parameters()
    assert facts == ModelFacts(
        expected,
        expected,
        3,
        64,
        160,
        query=64,
        key_value=32,
        vocabulary=100,
        context=128,
        linear=3 * (64 * (64 + 32 + 32) + 64 * 64 + 3 * 64 * 160),
    )
    for targets in ("all-linear", ("q_proj", "v_proj")):
        lora = LoraSettings(rank=4, target_modules=targets)
        adapted = with_adapters(copy.deepcopy(network), lora, seed=0)
        trained = sum(p.numel() for p in adapted.parameters() if p.requires_grad)
        adapted_facts = look_at(model, lora)
        assert adapted_facts is not None
        assert (adapted_facts.parameters, adapted_facts.trained) == (expected, trained)


def test_hub_models_are_not_downloaded():
    assert look_at("some-owner/some-model", None) is None
    assert is_elsewhere("some-owner/some-model")


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("Qwen/Qwen3-1.7B-Base", 1_720_574_976),
        ("Qwen/Qwen3-4B-Base", 4_022_468_096),
        ("Qwen/Qwen3-8B-Base", 8_190_735_360),
        ("meta-llama/Llama-3.2-1B-Instruct", 1_235_814_400),
        ("meta-llama/Llama-3.2-3B-Instruct", 3_212_749_824),
    ],
)
def test_published_sizes_give_the_published_number_of_parameters(name: str, parameters: int):
    facts = look_at(name, None)
    assert facts is not None
    assert facts.parameters == parameters


def test_what_is_on_the_hub_is_noted_and_the_rest_is_checked(model: str):
    values = recipe_with(model, task="math", agents=[{"name": "a", "model": "Qwen/Qwen3-4B-Base"}])
    found = examine(parse_recipe(values | {"method": "gspo", "steps": 3, "sampling": {"max_rows": 8}}))
    assert found.errors == []
    assert [note.key for note in found.notes] == ["task", "agents.0.model"]
    assert found.agents[0].memory is not None


@pytest.mark.parametrize(("gpu_gb", "fits"), [(80, True), (40, False)])
def test_every_agent_of_a_cluster_has_gpus_of_its_own(gpu_gb: int, fits: bool, model: str):
    agents = [{"name": name, "model": "Qwen/Qwen3-1.7B-Base", "resources": {"gpus": 1}} for name in "ab"]
    short = {"max_new_tokens": 512, "max_rows": 64}
    values = recipe_with(
        model, agents=agents, runtime="ray", sampling=short, updates={"tokens_per_micro_batch": 4096}
    )
    found = examine(parse_recipe(values), gpu_gb * 10**9)
    assert [(device.name, device.needed <= device.available) for device in device_memory(found)] == [
        ("each GPU of a", fits),
        ("each GPU of b", fits),
    ]
    assert ("sampling.max_rows" in [warning.key for warning in warnings_for(found)]) is not fits


# --- memory -----------------------------------------------------------------------------------------------

FP32 = Precision("float32")
FACTS = ModelFacts(
    parameters=1000,
    trained=1000,
    layers=2,
    hidden=8,
    feed_forward=16,
    query=8,
    key_value=4,
    vocabulary=50,
    context=100,
)


def test_memory_by_hand():
    recipe = parse_recipe(recipe_with("m", samples_per_prompt=2))
    fp32 = estimate(recipe, "a", FACTS, "float32", longest_prompt=6)
    assert (fp32.weights, fp32.gradients, fp32.moments, fp32.reference) == (4000, 4000, 8000, 4000)
    rows, row = 32, 30
    assert fp32.cache == rows * row * 2 * 2 * 4 * 4
    mini_batch = 8 * 2 * row
    assert fp32.activations == mini_batch * (2 * (12 * 8 + 4 * 16) * 4 + 8 * 50)
    many_words = estimate(recipe, "a", replace(FACTS, vocabulary=10**6), "float32", 6)
    in_blocks = 8 * 2**24 + 2**28  # and what is kept of them
    assert many_words.activations == mini_batch * 2 * (12 * 8 + 4 * 16) * 4 + in_blocks
    assert fp32.kept == 20_000
    assert fp32.passing == max(fp32.cache, fp32.activations)
    bf16 = estimate(recipe, "a", FACTS, "bfloat16", longest_prompt=6)
    assert (bf16.weights, bf16.gradients, bf16.moments, bf16.reference) == (6000, 4000, 8000, 2000)
    assert bf16.activations == mini_batch * (2 * (12 * 8 + 4 * 16) * 2 + 8 * 50)


def test_ranks_share_what_is_kept_and_gather_the_weights_to_sample():
    def memory(ranks: int, dtype: str = "float32") -> Memory:
        agents = [{"name": "a", "model": "m", "resources": {"ranks": ranks}}]
        recipe = parse_recipe(recipe_with("m", agents=agents, runtime="ray", samples_per_prompt=2))
        return estimate(recipe, "a", FACTS, dtype, longest_prompt=6)

    halves = memory(4, "bfloat16").activations - memory(1, "bfloat16").activations
    assert halves == 2000 / 4, "gradients of sharded weights, until a backward pass is over"
    alone, four = memory(1), memory(4)
    assert four.kept == alone.kept / 4
    assert (alone.gathered, four.gathered) == (0, 3000)
    assert four.cache == alone.cache / 4
    assert four.activations == alone.activations
    assert four.passing == max(four.gathered + four.cache, four.activations)


def test_vllm_has_weights_and_a_cache_of_its_own():
    engine = {"name": "vllm", "cache_gigabytes": 0.5}
    agents = [{"name": "a", "model": "m", "engine": engine}]
    recipe = parse_recipe(recipe_with("m", agents=agents, method="gspo"))
    memory = estimate(recipe, "a", FACTS, "float32", longest_prompt=6)
    assert (memory.engine, memory.cache) == (500_004_000, 0)
    assert memory.kept == 500_024_000


def test_a_critic_is_a_second_model():
    alone, with_critic = (
        estimate(parse_recipe(recipe_with("m", method=method)), "a", FACTS, "float32", longest_prompt=6)
        for method in ("grpo", "ppo")
    )
    assert alone.critic == 0
    assert with_critic.critic == alone.weights + alone.gradients + alone.moments
    assert with_critic.kept == alone.kept + with_critic.critic


def test_a_critic_keeps_its_activations_where_its_agent_recomputes_them():
    deep = replace(FACTS, layers=40)
    recipe = parse_recipe(recipe_with("m", method="ppo", updates={"gradient_checkpointing": True}))
    mini_batch = 8 * 8 * 30
    found = estimate(recipe, "a", deep, "float32", longest_prompt=6)
    assert found.activations == mini_batch * 40 * (12 * 8 + 4 * 16) * 4


@settings(max_examples=50)
@given(
    rows=st.integers(1, 600),
    budget=st.integers(1, 5000),
    checkpointing=st.booleans(),
    kl=st.sampled_from([0.0, 0.1]),
)
def test_settings_that_save_memory_never_cost_any(rows: int, budget: int, checkpointing: bool, kl: float):
    def needed(**changes: Any) -> int:
        chosen = {"rows": rows, "budget": budget, "checkpointing": checkpointing, "kl": kl, **changes}
        recipe = parse_recipe(
            recipe_with(
                "m",
                sampling={"max_rows": chosen["rows"], "max_new_tokens": 24},
                updates={
                    "tokens_per_micro_batch": chosen["budget"],
                    "gradient_checkpointing": chosen["checkpointing"],
                },
                optimiser={"kl": chosen["kl"]},
            )
        )
        memory = estimate(recipe, "a", FACTS, "float32", longest_prompt=6)
        return memory.kept + memory.passing

    for change in ({"rows": 1}, {"budget": 1}, {"checkpointing": True}, {"kl": 0.0}):
        assert needed(**change) <= needed()


def test_agents_of_a_device_share_only_what_passes():
    recipe = parse_recipe(recipe_with("m"))
    memory = estimate(recipe, "a", FACTS, "float32", longest_prompt=6)
    plan = AgentPlan("a", "m", FACTS, "cpu", FP32, 0, 1, 1e-6, (), 1, 1, 1, 1, {}, memory)
    assert needed_on([plan] * 3) == 3 * memory.kept + memory.passing


def test_agents_that_train_adapters_of_one_model_count_its_weights_once(model: str):
    def kept(method: str = "gspo", runtime: str = "local", **changes: Any) -> int:
        agents: Any = [
            {"name": name, "model": model, "lora": {"rank": rank}} for name, rank in (("a", 1), ("b", 2))
        ]
        agents.append({"name": "c", "model": model})
        agents[1].update(changes)
        found = examine(parse_recipe(recipe_with(model, agents=agents, method=method, runtime=runtime)))
        return needed_on(found.agents) - max(plan.memory.passing for plan in found.agents if plan.memory)

    facts = [look_at(model, lora) for lora in (LoraSettings(rank=1), LoraSettings(rank=2), None)]
    a, b, c = (found.trained for found in facts if found)
    # The base of a and b; the weights of c and its reference; gradients and moments.
    assert kept() == 4 * c + (4 + 4) * c + 12 * (a + b + c)
    assert kept(dtype="bfloat16") == kept() + 2 * c + 4 * b
    assert kept(lora=None) == kept() + (4 + 4 + 12) * c - 12 * b
    assert kept(runtime="ray") == kept() + 4 * c
    assert kept(method="ppo") == kept() + 12 * (a + b) + (4 + 12) * c
    linear = facts[0].linear if facts[0] else 0
    in_4_bits = 4 * (c - linear) + linear // 2 + linear // 16  # and a scale in fp32 for 64 of them
    assert kept(lora={"rank": 2, "base_bits": 4}) == kept() + in_4_bits


def test_offloaded_agents_are_kept_in_the_memory_of_the_cpu(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("hacrl.analysis.doctor.advice.memory_of", {"cuda": 7, "cpu": 9}.__getitem__)
    recipe = parse_recipe(recipe_with("m", runtime={"name": "local", "share_devices": True}))
    small = estimate(recipe, "a", FACTS, "cuda", longest_prompt=6)
    large = replace(small, weights=10 * small.weights)
    plans = [
        AgentPlan(name, "m", FACTS, "cuda", FP32, 0, 1, 1e-6, (), 1, 1, 1, 1, {}, memory)
        for name, memory in (("a", small), ("b", large), ("c", small))
    ]
    assert device_memory(Diagnosis(recipe, plans)) == [
        DeviceMemory("cuda", large.kept + large.passing, 7),
        DeviceMemory("cpu", 2 * small.kept + large.kept, 9),
    ]


@pytest.mark.parametrize(
    ("config", "network"), [(LlamaConfig, LlamaForCausalLM), (Qwen3Config, Qwen3ForCausalLM)]
)
def test_activations_are_about_what_autograd_keeps(config: Any, network: Any):
    def kept(layers: int) -> int:
        model = network(config(**{**SIZES, "num_hidden_layers": layers}))
        weights = {parameter.data_ptr() for parameter in model.parameters()}
        storages: dict[int, torch.UntypedStorage] = {}

        def keep(tensor: torch.Tensor) -> torch.Tensor:
            if tensor.data_ptr() not in weights:
                storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            model.model(torch.arange(64).reshape(2, 32))
        return sum(storage.nbytes() for storage in storages.values())

    real = (kept(3) - kept(1)) / 2 / 64 / 4
    per_hidden, per_feed_forward = KEPT_PER_LAYER
    assert real == pytest.approx(per_hidden * 64 + per_feed_forward * 160, rel=0.25)


def test_bytes_in_units():
    assert [in_units(size) for size in (0, 999, 999.7e3, 1500, 2e6, 3.25e9, 4e12)] == [
        "0 B",
        "999 B",
        "1 MB",
        "1.5 kB",
        "2 MB",
        "3.25 GB",
        "4 TB",
    ]


# --- warnings and errors ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "change"),
    [
        ("method.delta_step", {"updates": {"mini_batches": 5}}),
        ("method.delta_step", {"method": {"delta": 0.05}}),
        ("sampling.max_new_tokens", {"sampling": {"max_new_tokens": 128}}),
        ("agents.0.learning_rate", {"optimiser": {"learning_rate": 1e-3}}),
        ("sampling.temperature", {"sampling": {"max_new_tokens": 24, "temperature": 0.7}}),
        ("sampling.top_p", {"sampling": {"max_new_tokens": 24, "top_p": 0.9}}),
        ("samples_per_prompt", {"samples_per_prompt": 1, "method": "gspo"}),
        ("method", {"exchange": {"topology": "nobody"}}),
        ("evaluation.every", {"evaluation": {"every": 59}}),
        ("checkpoint.every", {"checkpoint": {"every": 59}}),
    ],
)
def test_each_warning(key: str, change: dict[str, Any], model: str):
    assert warned(recipe_with(model)) == []
    assert key in warned(recipe_with(model, **change))


def test_the_learning_rate_follows_the_size_and_the_responses_in_an_update(model: str):
    (plan, *_) = examine(parse_recipe(recipe_with(model, optimiser={"kl": 0.0}))).agents
    assert plan.learning_rate == 2e-4
    few = {"prompts_per_step": 8, "samples_per_prompt": 4}  # 16 responses in each of two updates
    for rate, more in ((5e-4, {}), (2.5e-4, few)):
        assert "agents.0.learning_rate" not in warned(
            recipe_with(model, optimiser={"learning_rate": rate, "kl": 0.0}, **more)
        )
    values = recipe_with(model, optimiser={"learning_rate": 5e-4, "kl": 0.0}, **few)
    (message, *_) = [w.message for w in warnings_for(examine(parse_recipe(values))) if "learning" in w.key]
    assert (
        "with 16 responses in an update: 0.0002 is usual for its size; or raise prompts_per_step" in message
    )


def test_the_delta_step_that_is_proposed_keeps_the_window_open(model: str):
    values = recipe_with(model, updates={"mini_batches": 5})
    message = next(
        w.message for w in warnings_for(examine(parse_recipe(values))) if w.key == "method.delta_step"
    )
    assert "closed in the last 2 of a step's 10 updates" in message
    assert "delta / 10 = 0.02" in message
    assert warned({**values, "method": {"delta_step": 0.02}}) == []


def test_copies_of_one_agent_and_an_agent_alone(model: str):
    twins = [{"name": name, "model": model} for name in "ab"]
    assert warned(recipe_with(model, agents=twins)) == ["agents"]
    assert warned(recipe_with(model, agents=twins[:1])) == ["method"]
    assert warned(recipe_with(model, agents=twins[:1], method="gspo")) == []


def test_one_peer_after_the_other_is_warned_of_from_three_agents_on(model: str):
    three = [*recipe_with(model)["agents"], {"name": "c", "model": "toy:state-c"}]
    sequential = {"peer_order": "sequential"}
    assert warned(recipe_with(model, exchange=sequential)) == []
    assert warned(recipe_with(model, agents=three, exchange=sequential)) == ["exchange.peer_order"]


def test_a_model_too_large_for_the_machine(model: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("hacrl.analysis.doctor.advice.memory_of", lambda device: 1_000_000)
    assert warned(recipe_with(model)) == ["sampling.max_rows"]
    assert memory_module.memory_of("cpu") > 1e8


def test_large_copies_and_checkpoints(model: str, monkeypatch: pytest.MonkeyPatch):
    large = ModelFacts(10**9, 10**9, 2, 8, 16, 8, 4, 50, 4096)
    monkeypatch.setattr("hacrl.analysis.doctor.examination.look_at", lambda model, lora: large)
    monkeypatch.setattr("hacrl.analysis.doctor.advice.memory_of", lambda device: 10**12)
    often = {"checkpoint": {"every": 1}}
    assert warned(recipe_with(model, **often)) == ["optimiser.kl", "optimiser.kl", "checkpoint.every"]
    assert warned(recipe_with(model, optimiser={"kl": 0.0})) == []


@pytest.mark.parametrize(
    ("key", "change", "expected"),
    [
        ("task", {"task": "dgits"}, "no task 'dgits'"),
        ("task", {"task": {"name": "digits", "trian": 3}}, "trian"),
        ("task", {"task": {"name": "nothing.jsonl"}}, "nothing.jsonl"),
        ("prompts_per_step", {"prompts_per_step": 301}, "at most the task's 300 training prompts, got 301"),
        ("evaluation.tasks.1", {"evaluation": {"tasks": ["sort", "srt"]}}, "no task 'srt'"),
        ("reward.verifier", {"reward": {"verifier": "exat"}}, "did you mean 'exact'?"),
        (
            "reward.functions.0.path",
            {"reward": {"functions": [{"path": "nosuchmodule:f"}]}},
            "No module named 'nosuchmodule'",
        ),
        ("reward.functions.0.path", {"reward": {"functions": [{"path": "math:pi"}]}}, "is not a function"),
        ("reward.functions.0.path", {"reward": {"functions": [{"path": "math:tau_"}]}}, "AttributeError"),
    ],
)
def test_what_cannot_run_is_an_error(key: str, change: dict[str, Any], expected: str, model: str):
    found = examine(parse_recipe(recipe_with(model, **change)))
    assert [problem.key for problem in found.errors] == [key]
    assert expected in found.errors[0].message


def test_models_that_cannot_be_used(tmp_path: Path, model: str):
    (tmp_path / "empty").mkdir()
    (tmp_path / "unweighted").mkdir()
    (tmp_path / "unweighted" / "config.json").write_text(Path(model, "config.json").read_text())
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{")
    (tmp_path / "broken" / "model.safetensors").write_text("")
    for wrong, expected in (
        ("toy:state-z", "there is no toy model 'state-z'"),
        ("toy:state-a@x", "expected a number after '@'"),
        (str(tmp_path / "absent"), "is neither a directory"),
        ("a/b/c", "is neither a directory"),
        (str(tmp_path / "empty"), "no config.json"),
        (str(tmp_path / "unweighted"), "has no weights: a model.safetensors is expected"),
        (str(tmp_path / "broken"), "config.json"),
    ):
        found = examine(parse_recipe(recipe_with(wrong)))
        assert [problem.key for problem in found.errors] == ["agents.0.model"], wrong
        assert expected in found.errors[0].message


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_gpu_that_is_not_there(model: str):
    agents = [{"name": "a", "model": model, "device": "cuda:1"}]
    found = examine(parse_recipe(recipe_with(model, agents=agents, method="gspo")))
    assert [problem.key for problem in found.errors] == ["agents.0.device"]


def test_missing_packages_name_the_extra(model: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    agents = [{"name": "a", "model": "some/model", "lora": {}}]
    values = recipe_with(model, agents=agents, logging={"to": ["wandb"]}, method="gspo")
    found = examine(parse_recipe(values))
    assert {problem.key: problem.message for problem in found.errors} == {
        "logging.to": "needs the wandb package: pip install 'hacrl[wandb]'",
        "agents.0.lora": "needs the peft package: pip install 'hacrl[lora]'",
    }


def test_the_first_prompt_of_every_agent_is_shown_as_its_model_sees_it(model: str, tmp_path: Path) -> None:
    values = recipe_with(model)
    values["agents"][0]["prompt_template"] = "1+1=2\n\n{prompt}"
    plans = examine(parse_recipe(values)).agents
    first = load_task(parse_recipe(values).task).train[0].text
    assert [plan.first_prompt for plan in plans] == [
        (f"<s>1+1=2\n\n{first}", 1 + 7 + len(first)),
        (f"<s>{first}", 1 + len(first)),
    ]
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(values))
    shown = CliRunner().invoke(app, ["doctor", str(path)]).output
    assert f"First prompt of a, {8 + len(first)} tokens:\n  <s>1+1=2\n  \n  {first}\n" in shown
    assert f"First prompt of b, {1 + len(first)} tokens:\n  <s>{first}\n" in shown


def test_what_an_endpoint_is_sent_is_shown_too(model: str, tmp_path: Path) -> None:
    values = recipe_with(model, method="commons")
    far = {"name": "far", "model": "large", "source": {"url": "http://127.0.0.1:9/v1"}}
    prompting = {"system_prompt": "Be brief.", "prompt_template": "Solve {prompt}"}
    values["agents"] = [values["agents"][0], far | prompting]
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(values))
    first = load_task(parse_recipe(values).task).train[0].text
    shown = CliRunner().invoke(app, ["doctor", str(path)]).output
    head = "First prompt of far, its server counts the tokens:"
    assert f"{head}\n  system: Be brief.\n  user: Solve {first}\n" in shown


def test_a_prompt_that_is_not_shown_has_a_note_that_says_so(model: str) -> None:
    values = recipe_with(model, task="math", method="gspo", agents=[{"name": "a", "model": "some/model"}])
    found = examine(parse_recipe(values))
    assert found.agents[0].first_prompt is None
    assert [note.key for note in found.notes] == ["task", "agents.0.model"]
    assert found.notes[0].message.endswith("not checked, and no first prompt is shown")
    assert found.notes[1].message.endswith("its size is not known, and its first prompt is not shown")


def test_a_prompt_that_an_agent_cannot_write_is_an_error(model: str) -> None:
    values = recipe_with(model)
    values["agents"][1]["system_prompt"] = "Be brief."
    (problem,) = examine(parse_recipe(values)).errors
    assert problem.key == "agents.1"
    assert "system_prompt is for a chat template" in problem.message


def test_a_tokenizer_without_eos_takes_that_of_the_model(tmp_path: Path) -> None:
    Qwen3ForCausalLM(Qwen3Config(**SIZES, eos_token_id=[2, 3])).save_pretrained(tmp_path)
    tokenizer = make_tokenizer("characters")
    tokenizer.eos_token = None
    tokenizer.save_pretrained(tmp_path)
    written = written_for(AgentSettings(name="a", model=str(tmp_path)), Prompt("p", "sort 12="))
    assert written == ("<s>sort 12=", 9)


def test_a_task_whose_only_question_is_a_test_question_cannot_be_trained_on(tmp_path: Path, model: str):
    (tmp_path / "one.jsonl").write_text('{"prompt": "1+1", "answer": "2"}\n')
    found = examine(parse_recipe(recipe_with(model, task=str(tmp_path / "one.jsonl"))))
    assert [str(problem) for problem in found.errors] == [
        "prompts_per_step: expected at most the task's 0 training prompts, got 16"
    ]


def test_a_pool_needs_its_key(model: str, monkeypatch: pytest.MonkeyPatch):
    recipe = parse_recipe(recipe_with(model, exchange={"pool": {"url": "shared", "key_env": "OUR_KEY"}}))
    (error,) = examine(recipe).errors
    assert error.key == "exchange.pool.key_env"
    assert "OUR_KEY is not set" in error.message
    monkeypatch.setenv("OUR_KEY", "x" * 20)
    assert examine(recipe).errors == []


@pytest.mark.parametrize(
    ("engine", "ranks", "words"),
    [
        ({}, 1, "vLLM"),
        ({}, 4, "4 engines of vLLM side by side"),
        ({"tensor_parallel": 2}, 4, "2 engines of vLLM side by side, split over 2 ranks (tensor parallel)"),
        ({"tensor_parallel": 4}, 4, "one engine of vLLM, split over 4 ranks (tensor parallel)"),
        ({"url": "http://host:8000"}, 2, "the vLLM server at http://host:8000"),
    ],
)
def test_the_doctor_says_how_many_engines_an_agent_has(engine, ranks, words):
    assert backends._engine(VllmSettings(**engine), ranks) == words
