"""Updates taken apart: gradients whose parts add up, coefficients that follow each objective's rules."""

import math

import pytest
import torch

from hacrl.algorithm import GspoObjective, HacpoObjective, HacpoParams, ImitationObjective
from hacrl.recipe import parse_recipe
from hacrl.training.step import train_step
from hacrl.training.team_setup import build_team
from hacrl.training.updates import (
    Part,
    cosines,
    gradient_coefficients,
    gradients_by_part,
    numbered_updates,
    peer_window,
    update_records,
)
from hacrl.types import TrainingRow
from helpers_train import make_agent, recipe, short_answers


@pytest.fixture(scope="module")
def team(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alignment")
    agents = {"ada": make_agent(folder / "ada", 1), "eve": make_agent(folder / "eve", 3)}
    settings = recipe(agents, optimiser={"learning_rate": 1e-12, "kl": 0.0}, updates={"mini_batches": 1})
    made = build_team(parse_recipe(settings), reward_funcs=[short_answers])
    yield made
    made.close()


def test_the_parts_add_up_to_the_gradients_of_the_updates(team):
    """With a learning rate of almost 0 the weights stay: every update's norm is that of its parts."""
    record = train_step(team, 1)
    member = team.members[0]
    before = member.policy.fingerprint()
    parts = gradients_by_part(member.policy, record.batches["ada"])
    assert member.policy.fingerprint() == before
    norms = [report.grad_norm for report in record.reports["ada"]]
    assert len(norms) == 2
    assert float(parts[Part("ada", 0)].norm()) == pytest.approx(norms[0], rel=1e-3)
    peers = sum(parts.get(Part("eve", sign), torch.zeros_like(parts[Part("ada", 0)])) for sign in (1, -1))
    assert float(peers.norm()) == pytest.approx(norms[1], rel=1e-3)
    assert [number for number, _, _ in numbered_updates(record.batches["ada"])] == [0, 1]


def test_cosines_of_known_vectors():
    gradients = {
        Part("me", 0): torch.tensor([1.0, 0.0]),
        Part("peer", 1): torch.tensor([3.0, 4.0]),
        Part("peer", -1): torch.tensor([-3.0, 0.0]),
    }
    found = cosines(gradients, "me", "peer")
    assert found == pytest.approx({"cosine": 0.0, "cosine_right": 0.6, "cosine_wrong": -1.0})
    alone = cosines({Part("me", 0): torch.ones(2)}, "me", "peer")
    assert all(value != value for value in alone.values())


def row(
    *, own: bool, advantage: float, omega: float = 1.0, scale: float = 1.0, mean: float = -1.0
) -> TrainingRow:
    return TrainingRow(
        prompt_id="p",
        prompt_ids=(1, 2),
        response_ids=(3, 4, 5),
        source="me" if own else "peer",
        own=own,
        source_mean_logp=mean,
        source_logps=(mean - 0.5, mean, mean + 0.5) if own else (),
        advantage=advantage,
        omega=omega,
        length_scale=scale,
    )


def test_hacpo_coefficients_are_those_of_the_paper() -> None:
    """Peers inside the window: scale * omega * s^(1 + alpha) * A (the derivative of Eq. 12); outside: 0."""
    params = HacpoParams(delta=0.4, delta_step=0.1, alpha=2.0)
    rows = [
        row(own=False, advantage=1.5, omega=0.7, scale=0.5),
        row(own=False, advantage=-2.0, omega=3.0),
        row(own=False, advantage=1.0),  # above 1
        row(own=False, advantage=1.0),  # below the window at update 2, inside at update 0
        row(own=True, advantage=-1.2),
        row(own=True, advantage=-1.2),  # the ratio fell below the clip: nothing left to push down
    ]
    means = [-1.2, -1.1, -0.9, -1.3, -1.0, -1.1]
    inside = 0.5 * 0.7 * math.exp(-0.1) ** 3 * 1.5, 3.0 * math.exp(-0.1) ** 3 * -2.0
    late = gradient_coefficients(rows, means, HacpoObjective(params), update=2)
    assert late == pytest.approx([*inside, 0.0, 0.0, -1.2, 0.0], rel=1e-4)
    early = gradient_coefficients(rows, means, HacpoObjective(params), update=0)
    assert early[3] == pytest.approx(math.exp(-0.3) ** 3, rel=1e-4)


def test_coefficients_of_other_objectives_follow_their_own_rules() -> None:
    rows = [row(own=False, advantage=1.0), row(own=True, advantage=0.5)]
    clipped, free = gradient_coefficients(rows, [-0.5, -1.5], GspoObjective(), update=0)
    assert clipped == 0.0  # already pushed up beyond the clip
    assert free == pytest.approx(0.5 * math.exp(-0.5), rel=1e-5)
    before = gradient_coefficients(rows, [-1.0, -1.0], ImitationObjective(), update=0)
    after = gradient_coefficients(rows, [-3.0, -0.1], ImitationObjective(), update=5)
    assert before == pytest.approx(after)  # imitation knows no ratio
    assert before[0] == pytest.approx(2 * before[1])
    assert before[0] > 0


def test_only_an_objective_with_a_window_restricts_peers() -> None:
    params = HacpoParams(delta=0.4, delta_step=0.1)
    assert peer_window(HacpoObjective(params), 2) == pytest.approx((0.8, 1.0))
    assert peer_window(HacpoObjective(HacpoParams(window=False)), 2) is None
    assert peer_window(GspoObjective(), 2) is None


def test_records_of_updates_have_the_rows_of_each_source(team):
    record = train_step(team, 2)
    updates = update_records(record)
    assert [(update.learner, update.number) for update in updates] == [
        ("ada", 0),
        ("ada", 1),
        ("eve", 0),
        ("eve", 1),
    ]
    own, peers = updates[:2]
    assert own.of("ada").rows == own.rows
    assert (own.of("eve").rows, peers.of("ada").rows) == ((), ())
    assert set(own.places) == {None}
    for row, ratio, coefficient in zip(peers.rows, peers.ratios.tolist(), peers.coefficients, strict=True):
        assert math.isnan(ratio) == (row.advantage == 0.0)
        assert coefficient == 0.0 or row.advantage != 0.0
