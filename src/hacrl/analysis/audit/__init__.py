"""Check the assumptions behind sharing: on a run's agents, and exactly on a toy vocabulary."""
