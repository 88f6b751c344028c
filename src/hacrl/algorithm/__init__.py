"""The mathematics of HACPO: small pure functions over tensors."""

from hacrl.algorithm.advantage import advantages, own_advantages
from hacrl.algorithm.batch import Objective, SourceData
from hacrl.algorithm.capability import Capability
from hacrl.algorithm.contextual import Belief, ContextualCapability
from hacrl.algorithm.critic import CriticParams, gae, value_loss, whitened
from hacrl.algorithm.diagnostics import (
    WindowShares,
    effective_sample_size,
    ratio_quantiles,
    window_shares,
)
from hacrl.algorithm.losses import (
    grpo_loss,
    gspo_loss,
    hacpo_loss,
    imitation_loss,
    kl_low_variance,
    ppo_loss,
    surrogate_loss,
)
from hacrl.algorithm.objectives import (
    AdmittedObjective,
    DistillationObjective,
    GrpoObjective,
    GspoObjective,
    HacpoObjective,
    ImitationObjective,
    LikelihoodObjective,
    PpoObjective,
    ShapedObjective,
    SplitObjective,
    SurrogateObjective,
    TruncatedObjective,
)
from hacrl.algorithm.peer_losses import (
    admitted_loss,
    distillation_loss,
    likelihood_loss,
    shaped_loss,
    truncated_loss,
)
from hacrl.algorithm.ratio import HacpoParams, sequence_ratio, window_lower

__all__ = [
    "AdmittedObjective",
    "Belief",
    "Capability",
    "ContextualCapability",
    "CriticParams",
    "DistillationObjective",
    "GrpoObjective",
    "GspoObjective",
    "HacpoObjective",
    "HacpoParams",
    "ImitationObjective",
    "LikelihoodObjective",
    "Objective",
    "PpoObjective",
    "ShapedObjective",
    "SourceData",
    "SplitObjective",
    "SurrogateObjective",
    "TruncatedObjective",
    "WindowShares",
    "admitted_loss",
    "advantages",
    "distillation_loss",
    "effective_sample_size",
    "gae",
    "grpo_loss",
    "gspo_loss",
    "hacpo_loss",
    "imitation_loss",
    "kl_low_variance",
    "likelihood_loss",
    "own_advantages",
    "ppo_loss",
    "ratio_quantiles",
    "sequence_ratio",
    "shaped_loss",
    "surrogate_loss",
    "truncated_loss",
    "value_loss",
    "whitened",
    "window_lower",
    "window_shares",
]
