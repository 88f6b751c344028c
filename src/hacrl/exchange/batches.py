"""From a step's trajectories to one learner's finished training batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, get_args

from torch import Tensor

from hacrl.exchange.normalise import LengthNorm, source_unit
from hacrl.exchange.reencode import Learner, Reencoder
from hacrl.exchange.table import RewardTable
from hacrl.types import MiniBatch, Prompt, TrainingRow, Trajectory

PeerOrder = Literal["interleaved", "sequential"]
"""`sequential`: all of one peer's mini-batches, then the next peer's (the paper). `interleaved`: one of each
in turn, starting with another peer in every round and step: the stepwise window closes with every update, and
no peer shall always be the last."""


@dataclass(frozen=True)
class BatchSettings:
    """How a learner's batch is put together; the defaults are the paper's but for the order of peers."""

    length_norm: LengthNorm = "own"
    mini_batches_per_source: int = 2
    """Optimiser updates made on each source's responses. A prompt's responses stay together."""
    peer_order: PeerOrder = "interleaved"

    def __post_init__(self) -> None:
        if self.length_norm not in get_args(LengthNorm):
            raise ValueError(f"length_norm: expected one of {get_args(LengthNorm)}, got {self.length_norm!r}")
        if self.peer_order not in get_args(PeerOrder):
            raise ValueError(f"peer_order: expected one of {get_args(PeerOrder)}, got {self.peer_order!r}")
        if self.mini_batches_per_source < 1:
            raise ValueError(f"mini_batches_per_source: expected >= 1, got {self.mini_batches_per_source}")


@dataclass(frozen=True)
class LearnerBatch:
    """A learner's updates of one step, in order, and what it had to leave out."""

    mini_batches: tuple[MiniBatch, ...]
    left_out: Counter[str]
    """By cause (`hacrl.exchange.LeftOut`)."""


def build_batches(
    table: RewardTable,
    learner: Learner,
    prompts: Mapping[str, Prompt],
    advantages: Tensor,
    coefficients: Tensor,
    settings: BatchSettings | None = None,
) -> LearnerBatch:
    """`advantages[j, b, i]` and `coefficients[j]` (omega[j, learner]) of this learner -> its mini-batches.

    Own responses first, then the peers'. Masked samples never become rows. The result depends on the
    agents' names, not on their places in the list.
    """
    settings = settings or BatchSettings()
    _check(table, learner, prompts, advantages, coefficients)
    rows = _RowWriter(learner, prompts, settings.length_norm)
    by_source: dict[str, list[MiniBatch]] = {}
    for source in sorted(table.agents):
        j = table.agents.index(source)
        omega = 1.0 if source == learner.name else float(coefficients[j])
        groups = rows.groups(table.samples[j], table.mask[j].tolist(), advantages[j].tolist(), omega)
        by_source[source] = _split(groups, settings.mini_batches_per_source)
    own = by_source.pop(learner.name)
    return LearnerBatch(
        (*own, *_order(list(by_source.values()), settings.peer_order, table.step)), rows.left_out
    )


class _RowWriter:
    """Writes the rows of one learner and counts what it cannot use."""

    def __init__(self, learner: Learner, prompts: Mapping[str, Prompt], norm: LengthNorm) -> None:
        self._name = learner.name
        self._tokens = Reencoder(learner, prompts)
        self._norm = norm
        self.left_out: Counter[str] = Counter()

    def groups(
        self,
        samples: Sequence[Sequence[Trajectory]],
        mask: Sequence[Sequence[bool]],
        advantages: Sequence[Sequence[float]],
        omega: float,
    ) -> list[list[TrainingRow]]:
        """One source's rows, a list for every prompt it answered."""
        groups = []
        for group, scored, advantage in zip(samples, mask, advantages, strict=True):
            rows = [
                self._row(trajectory, advantage[i], omega) for i, trajectory in enumerate(group) if scored[i]
            ]
            groups.append([row for row in rows if row is not None])
        return [group for group in groups if group]

    def _row(self, trajectory: Trajectory, advantage: float, omega: float) -> TrainingRow | None:
        encoded = self._tokens.encode(trajectory)
        if isinstance(encoded, str):
            self.left_out[encoded] += 1
            return None
        own = trajectory.source == self._name
        if own:
            mean_logp, scale = sum(trajectory.token_logps) / len(trajectory.token_logps), 1.0
        else:
            mean_logp, scale = source_unit(trajectory, len(encoded.response_ids), self._norm)
        return TrainingRow(
            prompt_id=trajectory.prompt_id,
            prompt_ids=encoded.prompt_ids,
            response_ids=encoded.response_ids,
            source=trajectory.source,
            own=own,
            source_mean_logp=mean_logp,
            source_logps=trajectory.token_logps if own else (),
            advantage=advantage,
            omega=omega,
            length_scale=scale,
        )


def _split(groups: Sequence[Sequence[TrainingRow]], parts: int) -> list[MiniBatch]:
    """Prompt groups in `parts` runs of nearly equal length; fewer when there are fewer prompts."""
    bounds = [len(groups) * part // parts for part in range(parts + 1)]
    runs = [groups[start:end] for start, end in pairwise(bounds)]
    return [tuple(row for group in run for row in group) for run in runs if run]


def _order(peers: list[list[MiniBatch]], order: PeerOrder, step: int) -> list[MiniBatch]:
    """The peers' mini-batches, `peers` being sorted by name."""
    peers = [peer for peer in peers if peer]
    if order == "sequential":
        return [mini_batch for peer in peers for mini_batch in peer]
    ordered = []
    for round_ in range(max(map(len, peers), default=0)):
        first = (step + round_) % len(peers)
        turn = peers[first:] + peers[:first]
        ordered += [peer[round_] for peer in turn if round_ < len(peer)]
    return ordered


def _check(
    table: RewardTable,
    learner: Learner,
    prompts: Mapping[str, Prompt],
    advantages: Tensor,
    coefficients: Tensor,
) -> None:
    if learner.name not in table.agents:
        raise ValueError(f"learner {learner.name!r} is not one of the agents {list(table.agents)}")
    missing = [prompt_id for prompt_id in table.prompt_ids if prompt_id not in prompts]
    if missing:
        raise ValueError(f"prompts: the table has answers to {missing[:5]}, which are not given")
    for name, tensor, shape in (
        ("advantages[j, b, i]", advantages, table.mask.shape),
        ("coefficients[j]", coefficients, (len(table.agents),)),
    ):
        if tensor.shape != shape:
            raise ValueError(f"{name}: expected shape {tuple(shape)}, got {tuple(tensor.shape)}")
