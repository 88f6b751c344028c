"""Defaults that the algorithm, the verifiers and the recipe have in common. Standard library only."""

GSPO_CLIP_LOW, GSPO_CLIP_HIGH = 3e-4, 4e-4
"""HACPO's clip of a sequence ratio below and above 1."""
GRPO_CLIP_LOW, GRPO_CLIP_HIGH = 0.2, 0.28
"""Clip of a token's ratio in GRPO ("clip higher")."""
PPO_CLIP_LOW, PPO_CLIP_HIGH = 0.2, 0.2

LEARNING_RATES = ((20e6, 2e-4), (100e6, 1e-5), (1e9, 2e-6))
"""Up to so many parameters -> the usual learning rate; toy models are the first."""
LARGE_LEARNING_RATE = 1e-6
"""Of larger models: the paper's, for 1 to 8 billion parameters."""
LORA_LEARNING_RATE_FACTOR = 10.0
"""Adapters are trained with larger ones than whole models."""

CAPABILITY_WINDOW = 5
"""Batches that the rolling mean of rewards goes over."""
CAPABILITY_FLOOR = 1e-8
"""Capabilities are at least this much before they are divided."""
OMEGA_CLAMP = (0.1, 10.0)
"""Smallest and largest omega."""

CONTEXTUAL_MEMORY = 0.8
"""How much an outcome counts after a step, of what it counted before: five steps on average."""

FTIS_TRUNCATION, FTIS_KL_LIMIT = 2.0, 50.0
GRAFT_FLOOR = 0.8
LUFFY_SHAPING = 0.1

CORRECTION_CAP = 2.0
"""Largest weight of an own response that was drawn with other log-probs than it is trained with."""

DEADLINE_SECONDS, MAX_DEADLINE_SECONDS = 10.0, 86_400.0
"""For one call of a verifier: the default, and the longest possible."""
MAX_UNSCORABLE = 0.5
"""Largest share of a batch of responses that may be unscorable."""


def usual_learning_rate(parameters: int, adapters: bool = False) -> float:
    """What a model of this size is trained with if the recipe does not say."""
    rate = next((rate for most, rate in LEARNING_RATES if parameters < most), LARGE_LEARNING_RATE)
    return rate * (LORA_LEARNING_RATE_FACTOR if adapters else 1.0)
