"""Whether `hacrl simulate` predicts vLLM: `python -m benchmarks.engines`, in vLLM's environment."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass

import typer

from benchmarks.command import JsonFile, Markdown, Repeats, command, progress, show
from benchmarks.worker import Worker
from benchmarks.workload import Workload
from hacrl.analysis.simulate.check import ALLOWED, Prediction, fit_costs
from hacrl.analysis.simulate.engines import MOST_ROWS, EnginePlan, generating
from hacrl.analysis.simulate.synthetic import Size
from hacrl.analysis.simulate.work import Work, scoring
from hacrl.analysis.simulate.work import Workload as Load
from hacrl.analysis.tables import TextTable

SMALL, WIDE, DEEP = Size(128, 4, 4, 1000), Size(256, 3, 4, 1000), Size(128, 8, 4, 1000)
WORDY = Size(128, 4, 4, 8000)


def _case(size: Size, prompts: int, samples: int, max_new: int) -> Workload:
    return Workload(size, eos_hazard=0.0, max_new=max_new, prompts=prompts, samples=samples)


FITTED = (
    _case(SMALL, 4, 4, 32),
    _case(SMALL, 16, 4, 96),
    _case(SMALL, 24, 4, 32),
    _case(DEEP, 2, 4, 64),
    _case(WIDE, 8, 4, 64),
    _case(DEEP, 8, 4, 48),
    _case(WORDY, 8, 4, 48),
)
PREDICTED = (_case(WIDE, 16, 4, 48), _case(DEEP, 4, 4, 96), _case(Size(192, 4, 6, 4000), 8, 4, 64))

PARTS = ("generate", "sync", "score")
Seconds = Mapping[str, float]
"""By part; `step` is their sum."""


@dataclass(frozen=True)
class Engines:
    """Workloads that were not fitted, and the costs that predict them."""

    steps: list[Prediction]
    per_flop: float
    per_byte: float
    per_engine_step: float
    per_token: float

    @property
    def passed(self) -> bool:
        """Whether each is predicted within `ALLOWED`."""
        return all(abs(step.error) <= ALLOWED for step in self.steps)


def engines(repeats: Repeats = 5, markdown: Markdown = False, json_file: JsonFile = None) -> None:
    """Predict how long vLLM takes for a step's responses on one core.

    Agents with random weights draw with new weights, draw again with the same ones, and score what was
    drawn. Costs are fitted to seven workloads and predict three others; exit code 1 if one is more than 20%
    off. `make test-vllm` makes the environment that this needs. Nothing else should run meanwhile.
    """
    found = measure_engines(repeats)
    show(engine_tables(found), found, markdown, json_file)
    if not found.passed:
        raise typer.Exit(1)


def measure_engines(repeats: int) -> Engines:
    """Rounds in which every workload is drawn once, after one to warm up."""
    cases = (*FITTED, *PREDICTED)
    seconds: list[list[Seconds]] = [[] for _ in cases]
    with ExitStack() as workers:
        asked = []
        for case in cases:
            progress(f"{name_of(case)} starts")
            worker = Worker(name_of(case), "benchmarks.engine_worker", json.dumps(asdict(case)))
            asked.append(workers.enter_context(worker))
        for number in range(repeats + 1):
            progress(f"round {number} of {repeats}")
            for worker, found in zip(asked, seconds, strict=True):
                found.append(parts(worker.ask(str(2 * number))))
    return predict([_medians(found[1:]) for found in seconds])


def parts(answer: Mapping[str, float]) -> dict[str, float]:
    """A worker's answer by part: drawing includes scoring, and with new weights bringing them, too."""
    generate = answer["same"] - answer["score"]
    sync = answer["changed"] - answer["same"]
    return {"generate": generate, "sync": sync, "score": answer["score"], "step": answer["changed"]}


def predict(measured: Sequence[Seconds]) -> Engines:
    """Costs fitted to the first workloads, and what they predict of the others."""
    fitted = measured[: len(FITTED)]
    works = [{part: _work(part, case) for part in PARTS} for case in (*FITTED, *PREDICTED)]
    costs = {
        part: fit_costs(
            [_amounts(part, each[part]) for each in works[: len(fitted)]], [s[part] for s in fitted]
        )
        for part in ("generate", "score")
    }
    bytes_only = [[each["sync"].bytes] for each in works[: len(fitted)]]
    costs["sync"] = [0.0, *fit_costs(bytes_only, [max(s["sync"], 1e-9) for s in fitted]), 0.0]
    steps = []
    for case, work, seconds in zip(PREDICTED, works[len(fitted) :], measured[len(fitted) :], strict=True):
        found = {
            part: sum(a * c for a, c in zip(_amounts(part, work[part]), costs[part], strict=True))
            for part in PARTS
        }
        steps.append(Prediction(name_of(case), dict(seconds), {**found, "step": sum(found.values())}))
    return Engines(steps, *costs["generate"])


def _work(part: str, case: Workload) -> Work:
    """As `hacrl simulate` counts it, on one device."""
    assert isinstance(case.size, Size)
    facts = case.size.facts
    lengths = case.prompt_lengths()
    load = Load(
        prompts=case.prompts,
        prompt_tokens=statistics.mean(lengths),
        responses=case.responses,
        response_tokens=case.max_new,
        longest_response=case.max_new,
        trained_tokens=0,
        own_share=1.0,
        sources=1,
        updates=0,
        rows_at_once=MOST_ROWS,
        tokens_per_micro_batch=1 << 14,
    )
    if part == "generate":
        return generating(facts, load, EnginePlan(1, 1, MOST_ROWS, 0.0, 0, in_turns=False))[0]
    return scoring(facts, load) if part == "score" else Work(0.0, load.width * facts.parameters, 0.0)


def _amounts(part: str, work: Work) -> tuple[float, ...]:
    computing = (work.flops, work.bytes, work.passes)
    return (*computing, work.tokens) if part == "generate" else computing


def _medians(rounds: Sequence[Seconds]) -> dict[str, float]:
    return {part: statistics.median(found[part] for found in rounds) for part in (*PARTS, "step")}


def name_of(case: Workload) -> str:
    """Layers and width, vocabulary, prompts, samples and tokens."""
    assert isinstance(case.size, Size)
    shape = f"{case.size.layers}x{case.size.hidden}, vocabulary {case.size.vocab}"
    return f"{shape}, {case.prompts}x{case.samples}x{case.max_new}"


def engine_tables(found: Engines) -> list[TextTable]:
    """Predicted and measured seconds of the workloads that were not fitted."""
    columns = (*PARTS, "step")
    rows = [
        (
            step.case,
            *(f"{step.predicted[part]:.3f} / {step.measured[part]:.3f}" for part in columns),
            f"{step.error:+.0%}",
        )
        for step in found.steps
    ]
    costs = (
        f"{1e12 * found.per_flop:.3g} ps per operation, {1e12 * found.per_byte:.3g} per byte, "
        f"{1e3 * found.per_engine_step:.3g} ms per step of the engine, "
        f"{1e6 * found.per_token:.3g} microseconds per token"
    )
    title = f"Responses of a step drawn by vLLM: predicted / measured seconds ({costs})"
    return [TextTable(title, ("layers x width, prompts x samples x tokens", *columns, "error"), rows)]


app = command(engines)

if __name__ == "__main__":
    app()
