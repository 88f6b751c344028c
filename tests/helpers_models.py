"""Where real models and tokenizers are: `make models` and `make tokenizers` leave them in models/."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerFast

_MADE = Path(__file__).parents[1] / "models"
TOKENIZERS = Path(os.environ.get("HACRL_TOKENIZERS") or _MADE / "tokenizers")
SMOLLM2 = Path(os.environ.get("HACRL_SMOLLM2") or _MADE / "smollm2-135m")
GEMMA3 = Path(os.environ.get("HACRL_GEMMA3") or _MADE / "gemma-3-270m")


def needs(model: Path) -> pytest.MarkDecorator:
    """Skip a test of a model that is not there."""
    return pytest.mark.skipif(not (model / "config.json").is_file(), reason="needs real models: make models")


@cache
def real_tokenizer(name: str | Path) -> PreTrainedTokenizerFast:
    """By the name of its folder in models/tokenizers, or a model's; the test is skipped without one."""
    if not (TOKENIZERS / name).is_dir():
        pytest.skip("needs real tokenizers: make tokenizers")
    return AutoTokenizer.from_pretrained(TOKENIZERS / name)
