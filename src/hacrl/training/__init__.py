"""A training run: the step, the team, the loops, and everything a run shows and writes."""
