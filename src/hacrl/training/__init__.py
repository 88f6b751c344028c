"""A training run: the step, the team it works with, its directory, what it shows and writes."""
