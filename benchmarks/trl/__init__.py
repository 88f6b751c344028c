"""One training step beside the same step of TRL, on copies of one model."""
