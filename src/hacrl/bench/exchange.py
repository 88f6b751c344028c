"""What the exchange costs: validation, re-encoding and batching for all agents of one step."""

from __future__ import annotations

import random
import statistics
import string
import time
from collections.abc import Sequence

from hacrl.agents.nursery_tokenizers import make_tokenizer
from hacrl.agents.rendering import Rendering
from hacrl.algorithm import Capability, hacpo
from hacrl.exchange import Learner, TrajectoryPool, arrange, build_batches, hear, make_topology
from hacrl.types import Prompt, Trajectory

RESPONSE_TOKENS = 32
PROMPT_TOKENS = 32


def measure_exchange(
    agents: int = 4, prompts: int = 16, samples: int = 8, *, repeats: int = 5, seed: int = 0
) -> float:
    """Seconds per step for all agents together, median of `repeats`.

    The worst case: two kinds of tokenizers, every response of full length, no two alike.
    """
    rng = random.Random(seed)
    names = [f"agent-{n}" for n in range(agents)]
    renderings = [Rendering(make_tokenizer("digit-pairs" if n % 2 else "characters")) for n in range(agents)]
    learners = [Learner(name, rendering) for name, rendering in zip(names, renderings, strict=True)]
    asked = {f"p{n}": Prompt(f"p{n}", _text(rng, PROMPT_TOKENS)) for n in range(prompts)}
    drawn = {
        learner.name: [_trajectory(rng, learner, prompt_id, i) for prompt_id in asked for i in range(samples)]
        for learner in learners
    }
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        _one_step(learners, asked, drawn)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def _one_step(
    learners: Sequence[Learner], prompts: dict[str, Prompt], drawn: dict[str, list[Trajectory]]
) -> None:
    names = list(drawn)
    pool = TrajectoryPool(1, dict.fromkeys(names, prompts), dict.fromkeys(names, "weights"))
    for name, trajectories in drawn.items():
        pool.add(name, trajectories)
    topology, method, omega = make_topology("everybody", names), hacpo(), Capability(len(names)).omega
    for k, learner in enumerate(learners):
        heard, _ = hear(pool.trajectories, learner.name, topology[learner.name])
        table = arrange(1, heard, names, list(prompts))
        advantages, _ = method.advantages(table.rewards, omega, mask=table.mask)
        build_batches(table, learner, prompts, advantages[k], method.coefficients(omega)[k])


def _trajectory(rng: random.Random, learner: Learner, prompt_id: str, sample: int) -> Trajectory:
    text = _text(rng, RESPONSE_TOKENS - 1)
    ids = (*learner.encoder.encode_response(text), learner.encoder.eos_id)
    return Trajectory(
        step=1,
        prompt_id=prompt_id,
        source=learner.name,
        sample=sample,
        fingerprint="weights",
        text=text,
        reward=float(rng.random() < 0.5),
        finish_reason="stop",
        token_ids=ids,
        token_logps=tuple(-rng.random() for _ in ids),
    )


def _text(rng: random.Random, length: int) -> str:
    return "".join(rng.choices(string.digits + string.ascii_lowercase + " ", k=length))
