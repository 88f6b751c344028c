"""Measurements of hacrl itself, run from a clone: `python -m benchmarks.NAME`."""
