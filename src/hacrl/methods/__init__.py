"""Ways of learning alone and together, all behind `Method`: who answers what, and the lessons made of it."""

from hacrl.methods.base import Method, View
from hacrl.methods.commons import Commons, commons
from hacrl.methods.controls import hacpo_copies, hacpo_muted, pool, pool_x2, replay, replay_x2
from hacrl.methods.ftis import ftis
from hacrl.methods.graft import graft
from hacrl.methods.gspo import Alone, grpo, gspo, gspo_x2
from hacrl.methods.hacpo import Mechanism, Sharing, hacpo, naive
from hacrl.methods.luffy import luffy
from hacrl.methods.opd import opd
from hacrl.methods.ppo import Ppo, ppo
from hacrl.methods.sft_strongest import sft_strongest
from hacrl.methods.sgt import sgt
from hacrl.methods.swarm import swarm
from hacrl.methods.xgrpo import xgrpo

__all__ = [
    "Alone",
    "Commons",
    "Mechanism",
    "Method",
    "Ppo",
    "Sharing",
    "View",
    "commons",
    "ftis",
    "graft",
    "grpo",
    "gspo",
    "gspo_x2",
    "hacpo",
    "hacpo_copies",
    "hacpo_muted",
    "luffy",
    "naive",
    "opd",
    "pool",
    "pool_x2",
    "ppo",
    "replay",
    "replay_x2",
    "sft_strongest",
    "sgt",
    "swarm",
    "xgrpo",
]
