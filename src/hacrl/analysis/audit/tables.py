"""An audit as tables for the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.table import Table

from hacrl.algorithm.diagnostics import EstimatorError
from hacrl.analysis.audit.audit import Audit
from hacrl.analysis.audit.baseline import ALL
from hacrl.analysis.audit.toy import TEAMS, ToyRow
from hacrl.analysis.tables import make_table


def audit_tables(audit: Audit) -> list[Table]:
    """Baselines, sample statistics, gradients, beliefs, and the toy vocabulary; without empty tables."""
    tables = [_baselines(audit), _statistics(audit), _gradients(audit), _beliefs(audit)]
    return [table for table in tables if table.row_count] + ([toy_table(audit.toy)] if audit.toy else [])


def _table(title: str, headings: Sequence[str], caption: str) -> Table:
    return make_table(title, headings[:1], headings[1:], caption)


def _baselines(audit: Audit) -> Table:
    table = _table(
        "Baselines against the learner's expected reward",
        (
            "step",
            "learner",
            "prompts",
            "reward",
            "bias",
            "per prompt",
            "error",
            "error: own mean",
            "plain mean",
        ),
        f"ground truth: {audit.size.samples} other responses per prompt; {audit.groups} groups; bias +- "
        "standard error; per prompt: RMS over prompts of the bias at each; kinds of prompts at the last step",
    )
    for checkpoint in audit.checkpoints:
        for found in checkpoint.baselines:
            if found.kind == ALL or checkpoint is audit.checkpoints[-1]:
                table.add_row(
                    str(checkpoint.step),
                    found.learner,
                    f"{found.prompts} {found.kind}",
                    f"{found.expected_reward:.3f}",
                    _bias(found.used),
                    *(f"{v:.3f}" for v in (found.used.systematic, found.used.rmse)),
                    *(f"{v:.3f}" for v in (found.own.rmse, found.plain.rmse)),
                )
    return table


def _bias(error: EstimatorError) -> str:
    return f"{error.bias:+.3f} +- {error.bias_error:.3f}"


def _statistics(audit: Audit) -> Table:
    pairs = [pair for checkpoint in audit.checkpoints for pair in checkpoint.pairs]
    own = list(dict.fromkeys(key for pair in pairs for key in pair.method_metrics))
    table = _table(
        "Sample statistics of peers' responses",
        (
            "step",
            "pair",
            *own,
            "responses",
            "flat",
            "outside",
            "ESS",
            "ESS ratio",
            "variance",
            "largest",
            "bound",
        ),
        "flat: advantage 0; outside: advantage, but no gradient; ESS: effective sample size; "
        "ESS ratio: ESS per response with a gradient; variance of the weights; largest |weight x advantage| "
        "seen and possible",
    )
    for checkpoint in audit.checkpoints:
        for pair in checkpoint.pairs:
            found = pair.statistics
            table.add_row(
                str(checkpoint.step),
                f"{pair.source} -> {pair.learner}",
                *(_number(pair.method_metrics.get(key, math.nan)) for key in own),
                f"{found.rows:,}",
                f"{found.flat:.0%}",
                f"{found.outside:.0%}",
                f"{found.effective_sample_size:,.0f}",
                *map(_number, (found.ess_ratio, found.weight_variance, found.largest, pair.bound)),
            )
    return table


def _gradients(audit: Audit) -> Table:
    table = _table(
        "Direction of peers' gradient",
        ("step", "pair", "cosine", "right responses", "wrong responses", "noise", "own noise"),
        "cosine with the learner's own gradient, summed over all groups; noise: standard deviation of one "
        "step's gradient over the norm of its mean",
    )
    for checkpoint in audit.checkpoints:
        for pair in checkpoint.pairs:
            numbers = (pair.cosine, pair.cosine_right, pair.cosine_wrong, pair.noise, pair.own_noise)
            pair_name = f"{pair.source} -> {pair.learner}"
            table.add_row(str(checkpoint.step), pair_name, *map(_number, numbers))
    return table


def _beliefs(audit: Audit) -> Table:
    table = _table(
        "Chances of success as learners predict them from the prompt",
        ("step", "learner", "about", "success", "error", "one number", "deviation", "calibration", "Brier"),
        "error: RMS over prompts of predicted minus true chance; one number: the same of the agent's mean "
        "chance; calibration: mean over quarters of the prompts, sorted by prediction, of |mean predicted - "
        "mean true|; deviation: what the learner takes that to be; Brier: of the share of right responses",
    )
    for checkpoint in audit.checkpoints:
        for found in checkpoint.beliefs:
            numbers = (found.success, found.error, found.constant, found.deviation, found.calibration)
            shown = [_number(value, 3) for value in (*numbers, found.brier)]
            table.add_row(str(checkpoint.step), found.learner, found.agent, *shown)
    return table


def _number(value: float, digits: int = 2) -> str:
    """A dash for what cannot be computed, such as a cosine without a gradient."""
    return "-" if math.isnan(value) else f"{value:.{digits}f}"


def toy_table(rows: Sequence[ToyRow]) -> Table:
    """One row per distance and method."""
    table = _table(
        "Expected and true gradient on a toy vocabulary",
        ("KL", "method", "settings", "cosine", "peers alone", "scale", "bias"),
        f"exact expectations over all responses; means over {TEAMS} random pairs of agents, +- standard "
        "error over the pairs; bias: |expected - true| / |true|",
    )
    for row in rows:
        table.add_row(
            f"{row.kl:.3f}",
            row.method,
            row.settings or "-",
            f"{row.cosine:.3f} +- {row.cosine_error:.3f}",
            _number(row.peers_cosine, 3),
            f"{row.scale:.2f}",
            f"{row.bias:.2f}",
        )
    return table
