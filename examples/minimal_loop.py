"""HACPO in one file: several different language models learn from each other's responses.

    python examples/minimal_loop.py MODEL_DIRECTORY MODEL_DIRECTORY [...] --steps 20 --out runs/minimal

Only the mathematics comes from hacrl. It is simple and slow: one response at a time, no KL term,
no checkpoints. A test checks that its steps are the same as the library's.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from hacrl.algorithm import Capability, HacpoParams, advantages, hacpo_loss

QUESTIONS, SAMPLES, LONGEST = 16, 8, 16
"""Per step: questions, each agent's responses to each question, and the most tokens of a response."""


@dataclass
class Agent:
    """A model with its own tokenizer and its own optimiser."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    optimiser: torch.optim.Optimizer

    def read(self, question: str) -> list[int]:
        """The question in this agent's tokens and, if it has one, in its chat template."""
        if self.tokenizer.chat_template is None:
            return self.tokenizer.encode(question)
        messages = [{"role": "user", "content": question}]
        return self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)

    def text(self, tokens: Sequence[int]) -> str:
        """The text of the tokens, without EOS."""
        return self.tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)


@dataclass(frozen=True)
class Response:
    """A verified response, as agents share it."""

    text: str
    reward: float
    tokens: list[int]  # those of the agent that wrote it, EOS included
    logps: list[float]  # of each token under that agent's policy when it was sampled
    ended: bool  # with an EOS; otherwise it was truncated


@dataclass(frozen=True)
class Row:
    """A response as one learner trains on it, in the learner's tokens."""

    question: list[int]
    response: list[int]
    own: bool
    source_mean_logp: float
    advantage: float
    omega: float


Questions = Sequence[tuple[str, str]]  # each with its gold answer
Responses = Sequence[Sequence[Response]]  # [b][i]: one agent's responses to every question


def load(directory: str, learning_rate: float = 1.5e-4) -> Agent:
    """An agent from a directory written by `save_pretrained`; from_pretrained leaves dropout off."""
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    optimiser = torch.optim.AdamW(model.parameters(), learning_rate)
    return Agent(model, AutoTokenizer.from_pretrained(directory), optimiser)


def ask(rng: random.Random) -> tuple[str, str]:
    """A question and its gold answer."""
    digits = rng.choices(range(10), k=rng.randint(3, 6))
    kind = rng.choice(["sort", "add3"])
    answer = sorted(digits) if kind == "sort" else [(digit + 3) % 10 for digit in digits]
    return f"{kind} {''.join(map(str, digits))}=", "".join(map(str, answer))


@torch.no_grad()
def draw(agent: Agent, question: str, gold: str) -> list[Response]:
    """Sample responses at temperature 1, token by token, keep every token's log-prob, and verify them."""
    prompt, eos = agent.read(question), agent.tokenizer.eos_token_id
    sequences, drawn = torch.tensor([prompt] * SAMPLES), []
    for _ in range(LONGEST):
        logps = agent.model(sequences).logits[:, -1].log_softmax(-1)
        token = torch.multinomial(logps.exp(), 1)
        drawn.append(logps.gather(1, token))
        sequences = torch.cat([sequences, token], 1)
    responses = []
    for tokens, logps in zip(sequences[:, len(prompt) :].tolist(), torch.cat(drawn, 1).tolist(), strict=True):
        length = tokens.index(eos) + 1 if eos in tokens else LONGEST
        text = agent.text(tokens[:length])
        responses.append(Response(text, float(text == gold), tokens[:length], logps[:length], eos in tokens))
    return responses


def rewrite(learner: Agent, response: Response) -> tuple[list[int], list[float]]:
    """A peer's response in the learner's tokens, and the peer's log-probs to compare with: both without EOS.

    A response of EOS alone becomes the learner's own EOS. If it cannot encode the text exactly, no tokens.
    """
    if response.ended and len(response.tokens) == 1:
        return [learner.tokenizer.eos_token_id], response.logps
    tokens = learner.tokenizer.encode(response.text, add_special_tokens=False, split_special_tokens=True)
    exact = learner.text(tokens) == response.text
    return tokens if exact else [], response.logps[:-1] if response.ended else response.logps


