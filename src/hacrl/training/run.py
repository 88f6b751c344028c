"""A training run in a directory: start or resume, train step by step, stop cleanly, finish."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hacrl.recipe import RecipeError, recipe_differences
from hacrl.recipe.problems import Problem
from hacrl.runs.checkpoints import Checkpoint, CheckpointStore, Contents
from hacrl.runs.contents import AHEAD, TRAINER, check
from hacrl.runs.directory import RunDirectory, step_files
from hacrl.runs.files import make_directory, remove_file, write_atomic
from hacrl.runs.json_files import step_of, truncate_jsonl
from hacrl.sharing import write_step
from hacrl.symptoms import with_own
from hacrl.training.alerts import Alerts
from hacrl.training.async_loop import steps_until_barrier
from hacrl.training.beliefs import write_beliefs
from hacrl.training.best_weights import BestWeights
from hacrl.training.cadence import Cadence
from hacrl.training.decline import RewardDecline, evaluation_changes
from hacrl.training.display import Display
from hacrl.training.drift import Drift
from hacrl.training.evaluation import MEASURES, Evaluation, Evaluations, Share, evaluate
from hacrl.training.metrics_log import MetricsLog, open_sinks
from hacrl.training.process import StopRequest, cpu_seconds, stop_requests
from hacrl.training.step import train_step
from hacrl.training.step_metrics import step_metrics
from hacrl.training.step_record import StepRecord
from hacrl.training.team import EvaluationTask, Member, Team
from hacrl.training.update_log import forget_after, write_updates, write_warnings
from hacrl.training.updates import update_records

TRAINER_FILE = "trainer.json"
AHEAD_FILE = "ahead.json"
"""Responses that were drawn ahead (`sample_ahead`)."""


class Stopped(Exception):
    """The run was asked to stop; its state is saved."""

    def __init__(self, step: int, signal: int) -> None:
        super().__init__(f"stopped after step {step}")
        self.step = step
        self.signal = signal


@dataclass
class Progress:
    """The step a run has reached, its costs and its evaluations."""

    step: int = 0
    seconds: float = 0.0
    """Spent in training steps."""
    cpu_seconds: float = 0.0
    """Used in training steps, verifier processes included."""
    totals: dict[str, Counter[str]] = field(default_factory=dict)
    """Per agent: rollouts, generated_tokens, trained_tokens, updates, skipped_updates."""
    before: Evaluations = field(default_factory=dict)
    after: Evaluations = field(default_factory=dict)
    drift: dict[str, dict[str, float]] = field(default_factory=dict)
    """Per agent: its distance from the start, if the recipe asks for it."""

    def count(self, record: StepRecord) -> None:
        """Add the costs of a step."""
        self.step = record.step
        self.seconds += record.elapsed
        for trajectory in record.drawn:
            totals = self.totals.setdefault(trajectory.source, Counter())
            totals["rollouts"] += 1
            totals["generated_tokens"] += trajectory.length
        for name, reports in record.reports.items():
            totals = self.totals.setdefault(name, Counter())
            totals["updates"] += sum(not report.skipped for report in reports)
            totals["skipped_updates"] += sum(report.skipped for report in reports)
            totals["trained_tokens"] += sum(report.tokens for report in reports)


class Run:
    """One run: its team, directory and progress."""

    def __init__(self, team: Team, directory: RunDirectory, display: Display) -> None:
        recipe = team.recipe
        self.team = team
        self.directory = directory
        self.progress = Progress()
        self._display = display
        self._alerts = Alerts(with_own(team.method.symptoms))
        self._decline = RewardDecline()
        self._drift = Drift(recipe.evaluation)
        self.best = BestWeights(directory.best) if recipe.evaluation.keep == "best" else None
        self._store = CheckpointStore(directory.checkpoints, recipe.checkpoint.keep)
        self._cadence = Cadence(recipe.checkpoint.every, lambda: self._store.cost)
        sinks = open_sinks(recipe.logging.to, directory.path, recipe.resolved())
        self._log = MetricsLog(directory.metrics, sinks, recipe.logging.every)

    def train(self) -> None:
        """Train to the last step and evaluate; raises `Stopped` if a signal ends the run earlier."""
        recipe, progress = self.team.recipe, self.progress
        self._display.start(self.team, progress.step)
        if self.team.pool is not None:
            self.team.pool.begin(recipe, progress.step)
        with stop_requests() as stop:
            if progress.step == 0:
                self._drift.begin(self.team)
            if progress.step == 0 and recipe.evaluation.before:
                progress.before = self._evaluate(with_frozen=True)
                self._offer(progress.before)
                self._log.write(0, _as_metrics(progress.before))
            while progress.step < recipe.steps:
                for record in self._records(stop):
                    self._keep(record)
                if stop.signal is not None and progress.step < recipe.steps:
                    self._save(background=False)
                    raise Stopped(progress.step, stop.signal)
        self._store.wait()
        if not progress.after:
            progress.after = self._evaluate()
            self._offer(progress.after)
            self._warn(self._alerts.lasting(evaluation_changes(progress.before, progress.after)))
        progress.drift = self._drift.found(self.team)

    def close(self) -> None:
        """Close files, threads and processes: all of them, even if one fails."""
        with ExitStack() as stack:
            for part in (self._display, self.team, self._log, self._store):  # the last one first
                stack.callback(part.close)

    def restore(self) -> None:
        """Continue from the newest intact checkpoint, or from the beginning if there is none."""
        checkpoint = self._store.latest()
        for message in self._store.damaged:
            self._display.warn(message)
        if checkpoint is not None:
            self._load(checkpoint)
        step = self.progress.step
        truncate_jsonl(self.directory.metrics, lambda line: step > 0 and step_of(line) <= step)
        forget_after(self.directory, step)
        directory = self.directory
        for kept in (directory.trajectories, directory.beliefs, directory.evaluations):
            for written, path in step_files(kept).items():
                if written > step:
                    remove_file(path)

    def _records(self, stop: StopRequest) -> Iterable[StepRecord]:
        """The next step, or all steps to the next barrier; counts their CPU time."""
        team, step, before = self.team, self.progress.step + 1, cpu_seconds()
        records: Iterable[StepRecord]
        if team.recipe.asynchronous:
            records = steps_until_barrier(team, step, lambda: stop.signal is not None, self._display.status)
        else:
            records = [train_step(team, step)]
        self.progress.cpu_seconds += cpu_seconds() - before
        return records

    def _keep(self, record: StepRecord) -> None:
        """Write a finished step: trajectories, update log, warnings, metrics, checkpoint."""
        recipe = self.team.recipe
        self.progress.count(record)
        updates = update_records(record)
        metrics = step_metrics(self.team, record, updates)
        metrics |= self._decline.observe(metrics)
        evaluations: Evaluations = {}
        if recipe.evaluation.every and record.step % recipe.evaluation.every == 0:
            full = recipe.evaluation.curve == "all" or record.step == recipe.steps
            evaluations = self._evaluate(greedy_only=not full)
            self._keep_evaluations(record.step, evaluations)
            self._offer(evaluations)
            metrics |= _as_metrics(evaluations) | evaluation_changes(self.progress.before, evaluations)
            if record.step == recipe.steps:
                self.progress.after = evaluations
        if recipe.logging.trajectories:
            write_step(self.directory.path, record.step, record.drawn)
            write_updates(self.directory, record.step, record.prompts, updates)
            if record.predictions:
                write_beliefs(self.directory, record.step, self.team.sources, record.predictions)
        messages = [
            *self.team.runtime.notices(),
            *record.notices,
            *self._alerts.observe(self.team, record, metrics),
        ]
        self._warn(messages)
        self._log.write(record.step, metrics)
        self._display.step(record.step, metrics)
        if record.step == recipe.steps or self._cadence.due(record.step):
            self._save(background=True, score=_mean_greedy(evaluations))

    def _offer(self, evaluations: Evaluations) -> None:
        """Keep the weights that were just evaluated if they are the best."""
        if self.best is not None:
            self.best.offer(self.team, self.progress.step, evaluations)

    def _warn(self, messages: Sequence[str]) -> None:
        write_warnings(self.directory, self.progress.step, messages)
        for message in messages:
            self._display.warn(message)

    def _evaluate(self, with_frozen: bool = False, *, greedy_only: bool = False) -> Evaluations:
        """Every agent alone on every evaluation task; a frozen one never changes, so that once will do."""
        team = self.team
        tasks = [task.greedy_only if greedy_only else task for task in team.evaluation_tasks]
        frozen = [m for m in team.active if not m.trains and team.recipe.agent(m.name).has_model]
        results: Evaluations = {}
        for member in (*team.present, *(frozen if with_frozen else ())):
            results |= team.each(lambda member: self._evaluate_alone(member, tasks), [member])
        return results

    def _evaluate_alone(self, member: Member, tasks: Sequence[EvaluationTask]) -> dict[str, Evaluation]:
        """One agent on every evaluation task."""
        results = {}
        for task in tasks:
            self._display.status(f"evaluating {member.name} on {task.name}")
            results[task.name] = evaluate(
                member.policy,
                task.prompts,
                task.rewarder,
                self.team.sampling,
                task.samples,
                self.team.seed("evaluation"),
                task.many,
            )
        return results

    def _keep_evaluations(self, step: int, evaluations: Evaluations) -> None:
        """Write every problem's outcome, for paired comparisons of learning curves."""
        path = self.directory.evaluation_file(step)
        make_directory(path.parent)
        write_atomic(path, json.dumps(_as_json(evaluations)).encode())

    def _save(self, *, background: bool, score: float | None = None) -> None:
        saved = self._store.save(self.progress.step, self._write, score=score, background=background)
        self._cadence.saved()
        self.team.runtime.set_restore_point(lambda name: saved.result() / state_directory(name))

    def _write(self, directory: Path) -> Contents:
        """Have the agents write their states; returns the other contents of the checkpoint."""
        progress, team = self.progress, self.team
        team.each(
            lambda member: member.policy.write_state(directory / state_directory(member.name)), team.present
        )
        for name in team.lost:  # an agent lost while saving may have left a partial state
            shutil.rmtree(directory / state_directory(name), ignore_errors=True)
        ahead = {} if team.ahead is None else {AHEAD_FILE: team.ahead.state_dict()}
        return ahead | {
            TRAINER_FILE: {
                "recipe": team.recipe.resolved(),
                "dtypes": dict(team.dtypes),
                "step": progress.step,
                "seconds": progress.seconds,
                "cpu_seconds": progress.cpu_seconds,
                "totals": progress.totals,
                "before": _as_json(progress.before),
                "capability": team.capability.state_dict(),
                "contextual": {name: found.state_dict() for name, found in team.contextual.items()},
                "alerts": self._alerts.state_dict(),
                "decline": self._decline.state_dict(),
                "drift": self._drift.state_dict(),
                "best": self.best.state_dict() if self.best else {},
                "peers": self._peers(),
                "retired": team.retired,
                "lost": sorted(team.lost),
            }
        }

    def _peers(self) -> dict[str, str]:
        """The fingerprints of the peers that only respond: they must not change."""
        return {m.name: m.policy.fingerprint() for m in self.team.active if not m.trains}

    def _load(self, checkpoint: Checkpoint) -> None:
        state = read_trainer(checkpoint)
        differences = recipe_differences(
            _computed_in(state["recipe"], state.get("dtypes", {})),
            _computed_in(self.team.recipe.resolved(), self.team.dtypes if "dtypes" in state else {}),
        )
        for name, now in self._peers().items():
            if state.get("peers", {}).get(name, now) != now:
                differences.append(f"agents.{name}: its model or file has changed since")
        if differences:
            problems = [Problem("", difference) for difference in differences]
            raise RecipeError(f"{checkpoint.path} was written by another recipe", problems)
        self.progress = Progress(
            step=state["step"],
            seconds=state["seconds"],
            cpu_seconds=state["cpu_seconds"],
            totals={name: Counter(totals) for name, totals in state["totals"].items()},
            before=_from_json(state["before"]),
        )
        if self.team.ahead is not None:
            self.team.ahead.load_state_dict(read_ahead(checkpoint))
        self.team.load_capabilities(state)
        self.team.retired.update(state["retired"])
        self._alerts.load_state_dict(state["alerts"])
        self._decline.load_state_dict(state.get("decline", {"first": {}, "latest": {}}))
        self._drift.load_state_dict(state.get("drift", {}))
        if self.best is not None:
            self.best.load_state_dict(state.get("best", {}))
        self.team.lost.update(state.get("lost", ()))
        for member in self.team.present:
            member.policy.read_state(checkpoint.directory(state_directory(member.name)))


