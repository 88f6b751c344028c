"""The mathematics of HACPO: small pure functions over tensors."""

from hacrl.algorithm.advantage import advantages, own_advantages
from hacrl.algorithm.batch import Objective, SourceData
from hacrl.algorithm.capability import Capability
from hacrl.algorithm.diagnostics import (
    WindowShares,
    effective_sample_size,
    peer_weights,
    ratio_quantiles,
    window_shares,
)
from hacrl.algorithm.methods import Mechanism, Method, grpo, gspo, gspo_x2, hacpo, naive
from hacrl.algorithm.objective import grpo_loss, gspo_loss, hacpo_loss, kl_low_variance
from hacrl.algorithm.ratio import HacpoParams, sequence_ratio, window_lower

__all__ = [
    "Capability",
    "HacpoParams",
    "Mechanism",
    "Method",
    "Objective",
    "SourceData",
    "WindowShares",
    "advantages",
    "effective_sample_size",
    "grpo",
    "grpo_loss",
    "gspo",
    "gspo_loss",
    "gspo_x2",
    "hacpo",
    "hacpo_loss",
    "kl_low_variance",
    "naive",
    "own_advantages",
    "peer_weights",
    "ratio_quantiles",
    "sequence_ratio",
    "window_lower",
    "window_shares",
]
