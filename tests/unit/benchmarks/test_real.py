"""Benchmarks of real models, on directories with small ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import earlier, real
from benchmarks.generation import PROMPTS
from benchmarks.loading import measure_loading
from benchmarks.vllm import summarise
from benchmarks.worker import ROOT, Worker
from helpers_benchmarks import small_model


def test_each_side_is_taken_at_its_faster_dtype() -> None:
    seconds = {
        ("hacrl", "float32", 16): [4.0, 4.0],
        ("hacrl", "bfloat16", 16): [2.0, 2.0],
        ("vllm", "float32", 16): [1.0, 2.0],
        ("vllm", "bfloat16", 16): [3.0, 3.0],
        ("hacrl", "float32", 128): [1.0, 1.0],
        ("hacrl", "bfloat16", 128): [8.0, 8.0],
        ("vllm", "float32", 128): [9.0, 9.0],
        ("vllm", "bfloat16", 128): [2.0, 4.0],
    }
    found = summarise("model", 32, seconds)
    assert (found.ratio["16"].low, found.ratio["16"].high) == (0.5, 1.0)
    assert (found.ratio["128"].low, found.ratio["128"].high) == (2.0, 4.0)
    (ours,) = (rate for rate in found.rates if (rate.side, rate.dtype) == ("hacrl", "float32"))
    assert ours.tokens_per_second["128"].median == 128 * 32


@pytest.mark.slow
def test_our_side_generates_responses_of_full_length_in_a_worker(tmp_path: Path) -> None:
    model = small_model(tmp_path)
    settings = {"directory": model.directory, "dtype": "bfloat16", "max_new": 3, "eager": False}
    with Worker("ours", "benchmarks.generation", "hacrl", json.dumps(settings)) as worker:
        assert worker.ask(str(2 * PROMPTS))["seconds"] > 0
        with pytest.raises(RuntimeError, match=r"the process of ours failed[\s\S]*invalid literal for int"):
            worker.ask("some")


@pytest.mark.parametrize(("method", "believes"), [("hacpo", False), ("commons", True)])
def test_real_models_are_trained_together(
    method: str, believes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(real, "PROMPTS", 2)
    directories = [Path(small_model(tmp_path / name, chat=name == "a").directory) for name in "ab"]
    found = real.measure_real(directories, steps=3, max_new=4, method=method, threads=1)
    assert (found.models, found.dtypes) == (["a", "b"], ["float32", "float32"])
    assert len(found.steps) == 2
    assert found.median == pytest.approx(sum(found.steps) / 2)
    assert 0 < sum(found.phases.values()) < 2 * max(found.steps)
    assert (found.capability > 0) == believes
    assert found.capability <= found.phases["exchange"]
    assert found.peak_megabytes > 50


@pytest.mark.slow
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs the repository's history")
def test_an_earlier_commit_trains_the_same_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its own package, from a directory that git knows nothing of afterwards."""
    monkeypatch.setattr(real, "PROMPTS", 2)
    sources = []

    def steps(source: Path, *arguments: Any) -> list[float]:
        sources.append(source)
        return measured(source, *arguments)

    measured = earlier._steps
    monkeypatch.setattr(earlier, "_steps", steps)
    model = Path(small_model(tmp_path / "small").directory)
    found = earlier.measure_earlier("HEAD", model, steps=3, max_new=4, threads=1)
    assert (len(found.before), len(found.now)) == (2, 2)
    assert found.ratio == pytest.approx(sum(found.before) / sum(found.now))
    assert sources[1] == ROOT / "src" != sources[0]
    assert not sources[0].exists()
    with pytest.raises(ValueError, match=r"git worktree add .*nothing-like-this"):
        earlier.measure_earlier("nothing-like-this", model, steps=3, max_new=4, threads=1)


@pytest.mark.slow
def test_the_way_to_the_first_token_has_three_parts(tmp_path: Path) -> None:
    found = measure_loading(Path(small_model(tmp_path / "small").directory))
    assert (found.model, found.dtype) == ("small", "float32")
    parts = (found.imports, found.loading, found.first_token)
    assert min(*parts, found.fingerprint) > 0
    assert found.to_the_first_token == sum(parts)
    with pytest.raises(ValueError, match="not the directory of a model"):
        measure_loading(tmp_path)
