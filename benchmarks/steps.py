"""Where the time of a training step goes, and what saving after every step adds to it."""

from __future__ import annotations

import itertools
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from transformers import AutoModelForCausalLM, Qwen3Config

from benchmarks.command import JsonFile, Markdown, Repeats, command, progress, show
from benchmarks.stopwatch import CAPABILITY, Stopwatch
from benchmarks.workload import SIZES
from hacrl.analysis.simulate.synthetic import rewards
from hacrl.analysis.tables import TextTable
from hacrl.huggingface import no_progress_bar
from hacrl.tasks.toy_models.tokenizers import make_tokenizer
from hacrl.training.trainer import train

AGENTS = 4
STEPS = 4
NEVER = 1_000_000


@dataclass(frozen=True)
class StepCosts:
    """Seconds per step."""

    phases: dict[str, float]
    """Of the computation, without writing anything."""
    capability: float
    """The part of it that contextual capability takes."""
    saving_off: list[float]
    """Whole steps of runs that never save, ..."""
    saving_on: list[float]
    """... and of runs that save after every step, alternating with the others."""


def steps(
    repeats: Repeats = 3,
    method: Annotated[str, typer.Option(help="How they learn.")] = "hacpo",
    markdown: Markdown = False,
    json_file: JsonFile = None,
) -> None:
    """Show where the time of a training step goes, and what saving after every step adds to it.

    Four agents of size S train, alternating with and without saving.
    """
    costs = measure_steps(method, repeats)
    show(step_tables(costs), costs, markdown, json_file)


def measure_steps(method: str, repeats: int) -> StepCosts:
    """Train four random agents of size S, whose responses have full length and are all different.

    None of them would be right, so half of them get a reward anyway: otherwise there would be no gradient.
    """
    with tempfile.TemporaryDirectory() as folder:
        agents = [_make_agent(Path(folder) / f"agent-{number}", number) for number in range(AGENTS)]
        phases: dict[str, list[float]] = defaultdict(list)
        whole: dict[int, list[float]] = {NEVER: [], 1: []}
        for repeat, every in itertools.product(range(repeats), whole):
            progress(f"round {repeat + 1} of {repeats}, saving {'on' if every == 1 else 'off'}")
            stopwatch = Stopwatch()
            out = Path(folder) / f"run-{repeat}-{every}"
            train(_recipe(agents, every, method), out, reward_funcs=[rewards], display=stopwatch)
            whole[every] += stopwatch.steps
            for phase, seconds in stopwatch.phases.items():
                phases[phase] += seconds
    medians = {phase: statistics.median(seconds) for phase, seconds in phases.items()}
    capability = medians.pop(CAPABILITY)
    return StepCosts(medians, capability, whole[NEVER], whole[1])


def step_tables(costs: StepCosts) -> list[TextTable]:
    """Shares of a step, and the cost of saving."""
    total = sum(costs.phases.values())
    shares = [(phase, f"{seconds:.3f}", f"{seconds / total:.1%}") for phase, seconds in costs.phases.items()]
    if costs.capability:
        part = "contextual capability, part of exchange"
        shares.append((part, f"{costs.capability:.3f}", f"{costs.capability / total:.1%}"))
    off, on = (statistics.median(steps) for steps in (costs.saving_off, costs.saving_on))
    saving = [
        ("without saving", f"{off:.3f}", ""),
        ("saving after every step", f"{on:.3f}", f"{on / off - 1:+.1%}"),
    ]
    title = f"One step of {AGENTS} agents of size S, 16 prompts x 8 samples, 32 new tokens"
    return [
        TextTable(title, ("phase", "seconds", "share"), shares),
        TextTable("Whole steps, median", ("", "seconds", "difference"), saving),
    ]


def _make_agent(directory: Path, seed: int) -> Path:
    tokenizer = make_tokenizer("digit-pairs" if seed % 2 else "characters")
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        **SIZES["S"].shape,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    with torch.random.fork_rng(), no_progress_bar():
        torch.manual_seed(seed)
        AutoModelForCausalLM.from_config(config).save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory


def _recipe(agents: Sequence[Path], save_every: int, method: str) -> dict[str, Any]:
    return {
        "agents": [{"name": path.name, "model": str(path)} for path in agents],
        "task": "digits",
        "method": method,
        "steps": STEPS,
        "prompts_per_step": 16,
        "samples_per_prompt": 8,
        "sampling": {"max_new_tokens": 32},
        "optimiser": {"kl": 0.0},
        "evaluation": {"before": False, "prompts": 1},
        "checkpoint": {"every": save_every},
    }


app = command(steps)

if __name__ == "__main__":
    app()
