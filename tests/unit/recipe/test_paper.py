"""The paper's recipes have the settings of the authors' launch script, as `docs/paper.md` lists them."""

from pathlib import Path

import pytest

from hacrl.recipe import load_recipe

RECIPES = Path(__file__).parents[3] / "recipes" / "paper"
PAIRS = {  # alpha, delta, delta_step
    "state-qwen3-4b": (3.0, 0.2, 0.01),
    "size-qwen3-1.7b-4b": (1.0, 0.2, 0.025),
    "model-qwen3-4b-llama3.2-3b": (1.0, 0.2, 0.025),
    "size-qwen3-4b-8b": (3.0, 0.2, 0.025),
    "size-llama3.2-1b-3b": (1.0, 0.1, 0.01),
    "model-qwen3-1.7b-llama3.2-1b": (1.0, 0.2, 0.025),
}
SCRIPT = {  # run_hacpo_math_8gpu.sh, hacpo_trainer.yaml and verl's defaults
    "steps": 7500 // 128,
    "prompts_per_step": 128,
    "samples_per_prompt": 8,
    "max_prompt_tokens": 1024,
    "seed": 42,
    "task.name": "math",
    "method.clip_low": 0.0003,
    "method.clip_high": 0.0004,
    "method.log_ratio_cap": 10.0,
    "method.without": [],
    "capability.measure": "positive_rate",
    "capability.window": 5,
    "capability.floor": 1e-8,
    "capability.clamp": [0.1, 10.0],
    "sampling.max_new_tokens": 4096,
    "sampling.temperature": 1.0,
    "sampling.top_p": 1.0,
    "sampling.top_k": None,
    "exchange.max_prompt_tokens": 1536,
    "exchange.max_response_tokens": 4096,
    "exchange.truncate_overlong": True,
    "exchange.length_norm": "own",
    "reward.verifier": "boxed",
    "updates.mini_batches": 128 // 64,
    "updates.tokens_per_micro_batch": 8192,
    "updates.gradient_checkpointing": True,
    "updates.mask_truncated": False,
    "updates.train_eos": False,
    "optimiser.learning_rate": 1e-6,
    "optimiser.betas": [0.9, 0.999],
    "optimiser.weight_decay": 0.01,
    "optimiser.max_grad_norm": 1.0,
    "optimiser.schedule": "constant",
    "optimiser.warmup_steps": 0,
    "optimiser.skip_empty_updates": False,
    "optimiser.kl": 0.001,
    "evaluation.every": 3,
    "evaluation.before": True,
    "evaluation.prompts": 500,
}


@pytest.mark.parametrize("pair", PAIRS)
def test_a_pair_has_the_settings_of_the_authors(pair: str) -> None:
    recipe = load_recipe(RECIPES / f"{pair}.yaml")
    resolved = recipe.resolved()
    for key, theirs in SCRIPT.items():
        value = resolved
        for word in key.split("."):
            value = value[word]
        assert value == theirs, key
    method = resolved["method"]
    assert (method["alpha"], method["delta"], method["delta_step"]) == PAIRS[pair]
    assert sum(agent.resources.ranks for agent in recipe.agents) == 8
    for agent in recipe.agents:
        thinking = {"enable_thinking": False} if "Qwen3" in agent.model else {"date_string": "26 Jul 2024"}
        assert agent.template_variables == thinking


def test_the_documentation_names_every_pair_and_every_setting() -> None:
    page = (RECIPES.parents[1] / "docs" / "paper.md").read_text()
    for pair, numbers in PAIRS.items():
        row = " | ".join(f"{number:g}" for number in numbers)
        assert f"| `{pair}` | {row} |" in page
    differs = {"checkpoint", "logging", "audit", "runtime"}
    sections = {key.partition(".")[0] for key in SCRIPT} - differs - {"seed", "steps"}
    for section in sections:
        assert f"`{section}" in page, section
