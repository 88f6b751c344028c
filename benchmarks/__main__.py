"""`python -m benchmarks` lists the benchmarks."""

import benchmarks

print(benchmarks.__doc__)
