from __future__ import annotations

import math

import pytest
import torch

from hacrl.sharing.normalise import LengthNorm, source_unit
from helpers_sharing import trajectory

# Four tokens with EOS; three are exchanged: the sum is -3, the text has 8 UTF-8 bytes.
SOURCE = trajectory(
    text="日本12", token_ids=(5, 6, 7, 2), token_logps=(-0.5, -1.5, -1.0, -4.0), finish_reason="stop"
)
LEARNER_LOGPS = torch.tensor([-0.25, -0.25, -0.5, -0.25, -1.25], dtype=torch.float64)


@pytest.mark.parametrize(
    ("norm", "log_ratio"),
    [("own", -2.5 / 5 + 3 / 3), ("learner", (-2.5 + 3) / 5), ("bytes", (-2.5 + 3) / 8)],
)
def test_the_log_ratio_in_each_unit(norm: LengthNorm, log_ratio: float) -> None:
    """The loss computes length_scale * (mean over the learner's tokens - source mean)."""
    unit = source_unit(SOURCE, len(LEARNER_LOGPS), norm)
    found = unit.length_scale * (LEARNER_LOGPS.mean().item() - unit.mean_logp)
    assert math.isclose(found, log_ratio, rel_tol=1e-12)


@pytest.mark.parametrize("norm", ["own", "learner", "bytes"])
def test_a_response_of_one_eos_is_compared_token_with_token(norm: LengthNorm) -> None:
    only_eos = trajectory(text="", token_ids=(2,), token_logps=(-0.75,))
    assert source_unit(only_eos, 1, norm) == (-0.75, 1.0)


def test_all_units_agree_where_every_byte_is_a_token() -> None:
    plain = trajectory(text="123")
    units = {source_unit(plain, 3, norm) for norm in ("own", "learner", "bytes")}
    assert units == {(plain.logp_sum / 3, 1.0)}


def test_an_unknown_unit_is_named() -> None:
    with pytest.raises(ValueError, match=r"length_norm: expected one of .*'words'"):
        source_unit(SOURCE, 5, "words")  # type: ignore[arg-type]
