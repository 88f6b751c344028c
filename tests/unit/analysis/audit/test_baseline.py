"""Baselines of agents whose strengths are known: one omega that fits on average and on no kind of prompt."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from hacrl.analysis.audit.baseline import audit_baselines
from hacrl.analysis.audit.draws import Draws
from hacrl.methods.commons import Commons
from hacrl.methods.gspo import Gspo
from hacrl.methods.hacpo import Hacpo
from hacrl.methods.naive import Naive
from hacrl.sharing import RewardTable
from hacrl.training.step_record import StepRecord
from hacrl.types import Prompt

SAMPLES, GROUPS, PROMPTS = 8, 40, 60
CHANCE = {"ada": {"sort": 0.8, "add": 0.4}, "eve": {"sort": 0.4, "add": 0.8}}


@pytest.fixture(scope="module")
def draws():
    random = torch.Generator().manual_seed(0)
    prompts = tuple(Prompt(str(b), "", kind=("sort", "add")[b % 2]) for b in range(PROMPTS))
    chance = torch.tensor([[CHANCE[name][p.kind] for p in prompts] for name in CHANCE], dtype=torch.float64)
    tables = []
    for _ in range(GROUPS):
        drawn = torch.rand(2, PROMPTS, SAMPLES, dtype=torch.float64, generator=random)
        rewards = (drawn < chance[..., None]).double()
        mask = torch.ones_like(rewards, dtype=torch.bool)
        tables.append(RewardTable(1, ("ada", "eve"), tuple(p.id for p in prompts), (), rewards, mask))
    steps = [StepRecord(1, omega=torch.ones(2, 2, dtype=torch.float64)) for _ in tables]
    return Draws(prompts, chance, torch.zeros_like(chance), tuple(tables), tuple(steps))


def team(method):
    return SimpleNamespace(
        method=method,
        names=("ada", "eve"),
        learners=(SimpleNamespace(name="ada"), SimpleNamespace(name="eve")),
        topology={"ada": ("eve",), "eve": ()},
        recipe=SimpleNamespace(reward=SimpleNamespace(maximum=1.0), updates=SimpleNamespace(mini_batches=2)),
    )


@pytest.fixture(scope="module")
def found(draws):
    return {audit.kind: audit for audit in audit_baselines(team(Hacpo()), draws)}


def test_a_learner_without_peers_is_left_out(found):
    assert {audit.learner for audit in found.values()} == {"ada"}
    assert {kind: audit.prompts for kind, audit in found.items()} == {"all": 60, "add": 30, "sort": 30}


def test_the_capability_baseline_is_right_on_average_and_wrong_on_every_kind(found):
    assert found["all"].used.bias == pytest.approx(0.0, abs=0.01)
    assert found["sort"].used.bias == pytest.approx(-0.2, abs=0.01)  # the mean of .8 and .4, not .8
    assert found["add"].used.bias == pytest.approx(0.2, abs=0.01)
    assert found["all"].used.systematic == pytest.approx(0.2, rel=0.05)
    noise = (0.8 * 0.2 + 0.4 * 0.6) / (4 * SAMPLES)  # of the mean of both groups
    assert found["all"].used.rmse == pytest.approx(math.sqrt(0.2**2 + noise), rel=0.05)


def test_the_own_mean_has_noise_alone(found):
    own = found["sort"].own
    assert own.bias == pytest.approx(0.0, abs=0.01)
    assert own.systematic < 0.03
    assert own.rmse == pytest.approx(math.sqrt(0.8 * 0.2 / SAMPLES), rel=0.05)
    assert found["sort"].plain == found["sort"].used  # omega is 1


def test_the_audited_baseline_is_the_one_of_the_method(draws):
    """With omega 2 for ada over eve, HACPO scales eve's rewards; naive takes the plain mean."""
    omega = torch.tensor([[1.0, 2.0], [0.5, 1.0]], dtype=torch.float64)
    scaled = replace(draws, steps=tuple(StepRecord(1, omega=omega) for _ in draws.steps))
    hacpo, *_ = audit_baselines(team(Hacpo()), scaled)
    naive, *_ = audit_baselines(team(Naive()), scaled)
    assert naive.used == naive.plain == hacpo.plain
    assert naive.own == hacpo.own
    assert hacpo.used.bias > hacpo.plain.bias + 0.1


@pytest.mark.parametrize("method", [Gspo(), Commons()])
def test_a_method_without_a_baseline_of_its_own_is_not_audited(draws, method):
    assert audit_baselines(team(method), draws) == []
