"""What arithmetic, memory traffic and messages cost, per device."""

from __future__ import annotations

from dataclasses import dataclass

from hacrl.analysis.simulate.work import Work


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of a phase: the three kinds of work one after the other, nothing hidden behind another."""

    per_flop: float
    per_byte: float
    per_pass: float

    def seconds(self, work: Work) -> float:
        """Of so much work."""
        return work.flops * self.per_flop + work.bytes * self.per_byte + work.passes * self.per_pass

    def times(self, factor: float) -> Cost:
        """Everything slower by a factor."""
        return Cost(self.per_flop * factor, self.per_byte * factor, self.per_pass * factor)


@dataclass(frozen=True, slots=True)
class LoopCost:
    """Seconds of the loop: advantages, re-tokenising peers' texts, building training rows."""

    per_response: float
    per_token: float
    """Of responses taught, once for each learner."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """One kind of device and what connects them."""

    name: str
    origin: str
    """Where the figures come from, for people."""
    sample: Cost
    update: Cost
    link: float
    """Bytes per second that a rank receives from the others of its agent."""
    network: float
    """Bytes per second between the agents' processes and the loop."""
    loop: LoopCost
    width: int
    """Bytes of a number that is computed with."""


ARITHMETIC_REACHED, MEMORY_REACHED, LINK_REACHED = 0.5, 0.7, 0.7
"""Assumed shares of the published peaks."""
LAYER_START = 100e-6
"""Assumed seconds to launch the kernels of one layer, one after the other."""
LOOP = LoopCost(per_response=117e-6, per_token=0.9e-6)
"""Of one core, measured: `hacrl simulate --check` prints it."""


def _gpu(name: str, flops: float, memory: float, link: float, network: float) -> Hardware:
    """From the published peaks of a GPU, in bytes and operations per second."""
    cost = Cost(1 / (ARITHMETIC_REACHED * flops), 1 / (MEMORY_REACHED * memory), LAYER_START)
    origin = (
        f"assumed, not measured: {ARITHMETIC_REACHED:.0%} of the published peak in arithmetic, "
        f"{MEMORY_REACHED:.0%} in memory and links, {1e6 * LAYER_START:.0f} microseconds to start a layer"
    )
    return Hardware(name, origin, cost, cost, LINK_REACHED * link, LINK_REACHED * network, LOOP, width=2)


GPUS = {
    "h100": _gpu("H100 SXM, bf16", flops=989e12, memory=3.35e12, link=450e9, network=50e9),
    "a100": _gpu("A100 SXM 80 GB, bf16", flops=312e12, memory=2.04e12, link=300e9, network=25e9),
}
"""Published peaks: dense bf16, HBM, NVLink in one direction; a network of 400 and 200 Gbit/s."""
