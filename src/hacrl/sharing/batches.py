"""From a step's trajectories and a method's loss terms to one learner's finished training batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from torch import Tensor

from hacrl.algorithm.batch import Objective
from hacrl.recipe.settings import ExchangeSettings, LengthNorm, UpdatesSettings
from hacrl.sharing.reencode import Reencoder, source_unit
from hacrl.sharing.table import RewardTable
from hacrl.types import MiniBatch, TrainingRow, Trajectory

EXCHANGE, UPDATES = ExchangeSettings(), UpdatesSettings()
"""A recipe's defaults."""


@dataclass(frozen=True)
class LossTerm:
    """Which of a step's responses a learner trains on, with which weight, through which objective.

    The axes are those of the learner's `RewardTable`.
    """

    objective: Objective
    advantages: Tensor
    """[j, b, i]; a response with advantage 0 counts in the mean over the mini-batch but has no gradient."""
    mask: Tensor
    """[j, b, i] bool: the responses that take part."""
    coefficients: Tensor
    """[j] or [j, b]: what the gradient of each source's responses is multiplied by."""
    updates: int | None = None
    """None: every source's prompts in `mini_batches` updates, own responses first. A number: that
    many updates, each on some of the prompts and everybody's responses to them."""
    passes: int = 1
    """Times all of these updates are made, one pass after the other."""
    scorer: str | Mapping[str, str] | None = None
    """The agent whose policy before the step the ratio is taken to; None: the one that drew the response.
    A mapping has one for every prompt, by its id."""
    complete: bool = False
    """Peers' responses end as the learner's own do: needed for imitation; ratios are taken without it."""


@dataclass(frozen=True)
class UpdateGroup:
    """Updates that follow each other under one objective."""

    objective: Objective
    mini_batches: tuple[MiniBatch, ...]
    scorer: str | Mapping[str, str] | None = None
    """The agent that has to score the rows before they are trained on (`LossTerm.scorer`)."""
    passes: int = 1

    @property
    def updates(self) -> tuple[MiniBatch, ...]:
        """The mini-batches as they are trained on, in every pass the same."""
        return self.mini_batches * self.passes


@dataclass(frozen=True)
class LearnerBatch:
    """A learner's updates of one step, in order, and what it had to leave out."""

    update_groups: tuple[UpdateGroup, ...]
    left_out: Counter[str]
    """By cause (`hacrl.sharing.LeftOut`)."""

    @property
    def mini_batches(self) -> tuple[MiniBatch, ...]:
        """Those of all updates."""
        return tuple(mini_batch for group in self.update_groups for mini_batch in group.updates)


def build_batches(
    table: RewardTable,
    tokens: Reencoder,
    terms: Sequence[LossTerm],
    exchange: ExchangeSettings = EXCHANGE,
    mini_batches: int = UPDATES.mini_batches,
) -> LearnerBatch:
    """The mini-batches of `tokens.learner`, one loss term after the other.

    The result depends on the agents' names, not on their places in the list.
    """
    _check(table, tokens, terms)
    learner = tokens.learner.name
    left_out: Counter[str] = Counter()
    update_groups = []
    for term in terms:
        rows = _RowWriter(tokens, term, exchange.length_norm, left_out)
        by_source = {
            source: rows.groups(table.samples[j], j)
            for j, source in sorted(enumerate(table.agents), key=lambda place: place[1])
        }
        if term.updates is None:
            updates = _by_source(by_source, learner, mini_batches, exchange, table.step)
        else:
            updates = _together(by_source.values(), table, term.updates)
        update_groups.append(UpdateGroup(term.objective, tuple(updates), term.scorer, term.passes))
    return LearnerBatch(tuple(update_groups), left_out)


Groups = dict[str, list[TrainingRow]]
"""Rows by prompt."""


