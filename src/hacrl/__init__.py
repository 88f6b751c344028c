"""Train several different language models together with reinforcement learning (HACRL / HACPO)."""

__version__ = "0.1.0"
