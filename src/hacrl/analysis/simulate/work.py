"""Operations and bytes of one agent's step; `docs/simulate.md` explains each formula.

Everything is counted for one rank of the agent, the slowest: all ranks work at the same time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hacrl.analysis.doctor.memory import kept_per_layer, ranks_of
from hacrl.analysis.doctor.models import ModelFacts
from hacrl.recipe import Recipe

LOGITS_TOUCHED = 8
"""Passes over a token's logits when sampling: log-softmax, probabilities, their sums, the search."""
ACTIVATIONS_TOUCHED = 3
"""Passes over an activation in an update: written, read, its gradient."""
ADAM_BYTES = 28
"""Moved per trained weight and update: gradient, moments and weight are read, the last three written."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """Mean tokens of prompts and responses; sampling lasts as long as the longest response."""

    prompt: float
    response: float
    longest: float


@dataclass(frozen=True, slots=True)
class Workload:
    """One agent's step."""

    prompts: int
    prompt_tokens: float
    """Mean length."""
    responses: int
    """Drawn."""
    response_tokens: float
    """Mean length."""
    longest_response: float
    trained_tokens: float
    """Response tokens it trains on, the peers' included."""
    own_share: float
    """Of the trained tokens."""
    sources: int
    """Itself and its peers: the prompts are computed again for each source's responses."""
    updates: int
    rows_at_once: int
    tokens_per_micro_batch: int
    kl: bool = False
    checkpointing: bool = False
    ranks: int = 1
    width: int = 4
    """Bytes of a number."""


def workload(recipe: Recipe, name: str, lengths: Lengths, width: int) -> Workload:
    """What the agent does in a step; every response is trained on."""
    peers = recipe.topology()[name]
    own = recipe.prompts_each * recipe.samples_of(name)
    learned = own + recipe.prompts_each * sum(recipe.samples_of(peer) for peer in peers)
    trains = recipe.agent(name).trains
    return Workload(
        prompts=recipe.prompts_each,
        prompt_tokens=lengths.prompt,
        responses=own,
        response_tokens=lengths.response,
        longest_response=lengths.longest,
        trained_tokens=learned * lengths.response * trains,
        own_share=own / learned,
        sources=1 + len(peers),
        updates=recipe.updates_per_step(name),
        rows_at_once=recipe.sampling.max_rows,
        tokens_per_micro_batch=recipe.updates.tokens_per_micro_batch,
        kl=recipe.optimiser.kl > 0,
        checkpointing=recipe.updates.gradient_checkpointing,
        ranks=ranks_of(recipe, name),
        width=width,
    )


@dataclass(frozen=True, slots=True)
class Work:
    """Arithmetic, memory traffic, and launches of layers."""

    flops: float
    bytes: float
    passes: float
    tokens: float = 0.0
    """That vLLM hands over one by one, with their log-probs."""


def sampling(facts: ModelFacts, load: Workload) -> Work:
    """Every prompt once, then one token per row and pass, with all weights and the rows' keys and values."""
    prompts, rows = load.prompts / load.ranks, load.responses / load.ranks
    fed, drawn = prompts * load.prompt_tokens, rows * load.response_tokens
    seen = load.prompt_tokens + load.response_tokens / 2
    passes = math.ceil(rows / load.rows_at_once) * (load.longest_response + 1)
    attended = fed * load.prompt_tokens / 2 + drawn * seen
    flops = forward_flops(facts, fed + drawn, predicted=drawn, attended=attended)
    moved = passes * load.width * (body(facts) + head(facts))
    moved += drawn * seen * 2 * facts.layers * facts.key_value * load.width
    moved += drawn * LOGITS_TOUCHED * 4 * facts.vocabulary
    return Work(flops, moved, passes * facts.layers)


def updating(facts: ModelFacts, load: Workload) -> Work:
    """Forward and backward over all responses trained on and their prompts, then AdamW."""
    if not load.updates:  # it only responds
        return Work(0.0, 0.0, 0.0)
    trained, fed = load.trained_tokens / load.ranks, _prompt_tokens_fed(load)
    attended = fed * load.prompt_tokens / 2 + trained * (load.prompt_tokens + load.response_tokens / 2)
    forward = forward_flops(facts, fed + trained, predicted=trained, attended=attended)
    forwards = 3 + load.checkpointing + load.kl * load.own_share
    moved = ACTIVATIONS_TOUCHED * (fed + trained) * facts.layers * kept_per_layer(facts) * load.width
    moved += ACTIVATIONS_TOUCHED * trained * 8 * facts.vocabulary
    moved += load.updates * ADAM_BYTES * facts.trained / load.ranks
    moved += forwards * micro_batches(load) * load.width * facts.parameters
    return Work(forwards * forward, moved, forwards * facts.layers * micro_batches(load))


def scoring(facts: ModelFacts, load: Workload) -> Work:
    """A forward pass over the agent's own responses and their prompts."""
    fed, drawn = (
        load.prompts * load.prompt_tokens / load.ranks,
        load.responses * load.response_tokens / load.ranks,
    )
    attended = fed * load.prompt_tokens / 2 + drawn * (load.prompt_tokens + load.response_tokens / 2)
    passes = math.ceil((fed + drawn) / load.tokens_per_micro_batch)
    moved = 2 * (fed + drawn) * facts.layers * kept_per_layer(facts) * load.width  # written and read
    moved += 2 * drawn * 8 * facts.vocabulary + passes * load.width * facts.parameters
    flops = forward_flops(facts, fed + drawn, predicted=drawn, attended=attended)
    return Work(flops, moved, passes * facts.layers)


def micro_batches(load: Workload) -> int:
    """Of all updates together, at least one each."""
    if not load.updates:
        return 0
    tokens = load.trained_tokens / load.ranks + _prompt_tokens_fed(load)
    return load.updates * math.ceil(tokens / load.updates / load.tokens_per_micro_batch)


def _prompt_tokens_fed(load: Workload) -> float:
    """Each prompt is computed once for all responses of a source, by one of the ranks."""
    return load.sources * load.prompts * load.prompt_tokens / load.ranks


def trained_responses(load: Workload) -> float:
    """Responses it trains on, the peers' included."""
    return load.trained_tokens / load.response_tokens


def forward_flops(facts: ModelFacts, tokens: float, predicted: float, attended: float) -> float:
    """Multiplications and additions of a forward pass without padding; norms and softmax are left out.

    `predicted` are the positions that go through the head, `attended` the pairs of a token and one that it
    attends to. With whole numbers the count is exact: the benchmarks use it too.
    """
    return (
        2 * body(facts) * tokens
        + 2 * head(facts) * predicted
        + 4 * facts.query * facts.layers * attended  # scores, and the values weighted by them
    )


def body(facts: ModelFacts) -> int:
    """Weights of the layers' matrices: one multiply-add each per token."""
    attention = facts.hidden * 2 * (facts.query + facts.key_value)
    return facts.layers * (attention + 3 * facts.hidden * facts.feed_forward)


def head(facts: ModelFacts) -> int:
    """Weights of the head, which only tokens with a log-prob go through."""
    return facts.hidden * facts.vocabulary
