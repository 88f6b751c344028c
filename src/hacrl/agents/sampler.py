"""The built-in sampler: decodes many responses side by side and keeps the log-prob of every token."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hacrl.agents.backends.interfaces import Decoder, Tokens
from hacrl.agents.stopping import Decode, StopWatch
from hacrl.recipe.settings import SamplingSettings
from hacrl.types import EngineCheck

COMPACT_BELOW = 0.8
"""Finished rows are dropped from the batch when the unfinished ones are fewer than this share of it."""

_DRAWS_AT_ONCE = 256

_LARGE_VOCABULARY = 1 << 14
"""From here on a token is drawn in two steps."""
_BLOCK = 512
_PICKED_AT_ONCE = 1 << 20
"""Logits on a CPU whose weights stay in its cache. All rows of a large vocabulary would take gigabytes."""

_RESOLUTION = 1 << 23
"""Uniforms are multiples of 2^-23: below 1 by a margin that survives a float32 multiplication."""


class Stream:
    """The uniform numbers of one response: a function of seed, agent, prompt and sample alone.

    So what is drawn depends neither on the batch, nor on the order of calls, nor on other agents.
    """

    def __init__(self, seed: int, agent: str, prompt_id: str, sample: int) -> None:
        coordinates = repr((seed, agent, prompt_id, sample)).encode()
        self.key = int.from_bytes(hashlib.blake2b(coordinates, digest_size=16).digest(), "little")
        """128 bits to seed other generators with."""
        self._generator = np.random.Generator(np.random.Philox(key=self.key))

    def uniforms(self, count: int) -> npt.NDArray[np.float32]:
        """The next `count` numbers in [0, 1)."""
        draws = self._generator.integers(_RESOLUTION, size=count, dtype=np.int32)
        return draws.astype(np.float32) / np.float32(_RESOLUTION)


@dataclass(frozen=True, slots=True)
class Job:
    """One response to draw."""

    prompt: Tokens
    stream: Stream
    max_new_tokens: int


@dataclass(frozen=True, slots=True)
class Drawn:
    """One drawn response."""

    token_ids: Tokens
    token_logps: tuple[float, ...]
    stopped: bool
    """Whether it ended by itself: its last token is an EOS or completes a stop string."""
    stop: str | None = None
    """The stop string."""
    engine: EngineCheck | None = None
    """None: the model itself drew it."""


def draw_in_batches(
    jobs: Sequence[Job],
    decoder: Decoder,
    sampling: SamplingSettings,
    eos_ids: Sequence[int],
    device: torch.device,
    decode: Decode,
) -> list[Drawn]:
    """`draw`, at most `max_rows` responses at a time, prompts of similar length together."""
    order = sorted(range(len(jobs)), key=lambda row: len(jobs[row].prompt))
    drawn: dict[int, Drawn] = {}
    for start in range(0, len(order), sampling.max_rows):
        batch = order[start : start + sampling.max_rows]
        responses = draw([jobs[row] for row in batch], decoder, sampling, eos_ids, device, decode)
        drawn.update(zip(batch, responses, strict=True))
    return [drawn[row] for row in range(len(jobs))]


def draw(
    jobs: Sequence[Job],
    decoder: Decoder,
    sampling: SamplingSettings,
    eos_ids: Sequence[int],
    device: torch.device,
    decode: Decode,
) -> list[Drawn]:
    """Decode all jobs side by side; jobs with the same prompt share its computation.

    `decode` turns tokens into text, which is only needed to find stop strings.
    """
    prompts = list(dict.fromkeys(job.prompt for job in jobs))
    index = {prompt: number for number, prompt in enumerate(prompts)}
    prompt_of_row = torch.tensor([index[job.prompt] for job in jobs], device=device)
    limits = torch.tensor([job.max_new_tokens for job in jobs], device=device)
    eos = torch.tensor(eos_ids, device=device)
    draws = _Uniforms([job.stream for job in jobs], device)
    watch = StopWatch(sampling.stop, decode, len(jobs)) if sampling.stop else None

    logits, session = decoder.start(prompts, prompt_of_row)
    rows = torch.arange(len(jobs), device=device)
    steps: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
    finished = torch.zeros(len(jobs), dtype=torch.bool, device=device)
    for step in range(int(limits.max())):
        tokens, logps = pick(logits, draws.at(step, rows), sampling)
        steps.append((rows, finished, tokens, logps))
        ended = torch.isin(tokens, eos) | (limits <= step + 1)
        if watch is not None:
            ended = ended | watch.observe(rows, tokens, finished)
        finished = finished | ended
        unfinished = len(rows) - int(finished.sum())
        if unfinished == 0:
            break
        if unfinished < COMPACT_BELOW * len(rows):
            kept = (~finished).nonzero().squeeze(1)
            session.keep(kept)
            rows, finished, tokens, limits = rows[kept], finished[kept], tokens[kept], limits[kept]
        logits = session.advance(tokens)
    return _collect(len(jobs), steps, set(eos_ids), watch.found if watch else {})


def pick(logits: Tensor, uniforms: Tensor, sampling: SamplingSettings) -> tuple[Tensor, Tensor]:
    """One token per row of logits [rows, vocabulary], and its log-prob at temperature 1 over all tokens.

    Inverse-CDF sampling: the first token whose cumulative probability exceeds the row's uniform number.
    """
    everything = (sampling.temperature, sampling.top_p, sampling.min_p, sampling.top_k) == (1, 1, 0, None)
    large = logits.shape[1] >= _LARGE_VOCABULARY
    choose = _pick_in_blocks if everything and large else partial(_pick_shaped, sampling=sampling)
    if not large or logits.device.type != "cpu":
        return choose(logits.float(), uniforms)
    at_once = max(1, _PICKED_AT_ONCE // logits.shape[1])
    parts = zip(torch.split(logits, at_once), torch.split(uniforms, at_once), strict=True)
    picked = [choose(rows.float(), numbers) for rows, numbers in parts]
    tokens, logps = (torch.cat(column) for column in zip(*picked, strict=True))
    return tokens, logps


def _pick_shaped(logits: Tensor, uniforms: Tensor, sampling: SamplingSettings) -> tuple[Tensor, Tensor]:
    """`pick` for any temperature and restrictions."""
    logps = logits.log_softmax(-1)
    if sampling.is_greedy:
        tokens = logps.argmax(-1)
    else:
        shape = logps if sampling.temperature == 1 else (logps / sampling.temperature).log_softmax(-1)
        probabilities = restricted(shape.exp(), sampling)
        cumulative = probabilities.cumsum(-1)
        thresholds = uniforms[:, None] * cumulative[:, -1:]
        tokens = _search(cumulative, thresholds).squeeze(1)
    return tokens, logps.gather(1, tokens[:, None]).squeeze(1)


def _pick_in_blocks(logits: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
    """As `pick`: first a block of words, then a word in it; one cumulative sum over the vocabulary less."""
    rows, vocabulary = logits.shape
    largest = logits.amax(-1, keepdim=True)
    weights = logits.new_zeros(rows, -(-vocabulary // _BLOCK), _BLOCK)
    torch.sub(logits, largest, out=weights.view(rows, -1)[:, :vocabulary]).exp_()
    sums = weights.sum(-1)
    cumulative = sums.cumsum(-1)
    total = cumulative[:, -1:]
    thresholds = uniforms[:, None] * total
    block = _search(cumulative, thresholds)
    inside = weights[torch.arange(rows, device=block.device), block.squeeze(1)].cumsum(-1)
    rest = thresholds - (cumulative - sums).gather(1, block)
    below = torch.nextafter(inside[:, -1:], torch.zeros_like(total))  # the last sum may be rounded down
    tokens = (block * _BLOCK + _search(inside, torch.minimum(rest, below))).clamp(max=vocabulary - 1)
    logps = logits.gather(1, tokens) - largest - total.log()
    return tokens.squeeze(1), logps.squeeze(1)


def _search(cumulative: Tensor, thresholds: Tensor) -> Tensor:
    """The first place above the threshold; the last place for NaN, which is below and above nothing."""
    return torch.searchsorted(cumulative, thresholds, right=True).clamp(max=cumulative.shape[-1] - 1)


def restricted(probabilities: Tensor, sampling: SamplingSettings) -> Tensor:
    """Zero what min-p, top-k and top-p leave out, in this order, as in vLLM; the sum may be below 1."""
    if sampling.min_p > 0:
        probabilities = probabilities * (probabilities >= sampling.min_p * probabilities.amax(-1, True))
    if sampling.top_k is not None and sampling.top_k < probabilities.shape[-1]:
        probabilities = likeliest(probabilities, sampling.top_k)
    if sampling.top_p < 1:
        if sampling.min_p > 0 or sampling.top_k is not None:  # top-p is a share of what is left
            probabilities = probabilities / probabilities.sum(-1, keepdim=True)
        probabilities = nucleus(probabilities, sampling.top_p)
    return probabilities


def likeliest(probabilities: Tensor, top_k: int) -> Tensor:
    """Zero all but the `top_k` likeliest tokens."""
    values, tokens = probabilities.topk(top_k, dim=-1)
    return torch.zeros_like(probabilities).scatter(-1, tokens, values)


def nucleus(probabilities: Tensor, top_p: float) -> Tensor:
    """Zero all but the likeliest tokens that together reach `top_p`; the likeliest one always stays."""
    ordered, order = probabilities.sort(-1, descending=True)
    mass_before = ordered.cumsum(-1) - ordered
    return torch.zeros_like(probabilities).scatter(-1, order, ordered * (mass_before < top_p))


class _Uniforms:
    """The rows' random numbers as tensors, fetched a few hundred steps at a time."""

    def __init__(self, streams: Sequence[Stream], device: torch.device) -> None:
        self._streams = streams
        self._device = device
        self._block = torch.empty(0)

    def at(self, step: int, rows: Tensor) -> Tensor:
        """The numbers of one step for the given rows; steps come in order."""
        column = step % _DRAWS_AT_ONCE
        if column == 0:
            block = np.stack([stream.uniforms(_DRAWS_AT_ONCE) for stream in self._streams], axis=1)
            self._block = torch.from_numpy(block).to(self._device)
        return self._block[column][rows]


def _collect(
    count: int,
    steps: Sequence[tuple[Tensor, Tensor, Tensor, Tensor]],
    eos_ids: set[int],
    stops: Mapping[int, str],
) -> list[Drawn]:
    token_ids: list[list[int]] = [[] for _ in range(count)]
    token_logps: list[list[float]] = [[] for _ in range(count)]
    columns = [torch.cat(column).tolist() for column in zip(*steps, strict=True)]  # off the device at once
    for row, finished, token, logp in zip(*columns, strict=True):
        if not finished:
            token_ids[row].append(token)
            token_logps[row].append(logp)
    return [
        Drawn(tuple(ids), tuple(logps), row in stops or ids[-1] in eos_ids, stops.get(row))
        for row, (ids, logps) in enumerate(zip(token_ids, token_logps, strict=True))
    ]
