"""What the JSON files of a run hold, as far as hacrl relies on it: a damaged file may hold anything."""

from __future__ import annotations

import re
import string
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from hacrl.printable import printable
from hacrl.runs.files import StorageError
from hacrl.runs.json_files import LARGEST_INTEGER

AgentName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
"""Becomes the name of a directory and part of the names of metrics."""
Integer = Annotated[int, Field(ge=-LARGEST_INTEGER, le=LARGEST_INTEGER)]
Count = Annotated[int, Field(ge=0, le=LARGEST_INTEGER)]
Outcome = Annotated[float, Field(ge=0, le=1)]


class _Shape(BaseModel):
    """Values of these types exactly; other keys may be there too."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)


def check(path: Path, kind: TypeAdapter[Any], value: Any, what: str) -> None:
    """Raise a `StorageError` that names the file, the first wrong key, its value and what was expected."""
    try:
        kind.validate_python(value)
    except ValidationError as error:
        details = error.errors(include_url=False)[0]
        key = printable(".".join(map(str, details["loc"])), 200)
        got = "" if details["type"] == "missing" else f", got {printable(repr(details['input']), 80)}"
        message = re.sub(r" or instance of \w+", "", details["msg"])  # the name of a class below
        raise StorageError(f"{path} is not {what}: {key}: {printable(message, 200)}{got}") from error


def _formats_one_number(found: str) -> str:
    """A format string of a symptom may show the value and nothing else, and not at any width."""
    for _, field, specification, conversion in string.Formatter().parse(found):
        if field is not None and (field != "value" or conversion or specification not in _SPECIFICATIONS):
            raise ValueError("expected no placeholder but {value}")
    return found


_SPECIFICATIONS = ("", *(f".{digits}{kind}" for digits in range(10) for kind in "efg%"))


class _Agent(_Shape):
    name: AgentName
    model: str


class _Method(_Shape):
    name: str


class _Recipe(_Shape):
    agents: list[_Agent]
    method: _Method
    seed: Integer
    task: dict[str, Any] | str
    exchange: dict[str, Any] = {}


class _Symptom(_Shape):
    """The fields of `hacrl.symptoms.Symptom`."""

    model_config = ConfigDict(extra="forbid")
    measure: str
    bound: float
    side: Literal["above", "below"]
    found: Annotated[str, AfterValidator(_formats_one_number)]
    change: str
    patience: Integer
    either_sign: bool


Dtypes = dict[AgentName, Literal["float32", "bfloat16"]]


class _Config(_Shape):
    recipe: _Recipe
    dtypes: Dtypes = {}
    versions: dict[str, str]
    symptoms: list[_Symptom] = []


class _Share(_Shape):
    model_config = ConfigDict(extra="forbid")
    mean: Outcome
    low: Outcome
    high: Outcome
    problems: Count


Outcomes = list[Outcome | None]


class _Problems(_Shape):
    model_config = ConfigDict(extra="forbid")
    ids: list[str]
    responses: list[str] | None = None
    answers: list[str] | None = None
    """What older runs call the responses."""
    greedy: Outcomes
    mean_at_k: Outcomes | None
    pass_at_k: Outcomes | None
    pass_at_many: Outcomes | None = None
    entropy: list[float | None] | None = None


class _Evaluation(_Shape):
    greedy: _Share
    greedy_by_kind: dict[str, _Share]
    mean_at_k: _Share | None
    pass_at_k: _Share | None
    samples: Count
    unscorable: Count
    problems: _Problems
    pass_at_many: _Share | None = None
    many: Count = 0
    entropy: float | None = None


class _Totals(_Shape):
    rollouts: Count = 0
    generated_tokens: Count = 0
    trained_tokens: Count = 0
    updates: Count = 0
    skipped_updates: Count = 0


class _Peer(_Shape):
    model: str
    before: dict[str, _Evaluation]
    rollouts: Count
    generated_tokens: Count
    retired: str | None


class _Result(_Peer):
    after: dict[str, _Evaluation]
    trained_tokens: Count
    updates: Count
    skipped_updates: Count = 0
    exported_step: Count | None = None
    drift: dict[str, float] = {}


class _Summary(_Shape):
    method: str
    task: str
    steps: Count
    seconds: float
    agents: dict[AgentName, _Result]
    peers: dict[AgentName, _Peer] = {}


class _Capability(_Shape):
    window: Count
    history: list[list[float]]


class _Contextual(_Shape):
    features: Count
    moments: list[list[float]]


class _Decline(_Shape):
    """Mean rewards of an agent's first and latest steps."""

    first: dict[AgentName, list[float]]
    latest: dict[AgentName, list[float]]


class _Best(_Shape):
    """An agent's best evaluation so far."""

    step: Count
    score: float
    evaluations: dict[str, _Evaluation]


class _Start(_Shape):
    """What `hacrl.training.drift` knows of an agent before training."""

    rows: list[Annotated[list[list[Count]], Field(min_length=2, max_length=2)]]
    logps: list[float]
    text_logp: float | None


class _Trainer(_Shape):
    """`trainer.json` of a checkpoint; `hacrl.training.run` writes it."""

    recipe: _Recipe
    dtypes: Dtypes = {}
    step: Count
    seconds: float
    cpu_seconds: float
    totals: dict[AgentName, _Totals]
    before: dict[AgentName, dict[str, _Evaluation]]
    capability: _Capability
    contextual: dict[AgentName, _Contextual] = {}
    alerts: dict[str, Integer]
    decline: _Decline | None = None
    drift: dict[AgentName, _Start] = {}
    best: dict[AgentName, _Best] = {}
    peers: dict[AgentName, str] = {}
    retired: dict[AgentName, str]
    lost: list[AgentName] = []


class _EngineCheck(_Shape):
    model_config = ConfigDict(extra="forbid")
    engine_logp: float
    trainer_logp: float
    difference: float
    rescored: bool
    weight: float


class _Rollout(_Shape):
    """The fields of `hacrl.types.Rollout`."""

    model_config = ConfigDict(extra="forbid")
    prompt_id: str
    sample: Count
    text: str
    token_ids: list[Count]
    token_logps: list[float]
    finish_reason: Literal["stop", "length"]
    engine: _EngineCheck | None
    stop: str | None
    ending: str
    tokens: Count


class _Ahead(_Shape):
    model_config = ConfigDict(extra="forbid")
    step: Count
    fingerprint: str
    rollouts: list[_Rollout]


CONFIG: TypeAdapter[Any] = TypeAdapter(_Config)
SUMMARY: TypeAdapter[Any] = TypeAdapter(_Summary)
EVALUATIONS: TypeAdapter[Any] = TypeAdapter(dict[AgentName, dict[str, _Evaluation]])
TRAINER: TypeAdapter[Any] = TypeAdapter(_Trainer)
AHEAD: TypeAdapter[Any] = TypeAdapter(dict[AgentName, _Ahead])
