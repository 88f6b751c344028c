"""A finished run's agents, each in a directory that plain transformers and vLLM load, with a model card."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hacrl.defaults import usual_learning_rate
from hacrl.recipe import Recipe
from hacrl.recipe.agent_settings import PromptSettings
from hacrl.runs.files import replaced_directory, write_synced
from hacrl.runs.publish import CARD, PLACE
from hacrl.training.best_weights import BestWeights
from hacrl.training.evaluation import MEASURES, measure_name
from hacrl.training.team import Member, Team


def export_agents(
    team: Team, directory: Path, summary: dict[str, Any], best: BestWeights | None = None
) -> None:
    """Write `directory/<name>` for every agent: weights, tokenizer, generation config, model card.

    The weights are those of now, or the best ones.
    """
    for member in team.present:
        with replaced_directory(directory / member.name) as aside:
            if best is not None and member.name in best.best:
                best.export(member.name, aside)
            else:
                member.policy.save(aside)
            write_synced(aside / CARD, model_card(team, member, summary).encode())


def model_card(team: Team, member: Member, summary: dict[str, Any]) -> str:
    """How the agent was trained, with which peers, and what was measured."""
    recipe = team.recipe
    agent = recipe.agent(member.name)
    measured = summary["agents"][member.name]
    lines = [
        "---",
        *([] if _is_local(agent.model) else [f"base_model: {json.dumps(agent.model)}"]),
        "library_name: transformers",
        "tags: [hacrl, reinforcement-learning]",
        "---",
        "",
        f"# {member.name}",
        "",
        f"Trained with [hacrl](https://arxiv.org/abs/2603.02604) from `{_public(agent.model)}` on the task "
        f"`{_public(team.task.name)}` with the method `{team.method.label}`.",
        "",
        f"The licence of `{_public(agent.model)}` applies to it too: name it in the header of this card "
        "before you publish it.",
        "",
        "## How it was trained",
        "",
        f"- learned from: {_sources(team, member)}",
        f"- method: {_settings(recipe.method.model_dump(exclude={'name'}))}",
        f"- {recipe.steps} steps of {recipe.prompts_each} prompts, {member.samples} responses each at "
        f"temperature {recipe.sampling.temperature:g}, at most {recipe.sampling.max_new_tokens} tokens, "
        f"seed {recipe.seed}",
        f"- AdamW, learning rate {_learning_rate(recipe, member):g}, "
        f"{recipe.updates.mini_batches} updates for each source in a step, KL weight {recipe.optimiser.kl:g}",
        f"- cost: {measured['rollouts']:,} rollouts, {measured['generated_tokens']:,} generated tokens, "
        f"{measured['trained_tokens']:,} trained tokens, {measured['updates']:,} updates",
        f"- weights of step {measured['exported_step']}"
        + (", the best of all evaluated ones" if recipe.evaluation.keep == "best" else ""),
        *_prompting(team, member),
        *([f"- stopped early: {measured['retired']}"] if measured["retired"] else []),
        "",
        "## What was measured",
        "",
        "Accuracy of the agent alone on test problems, with 95% intervals over problems.",
        "",
        *_results(measured),
        "",
        "## How to use it",
        "",
        "Alone, with plain `transformers`:",
        "",
        "```python",
        "from transformers import AutoModelForCausalLM, AutoTokenizer",
        "",
        f'model = AutoModelForCausalLM.from_pretrained("{PLACE}")',
        f'tokenizer = AutoTokenizer.from_pretrained("{PLACE}")',
        "```",
        "",
    ]
    return "\n".join(lines)


def _is_local(model: str) -> bool:
    """Whether the model is not on the hub: a directory, or a toy."""
    return model.startswith("toy:") or Path(model).is_dir()


def _public(name: str) -> str:
    """A model or task as others know it: of a directory or file of this machine only its own name."""
    return Path(name).resolve().name if Path(name).exists() else name


def _prompting(team: Team, member: Member) -> list[str]:
    """How its prompts were written and what ended its responses, where that is not the default."""
    agent = team.recipe.agent(member.name)
    given = agent.model_dump(include=set(PromptSettings.model_fields), exclude_defaults=True)
    if team.recipe.sampling.stop:
        given["stop"] = list(team.recipe.sampling.stop)
    return [f"- prompts: `{json.dumps(given, ensure_ascii=False)}`"] if given else []


def _sources(team: Team, member: Member) -> str:
    peers = [f"{peer} (`{_public(team.recipe.agent(peer).model)}`)" for peer in team.topology[member.name]]
    return f"its own responses and those of {', '.join(peers)}" if peers else "its own responses alone"


def _settings(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in values.items() if value not in (None, [], ())) or "-"


def _results(measured: dict[str, Any]) -> list[str]:
    lines = ["| task | measure | before | after | problems |", "|---|---|---|---|---|"]
    for task, after in measured["after"].items():
        before = measured["before"].get(task)
        for measure in MEASURES:
            if after.get(measure) is not None:
                shown = [_interval(values[measure]) if values else "-" for values in (before, after)]
                name = measure_name(measure, after["samples"], after.get("many", 0))
                lines.append(
                    f"| {_public(task)} | {name} | {' | '.join(shown)} | {after[measure]['problems']} |"
                )
    return lines


def _interval(share: dict[str, float]) -> str:
    return f"{share['mean']:.3f} [{share['low']:.3f}, {share['high']:.3f}]"


def _learning_rate(recipe: Recipe, member: Member) -> float:
    """The recipe's, or the usual one for the size of the model."""
    adapters = recipe.agent(member.name).lora is not None
    return recipe.learning_rate_of(member.name) or usual_learning_rate(member.policy.parameters, adapters)
