"""The comparison as tables."""

from __future__ import annotations

from hacrl.bench.peer.result import Comparison, Side, Spread
from hacrl.bench.tables import Table

NAMES = {"trl": "TRL, tuned", "generic": "hacrl, generic engine", "fused": "hacrl, fused engine"}


def comparison_tables(found: Comparison) -> list[Table]:
    """Phases and speed, limits and memory, parity."""
    return [_speed(found), _limits(found), _parity(found)]


def describe(found: Comparison) -> str:
    """What was measured, in one line."""
    work = found.workload
    answers = (
        f"ending with probability {work.eos_hazard:g} per token" if work.eos_hazard else "all of full length"
    )
    source = "the same recorded answers" if work.replay else "own answers"
    return (
        f"{work.arch}, {found.parameters / 1e6:.2f}M parameters, vocabulary {work.size.vocab}; one step = "
        f"{work.prompts} prompts x {work.samples} answers of at most {work.max_new} tokens, {answers}, "
        f"{work.updates} updates; {source}; {found.repeats} rounds, one thread"
    )


def _speed(found: Comparison) -> Table:
    header = ("seconds (median)", "generate", "update", "other", "step", "tokens/s", "times faster (range)")
    return Table(describe(found), header, [_speed_row(side) for side in found.sides])


def _speed_row(side: Side) -> tuple[str, ...]:
    phases = [f"{phase.median:.3f}" for phase in (side.generate, side.update, side.other, side.total)]
    return (
        NAMES[side.name],
        *phases,
        f"{side.tokens_per_second.median:,.0f}",
        _with_range(side.speedup, ".2f"),
    )


def _limits(found: Comparison) -> Table:
    peer = found.sides[0].memory.peak
    limit = f"{found.gemm_gflops.median:.0f} GFLOP/s in a large matrix product"
    title = f"Share of this machine's limit ({limit}) and memory"
    header = ("", "share of the limit (range)", "peak memory, MB", "of TRL's", "imports alone, MB")
    rows = [
        (
            NAMES[side.name],
            _with_range(side.gemm_share, ".1%"),
            f"{side.memory.peak:.0f}",
            f"{side.memory.peak / peer:.2f}",
            f"{side.memory.after_imports:.0f}",
        )
        for side in found.sides
    ]
    return Table(title, header, rows)


def _parity(found: Comparison) -> Table:
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
    return Table(
        "Parity with TRL on the same answers", ("", "quantity", "difference", "limit", "agrees"), rows
    )


def _with_range(spread: Spread, form: str) -> str:
    return f"{spread.median:{form}} ({spread.low:{form}} to {spread.high:{form}})"
