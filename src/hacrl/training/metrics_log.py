"""Metrics of a run: one JSON line per step always, TensorBoard, W&B and trackio on request."""

from __future__ import annotations

import io
import json
import math
import os
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from hacrl.runs.files import append_bytes, append_jsonl, make_directory

Values = Mapping[str, float]
Target = Literal["tensorboard", "wandb", "trackio"]


class Sink(Protocol):
    """Where metrics go besides `metrics.jsonl`."""

    def write(self, step: int, values: Values) -> None:
        """Write one step's values."""

    def close(self) -> None:
        """Flush and close."""


class MetricsLog:
    """Writes every step's metrics to `metrics.jsonl`, and every few steps' to the chosen sinks."""

    def __init__(self, path: Path, sinks: Sequence[Sink] = (), sinks_every: int = 1) -> None:
        self._path = path
        self._sinks = sinks
        self._sinks_every = sinks_every

    def write(self, step: int, values: Values) -> None:
        """Append one line. Values that are not finite are left out: JSON has no NaN."""
        finite = {key: value for key, value in values.items() if math.isfinite(value)}
        append_jsonl(self._path, {"step": step, **finite})
        if step % self._sinks_every == 0:
            for sink in self._sinks:
                sink.write(step, finite)

    def close(self) -> None:
        """Flush and close the sinks."""
        for sink in self._sinks:
            sink.close()


def open_sinks(targets: Iterable[Target], run: Path, config: Mapping[str, Any]) -> list[Sink]:
    """The sinks a recipe asks for; each needs the extra of the same name."""
    makers: dict[Target, Callable[[Path, Mapping[str, Any]], Sink]] = {
        "tensorboard": _TensorBoard,
        "wandb": _Wandb,
        "trackio": _Trackio,
    }
    sinks: list[Sink] = []
    for target in targets:
        try:
            sinks.append(makers[target](run, config))
        except ImportError as error:
            raise ImportError(
                f"logging to {target} needs the extra: pip install 'hacrl[{target}]'"
            ) from error
    return sinks


class _TensorBoard:
    """An event file, written step by step: in the thread of torch's writer a full disk goes unnoticed."""

    def __init__(self, run: Path, config: Mapping[str, Any]) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.record_writer import RecordWriter
        from torch.utils.tensorboard import summary

        self._event: Any = Event
        self._summary: Any = summary
        self._writer: Any = RecordWriter
        name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}"
        self._path = run / "tensorboard" / name
        make_directory(self._path.parent)
        described = self._summary.text("config", f"```json\n{json.dumps(config, indent=2)}\n```")
        self._add(Event(file_version="brain.Event:2"), Event(summary=described))

    def write(self, step: int, values: Values) -> None:
        now, scalar = time.time(), self._summary.scalar
        self._add(*(self._event(wall_time=now, step=step, summary=scalar(*item)) for item in values.items()))

    def _add(self, *events: Any) -> None:
        records = io.BytesIO()
        for event in events:
            self._writer(records).write(event.SerializeToString())
        append_bytes(self._path, records.getvalue())

    def close(self) -> None:
        """Nothing is open between two steps."""


class _Wandb:
    def __init__(self, run: Path, config: Mapping[str, Any]) -> None:
        import wandb

        self._run = wandb.init(
            project="hacrl", name=run.name, dir=str(run), config=dict(config), resume="allow"
        )

    def write(self, step: int, values: Values) -> None:
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        self._run.finish()


class _Trackio:
    def __init__(self, run: Path, config: Mapping[str, Any]) -> None:
        import trackio

        self._run = trackio.init(project="hacrl", name=run.name, config=dict(config), resume="allow")

    def write(self, step: int, values: Values) -> None:
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        self._run.finish()