class _RowWriter:
    """Writes the rows of one loss term and counts what the learner cannot use."""

    def __init__(self, tokens: Reencoder, term: LossTerm, norm: LengthNorm, left_out: Counter[str]) -> None:
        self._tokens = tokens
        self._mask = term.mask.tolist()
        self._advantages = term.advantages.tolist()
        by_prompt = term.coefficients if term.coefficients.dim() > 1 else term.coefficients[:, None]
        self._coefficients = by_prompt.expand(-1, term.mask.shape[1]).tolist()
        self._complete = term.complete
        self._norm = norm
        self._left_out = left_out

    def groups(self, samples: Sequence[Sequence[Trajectory]], j: int) -> Groups:
        """One source's rows, a list for every prompt it responded to."""
        groups: Groups = {}
        for b, group in enumerate(samples):
            chosen = [(i, trajectory) for i, trajectory in enumerate(group) if self._mask[j][b][i]]
            rows = [
                self._row(trajectory, self._advantages[j][b][i], self._coefficients[j][b])
                for i, trajectory in chosen
            ]
            usable = [row for row in rows if row is not None]
            if usable:
                groups[usable[0].prompt_id] = usable
        return groups

    def _row(self, trajectory: Trajectory, advantage: float, coefficient: float) -> TrainingRow | None:
        encoded = self._tokens.encode(trajectory, complete=self._complete)
        if isinstance(encoded, str):
            self._left_out[encoded] += 1
            return None
        own = trajectory.source == self._tokens.learner.name
        if own:
            logps = self._tokens.own_logps(trajectory)
            mean_logp, scale = sum(logps) / len(logps), 1.0
        else:
            mean_logp, scale = source_unit(trajectory, len(encoded.response_ids), self._norm)
        return TrainingRow(
            prompt_id=trajectory.prompt_id,
            prompt_ids=encoded.prompt_ids,
            response_ids=encoded.response_ids,
            source=trajectory.source,
            own=own,
            source_mean_logp=mean_logp,
            source_logps=_logps_of(encoded.response_ids, trajectory),
            advantage=advantage,
            omega=1.0 if own else coefficient,
            length_scale=scale,
            sample=trajectory.sample,
        )


def _logps_of(response_ids: tuple[int, ...], trajectory: Trajectory) -> tuple[float, ...]:
    """The source's log-probs of the learner's tokens; empty unless both cut the text into the same tokens."""
    count = len(response_ids)
    return trajectory.token_logps[:count] if trajectory.token_ids[:count] == response_ids else ()


def _together(sources: Iterable[Groups], table: RewardTable, updates: int) -> list[MiniBatch]:
    """So many updates, each on some of the prompts and everybody's responses to them."""
    by_prompt: Groups = {prompt_id: [] for prompt_id in table.prompt_ids}
    for groups in sources:
        for prompt_id, rows in groups.items():
            by_prompt[prompt_id] += rows
    return _split([rows for rows in by_prompt.values() if rows], updates)


def _by_source(
    sources: dict[str, Groups], learner: str, mini_batches: int, exchange: ExchangeSettings, step: int
) -> list[MiniBatch]:
    """So many updates on each source's responses, own ones first; `sources` is sorted by name."""
    split = {source: _split(list(groups.values()), mini_batches) for source, groups in sources.items()}
    own = split.pop(learner)
    peers = [peer for peer in split.values() if peer]
    if exchange.peer_order == "sequential":
        return [*own, *(mini_batch for peer in peers for mini_batch in peer)]
    return [*own, *_interleaved(peers, step)]


def _split(groups: Sequence[Sequence[TrainingRow]], parts: int) -> list[MiniBatch]:
    """Prompt groups in `parts` runs of nearly equal length; fewer when there are fewer prompts."""
    bounds = [len(groups) * part // max(1, parts) for part in range(parts + 1)]
    runs = [groups[start:end] for start, end in pairwise(bounds)]
    return [tuple(row for group in run for row in group) for run in runs if run]


def _interleaved(peers: list[list[MiniBatch]], step: int) -> list[MiniBatch]:
    """One mini-batch of each peer in every round, which starts with another peer each time.

    A stepwise window closes with every update: no peer shall always be the last.
    """
    ordered = []
    for round_ in range(max(map(len, peers), default=0)):
        first = (step + round_) % len(peers)
        rotated = peers[first:] + peers[:first]
        ordered += [peer[round_] for peer in rotated if round_ < len(peer)]
    return ordered


def _check(table: RewardTable, tokens: Reencoder, terms: Sequence[LossTerm]) -> None:
    if tokens.learner.name not in table.agents:
        raise ValueError(f"learner {tokens.learner.name!r} is not one of the agents {list(table.agents)}")
    missing = [prompt_id for prompt_id in table.prompt_ids if prompt_id not in tokens.prompts]
    if missing:
        raise ValueError(f"prompts: the table has responses to {missing[:5]}, which are not given")
    for number, term in enumerate(terms):
        for name, tensor, shape in (
            ("advantages[j, b, i]", term.advantages, table.mask.shape),
            ("mask[j, b, i]", term.mask, table.mask.shape),
            ("coefficients[j]", term.coefficients, table.mask.shape[: term.coefficients.dim()]),
        ):
            if tensor.shape != shape:
                raise ValueError(
                    f"loss term {number}, {name}: expected shape {tuple(shape)}, got {tuple(tensor.shape)}"
                )
        if bool((term.mask & ~table.mask).any()):
            raise ValueError(f"loss term {number}, mask: takes responses that do not exist or have no reward")
