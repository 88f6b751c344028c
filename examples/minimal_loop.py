"""HACPO in one file: several different language models teach each other, nothing hidden.

    python examples/minimal_loop.py MODEL_DIRECTORY MODEL_DIRECTORY [...] --steps 20 --out runs/minimal

Only the mathematics comes from hacrl. Plain and slow: one answer at a time, no KL term, no checkpoints.
A test holds its steps equal to the library's.
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
"""Per step: questions, every agent's answers to each of them, and tokens of an answer at most."""


@dataclass
class Agent:
    """A model that is trained, with its own tokens and its own optimiser."""

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
        """What tokens say, without EOS."""
        return self.tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)


@dataclass(frozen=True)
class Answer:
    """A verified answer: what agents share."""

    text: str
    reward: float
    tokens: list[int]  # those of the agent that gave it, EOS included
    logps: list[float]  # of each token under that agent's policy when it drew them
    ended: bool  # with an EOS; otherwise it was cut off


@dataclass(frozen=True)
class Row:
    """An answer as one learner trains on it, in the learner's tokens."""

    question: list[int]
    answer: list[int]
    own: bool
    source_mean_logp: float
    advantage: float
    omega: float


Questions = Sequence[tuple[str, str]]  # each with its right answer
Answers = Sequence[Sequence[Answer]]  # [b][i]: one agent's answers to every question


def load(directory: str, learning_rate: float = 1.5e-4) -> Agent:
    """An agent from a directory that `save_pretrained` wrote; from_pretrained leaves dropout off."""
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    optimiser = torch.optim.AdamW(model.parameters(), learning_rate)
    return Agent(model, AutoTokenizer.from_pretrained(directory), optimiser)


def ask(rng: random.Random) -> tuple[str, str]:
    """A question and its only right answer."""
    digits = rng.choices(range(10), k=rng.randint(3, 6))
    kind = rng.choice(["sort", "add3"])
    answer = sorted(digits) if kind == "sort" else [(digit + 3) % 10 for digit in digits]
    return f"{kind} {''.join(map(str, digits))}=", "".join(map(str, answer))


@torch.no_grad()
def draw(agent: Agent, question: str, gold: str) -> list[Answer]:
    """Sample answers at temperature 1, token by token, keep every token's log-prob, and verify them."""
    prompt, eos = agent.read(question), agent.tokenizer.eos_token_id
    sequences, drawn = torch.tensor([prompt] * SAMPLES), []
    for _ in range(LONGEST):
        logps = agent.model(sequences).logits[:, -1].log_softmax(-1)
        token = torch.multinomial(logps.exp(), 1)
        drawn.append(logps.gather(1, token))
        sequences = torch.cat([sequences, token], 1)
    answers = []
    for tokens, logps in zip(sequences[:, len(prompt) :].tolist(), torch.cat(drawn, 1).tolist(), strict=True):
        length = tokens.index(eos) + 1 if eos in tokens else LONGEST
        text = agent.text(tokens[:length])
        answers.append(Answer(text, float(text == gold), tokens[:length], logps[:length], eos in tokens))
    return answers


def rewrite(learner: Agent, answer: Answer) -> tuple[list[int], list[float]]:
    """A peer's answer in the learner's tokens, and the peer's log-probs to compare with: both without EOS.

    An answer that is only EOS becomes the learner's own EOS; one that it cannot write exactly, no tokens.
    """
    if answer.ended and len(answer.tokens) == 1:
        return [learner.tokenizer.eos_token_id], answer.logps
    tokens = learner.tokenizer.encode(answer.text, add_special_tokens=False, split_special_tokens=True)
    exact = learner.text(tokens) == answer.text
    return tokens if exact else [], answer.logps[:-1] if answer.ended else answer.logps


