"""The end of a model: from hidden states to logits, and to log-probs of given tokens in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from hacrl.agents.backends.packed_weights import linear, packed
from hacrl.agents.optimiser import main_gradient

LOGITS_AT_ONCE = 1 << 24
"""Most logits (64 MB) held in fp32 at once; where there would be more, they are computed in blocks."""

KEPT_BYTES = 1 << 28
"""Most logits (256 MB) kept for the backward pass, which has to compute all others again."""

LARGE_VOCABULARY = 1 << 14
"""From here on, decoding computes logits in blocks as well."""

FEWEST_WORDS, MOST_WORDS = 256, 2048
"""Of a block: narrower products are slow, and what is wider does not stay in a processor's cache."""


class OutputHead:
    """The output embedding of a model, with the scale and the softcap that its logits get."""

    def __init__(self, model: PreTrainedModel) -> None:
        config = model.config.get_text_config()
        self._module: Any = model.get_output_embeddings()
        self.vocabulary: int = self._module.weight.shape[0]
        self._softcap: float | None = getattr(config, "final_logit_softcapping", None)
        self._scale = _setting(config, "logit_scale") / _setting(config, "logits_scaling")

    def is_plain_large(self, weight: Tensor) -> bool:
        """Whether it is a plain layer with exactly this weight, and a large vocabulary."""
        plain = type(self._module) is nn.Linear and self._module.weight is weight
        return plain and type(weight) is nn.Parameter and self.vocabulary >= LARGE_VOCABULARY

    def packed(self) -> Tensor | None:
        """Its weights for decoding few responses (see `packed_weights`); None if it is no plain layer."""
        return packed(self._module.weight) if type(self._module) is nn.Linear else None

    def logits(self, hidden: Tensor, weight: Tensor | None = None) -> Tensor:
        """[n, d] -> [n, vocabulary]; `weight` is what `packed` returned."""
        if weight is not None:
            logits = linear(hidden, weight, self._module.bias)
        else:
            logits = (
                _in_blocks(self._module, hidden) if self._gains_by_blocks(hidden) else self._module(hidden)
            )
        if self._scale != 1.0:
            logits = logits * self._scale
        if self._softcap is not None:
            logits = torch.tanh(logits / self._softcap) * self._softcap
        return logits

    def _gains_by_blocks(self, hidden: Tensor) -> bool:
        """In fp32 on a CPU, one product of a few states and very many words is slower than several."""
        on_cpu = hidden.device.type == "cpu" and hidden.dtype == torch.float32
        plain = type(self._module) is nn.Linear and not torch.is_grad_enabled()
        return on_cpu and plain and self.vocabulary >= LARGE_VOCABULARY

    def logps(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Log-probs of the targets [n] given hidden states [n, d], in fp32."""
        if len(targets) * self.vocabulary <= LOGITS_AT_ONCE:
            return target_logps(self.logits(hidden), targets)
        if type(self._module) is nn.Linear:
            logps: Tensor = _LogpsInBlocks.apply(  # type: ignore[no-untyped-call]
                hidden,
                self._module.weight,
                self._module.bias,
                targets,
                self._scale,
                self._softcap,
                KEPT_BYTES if torch.is_grad_enabled() else 0,  # inside `forward` it never is
            )
            return logps
        # A head with adapters, or quantised: only its own forward knows what it computes.
        size = max(1, LOGITS_AT_ONCE // self.vocabulary)
        pieces = zip(torch.split(hidden, size), torch.split(targets, size), strict=True)
        return torch.cat([checkpoint(self._piece, *piece, use_reentrant=False) for piece in pieces])

    def _piece(self, hidden: Tensor, targets: Tensor) -> Tensor:
        return target_logps(self.logits(hidden), targets)


def target_logps(logits: Tensor, targets: Tensor) -> Tensor:
    """Log-probs of the targets [n] under logits [n, vocabulary], at least in fp32."""
    return -F.cross_entropy(logits.to(_exact(logits.dtype)), targets, reduction="none")


class _LogpsInBlocks(torch.autograd.Function):
    """Log-probs of tokens, a block of words at a time.

    The first blocks are kept for the backward pass, as many as there is room for. It computes the others
    again, the same bits: if that is all of them, forward and backward pass together take a quarter longer.
    Nothing is kept where no backward pass can follow. Blocks of words, not of tokens: then every row of the
    weights' gradient is written once, to where an optimiser adds it up if there is such a place. Why not an
    existing one: torch's `linear_cross_entropy` returns bf16 for bf16 states, cuts tokens and knows no
    softcap; TRL's kernel multiplies bf16 gradients in fp32 without a GPU; Liger's needs a GPU.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        scale: float,
        softcap: float | None,
        room: int,
    ) -> Tensor:
        """`room` is for what is kept, in bytes."""
        exact = _exact(hidden.dtype)
        normaliser = torch.full(targets.shape, -torch.inf, dtype=exact, device=hidden.device)
        chosen = torch.zeros_like(normaliser)
        room = room if any(ctx.needs_input_grad) else 0
        ctx.kept = {}
        for words in _blocks(len(targets), len(weight)):
            raw = _block_logits(hidden, weight, bias, words)
            room -= raw.nbytes
            keeps = room >= 0
            if keeps:
                ctx.kept[words.start] = raw
            logits = _transformed(raw.to(exact, copy=keeps), scale, softcap)
            normaliser = torch.logaddexp(normaliser, logits.logsumexp(1))
            rows, columns = _targets_among(words, targets)
            chosen[rows] = logits[rows, columns]
        ctx.save_for_backward(hidden, weight, bias, targets, normaliser)
        ctx.scale, ctx.softcap = scale, softcap
        return chosen - normaliser

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, targets, normaliser = ctx.saved_tensors
        for_hidden, for_weight, for_bias = ctx.needs_input_grad[:3]
        to_hidden = torch.zeros_like(hidden, dtype=_exact(hidden.dtype)) if for_hidden else None
        added = main_gradient(weight) if for_weight else None
        to_weight = torch.empty_like(weight) if for_weight and added is None else None
        to_bias = torch.empty_like(bias) if for_bias else None
        for words in _blocks(len(targets), len(weight)):
            raw = ctx.kept.pop(words.start, None)  # its memory is free from here on
            raw = _block_logits(hidden, weight, bias, words) if raw is None else raw
            to_logits = _transformed(raw.to(normaliser.dtype), ctx.scale, ctx.softcap)
            del raw
            slope = _slope(to_logits, ctx.scale, ctx.softcap)
            # The gradient of a token's log-prob: 1 at the token itself, minus the probabilities.
            to_logits.sub_(normaliser[:, None]).exp_().mul_(-gradient[:, None])
            rows, columns = _targets_among(words, targets)
            to_logits[rows, columns] += gradient[rows]
            to_logits = (to_logits if slope is None else to_logits.mul_(slope)).to(hidden.dtype)
            if to_hidden is not None:
                to_hidden += to_logits @ weight[words].to(hidden.dtype)
            if added is not None:
                added[words] += to_logits.T @ hidden
            if to_weight is not None:
                _multiply_into(to_weight[words], to_logits.T, hidden)
            if to_bias is not None:
                to_bias[words] = to_logits.sum(0)
        to_hidden = None if to_hidden is None else to_hidden.to(hidden.dtype)
        return to_hidden, to_weight, to_bias, None, None, None, None