def read_trainer(checkpoint: Checkpoint) -> dict[str, Any]:
    """What a checkpoint says besides the agents' states."""
    state: dict[str, Any] = checkpoint.json(TRAINER_FILE)
    check(checkpoint.path / TRAINER_FILE, TRAINER, state, "the state of a training run")
    return state


def read_ahead(checkpoint: Checkpoint) -> dict[str, Any]:
    """The responses in a checkpoint that were drawn ahead."""
    state: dict[str, Any] = checkpoint.json(AHEAD_FILE)
    check(checkpoint.path / AHEAD_FILE, AHEAD, state, "responses that were drawn ahead")
    return state


def _computed_in(recipe: dict[str, Any], dtypes: Mapping[str, str]) -> dict[str, Any]:
    """A resolved recipe with what each agent computes in, which `auto` leaves open."""
    agents = [{**agent, "dtype": dtypes.get(agent["name"])} for agent in recipe["agents"]]
    return {**recipe, "agents": agents}


def state_directory(agent: str) -> str:
    """The directory of an agent's training state within a checkpoint."""
    return f"agents/{agent}"


def _as_json(evaluations: Evaluations) -> dict[str, Any]:
    return {
        agent: {task: evaluation.as_dict() for task, evaluation in tasks.items()}
        for agent, tasks in evaluations.items()
    }


def _from_json(state: dict[str, Any]) -> Evaluations:
    return {
        agent: {task: Evaluation.from_dict(evaluation) for task, evaluation in tasks.items()}
        for agent, tasks in state.items()
    }


def _as_metrics(evaluations: Evaluations) -> dict[str, float]:
    values: dict[str, float] = {}
    for agent, tasks in evaluations.items():
        for task, evaluation in tasks.items():
            prefix = f"agent/{agent}/eval/{task}"
            for measure in MEASURES:
                share: Share | None = getattr(evaluation, measure)
                if share is not None:
                    values[f"{prefix}/{measure}"] = share.mean
            if evaluation.entropy is not None:
                values[f"{prefix}/entropy"] = evaluation.entropy
    return values


def _mean_greedy(evaluations: Evaluations) -> float | None:
    """What "best" means for checkpoints: mean greedy accuracy over agents and tasks."""
    values = [evaluation.greedy.mean for tasks in evaluations.values() for evaluation in tasks.values()]
    return sum(values) / len(values) if values else None
