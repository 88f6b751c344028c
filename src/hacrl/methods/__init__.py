"""Ways of learning alone and together, all behind `Method`: who answers what, and the lessons made of it."""

from hacrl.methods.alone import Alone, grpo, gspo, gspo_x2
from hacrl.methods.base import Method, View
from hacrl.methods.commons import Commons, commons
from hacrl.methods.controls import hacpo_copies, hacpo_muted, pool, pool_x2, replay, replay_x2
from hacrl.methods.hacpo import Mechanism, Sharing, hacpo, naive
from hacrl.methods.ppo import Ppo, ppo

__all__ = [
    "Alone",
    "Commons",
    "Mechanism",
    "Method",
    "Ppo",
    "Sharing",
    "View",
    "commons",
    "grpo",
    "gspo",
    "gspo_x2",
    "hacpo",
    "hacpo_copies",
    "hacpo_muted",
    "naive",
    "pool",
    "pool_x2",
    "ppo",
    "replay",
    "replay_x2",
]
