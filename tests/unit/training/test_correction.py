from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from hacrl.sharing import LearnerBatch, UpdateGroup
from hacrl.training.correction import corrected
from hacrl.types import EngineCheck
from helpers_agents import likelihood, random_rows, training_rows
from helpers_train import make_agent, metrics, recipe, run
from helpers_vllm import install


def test_only_own_rows_get_the_weights_of_their_responses() -> None:
    rows = [replace(row, sample=place) for place, row in enumerate(training_rows(random_rows(2, 2)))]
    rows[2] = replace(rows[2], own=False)
    batch = LearnerBatch((UpdateGroup(likelihood, (tuple(rows[:2]), tuple(rows[2:]))),), Counter())
    checks = {
        (row.prompt_id, row.sample): EngineCheck(-1.0, -1.0, 0.0, rescored=True, weight=0.5 + row.sample)
        for row in rows
    }
    found = corrected(batch, checks).mini_batches
    assert [[row.weight for row in part] for part in found] == [[0.5, 1.5], [1.0, 3.5]]
    assert found == tuple(
        tuple(replace(row, weight=w) for row, w in zip(part, weights, strict=True))
        for part, weights in zip(batch.mini_batches, [[0.5, 1.5], [1.0, 3.5]], strict=True)
    )


def test_a_run_logs_both_log_probs_and_counts_what_was_rescored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise = math.log(1.1)
    install(monkeypatch, noise=noise)
    agents = {name: make_agent(tmp_path / name, seed) for seed, name in enumerate(("ada", "bob"))}
    settings = recipe(agents, steps=1, sampling={"max_new_tokens": 1})
    settings["agents"][0]["engine"] = {"name": "vllm", "correction": "truncated"}
    run(settings, tmp_path / "run")
    (line,) = [line for line in metrics(tmp_path / "run") if "agent/ada/engine/logp" in line]
    found = {key.removeprefix("agent/ada/engine/"): line[key] for key in line if "/engine/" in key}
    assert found.pop("logp") == pytest.approx(found.pop("trainer_logp") + noise, abs=1e-5)
    assert found.pop("rescored") == 16
    assert found.pop("weight") == pytest.approx(1 / 1.1, rel=1e-4)
    assert found == pytest.approx({"logp_difference": noise, "logp_difference_max": noise}, abs=1e-5)
