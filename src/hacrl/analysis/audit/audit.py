"""`hacrl audit RUN`: measure every checkpoint, and warn of symptoms at the last one."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from hacrl.analysis.audit.baseline import ALL, BaselineAudit, audit_baselines
from hacrl.analysis.audit.beliefs import BeliefAudit, audit_beliefs
from hacrl.analysis.audit.draws import draw
from hacrl.analysis.audit.opening import SavedRun, open_run, restore
from hacrl.analysis.audit.pairs import PairAudit, audit_pairs
from hacrl.analysis.audit.toy import GSPO, ToyRow, toy_rows
from hacrl.methods.hacpo import JointGroup
from hacrl.rewards import RewardFunction
from hacrl.runs.files import write_json
from hacrl.symptoms import Symptom, warnings, with_own
from hacrl.tasks import Task
from hacrl.training.team import Team
from hacrl.training.team_setup import build_team

FILE = "audit.json"

OnProgress = Callable[[float, str], None]
"""Called with the share of the work that is done and the name of the next part."""


@dataclass(frozen=True)
class SampleSize:
    """How many prompts and responses are drawn."""

    prompts: int = 64
    samples: int = 64
    """Responses per prompt for the ground truth; about as many again are drawn in groups, as in a step."""
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("prompts", 2), ("samples", 2)):
            if getattr(self, name) < least:
                raise ValueError(f"{name}: expected {least} or more, got {getattr(self, name)}")


@dataclass(frozen=True)
class CheckpointAudit:
    """The measures at one checkpoint's weights."""

    step: int
    baselines: list[BaselineAudit]
    pairs: list[PairAudit]
    beliefs: list[BeliefAudit] = field(default_factory=list)
    """Empty unless the method asks who is good at which prompts."""


@dataclass(frozen=True)
class Audit:
    """Everything that was measured."""

    size: SampleSize
    groups: int
    checkpoints: list[CheckpointAudit]
    toy: list[ToyRow]
    """The run's own method on the toy vocabulary; empty if it cannot be enumerated."""
    warnings: list[str]

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values; numbers that are not finite become null."""
        found: dict[str, Any] = _finite(asdict(self))
        return found


def audit(
    path: str | Path,
    size: SampleSize | None = None,
    *,
    checkpoint: int | None = None,
    task: Task | None = None,
    reward_funcs: Sequence[RewardFunction] | None = None,
    on_progress: OnProgress = lambda share, text: None,
) -> Audit:
    """Measure a finished or stopped run and write `audit.json` into its directory.

    Pass the same `task` and `reward_funcs` as to `hacrl.train`.
    """
    run, size = open_run(Path(path), checkpoint), size or SampleSize()
    with run.directory.resume(
        run.directory.path
    ):  # locks the run: no training while its checkpoints are read
        team = build_team(run.recipe, task=task, reward_funcs=reward_funcs, dtypes=run.dtypes)
        try:
            found = _audit(run, team, size, on_progress)
        finally:
            team.close()
    write_json(run.directory.path / FILE, found.as_dict())
    return found


def _audit(run: SavedRun, team: Team, size: SampleSize, on_progress: OnProgress) -> Audit:
    # Not the run's seed: a response that was trained on is not drawn again.
    seed = team.seed(f"audit/{size.seed}")
    fresh = replace(team, recipe=run.recipe.model_copy(update={"seed": seed}))
    prompts = random.Random(seed).sample(list(team.task.train), min(size.prompts, len(team.task.train)))
    groups = max(2, size.samples // max(member.samples for member in team.members))
    progress = _Progress(on_progress, len(run.checkpoints) * (len(team.active) + len(team.learners) + 1) + 1)
    checkpoints = []
    for checkpoint in run.checkpoints:
        progress.where = f"step {checkpoint.step}: "
        restore(fresh, checkpoint)
        draws = draw(fresh, prompts, checkpoint.step + 1, size.samples, groups, progress.begin)
        pairs = []
        for member in fresh.learners:
            progress.begin(f"gradients of {member.name}")
            pairs += audit_pairs(fresh, member, draws)
        beliefs = audit_beliefs(fresh, draws)
        checkpoints.append(CheckpointAudit(checkpoint.step, audit_baselines(fresh, draws), pairs, beliefs))
    progress.where = ""
    progress.begin("toy vocabulary")
    toy = _toy(team)
    symptoms = with_own(team.method.symptoms)
    away = [agent.name for agent in run.recipe.taking_part if not agent.has_model]
    left_out = [f"{who} is left out: it has no model, and an audit asks nobody" for who in away]
    left_out += [
        f"step {checkpoints[-1].step}: {who} is left out: {why}" for who, why in fresh.retired.items()
    ]
    found = [*left_out, *_measured(checkpoints, symptoms), *_toy_warnings(toy, symptoms)]
    return Audit(size, groups, checkpoints, toy, found)


class _Progress:
    """Counts the parts of the work and reports the share that is done."""

    def __init__(self, on_progress: OnProgress, total: int) -> None:
        self._report, self._total, self._begun = on_progress, total, 0
        self.where = ""

    def begin(self, text: str) -> None:
        """Report the next part."""
        self._report(self._begun / self._total, self.where + text)
        self._begun += 1


def _toy(team: Team) -> list[ToyRow]:
    """The run's own method and GSPO, for two agents; nothing if it cannot be enumerated."""
    if not isinstance(team.method, JointGroup):
        return []
    samples = min(16, max(member.samples for member in team.members))
    return toy_rows((GSPO, team.method), samples=samples)


def _measured(checkpoints: Sequence[CheckpointAudit], symptoms: Mapping[str, Symptom]) -> Iterator[str]:
    """Warnings about the last checkpoint."""
    last = checkpoints[-1]
    for found in last.baselines:
        bias = found.used.bias if abs(found.used.bias) > 2 * found.used.bias_error else math.nan
        if found.kind == ALL:
            values = {"baseline_bias": bias, "baseline_error": _ratio(found.used.rmse, found.own.rmse)}
        else:
            values = {"baseline_bias_of_kind": bias}
        yield from warnings(symptoms, f"step {last.step}, {found.learner}, {found.kind} prompts", values)
    for pair in last.pairs:
        yield from warnings(
            symptoms,
            f"step {last.step}, {pair.source} -> {pair.learner}",
            {
                "zero_gradient": pair.statistics.zero_gradient,
                "ess_ratio": pair.statistics.ess_ratio,
                "weight/largest": pair.statistics.largest,
                "noise": _ratio(pair.noise, pair.own_noise),
                "cosine": pair.cosine,
                "cosine_wrong": pair.cosine_wrong,
            },
        )


def _toy_warnings(rows: Sequence[ToyRow], symptoms: Mapping[str, Symptom]) -> Iterator[str]:
    alone = {row.distance: row.cosine for row in rows if row.method == GSPO.name}
    for row in rows:
        lost = alone[row.distance] - row.cosine
        who = f"toy vocabulary, {row.method} at KL {row.kl:.2g}"
        yield from warnings(symptoms, who, {"expected_gradient": lost})


def _ratio(a: float, b: float) -> float:
    return a / b if b > 0 else math.nan


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
