"""Agents that get worse are noticed, those that only fluctuate are not."""

from __future__ import annotations

import random
from statistics import fmean

import pytest

from hacrl.symptoms import with_own
from hacrl.training.alerts import Alerts
from hacrl.training.decline import WINDOW, RewardDecline, change, evaluation_changes, paired_change
from hacrl.training.evaluation import Evaluation, Problems, share


def evaluation(*greedy: float | None) -> Evaluation:
    problems = Problems([f"p{n}" for n in range(len(greedy))], [""] * len(greedy), list(greedy), None, None)
    scored = share([value for value in greedy if value is not None])
    return Evaluation(scored, {}, None, None, 0, 0, problems)


def test_the_change_of_a_reward_is_in_standard_errors() -> None:
    """Means 0.5 and 0.3, variances 0.025 and 0.0: an error of sqrt(0.025 / 5)."""
    first, latest = [0.3, 0.4, 0.5, 0.6, 0.7], [0.3] * 5
    assert change(first, latest) == pytest.approx(-0.2 / 0.005**0.5)
    assert change([0.5] * 5, [0.49] * 5) == pytest.approx(-1.0)  # errors count as at least 0.01


def test_the_change_of_an_evaluation_is_paired() -> None:
    """Of ten problems four are lost: mean -0.4, standard deviation 0.516."""
    before = evaluation(*[1.0] * 5, *[0.0] * 5)
    now = evaluation(1.0, *[0.0] * 9)
    assert paired_change(before, now) == pytest.approx(-0.4 / (0.5163978 / 10**0.5))
    assert paired_change(before, before) == 0.0
    assert paired_change(evaluation(1.0, None), evaluation(0.0, 0.0)) == 0.0  # one problem: no error known
    assert paired_change(evaluation(1.0, 1.0), evaluation(0.0, 0.0)) == pytest.approx(-2.0)
    changes = evaluation_changes(
        {"a": {"t": before, "u": before}}, {"a": {"t": now, "u": before, "new": now}, "b": {"t": now}}
    )
    assert changes == {"agent/a/evaluation_change": paired_change(before, now)}


def warned(rewards: list[float], resume_at: int | None = None) -> list[str]:
    """The warnings of a run with these mean rewards."""
    alerts, decline, messages = Alerts(with_own(())), RewardDecline(), []
    for step, reward in enumerate(rewards):
        if step == resume_at:
            state = decline.state_dict(), alerts.state_dict()
            alerts, decline = Alerts(with_own(())), RewardDecline()
            decline.load_state_dict(state[0])
            alerts.load_state_dict(state[1])
        messages += alerts.lasting(decline.observe({"agent/ada/reward": reward, "agent/ada/loss": 9.0}))
    return messages


def steps(rng: random.Random, count: int, success: float, responses: int = 64) -> list[float]:
    return [fmean(rng.random() < success for _ in range(responses)) for _ in range(count)]


def test_a_clear_fall_is_reported_once_with_advice() -> None:
    rng = random.Random(0)
    rewards = steps(rng, WINDOW, 0.3) + steps(rng, 10, 0.05)
    (message,) = warned(rewards)
    assert message.startswith("ada: its mean reward of the last steps is -")
    assert "lower its learning rate (agents.N.learning_rate)" in message
    for step in range(1, len(rewards)):
        assert warned(rewards, resume_at=step) == [message]


def test_a_steady_reward_hardly_ever_warns() -> None:
    runs = [warned(steps(random.Random(seed), 60, 0.3)) for seed in range(200)]
    assert sum(map(bool, runs)) <= 8  # of 200 runs of 60 steps
    assert not any(warned(steps(random.Random(seed), WINDOW, 0.1) + [0.9] * 20) for seed in range(20))


def test_an_evaluation_that_fell_warns_at_once() -> None:
    """The first trial with Gemma: 14 of 60 problems before, none after."""
    fell = evaluation_changes(
        {"gemma": {"sums": evaluation(*[1.0] * 14, *[0.0] * 46)}},
        {"gemma": {"sums": evaluation(*[0.0] * 60)}},
    )
    (message,) = Alerts(with_own(())).lasting(fell)
    assert message.startswith("gemma: its accuracy on test problems is -4.2 standard errors from that before")
