"""Whether an agent computes what plain transformers computes: `python -m benchmarks.exactness`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
import typer

from benchmarks.command import JsonFile, Markdown, command, progress, show
from benchmarks.real_prompts import word_problems
from hacrl.agents.loading import load_model
from hacrl.agents.policy import Policy
from hacrl.analysis.tables import TextTable
from hacrl.recipe import SamplingSettings
from hacrl.types import Rollout

LIMIT = 1e-4
"""Largest difference of a log-prob in fp32."""


@dataclass(frozen=True)
class Exactness:
    """How an agent's responses and log-probs compare with plain transformers, and with its own scores."""

    model: str
    backends: dict[str, str]
    prompts: int
    max_new_tokens: int
    different: list[str]
    """Ids of the prompts whose greedy response is another one."""
    tokens: int
    """Sampled ones, whose log-probs are compared."""
    scoring: float
    """Largest difference of a token's log-prob between sampling and scoring."""
    transformers: float
    """The same between sampling and the forward pass of transformers."""

    @property
    def exact(self) -> bool:
        """Whether greedy responses are the same and log-probs (never NaN) agree."""
        return not self.different and self.scoring <= LIMIT and self.transformers <= LIMIT


def exactness(
    model: Annotated[Path, typer.Option(help="Directory of the model; `make models` makes two.")],
    prompts: Annotated[int, typer.Option(min=1, help="Word problems to respond to.")] = 50,
    max_new: Annotated[int, typer.Option(min=1, help="Most tokens of a response.")] = 32,
    markdown: Markdown = False,
    json_file: JsonFile = None,
) -> None:
    """Compare an agent's greedy responses and log-probs with those of plain transformers, in fp32.

    Exit code 1 if a response differs, or a log-prob by more than 1e-4.
    """
    found = measure_exactness(model, prompts, max_new)
    show([_table(found)], found, markdown, json_file)
    if not found.exact:
        typer.echo(f"error: not exact; other responses to the prompts {found.different}", err=True)
        raise typer.Exit(1)


def measure_exactness(model: Path, prompts: int, max_new: int) -> Exactness:
    """Both sides run one copy of the weights."""
    network, tokenizer = load_model(model, torch.device("cpu"), torch.float32)
    agent = Policy(model.name, network, tokenizer)
    questions = word_problems(prompts)
    ids = {prompt.id: agent.encoder.encode_prompt(prompt) for prompt in questions}
    progress("greedy responses")
    sampling = SamplingSettings(max_new_tokens=max_new)
    greedy = agent.sample(questions, 1, sampling.as_greedy(), seed=0)
    different = [
        rollout.prompt_id
        for rollout in greedy
        if rollout.token_ids != _generate(network, ids[rollout.prompt_id], max_new, agent.encoder.eos_ids)
    ]
    progress("log-probs")
    drawn = agent.sample(questions, 1, sampling, seed=0)
    scores = agent.score([(ids[rollout.prompt_id], rollout.token_ids) for rollout in drawn])
    plain = [_forward(network, ids[rollout.prompt_id], rollout.token_ids) for rollout in drawn]
    return Exactness(
        model=model.name,
        backends=agent.backends,
        prompts=prompts,
        max_new_tokens=max_new,
        different=different,
        tokens=sum(len(rollout.token_ids) for rollout in drawn),
        scoring=_largest_difference(drawn, scores),
        transformers=_largest_difference(drawn, plain),
    )


def _generate(
    network: torch.nn.Module, prompt: Sequence[int], max_new: int, eos: Sequence[int]
) -> tuple[int, ...]:
    """The greedy response of transformers, EOS included."""
    inputs = torch.tensor([prompt])
    found = network.generate(
        inputs,
        attention_mask=torch.ones_like(inputs),
        max_new_tokens=max_new,
        do_sample=False,
        eos_token_id=list(eos),
        pad_token_id=eos[0],
    )
    return tuple(found[0, len(prompt) :].tolist())


@torch.inference_mode()
def _forward(network: torch.nn.Module, prompt: Sequence[int], response: Sequence[int]) -> tuple[float, ...]:
    """Log-probs of the response's tokens by one forward pass of transformers, without padding or cache."""
    logits = network(torch.tensor([[*prompt, *response]]), use_cache=False).logits[0, len(prompt) - 1 : -1]
    return tuple(logits.log_softmax(-1).gather(1, torch.tensor(response)[:, None]).squeeze(1).tolist())


def _largest_difference(rollouts: Sequence[Rollout], others: Sequence[Sequence[float]]) -> float:
    pairs = zip(rollouts, others, strict=True)
    return max(
        abs(own - other)
        for rollout, logps in pairs
        for own, other in zip(rollout.token_logps, logps, strict=True)
    )


def _table(found: Exactness) -> TextTable:
    rows = [
        (
            "prompts with the same greedy response",
            f"{found.prompts - len(found.different)} of {found.prompts}",
        ),
        ("log-probs: sampling and scoring, largest difference", f"{found.scoring:.1e}"),
        ("log-probs: sampling and transformers, largest difference", f"{found.transformers:.1e}"),
    ]
    ran = f"{found.model} ({', '.join(found.backends.values())})"
    return TextTable(f"{ran} and plain transformers, fp32, {found.tokens} tokens", ("", "found"), rows)


app = command(exactness)

if __name__ == "__main__":
    app()
