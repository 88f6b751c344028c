"""One reinforcement-learning step of ours beside TRL's, on copies of one model."""