def mini_batches(
    learner: Agent, own: bool, asked: Questions, responses: Responses, advantage: Tensor, omega: float
) -> list[list[Row]]:
    """One source's responses as the rows of two updates; responses to one question stay in one update."""
    groups = []
    for (question, _), group, values in zip(asked, responses, advantage.tolist(), strict=True):
        prompt, rows = learner.read(question), []
        for response, value in zip(group, values, strict=True):
            tokens, logps = (response.tokens, response.logps) if own else rewrite(learner, response)
            if tokens:  # the source's mean is over its own tokens: the learner may tokenize differently
                rows.append(Row(prompt, tokens, own, sum(logps) / len(logps), value, omega))
        if rows:
            groups.append(rows)
    half = len(groups) // 2
    return [[row for rows in part for row in rows] for part in (groups[:half], groups[half:]) if part]


def share(
    agents: Sequence[Agent], capability: Capability, asked: Questions, responses: Sequence[Responses]
) -> list[list[list[Row]]]:
    """The rows of each agent's updates, in order, from all agents' `responses[j][b][i]`."""
    rewards = torch.tensor([[[r.reward for r in group] for group in own] for own in responses]).double()
    capability.update(rewards.mean((1, 2)))
    omega = capability.omega  # [k, j]: capability of learner k over that of source j
    advantage, _ = advantages(rewards, omega)  # [k, j, b, i]
    batches: list[list[list[Row]]] = [[] for _ in agents]
    for k, learner in enumerate(agents):
        for j in [k, *range(k), *range(k + 1, len(agents))]:  # own responses first, then the peers'
            weight = float(omega[j, k])  # stronger sources get more weight
            batches[k] += mini_batches(learner, j == k, asked, responses[j], advantage[k, j], weight)
    return batches


def logps_of(agent: Agent, row: Row) -> Tensor:
    """The log-prob of every token of a response, with gradient."""
    tokens = torch.tensor([row.question + row.response])
    logits = agent.model(tokens).logits[0, len(row.question) - 1 : -1]
    return logits.log_softmax(-1).gather(1, torch.tensor(row.response)[:, None])[:, 0]


def update(agent: Agent, rows: Sequence[Row], number: int, params: HacpoParams) -> float:
    """One optimiser update on the mean loss of the rows; `number` is its index in the step."""
    trained = [row for row in rows if row.advantage != 0]  # the others count only in the denominator
    if not trained:
        return 0.0
    logps = [logps_of(agent, row) for row in trained]
    losses = hacpo_loss(
        pad_sequence(logps, batch_first=True),
        pad_sequence([torch.ones(len(row.response), dtype=torch.bool) for row in trained], batch_first=True),
        torch.tensor([row.source_mean_logp for row in trained]),
        torch.tensor([row.advantage for row in trained]),
        torch.tensor([row.own for row in trained]),
        torch.tensor([row.omega for row in trained]),
        number,
        params,
    )
    loss = losses.sum() / len(rows)
    loss.backward()
    if torch.nn.utils.clip_grad_norm_(agent.model.parameters(), 1.0):  # else all are outside the window
        agent.optimiser.step()
    agent.optimiser.zero_grad()
    return loss.item()


def main() -> None:
    """Train the agents together, print each agent's accuracy, and save them."""
    parser = argparse.ArgumentParser(description="HACPO in one file.")
    parser.add_argument("models", nargs="+", help="directories written by save_pretrained")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path("runs/minimal"))
    options = parser.parse_args()
    torch.manual_seed(0)
    rng, params = random.Random(0), HacpoParams()
    agents = [load(directory) for directory in options.models]
    capability = Capability(len(agents))
    for step in range(1, options.steps + 1):
        asked = [ask(rng) for _ in range(QUESTIONS)]
        responses = [[draw(agent, question, gold) for question, gold in asked] for agent in agents]
        for agent, batches in zip(agents, share(agents, capability, asked, responses), strict=True):
            for number, rows in enumerate(batches):  # the peers' window narrows with every update
                update(agent, rows, number, params)
        accuracy = [sum(r.reward for group in own for r in group) / QUESTIONS / SAMPLES for own in responses]
        print(f"step {step:3d}  accuracy", "  ".join(f"{value:.3f}" for value in accuracy), flush=True)
    for number, agent in enumerate(agents, start=1):
        agent.model.save_pretrained(options.out / f"agent{number}")
        agent.tokenizer.save_pretrained(options.out / f"agent{number}")


if __name__ == "__main__":
    main()
