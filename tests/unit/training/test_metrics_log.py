import json
import sys

import pytest

from hacrl.training.metrics_log import MetricsLog, open_sinks


class Recorder:
    def __init__(self):
        self.seen = []

    def write(self, step, values):
        self.seen.append((step, dict(values)))

    def close(self):
        self.seen.append("closed")


def test_every_step_is_a_line_and_sinks_get_every_few(tmp_path):
    recorder = Recorder()
    log = MetricsLog(tmp_path / "metrics.jsonl", [recorder], sinks_every=2)
    for step in range(1, 5):
        log.write(step, {"a": step / 2, "broken": float("nan"), "huge": float("inf")})
    log.close()
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert lines == [{"step": step, "a": step / 2} for step in range(1, 5)]
    assert recorder.seen == [(2, {"a": 1.0}), (4, {"a": 2.0}), "closed"]


def test_tensorboard_reads_back_what_was_written(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (sink,) = open_sinks(["tensorboard"], tmp_path, {"steps": 3})
    sink.write(3, {"agent/ada/reward": 0.25})
    sink.close()
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    (event,) = events.Scalars("agent/ada/reward")
    assert (event.step, event.value) == (3, 0.25)


@pytest.mark.parametrize("target", ["wandb", "trackio"])
def test_a_missing_package_names_its_extra(tmp_path, monkeypatch, target):
    monkeypatch.setitem(sys.modules, target, None)
    with pytest.raises(ImportError, match=rf"pip install 'hacrl\[{target}\]'"):
        open_sinks([target], tmp_path, {})
