"""What the theory promises, measured: on the agents of a run, and exactly on a toy vocabulary."""
