"""Peak memory of an agent of several ranks that draws long responses and learns from them."""

from __future__ import annotations

import multiprocessing
import socket
from dataclasses import dataclass
from multiprocessing.connection import Connection
from time import perf_counter
from typing import Annotated

import torch
import typer
from torch import distributed

from benchmarks.command import JsonFile, Markdown, command, progress, show
from benchmarks.memory import peak_megabytes
from benchmarks.workload import NO_LEARNING, Workload
from hacrl.agents.policy import Policy
from hacrl.algorithm import GspoObjective
from hacrl.analysis.simulate.synthetic import Size
from hacrl.analysis.tables import TextTable
from hacrl.recipe import OptimiserSettings, SamplingSettings, UpdatesSettings
from hacrl.runtime.actors import LOOPBACK, Rendezvous, join, listen
from hacrl.types import Rollout, TrainingRow

SIZE = Size(hidden=128, layers=4, heads=4, vocab=32_768)
LONGEST = 16_384
TIMEOUT = 3600.0


@dataclass(frozen=True)
class Peak:
    """One step with responses of so many tokens; megabytes of the rank that needs most."""

    tokens: int
    before: float
    """With the agent loaded."""
    sampled: float
    updated: float
    logits: float
    """What all logits of one response would take, in fp32."""
    scores: float
    """What the attention scores of one head to one response would take."""
    seconds: float


@dataclass(frozen=True)
class Peaks:
    """All lengths, the shortest first."""

    ranks: int
    backends: dict[str, str]
    points: list[Peak]


def long_responses(
    tokens: Annotated[int, typer.Option(min=64, help="Of the longest responses.")] = LONGEST,
    ranks: Annotated[int, typer.Option(min=1, help="Processes that hold the agent together.")] = 2,
    markdown: Markdown = False,
    json_file: JsonFile = None,
) -> None:
    """Peak memory of a step with long responses.

    A random model of 4 layers with 32,768 words, held by --ranks processes with one thread each; two
    responses to one prompt per rank, an update on all of them. The length doubles three times, up to
    --tokens. Takes several minutes.
    """
    found = measure_long_responses(tokens, ranks)
    show([peak_table(found)], found, markdown, json_file)


def measure_long_responses(longest: int, ranks: int) -> Peaks:
    """Every length in fresh processes."""
    points, backends = [], {}
    for tokens in (longest // 8, longest // 4, longest // 2, longest):
        progress(f"{tokens:,} tokens")
        begun = perf_counter()
        replies = _run(tokens, ranks)
        backends = replies[0].backends
        before, sampled, updated = map(max, *(reply.megabytes for reply in replies), (0.0, 0.0, 0.0))
        logits, scores = tokens * SIZE.vocab * 4 / 2**20, tokens * tokens * 4 / 2**20
        points.append(Peak(tokens, before, sampled, updated, logits, scores, perf_counter() - begun))
    return Peaks(ranks, backends, points)


@dataclass(frozen=True)
class _Reply:
    backends: dict[str, str]
    megabytes: tuple[float, float, float]


def _run(tokens: int, count: int) -> list[_Reply]:
    context = multiprocessing.get_context("spawn")
    with listen(LOOPBACK) as listener:
        host, port = listener.getsockname()
        meeting = Rendezvous(host, port, join_seconds=300, collective_seconds=TIMEOUT)
        pipes = [context.Pipe(duplex=False) for _ in range(count)]
        processes = [
            context.Process(target=_rank, args=(tokens, rank, count, meeting, listener, pipe[1]), daemon=True)
            for rank, pipe in enumerate(pipes)
        ]
        for process, (_, sender) in zip(processes, pipes, strict=True):
            process.start()
            sender.close()  # the process has its own: if it dies, receiving fails
    try:
        return [receiver.recv() for receiver, _ in pipes]
    except EOFError:
        raise RuntimeError("a rank has ended without an answer: its error is above") from None
    finally:
        for process in processes:
            process.kill()
            process.join()


def _rank(
    tokens: int, rank: int, count: int, meeting: Rendezvous, listener: socket.socket, reply: Connection
) -> None:
    torch.set_num_threads(1)
    ranks = join(meeting, rank, count, "cpu", listener if rank == 0 else None) if count > 1 else None
    work = Workload(SIZE, eos_hazard=0.0, max_new=tokens, prompts=count, samples=2)
    model = work.make_model()
    model.config.max_position_embeddings = 2 * tokens
    policy = Policy(
        "a",
        model,
        work.make_tokenizer(),
        optimiser=OptimiserSettings(learning_rate=NO_LEARNING, kl=0.0),
        updates=UpdatesSettings(tokens_per_micro_batch=tokens),
        ranks=ranks,
    )
    before = peak_megabytes()
    rollouts = policy.sample(work.make_prompts(), 2, SamplingSettings(max_new_tokens=tokens), 0)
    sampled = peak_megabytes()
    if count > 1:  # an update needs the rows of all ranks
        parts: list[list[Rollout]] = [[] for _ in range(count)]
        distributed.all_gather_object(parts, rollouts)
        rollouts = [rollout for part in parts for rollout in part]
    policy.update([tuple(_rows(policy, work, rollouts))], GspoObjective())
    reply.send(_Reply(policy.backends, (before, sampled, peak_megabytes())))


def _rows(policy: Policy, work: Workload, rollouts: list[Rollout]) -> list[TrainingRow]:
    ids = {prompt.id: policy.encoder.encode_prompt(prompt) for prompt in work.make_prompts()}
    return [
        TrainingRow(
            prompt_id=rollout.prompt_id,
            prompt_ids=ids[rollout.prompt_id],
            response_ids=rollout.token_ids,
            source="a",
            own=True,
            advantage=1.0 if rollout.sample else -1.0,
            omega=1.0,
            source_logps=rollout.token_logps,
            source_mean_logp=sum(rollout.token_logps) / len(rollout.token_logps),
        )
        for rollout in rollouts
    ]


def peak_table(found: Peaks) -> TextTable:
    """One row per length."""
    header = (
        "response tokens",
        "MB before",
        "after sampling",
        "after an update",
        "all logits of a response",
        "scores of a head",
        "seconds",
    )
    rows = [
        (
            f"{point.tokens:,}",
            f"{point.before:,.0f}",
            f"{point.sampled:,.0f}",
            f"{point.updated:,.0f}",
            f"{point.logits:,.0f}",
            f"{point.scores:,.0f}",
            f"{point.seconds:.0f}",
        )
        for point in found.points
    ]
    used = " and ".join(found.backends.values())
    return TextTable(f"Peak megabytes of a rank ({found.ranks} ranks, {used})", header, rows)


app = command(long_responses)

if __name__ == "__main__":
    app()
