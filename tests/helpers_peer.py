"""A comparison small enough for tests: the real code on a model of a few thousand parameters."""

from hacrl.bench.peer.workload import Size, Workload

TINY = Workload(
    Size(hidden=32, layers=2, heads=2, vocab=20), eos_hazard=0.2, max_new=6, prompts=4, samples=4, seed=3
)
