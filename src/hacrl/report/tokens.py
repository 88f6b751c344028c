"""Which part of a response's text each of its tokens is, for shading the text by log-prob."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from hacrl.storage.rundir import RunDirectory


def load_tokenizers(run: Path, recipe: Mapping[str, Any]) -> dict[str, Tokenizer]:
    """The tokenizer of every agent whose files are at hand: exported by the run, or its model's directory."""
    found = {}
    for agent in recipe["agents"]:
        for directory in (RunDirectory(run).agents / agent["name"], Path(agent["model"])):
            file = directory / "tokenizer.json"
            if file.is_file():
                found[agent["name"]] = Tokenizer.from_file(str(file))
                break
    return found


def piece_lengths(tokenizer: Tokenizer | None, token_ids: Sequence[int], text: str) -> list[int] | None:
    """Characters of the text that each token adds; None when the tokens do not spell the text exactly."""
    if tokenizer is None:
        return None
    stream = DecodeStream(skip_special_tokens=True)
    pieces = [stream.step(tokenizer, token) or "" for token in token_ids]
    return [len(piece) for piece in pieces] if "".join(pieces) == text else None