def lesson(
    learner: Agent, own: bool, asked: Questions, answers: Answers, advantage: Tensor, omega: float
) -> list[list[Row]]:
    """One source's answers as the rows of two updates; the answers to a question stay together."""
    groups = []
    for (question, _), group, values in zip(asked, answers, advantage.tolist(), strict=True):
        prompt, rows = learner.read(question), []
        for answer, value in zip(group, values, strict=True):
            tokens, logps = (answer.tokens, answer.logps) if own else rewrite(learner, answer)
            if tokens:  # the source's mean is over its own tokens, the learner may cut the text differently
                rows.append(Row(prompt, tokens, own, sum(logps) / len(logps), value, omega))
        if rows:
            groups.append(rows)
    half = len(groups) // 2
    return [[row for rows in part for row in rows] for part in (groups[:half], groups[half:]) if part]


def share(
    agents: Sequence[Agent], capability: Capability, asked: Questions, answers: Sequence[Answers]
) -> list[list[list[Row]]]:
    """What each agent learns from everybody's `answers[j][b][i]`: the rows of its updates, in order."""
    rewards = torch.tensor([[[a.reward for a in group] for group in own] for own in answers]).double()
    capability.update(rewards.mean((1, 2)))
    omega = capability.omega  # [k, j]: how good learner k is, compared with source j
    advantage, _ = advantages(rewards, omega)  # [k, j, b, i]
    lessons: list[list[list[Row]]] = [[] for _ in agents]
    for k, learner in enumerate(agents):
        for j in [k, *range(k), *range(k + 1, len(agents))]:  # own answers first, then the peers'
            weight = float(omega[j, k])  # listen more to the stronger
            lessons[k] += lesson(learner, j == k, asked, answers[j], advantage[k, j], weight)
    return lessons


def logps_of(agent: Agent, row: Row) -> Tensor:
    """The log-prob of every token of an answer, with gradient."""
    tokens = torch.tensor([row.question + row.answer])
    logits = agent.model(tokens).logits[0, len(row.question) - 1 : -1]
    return logits.log_softmax(-1).gather(1, torch.tensor(row.answer)[:, None])[:, 0]


def update(agent: Agent, rows: Sequence[Row], number: int, params: HacpoParams) -> float:
    """One optimiser update on the mean loss of the rows; `number` of them came before it in this step."""
    taught = [row for row in rows if row.advantage != 0]  # the others count in the mean, and teach nothing
    if not taught:
        return 0.0
    logps = [logps_of(agent, row) for row in taught]
    losses = hacpo_loss(
        pad_sequence(logps, batch_first=True),
        pad_sequence([torch.ones(len(row.answer), dtype=torch.bool) for row in taught], batch_first=True),
        torch.tensor([row.source_mean_logp for row in taught]),
        torch.tensor([row.advantage for row in taught]),
        torch.tensor([row.own for row in taught]),
        torch.tensor([row.omega for row in taught]),
        number,
        params,
    )
    loss = losses.sum() / len(rows)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(agent.model.parameters(), 1.0)
    agent.optimiser.step()
    agent.optimiser.zero_grad()
    return loss.item()


def main() -> None:
    """Train the agents together, print everybody's accuracy, save them."""
    parser = argparse.ArgumentParser(description="HACPO in one file.")
    parser.add_argument("models", nargs="+", help="directories that save_pretrained wrote")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path("runs/minimal"))
    options = parser.parse_args()
    torch.manual_seed(0)
    rng, params = random.Random(0), HacpoParams()
    agents = [load(directory) for directory in options.models]
    capability = Capability(len(agents))
    for step in range(1, options.steps + 1):
        asked = [ask(rng) for _ in range(QUESTIONS)]
        answers = [[draw(agent, question, gold) for question, gold in asked] for agent in agents]
        for agent, lessons in zip(agents, share(agents, capability, asked, answers), strict=True):
            for number, rows in enumerate(lessons):  # the peers' window closes with every update
                update(agent, rows, number, params)
        accuracy = [sum(a.reward for group in own for a in group) / QUESTIONS / SAMPLES for own in answers]
        print(f"step {step:3d}  accuracy", "  ".join(f"{value:.3f}" for value in accuracy), flush=True)
    for number, agent in enumerate(agents, start=1):
        agent.model.save_pretrained(options.out / f"agent{number}")
        agent.tokenizer.save_pretrained(options.out / f"agent{number}")


if __name__ == "__main__":
    main()
