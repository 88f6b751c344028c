"""What the comparison found: as data, which `--json` writes as it is, and as tables."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.memory import Memory
from benchmarks.real_models import RealModel
from benchmarks.timing import Spread
from benchmarks.trl.parity import Check
from benchmarks.workload import Workload
from hacrl.analysis.tables import TextTable

NAMES = {"trl": "TRL, tuned", "generic": "hacrl, generic engine", "fused": "hacrl, fused engine"}


@dataclass(frozen=True)
class Side:
    """One side's measured steps; every ratio is taken within one round of alternating steps."""

    name: str
    generate: Spread
    update: Spread
    other: Spread
    total: Spread
    tokens_per_second: Spread
    speedup: Spread
    """Seconds of TRL's step over seconds of this one."""
    gemm_share: Spread
    """The step's useful floating-point operations per second over those of a large matrix product."""
    memory: Memory
    dtype: str = "float32"
    """Of its matrix products; the limit is that of the same dtype."""


@dataclass(frozen=True)
class Comparison:
    """Everything one run of the benchmark found."""

    workload: Workload
    parameters: int
    repeats: int
    environment: dict[str, str]
    gemm_gflops: Spread
    sides: list[Side]
    parity: list[Check]

    @property
    def agrees(self) -> bool:
        """Whether both sides compute the same thing."""
        return all(check.passed for check in self.parity)


def comparison_tables(found: Comparison) -> list[TextTable]:
    """Phases and speed, limits and memory, parity if it was checked."""
    return [_speed(found), _limits(found), *([_parity(found)] if found.parity else [])]


def describe(found: Comparison) -> str:
    """What was measured, in one line."""
    work = found.workload
    lengths = (
        f"ending with probability {work.eos_hazard:g} per token" if work.eos_hazard else "all of full length"
    )
    if isinstance(work.size, RealModel):
        model, lengths = work.size.name, "ending where the model ends them"
    else:
        model = work.arch
    source = "the same recorded responses" if work.replay else "own responses"
    vocabulary = work.size.facts.vocabulary
    return (
        f"{model}, {found.parameters / 1e6:.2f}M parameters, vocabulary {vocabulary}; one step = "
        f"{work.prompts} prompts x {work.samples} responses of at most {work.max_new} tokens, {lengths}, "
        f"{work.updates} updates; {source}; {found.repeats} rounds, one thread"
    )


def _speed(found: Comparison) -> TextTable:
    header = ("seconds (median)", "generate", "update", "other", "step", "tokens/s", "times faster (range)")
    return TextTable(describe(found), header, [_speed_row(side) for side in found.sides])


def _speed_row(side: Side) -> tuple[str, ...]:
    phases = [f"{phase.median:.3f}" for phase in (side.generate, side.update, side.other, side.total)]
    return (
        _shown(side),
        *phases,
        f"{side.tokens_per_second.median:,.0f}",
        f"{side.speedup:.2f}",
    )


def _shown(side: Side) -> str:
    return NAMES[side.name] if side.dtype == "float32" else f"{NAMES[side.name]}, {side.dtype}"


def _limits(found: Comparison) -> TextTable:
    trl = found.sides[0].memory.peak
    limit = f"{found.gemm_gflops.median:.0f} GFLOP/s in a large matrix product"
    title = f"Share of this machine's limit ({limit}) and memory"
    header = ("", "share of the limit (range)", "peak memory, MB", "of TRL's", "imports alone, MB")
    rows = [
        (
            _shown(side),
            f"{side.gemm_share:.1%}",
            f"{side.memory.peak:.0f}",
            f"{side.memory.peak / trl:.2f}",
            f"{side.memory.after_imports:.0f}",
        )
        for side in found.sides
    ]
    return TextTable(title, header, rows)


def _parity(found: Comparison) -> TextTable:
    rows = [
        (
            NAMES[check.engine],
            check.quantity,
            f"{check.difference:.1e}",
            f"{check.limit:.0e}",
            "yes" if check.passed else "NO",
        )
        for check in found.parity
    ]
    return TextTable(
        "Parity with TRL on the same responses", ("", "quantity", "difference", "limit", "agrees"), rows
    )
