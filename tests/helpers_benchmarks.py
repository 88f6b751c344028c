"""A workload small enough for tests: the real code on a model of a few thousand parameters."""

from benchmarks.workload import Workload
from hacrl.analysis.simulate.synthetic import Size

TINY = Workload(
    Size(hidden=32, layers=2, heads=2, vocab=20), eos_hazard=0.2, max_new=6, prompts=4, samples=4, seed=3
)
