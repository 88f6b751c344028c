"""Which part of a response's text each of its tokens is, for shading the text by log-prob."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from hacrl.runs.directory import RunDirectory


def load_tokenizers(run: Path, agents: Sequence[str]) -> dict[str, Tokenizer]:
    """The tokenizers that a finished run exported with its agents."""
    files = {agent: RunDirectory(run).agents / agent / "tokenizer.json" for agent in agents}
    return {agent: Tokenizer.from_file(str(file)) for agent, file in files.items() if file.is_file()}


def piece_lengths(tokenizer: Tokenizer | None, token_ids: Sequence[int], text: str) -> list[int] | None:
    """Characters of the text that each token adds; None when the tokens do not spell the text exactly."""
    if tokenizer is None:
        return None
    stream = DecodeStream(skip_special_tokens=True)
    pieces = [stream.step(tokenizer, token) or "" for token in token_ids]
    return [len(piece) for piece in pieces] if "".join(pieces) == text else None