def _in_blocks(module: nn.Linear, hidden: Tensor) -> Tensor:
    """The module's output, the same numbers up to rounding."""
    logits = hidden.new_empty(len(hidden), len(module.weight))
    for words in _blocks(len(hidden), len(module.weight)):
        torch.mm(hidden, module.weight[words].T, out=logits[:, words])
    return logits if module.bias is None else logits.add_(module.bias)


def _multiply_into(result: Tensor, left: Tensor, right: Tensor) -> None:
    """Without a copy, unless the result has more digits."""
    if result.dtype == left.dtype:
        torch.mm(left, right, out=result)
    else:
        result.copy_(left @ right)


def _blocks(tokens: int, vocabulary: int) -> Iterator[slice]:
    size = min(max(FEWEST_WORDS, LOGITS_AT_ONCE // tokens), MOST_WORDS)
    return (slice(start, min(start + size, vocabulary)) for start in range(0, vocabulary, size))


def _block_logits(hidden: Tensor, weight: Tensor, bias: Tensor | None, words: slice) -> Tensor:
    """The head's output [n, words] in the states' dtype."""
    part = None if bias is None else bias[words].to(hidden.dtype)
    return F.linear(hidden, weight[words].to(hidden.dtype), part)


def _transformed(raw: Tensor, scale: float, softcap: float | None) -> Tensor:
    """Scaled and capped in place."""
    if scale != 1.0:
        raw.mul_(scale)
    return raw if softcap is None else raw.div_(softcap).tanh_().mul_(softcap)


def _slope(logits: Tensor, scale: float, softcap: float | None) -> Tensor | float | None:
    """The derivative of `_transformed`, given its result; None for 1."""
    if softcap is None:
        return None if scale == 1.0 else scale
    return (logits / softcap).square_().neg_().add_(1.0).mul_(scale)


def _targets_among(words: slice, targets: Tensor) -> tuple[Tensor, Tensor]:
    """The tokens whose target is in the block, and its column there."""
    rows = ((targets >= words.start) & (targets < words.stop)).nonzero().squeeze(1)
    return rows, targets[rows] - words.start


def _exact(dtype: torch.dtype) -> torch.dtype:
    """What sums over a vocabulary are computed in."""
    return torch.promote_types(dtype, torch.float32)


def _setting(config: Any, name: str) -> float:
    value = getattr(config, name, None)
    return 1.0 if value is None else float(value)
