"""A model out of a directory, with every side in a process of its own."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from benchmarks.real_models import RealModel, prompt_ids
from benchmarks.trl.compare_real import compare_real
from benchmarks.trl.result import comparison_tables
from benchmarks.workload import NO_LEARNING, Workload, workload_from_json
from hacrl.agents.policy import Policy
from helpers_benchmarks import small_model


@pytest.fixture(scope="module", params=["chat", "plain"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> RealModel:
    return small_model(tmp_path_factory.mktemp(request.param), chat=request.param == "chat")


def test_the_prompts_are_those_that_an_agent_sees(model: RealModel) -> None:
    agent = Policy("agent", model.load(), model.tokenizer())
    assert [agent.encoder.encode_prompt(each) for each in model.prompts(3)] == prompt_ids(model, 3, 0)
    work = Workload(model, prompts=3)
    assert work.prompt_lengths() == [len(ids) for ids in prompt_ids(model, 3, 0)]
    assert workload_from_json(json.dumps(asdict(work))) == work


def test_a_directory_without_a_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"{tmp_path} is not the directory of a model"):
        RealModel.at_its_best(tmp_path)


@pytest.mark.slow
def test_both_sides_run_the_model_of_a_directory(model: RealModel) -> None:
    pytest.importorskip("trl", reason='TRL is not installed: pip install "hacrl[bench]"')
    two_dtypes = model.name.startswith("chat")
    rows = None if two_dtypes else 2
    work = Workload(model, max_new=4, prompts=2, samples=4, learning_rate=NO_LEARNING, trl_rows=rows)
    dtypes = ["float32", "bfloat16"] if two_dtypes else ["bfloat16"]
    found = compare_real(work, repeats=1, trl_dtypes=dtypes)
    trl, ours = found.sides
    assert (trl.name, ours.name, ours.dtype) == ("trl", "fused", "float32")
    assert trl.dtype in dtypes
    assert trl.speedup.median == 1
    assert ours.speedup.median == pytest.approx(trl.total.median / ours.total.median)
    assert min(trl.memory.peak, ours.memory.peak) > 50
    speed, limits = comparison_tables(found)
    assert model.name in speed.title
    assert len(speed.rows) == len(limits.rows) == 2
