"""A finished run's agents, each in a directory that plain transformers and vLLM load, with a model card."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from hacrl.evaluate import MEASURES
from hacrl.training.team import Member, Team

CARD = "README.md"


def export_agents(team: Team, directory: Path, summary: dict[str, Any]) -> None:
    """Write `directory/<name>` for every agent: weights, tokenizer, generation config, model card."""
    for member in team.members:
        final = directory / member.name
        aside = directory / f".{member.name}.tmp"
        for leftover in (aside, final):
            shutil.rmtree(leftover, ignore_errors=True)
        member.policy.save(aside)
        (aside / CARD).write_text(model_card(team, member, summary), encoding="utf-8")
        aside.rename(final)


def model_card(team: Team, member: Member, summary: dict[str, Any]) -> str:
    """How the agent was trained, with whom, and what was measured."""
    recipe = team.recipe
    agent = recipe.agent(member.name)
    peers = team.topology[member.name]
    measured = summary["agents"][member.name]
    lines = [
        "---",
        "library_name: transformers",
        "tags: [hacrl, reinforcement-learning]",
        "---",
        "",
        f"# {member.name}",
        "",
        f"Trained with [hacrl](https://arxiv.org/abs/2603.02604) from `{agent.model}` on the task "
        f"`{team.task.name}` with the method `{team.method.name}`.",
        "",
        f"- learned from: its own answers{' and those of ' + ', '.join(peers) if peers else ' alone'}",
        f"- {recipe.steps} steps of {recipe.prompts_per_step} prompts, {member.samples} answers each, "
        f"seed {recipe.seed}",
        f"- {measured['rollouts']:,} rollouts, {measured['generated_tokens']:,} generated tokens, "
        f"{measured['updates']:,} updates",
        "",
        *_results(measured),
        "",
        "The agent is used alone, with plain `transformers`:",
        "",
        "```python",
        "from transformers import AutoModelForCausalLM, AutoTokenizer",
        "",
        'model = AutoModelForCausalLM.from_pretrained("path/to/this/directory")',
        'tokenizer = AutoTokenizer.from_pretrained("path/to/this/directory")',
        "```",
        "",
    ]
    return "\n".join(lines)


def _results(measured: dict[str, Any]) -> list[str]:
    lines = ["| task | measure | before | after | problems |", "|---|---|---|---|---|"]
    for task, after in measured["after"].items():
        before = measured["before"].get(task)
        for measure in MEASURES:
            if after[measure] is not None:
                shown = [_interval(values[measure]) if values else "-" for values in (before, after)]
                lines.append(f"| {task} | {measure} | {' | '.join(shown)} | {after[measure]['problems']} |")
    return lines


def _interval(share: dict[str, float]) -> str:
    return f"{share['mean']:.3f} [{share['low']:.3f}, {share['high']:.3f}]"
