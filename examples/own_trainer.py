"""Your own models, data and reward from Python, with TRL's argument names."""

import json
from pathlib import Path

from own_reward import closeness

import hacrl

rows = [json.loads(line) for line in Path("questions.jsonl").read_text().splitlines()]
trainer = hacrl.Trainer(
    agents={"ada": "models/ada", "bob": "models/bob"},
    reward_funcs=closeness,
    train_dataset=rows[:90],
    eval_dataset=rows[90:],
    args={
        "steps": 10,
        "prompts_per_step": 16,
        "samples_per_prompt": 8,
        "sampling": {"max_new_tokens": 16},
        "optimiser": {"learning_rate": 1.5e-4, "kl": 0.0},
    },
    output_dir="runs/own-trainer",
)
summary = trainer.train()
for name, agent in summary["agents"].items():
    before, after = (agent[when]["train_dataset"]["greedy"]["mean"] for when in ("before", "after"))
    print(f"{name}: mean reward on {len(rows[90:])} test questions {before:.3f} -> {after:.3f}")
