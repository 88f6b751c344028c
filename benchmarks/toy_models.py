"""A table of what the toy models can do before any reinforcement learning."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import fmean

from rich.console import Console
from rich.table import Table
from transformers import AutoModelForCausalLM, AutoTokenizer

from benchmarks.command import command
from hacrl.agents.policy import Policy
from hacrl.recipe.settings import SamplingSettings
from hacrl.tasks.procedural import TASKS, load_procedural
from hacrl.tasks.toy_models import models as toy_models
from hacrl.types import Prompt

PROMPTS = 600
SAMPLES = 4
LONGEST = 24
"""Most tokens of a response: enough for every task of the toy models."""


def accuracy(
    agent: Policy, prompts: Sequence[Prompt], samples: int, *, greedy: bool = False
) -> dict[str, float]:
    """Share of correct responses by kind of prompt, and their `mean`.

    A prompt's answer is a regular expression; one that consists of digits matches only itself.
    """
    sampling = SamplingSettings(max_new_tokens=LONGEST)
    rollouts = agent.sample(prompts, samples, sampling.as_greedy() if greedy else sampling, seed=0)
    by_id = {prompt.id: prompt for prompt in prompts}
    right: dict[str, list[bool]] = defaultdict(list)
    for rollout in rollouts:
        prompt = by_id[rollout.prompt_id]
        right[prompt.kind].append(re.fullmatch(prompt.columns["answer"], rollout.text) is not None)
    kinds = {kind: fmean(values) for kind, values in right.items()}
    return {**kinds, "mean": fmean(kinds.values())}


def main() -> None:
    """Print size, tokenizer and accuracy of the toy models, by procedural task; missing ones are made."""
    by_task: dict[str, list[str]] = defaultdict(list)
    for name, agent in toy_models.AGENTS.items():
        if agent.task in TASKS:
            by_task[agent.task].append(name)
    for task, agents in by_task.items():
        Console(width=140).print(_table(task, agents))


def _table(task: str, names: Iterable[str]) -> Table:
    table = Table(
        title=f"Toy models: sampled (greedy) accuracy on {PROMPTS} test prompts of the task {task}",
        caption=f"sampled: {SAMPLES} responses per prompt at temperature 1",
    )
    kinds = [*(skill.name for skill in TASKS[task]), "mean"]
    for heading in ("agent", "model", "parameters", "tokens", *kinds):
        table.add_column(heading)
    prompts = load_procedural(task, test=PROMPTS, seed=1).test
    for name in names:
        body, directory = toy_models.AGENTS[name].body, toy_models.build(name)
        model = AutoModelForCausalLM.from_pretrained(directory)
        policy = Policy(name, model, AutoTokenizer.from_pretrained(directory))
        sampled = accuracy(policy, prompts, SAMPLES)
        greedy = accuracy(policy, prompts, 1, greedy=True)
        table.add_row(
            name,
            f"{body.architecture} {body.width}x{body.layers}",
            f"{model.num_parameters():,}",
            body.cut,
            *(f"{sampled[kind]:.3f} ({greedy[kind]:.3f})" for kind in kinds),
        )
    return table


app = command(main)

if __name__ == "__main__":
    app()
