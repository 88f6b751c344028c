"""Gradients without an update: the parts are those of the update itself."""

import pytest
import torch

from hacrl.recipe import parse_recipe
from hacrl.training.alignment import Part, cosines, gradients_by_part, numbered_updates
from hacrl.training.step import train_step
from hacrl.training.team import build_team
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
