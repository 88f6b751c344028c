"""Prompts and responses in one learner's tokens. Nothing is cut: what does not fit is left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from hacrl.types import Encoder, Prompt, Trajectory

LeftOut = Literal["prompt_too_long", "response_too_long", "drift", "empty"]
"""Why a learner cannot use a verified response. `drift`: its tokens cannot write the text exactly, so that it
would learn another text than the verified one. `empty`: there is no text to learn."""

Tokens = tuple[int, ...]


@dataclass(frozen=True)
class Learner:
    """The agent a batch is built for: its name, its tokens and what fits into its context."""

    name: str
    encoder: Encoder
    max_prompt_tokens: int | None = None
    max_response_tokens: int | None = None


class Reencoder:
    """Writes one step's prompts and responses in a learner's tokens, each distinct text once."""

    def __init__(self, learner: Learner, prompts: Mapping[str, Prompt]) -> None:
        self._learner = learner
        self._prompts = prompts
        self._prompt_tokens: dict[str, Tokens | LeftOut] = {}
        self._text_tokens: dict[str, Tokens | LeftOut] = {}

    def prompt(self, prompt_id: str) -> Tokens | LeftOut:
        """The prompt with the learner's chat template."""
        if prompt_id not in self._prompt_tokens:
            tokens = self._learner.encoder.encode_prompt(self._prompts[prompt_id])
            fits = _fits(tokens, self._learner.max_prompt_tokens)
            self._prompt_tokens[prompt_id] = tokens if fits else "prompt_too_long"
        return self._prompt_tokens[prompt_id]

    def response(self, trajectory: Trajectory) -> Tokens | LeftOut:
        """Own tokens as they were drawn; a peer's text re-encoded, without EOS.

        A peer's response that is only EOS becomes the learner's own EOS.
        """
        if trajectory.source == self._learner.name:
            return trajectory.token_ids
        text = trajectory.text
        if not text and trajectory.finish_reason == "stop" and len(trajectory.token_ids) == 1:
            return (self._learner.encoder.eos_id,)
        if text not in self._text_tokens:
            self._text_tokens[text] = self._encode(text)
        return self._text_tokens[text]

    def _encode(self, text: str) -> Tokens | LeftOut:
        encoder = self._learner.encoder
        tokens = encoder.encode_response(text)
        if encoder.decode_response(tokens) != text:
            return "drift"
        if not tokens:
            return "empty"
        return tokens if _fits(tokens, self._learner.max_response_tokens) else "response_too_long"


def _fits(tokens: Tokens, limit: int | None) -> bool:
    return limit is None or len(tokens) <= limit
