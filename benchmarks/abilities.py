"""What models can do before training, on many small tasks: `python -m benchmarks.abilities`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import typer

from benchmarks.command import JsonFile, Markdown, command, progress, show
from hacrl import tasks
from hacrl.agents.agent import Agent
from hacrl.agents.blueprint import Blueprint
from hacrl.analysis.tables import TextTable
from hacrl.recipe import Recipe, parse_recipe
from hacrl.tasks.word_problems import NAME, kinds
from hacrl.training.evaluation import Evaluation, evaluate
from hacrl.training.team_setup import make_rewarder
from hacrl.types import Prompt

STOPS = ("\n",)
"""A response is one line: a base model would go on with the next question."""
Style = Literal["answer", "equation", "solution"]
LENGTHS: dict[Style, int] = {"answer": 8, "equation": 16, "solution": 64}
"""Most tokens of a response."""


@dataclass(frozen=True)
class Candidate:
    """A task that agents might be trained on."""

    label: str
    name: str
    settings: dict[str, Any] = field(default_factory=dict)

    def load(self, prompts: int) -> tasks.Task:
        """The task with few training prompts: they are only shown as examples."""
        return tasks.load(self.name, **{"train": 60, "test": prompts} | self.settings)


WORDS = tuple(
    Candidate(f"{kind}, up to {largest}", NAME, {"kinds": [kind], "largest": largest})
    for kind in kinds()
    for largest in (20, 50)
)
GYM = tuple(
    Candidate(label, f"gym:{name}", {"config": config})
    for label, name, config in (
        (
            "gym: sums of two digits",
            "chain_sum",
            {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 2},
        ),
        ("gym: products", "products", {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}),
        ("gym: greatest common divisor", "gcd", {"max_value": 30}),
        ("gym: count letters", "letter_counting", {"min_words": 2, "max_words": 4}),
        ("gym: sequences", "number_sequence", {"max_complexity": 1}),
        ("gym: spell backward", "spell_backward", {"min_word_len": 3, "max_word_len": 4}),
        ("gym: legs of animals", "leg_counting", {"min_animals": 1, "max_animals": 2}),
        ("gym: equations", "simple_equations", {"min_terms": 2, "max_terms": 2, "max_value": 20}),
    )
)
CANDIDATES = (*WORDS, *GYM)


@dataclass(frozen=True)
class Ability:
    """One model on one task."""

    task: str
    model: str
    sampled: float
    """Accuracy of one response at temperature 1."""
    greedy: float
    mixed: float
    """Share of prompts with right and wrong samples among k: only these teach anything."""


@dataclass(frozen=True)
class Abilities:
    """All models on all tasks."""

    prompts: int
    samples: int
    examples: int
    style: str
    chat: bool
    found: list[Ability]


def abilities(
    model: Annotated[
        list[Path], typer.Option(help="Directory of a model; repeatable. `make models` makes two.")
    ],
    only: Annotated[
        list[str] | None, typer.Option(help="Only tasks with this in their names. Repeatable.")
    ] = None,
    prompts: Annotated[int, typer.Option(min=12, help="Test prompts of each task.")] = 64,
    samples: Annotated[int, typer.Option(min=2, help="Responses to a prompt at temperature 1.")] = 8,
    examples: Annotated[int, typer.Option(min=0, help="Solved questions in front of each prompt.")] = 2,
    style: Annotated[Style, typer.Option(help="How examples of word problems are answered.")] = "equation",
    chat: Annotated[
        bool, typer.Option(help="Write prompts with the chat template, if there is one.")
    ] = False,
    markdown: Markdown = False,
    json_file: JsonFile = None,
) -> None:
    """Measure models alone, as they are, with solved questions in front of each prompt."""
    torch.set_num_threads(1)
    chosen = [each for each in CANDIDATES if any(part in each.label for part in only or [""])]
    found = [
        ability
        for directory in model
        for ability in measure(directory, chosen, prompts, samples, examples, style, chat)
    ]
    result = Abilities(prompts, samples, examples, style, chat, found)
    show([_table(result)], result, markdown, json_file)


def measure(
    directory: Path,
    chosen: Sequence[Candidate],
    prompts: int,
    samples: int,
    examples: int,
    style: Style,
    chat: bool,
) -> list[Ability]:
    """One model on all tasks."""
    sampling = {"max_new_tokens": LENGTHS[style], "stop": STOPS}
    agent = {"name": "agent", "model": str(directory.resolve()), "chat": chat}
    recipe = parse_recipe({"agents": [agent], "task": NAME, "sampling": sampling})
    loaded = Blueprint(recipe.agents[0], sampling=recipe.sampling).load()
    found = []
    for candidate in chosen:
        task = candidate.load(prompts)
        asked = [with_examples(prompt, task.train[:examples], style) for prompt in task.test]
        result = _evaluate(loaded, recipe, replace(task, test=asked), samples)
        assert result.mean_at_k is not None
        assert result.problems.mean_at_k is not None
        mixed = [share for share in result.problems.mean_at_k if share is not None and 0 < share < 1]
        shares = (result.mean_at_k.mean, result.greedy.mean, len(mixed) / prompts)
        found.append(Ability(candidate.label, directory.name, *shares))
        progress(f"{directory.name}, {candidate.label}: {_cell(found[-1])}")
    return found


def with_examples(prompt: Prompt, shown: Sequence[Prompt], style: Style) -> Prompt:
    """The prompt after solved questions."""
    answers = [each.columns.get(style, each.columns["answer"]) for each in shown]
    blocks = [f"Q: {each.text}\nA: {answer}\n\n" for each, answer in zip(shown, answers, strict=True)]
    return replace(prompt, text=f"{''.join(blocks)}Q: {prompt.text}\nA:")


def _evaluate(agent: Agent, recipe: Recipe, task: tasks.Task, samples: int) -> Evaluation:
    with make_rewarder(recipe, task) as rewarder:
        return evaluate(agent, task.test, rewarder, recipe.sampling, samples, seed=0)


def _table(result: Abilities) -> TextTable:
    models = list(dict.fromkeys(each.model for each in result.found))
    rows = []
    for task in dict.fromkeys(each.task for each in result.found):
        by_model = {each.model: each for each in result.found if each.task == task}
        rows.append((task, *(_cell(by_model[model]) for model in models)))
    title = (
        "Before training: accuracy at temperature 1 / greedy / share of prompts with right and wrong "
        f"responses among {result.samples}; {result.prompts} test prompts each"
    )
    return TextTable(title, ("task", *models), rows)


def _cell(each: Ability) -> str:
    return f"{each.sampled:.2f} / {each.greedy:.2f} / {each.mixed:.2f}"


app = command(abilities)

if __name__ == "__main__":
    app()
