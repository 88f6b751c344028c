"""What models say of responses: likelihoods of a learner, weights from the checks of an engine."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from hacrl.agents.rendering import Rendering
from hacrl.sharing import Learner, LearnerBatch, Reencoder, UpdateGroup, arrange
from hacrl.training.model_scores import add_engine_weights, add_model_scores, likelihood
from hacrl.types import EngineCheck, Prompt, TrainingRow
from helpers_agents import likelihood as likelihood_objective
from helpers_agents import random_rows, training_rows
from helpers_sharing import byte_level_bpe, char_level, trajectory
from helpers_train import make_agent, metrics, recipe, run
from helpers_vllm import install

ENCODER = Rendering(char_level())


class Scoring:
    """An agent to which every token is as likely as its id says."""

    name = "a"

    def score(self, rows: list[tuple[tuple[int, ...], tuple[int, ...]]]) -> list[tuple[float, ...]]:
        return [tuple(-float(token) for token in response) for _, response in rows]


def test_own_responses_have_their_log_probs_until_the_learner_changes() -> None:
    own = trajectory("a", "p", token_ids=(4, 6), token_logps=(-0.25, -0.75))
    peers = [trajectory("b", "p", n, text=text) for n, text in enumerate(("12", "12", "π"))]
    table = arrange(1, [own, *peers], ["a", "b"], ["p"])
    tokens = Reencoder(Learner("a", ENCODER), {"p": Prompt("p", "?")})
    chosen = table.mask.clone()
    chosen[1, 0, 0] = False
    before, after = (likelihood(Scoring(), tokens, table, chosen, changed=late) for late in (False, True))
    written = (*ENCODER.encode_response("12"), ENCODER.eos_id)
    assert (before[0, 0, 0], after[0, 0, 0]) == (-0.5, -5.0)
    assert before[1, 0, 1] == after[1, 0, 1] == -sum(written) / len(written)
    # Not chosen, or not to be written in the learner's tokens.
    assert before.isnan().equal(torch.tensor([[[False, True, True]], [[True, False, True]]]))


def test_a_scorer_with_other_tokens_reads_prompt_and_text_in_its_own() -> None:
    learner, other = Rendering(char_level()), Rendering(byte_level_bpe())
    teacher = SimpleNamespace(name="t", encoder=other, context_length=40, score=Scoring().score)
    twin = SimpleNamespace(
        name="u", encoder=Rendering(char_level()), context_length=None, score=Scoring().score
    )
    texts = {"p": "hello", "q": "hell", "r": "x" * 50, "s": "he"}
    rows = []
    for prompt_id, text in texts.items():
        ids = (
            (*learner.encode_response(text), learner.eos_id)
            if prompt_id != "s"
            else learner.encode_response(text)
        )
        logps = tuple(-0.5 * n for n in range(1, len(ids) + 1))
        rows.append(TrainingRow(prompt_id, (1, 2), ids, "a", True, -1.0, logps, 1.0, 1.0))
    group = UpdateGroup(likelihood_objective, (tuple(rows),), scorer={"p": "t", "q": "u", "r": "t", "s": "t"})
    batch = LearnerBatch((group,), Counter())
    member = SimpleNamespace(
        name="a",
        policy=SimpleNamespace(name="a", encoder=learner, prepare=lambda mini_batches, ratios: mini_batches),
    )
    team = SimpleNamespace(
        members=[member, *(SimpleNamespace(name=t.name, policy=t) for t in (teacher, twin))]
    )
    prompts = [Prompt(prompt_id, "1+1=") for prompt_id in texts]
    found = add_model_scores(team, member, batch, prompts, {})  # type: ignore[arg-type]
    ((p, q, s),) = found.mini_batches
    assert found.left_out == {"response_too_long": 1}
    assert q.source_logps == tuple(-float(token) for token in q.response_ids)
    for row, text in ((p, "hello"), (s, "he")):
        tokens = other.encode_response(text)
        assert len(tokens) < len(text), "the teacher's tokens are longer"
        ending = [other.eos_id] if row is p else []
        assert sum(row.source_logps) == pytest.approx(-sum((*tokens, *ending)))
        assert row.source_mean_logp == pytest.approx(sum(row.source_logps) / len(row.response_ids))
    assert p.source_logps[-1] == -float(other.eos_id)


def test_only_own_rows_get_the_weights_of_their_responses() -> None:
    rows = [replace(row, sample=place) for place, row in enumerate(training_rows(random_rows(2, 2)))]
    rows[2] = replace(rows[2], own=False)
    batch = LearnerBatch((UpdateGroup(likelihood_objective, (tuple(rows[:2]), tuple(rows[2:]))),), Counter())
    checks = {
        (row.prompt_id, row.sample): EngineCheck(-1.0, -1.0, 0.0, rescored=True, weight=0.5 + row.sample)
        for row in rows
    }
    found = add_engine_weights(batch, checks).mini_batches
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
