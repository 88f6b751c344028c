"""Where real models and tokenizers are: `make models` and `make tokenizers` leave them in models/."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_MADE = Path(__file__).parents[1] / "models"
TOKENIZERS = Path(os.environ.get("HACRL_TOKENIZERS") or _MADE / "tokenizers")
SMOLLM2 = Path(os.environ.get("HACRL_SMOLLM2") or _MADE / "smollm2-135m")

needs_smollm2 = pytest.mark.skipif(
    not (SMOLLM2 / "config.json").is_file(), reason="needs SmolLM2-135M-Instruct: make models"
)
