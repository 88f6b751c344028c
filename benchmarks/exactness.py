"""Whether an agent computes what plain transformers computes: `python -m benchmarks.exactness`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from benchmarks.command import JsonFile, Markdown, command, progress, show
from benchmarks.real_prompts import word_problems
from hacrl.agents.loading import load_model
from hacrl.agents.policy import Policy
from hacrl.analysis.tables import TextTable
from hacrl.recipe import SamplingSettings
from hacrl.types import Prompt, Rollout

LIMIT = 1e-4
"""Largest difference of a log-prob in fp32."""
STOP = ("\n",)


@dataclass(frozen=True)
class Exactness:
    """How an agent's responses and log-probs compare with plain transformers, and with its own scores."""

    model: str
    backends: dict[str, str]
    prompts: int
    max_new_tokens: int
    different: list[str]
    """Ids of the prompts whose greedy response is another one."""
    different_with_stop: list[str]
    """The same with a stop string."""
    stopped: int
    """Greedy responses that the stop string ended."""
    tokens: int
    """Sampled ones, whose log-probs are compared."""
    scoring: float
    """Largest difference of a token's log-prob between sampling and scoring."""
    transformers: float
    """The same between sampling and the forward pass of transformers."""

    @property
    def exact(self) -> bool:
        """Whether greedy responses are the same and log-probs (never NaN) agree."""
        others = self.different + self.different_with_stop
        return not others and self.scoring <= LIMIT and self.transformers <= LIMIT


def exactness(
    model: Annotated[Path, typer.Option(help="Directory of the model; `make models` makes two.")],
    prompts: Annotated[int, typer.Option(min=1, help="Word problems to respond to.")] = 50,
    max_new: Annotated[int, typer.Option(min=1, help="Most tokens of a response.")] = 32,
    markdown: Markdown = False,
    json_file: JsonFile = None,
) -> None:
    """Compare an agent's greedy responses and log-probs with those of plain transformers, in fp32.

    Greedy responses are compared without stop strings, and with the end of a line as one.
    Exit code 1 if a response differs, or a log-prob by more than 1e-4.
    """
    found = measure_exactness(model, prompts, max_new)
    show([_table(found)], found, markdown, json_file)
    if not found.exact:
        typer.echo("error: the agent does not compute what plain transformers computes", err=True)
        raise typer.Exit(1)


def measure_exactness(model: Path, prompts: int, max_new: int) -> Exactness:
    """Both sides run one copy of the weights."""
    network, tokenizer = load_model(model, torch.device("cpu"), torch.float32)
    agent = Policy(model.name, network, tokenizer)
    questions = word_problems(prompts)
    sampling = SamplingSettings(max_new_tokens=max_new)
    progress("greedy responses")
    different, _ = _other_responses(agent, network, tokenizer, questions, sampling.as_greedy())
    stopping = SamplingSettings(max_new_tokens=max_new, stop=STOP).as_greedy()
    different_with_stop, stopped = _other_responses(agent, network, tokenizer, questions, stopping)
    progress("log-probs")
    ids = {prompt.id: agent.encoder.encode_prompt(prompt) for prompt in questions}
    drawn = agent.sample(questions, 1, sampling, seed=0)
    scores = agent.score([(ids[rollout.prompt_id], rollout.token_ids) for rollout in drawn])
    plain = [_forward(network, ids[rollout.prompt_id], rollout.token_ids) for rollout in drawn]
    return Exactness(
        model=model.name,
        backends=agent.backends,
        prompts=prompts,
        max_new_tokens=max_new,
        different=different,
        different_with_stop=different_with_stop,
        stopped=stopped,
        tokens=sum(len(rollout.token_ids) for rollout in drawn),
        scoring=_largest_difference(drawn, scores),
        transformers=_largest_difference(drawn, plain),
    )


def _other_responses(
    agent: Policy, network: Any, tokenizer: Any, prompts: Sequence[Prompt], sampling: SamplingSettings
) -> tuple[list[str], int]:
    """Ids of the prompts to which transformers responds with other tokens, EOS and stop string included;
    and how many of the responses ended with a stop string.
    """
    different, eos_ids = [], list(agent.encoder.eos_ids)
    rollouts = agent.sample(prompts, 1, sampling, seed=0)
    for prompt, rollout in zip(prompts, rollouts, strict=True):
        ids = torch.tensor([agent.encoder.encode_prompt(prompt)])
        found = network.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=sampling.max_new_tokens,
            do_sample=False,
            eos_token_id=eos_ids,
            pad_token_id=eos_ids[0],
            stop_strings=list(sampling.stop) or None,
            tokenizer=tokenizer,
        )
        if rollout.token_ids != tuple(found[0, ids.shape[1] :].tolist()):
            different.append(prompt.id)
    return different, sum(rollout.stop is not None for rollout in rollouts)


@torch.inference_mode()
def _forward(network: Any, prompt: Sequence[int], response: Sequence[int]) -> tuple[float, ...]:
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
    same = [found.prompts - len(others) for others in (found.different, found.different_with_stop)]
    rows = [
        ("prompts with the same greedy response", f"{same[0]} of {found.prompts}"),
        (f"the same with a stop string, which ends {found.stopped}", f"{same[1]} of {found.prompts}"),
        ("log-probs: sampling and scoring, largest difference", f"{found.scoring:.1e}"),
        ("log-probs: sampling and transformers, largest difference", f"{found.transformers:.1e}"),
    ]
    ran = f"{found.model} ({', '.join(found.backends.values())})"
    return TextTable(f"{ran} and plain transformers, fp32, {found.tokens} tokens", ("", "found"), rows)


app = command(exactness)

if __name__ == "__main__":
    app()
