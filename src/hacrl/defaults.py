"""Defaults that the algorithm, the verifiers and the recipe have in common. Standard library only."""

GSPO_CLIP_LOW, GSPO_CLIP_HIGH = 3e-4, 4e-4
"""HACPO's clip of a sequence ratio below and above 1."""
GRPO_CLIP_LOW, GRPO_CLIP_HIGH = 0.2, 0.28
"""Clip of a token's ratio in GRPO ("clip higher")."""
PPO_CLIP_LOW, PPO_CLIP_HIGH = 0.2, 0.2

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

DEADLINE_SECONDS, MAX_DEADLINE_SECONDS = 10.0, 86_400.0
"""For one call of a verifier: the default, and the longest possible."""
MAX_UNSCORABLE = 0.5
"""Largest share of a batch of responses that may be unscorable."""
