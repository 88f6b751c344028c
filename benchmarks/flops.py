"""The useful work of a step, and what the machine could do at best."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

import torch

from benchmarks.real_models import RealModel
from benchmarks.workload import Workload
from hacrl.agents.precision import DTYPES
from hacrl.analysis.simulate import work
from hacrl.analysis.simulate.synthetic import Size

GEMM_SIZE = 1024


def forward_flops(size: Size | RealModel, prompt: int, responses: Sequence[int]) -> int:
    """Multiplications and additions to get the log-probs of all responses to one prompt.

    Only unavoidable work is counted: the prompt once, every response token that another one follows,
    attention to earlier tokens only, the head once per predicted position (the first one is shared by all
    responses). No padding, no norms, no softmax.
    """
    fed = [length - 1 for length in responses]
    tokens = prompt + sum(fed)
    attended = prompt * (prompt + 1) // 2 + sum(n * prompt + n * (n + 1) // 2 for n in fed)
    return int(work.forward_flops(size.facts, tokens, predicted=1 + sum(fed), attended=attended))


def step_flops(step: Workload, responses: Sequence[int]) -> int:
    """Of a whole step, given the lengths of all responses prompt by prompt.

    A forward pass to generate (unless replayed), and three times that to train.
    """
    prompts = step.prompt_lengths()
    groups = [responses[start : start + step.samples] for start in range(0, len(responses), step.samples)]
    forward = sum(
        forward_flops(step.size, prompt, group) for prompt, group in zip(prompts, groups, strict=True)
    )
    return forward * (3 if step.replay else 4)


def gemm_flops_per_second(dtype: str = "float32") -> float:
    """What one thread reaches in a large matrix product, best of a few."""
    a, b = torch.rand(2, GEMM_SIZE, GEMM_SIZE).to(DTYPES[dtype]).unbind()
    best = float("inf")
    for _ in range(5):
        begun = perf_counter()
        a @ b
        best = min(best, perf_counter() - begun)
    return 2 * GEMM_SIZE**3 / best
