from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hacrl.analysis.simulate.check import (
    FITTED,
    PREDICTED,
    Checked,
    Prediction,
    _predict,
    fit_costs,
    this_machine,
)
from hacrl.analysis.simulate.forecast import forecast
from hacrl.analysis.simulate.hardware import Cost, Hardware, LoopCost
from hacrl.analysis.simulate.measure import Case, MeasuredStep, _recipe, measure
from hacrl.analysis.simulate.synthetic import Size
from hacrl.analysis.simulate.work import Lengths, Work

TRUE = Hardware(
    name="",
    origin="",
    sample=Cost(3e-11, 5e-11, 3e-4),
    update=Cost(2e-11, 1e-11, 1e-3),
    link=float("inf"),
    network=float("inf"),
    loop=LoopCost(1e-4, 1e-6),
    width=4,
)

WORKS = [Work(1e9, 2e7, 10), Work(3e9, 1e7, 40), Work(2e9, 9e7, 25), Work(5e8, 3e7, 400), Work(1e10, 1e8, 50)]
AMOUNTS = [(work.flops, work.bytes, work.passes) for work in WORKS]
COSTS = st.sampled_from([0.0, 0.3, 1.0, 7.0])


def as_measured(case: Case, slower: float = 1.0) -> MeasuredStep:
    """A step that takes exactly what the formulas say, its sampling perhaps longer."""
    recipe = _recipe(case, [Path(f"agent-{number}") for number in range(len(case.sizes))])
    facts = {agent.name: size.facts for agent, size in zip(recipe.agents, case.sizes, strict=True)}
    cost = forecast(recipe, facts, Lengths(32, case.max_new, case.max_new), TRUE, "exact")
    phases = {
        name: {"sample": slower * agent.sample, "update": agent.update} for name, agent in cost.agents.items()
    }
    computing = sum(sum(seconds.values()) for seconds in phases.values())
    return MeasuredStep(case, recipe, facts, 32, phases, computing + cost.exchange)


def test_a_machine_that_obeys_the_formulas_is_predicted_exactly():
    found = this_machine([as_measured(case) for case in FITTED])
    assert found.sample.per_flop == pytest.approx(TRUE.sample.per_flop, rel=1e-4)
    assert found.loop.per_token == pytest.approx(TRUE.loop.per_token, rel=1e-4)
    predictions = [_predict(as_measured(case), found) for case in PREDICTED]
    assert [prediction.error for prediction in predictions] == pytest.approx([0.0] * len(PREDICTED), abs=1e-3)


def test_one_step_that_is_predicted_badly_fails_the_check():
    found = this_machine([as_measured(case) for case in FITTED])
    good = [_predict(as_measured(case), found) for case in PREDICTED]
    bad: Prediction = _predict(as_measured(PREDICTED[0], slower=2.0), found)
    assert bad.error < -0.2
    assert Checked(found, good).passed
    assert not Checked(found, [*good, bad]).passed


def test_phases_of_every_agent_are_measured_within_the_step():
    tiny = Size(32, 1, 2, 64)
    alone, pair = measure(
        [Case((tiny,), 2, 2, 4), Case((tiny, replace(tiny, layers=2)), 2, 2, 4)], 1, lambda doing: None
    )
    assert list(alone.phases) == ["agent-0"]
    assert list(pair.phases) == ["agent-0", "agent-1"]
    for step in (alone, pair):
        assert step.rest > 0
        assert 24 <= step.prompt_tokens <= 40
        assert all(seconds > 0 for phases in step.phases.values() for seconds in phases.values())
    assert pair.facts["agent-1"].layers == 2


@given(COSTS, COSTS, COSTS)
def test_known_costs_are_recovered(flop: float, byte: float, layer: float):
    assume(flop + byte + layer > 0)
    true = Cost(flop * 1e-11, byte * 1e-10, layer * 1e-5)
    found = fit_costs(AMOUNTS, [true.seconds(work) for work in WORKS])
    assert found[0] == pytest.approx(true.per_flop, abs=1e-17)
    assert found[1] == pytest.approx(true.per_byte, abs=1e-16)
    assert found[2] == pytest.approx(true.per_pass, abs=1e-11)


def test_no_cost_is_negative():
    found = fit_costs(AMOUNTS, [0.1, 0.1, 0.01, 0.3, 0.2])  # more bytes, less time
    assert min(found) >= 0
    assert max(found) > 0
