"""Prompts and responses in one learner's tokens, and peers' log-probs in its unit.

What does not fit is left out, unless the learner truncates (`exchange.truncate_overlong`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from hacrl.recipe.settings import LengthNorm
from hacrl.types import Encoder, Prompt, Trajectory

LeftOut = Literal["prompt_too_long", "response_too_long", "drift", "empty"]
"""Why a learner cannot use a verified response. `drift`: its tokens cannot write the text exactly, so that it
would learn another text than the verified one. `empty`: there is no text to learn."""

Tokens = tuple[int, ...]


class Encoded(NamedTuple):
    """A response to a prompt in the learner's tokens."""

    prompt_ids: Tokens
    response_ids: Tokens


@dataclass(frozen=True)
class Learner:
    """The agent a batch is built for: its name, its tokens and what fits into its model."""

    name: str
    encoder: Encoder
    context_length: int | None = None
    """Most tokens of prompt and response together."""
    max_prompt_tokens: int | None = None
    """Most tokens of the prompt of a peer's response ..."""
    max_response_tokens: int | None = None
    """... and of the response."""
    truncates: bool = False
    """Whether peers' prompts and responses that are longer are cut rather than left out."""
    trains_eos: bool = True
    """Whether the EOS that ends a response is trained on; it always is if it is the whole response."""


class Reencoder:
    """Writes one step's trajectories in a learner's tokens, each prompt and each distinct text once."""

    def __init__(self, learner: Learner, prompts: Mapping[str, Prompt], ending: str = "") -> None:
        """`ending`: the text that ends the learner's own responses (`own_ending`); empty: its EOS."""
        self.learner = learner
        self.prompts = prompts
        self._ending = ending
        self._prompt_tokens: dict[str, Tokens] = {}
        self._text_tokens: dict[str, Tokens | LeftOut] = {}

    def encode(self, trajectory: Trajectory, *, complete: bool = False) -> Encoded | LeftOut:
        """Prompt and response as the learner trains on them, or why it cannot.

        `complete`: a peer's response that ended by itself ends the way the learner's own ones do.
        """
        room = self.learner.context_length
        prompt = self._prompt(trajectory.prompt_id)
        if room is not None and len(prompt) >= room:
            return "prompt_too_long"
        response = self._response(trajectory, complete)
        if isinstance(response, str):
            return response
        if trajectory.source != self.learner.name:
            return self._within_limits(prompt, response)
        if room is not None and len(prompt) + len(response) > room:
            return "response_too_long"
        return Encoded(prompt, response)

    def own_logps(self, trajectory: Trajectory) -> tuple[float, ...]:
        """The log-probs, when it was drawn, of the tokens of an own response that are trained on."""
        return trajectory.token_logps if self.learner.trains_eos else trajectory.exchanged_logps

    def _within_limits(self, prompt: Tokens, response: Tokens) -> Encoded | LeftOut:
        """A peer's response that the learner may train on, cut if it is too long and the learner truncates.

        As in the authors' code, the source's mean log-prob stays that of its whole response.
        """
        learner = self.learner
        longest = len(prompt) if learner.max_prompt_tokens is None else learner.max_prompt_tokens
        if len(prompt) > longest and not learner.truncates:
            return "prompt_too_long"
        prompt = prompt[-longest:]
        limits = [learner.max_response_tokens]
        if learner.context_length is not None:
            limits.append(learner.context_length - len(prompt))
        longest = min((limit for limit in limits if limit is not None), default=len(response))
        if len(response) > longest and not learner.truncates:
            return "response_too_long"
        return Encoded(prompt, response[:longest])

    def _prompt(self, prompt_id: str) -> Tokens:
        if prompt_id not in self._prompt_tokens:
            self._prompt_tokens[prompt_id] = self.learner.encoder.encode_prompt(self.prompts[prompt_id])
        return self._prompt_tokens[prompt_id]

    def _response(self, trajectory: Trajectory, complete: bool) -> Tokens | LeftOut:
        """Own tokens as they were drawn; of a peer's response all that it wrote, without EOS.

        A peer's response that is only EOS becomes the learner's own EOS.
        """
        if trajectory.source == self.learner.name:
            return trajectory.token_ids[: len(self.own_logps(trajectory))]
        if complete and trajectory.finish_reason == "stop":
            return self._completed(trajectory)
        if not trajectory.written and trajectory.finish_reason == "stop" and len(trajectory.token_ids) == 1:
            return (self.learner.encoder.eos_id,)
        return self._tokens(trajectory.written)

    def _completed(self, trajectory: Trajectory) -> Tokens | LeftOut:
        """The text with the learner's ending, unless the text includes the stop string that ended it."""
        if trajectory.stop is not None and trajectory.text.endswith(trajectory.stop):
            return self._tokens(trajectory.text)
        if self._ending:
            return self._tokens(trajectory.text + self._ending)
        eos = self.learner.encoder.eos_id
        tokens = self._tokens(trajectory.text)
        if tokens == "empty":
            return (eos,)
        return tokens if isinstance(tokens, str) or not self.learner.trains_eos else (*tokens, eos)

    def _tokens(self, text: str) -> Tokens | LeftOut:
        if text not in self._text_tokens:
            self._text_tokens[text] = self._reencoded(text)
        return self._text_tokens[text]

    def _reencoded(self, text: str) -> Tokens | LeftOut:
        encoder = self.learner.encoder
        tokens = encoder.encode_response(text)
        if encoder.decode_response(tokens) != text:
            return "drift"
        return tokens or "empty"


def own_ending(trajectories: Iterable[Trajectory], learner: str) -> str:
    """What most of the learner's complete responses ended with: a stop string, or its EOS (empty).

    Also empty when none was complete, or as many ended with EOS. Of equally frequent ones the first by name.
    """
    complete = [t for t in trajectories if t.source == learner and t.finish_reason == "stop"]
    endings = Counter(t.ending if t.stop and t.ending.startswith(t.stop) else "" for t in complete)
    return min(endings, key=lambda ending: (-endings[ending], ending), default="")


class SourceUnit(NamedTuple):
    """log-ratio = length_scale * (learner's mean log-prob per learner token - mean_logp)."""

    mean_logp: float
    length_scale: float


def source_unit(trajectory: Trajectory, learner_tokens: int, norm: LengthNorm) -> SourceUnit:
    """A peer's log-probs in the unit in which the learner, with `learner_tokens` tokens, compares them.

    Means per token of two tokenizers are not the same unit: one may split the same text three times as
    finely. With `bytes` the log-ratio is (learner's sum - source's sum) / bytes. The learner's loss averages
    over its own tokens, so the sums are taken over those, and the scale turns tokens into bytes. Where the
    source's log-probs are not known, neither is the mean.
    """
    if not trajectory.logp_count:
        return SourceUnit(math.nan, 1.0)
    if norm == "own":
        return SourceUnit(trajectory.logp_sum / trajectory.logp_count, 1.0)
    mean_logp = trajectory.logp_sum / learner_tokens
    if norm == "learner":
        return SourceUnit(mean_logp, 1.0)
    # A response that is only EOS has no text: its one token counts as one byte.
    return SourceUnit(mean_logp, learner_tokens / max(1, len(trajectory.written.encode())))
