"""A run with critics: stopped and resumed it ends exactly where a whole one does."""

import os
import signal

import pytest

from hacrl.runs.checkpoints import CheckpointStore
from hacrl.training.run import Stopped
from helpers_states import saved_tensors
from helpers_train import Silent, make_agent, outcome, recipe, run


class StopAtTwo(Silent):
    """Sends the process a signal once the second step is finished."""

    def step(self, step, metrics):
        if step == 2:
            os.kill(os.getpid(), signal.SIGINT)


def test_a_resumed_run_is_bit_identical_critics_included(tmp_path):
    agents = {"ada": make_agent(tmp_path / "ada", 1), "bob": make_agent(tmp_path / "bob", 2, arch="gpt2")}
    settings = recipe(agents, method={"name": "ppo", "lam": 0.9, "epochs": 2})
    run(settings, tmp_path / "whole")
    with pytest.raises(Stopped, match="after step 2"):
        run(settings, tmp_path / "stopped", display=StopAtTwo())
    run(settings, tmp_path / "stopped", resume=True)
    assert outcome(tmp_path / "stopped") == outcome(tmp_path / "whole")
    for agent in agents:
        whole, resumed = (critic(tmp_path / name, agent) for name in ("whole", "stopped"))
        assert whole
        assert whole.keys() == resumed.keys()
        assert all(tensor.equal(resumed[key]) for key, tensor in whole.items())


def critic(out, agent):
    """The critic's tensors of the last checkpoint."""
    checkpoint = CheckpointStore(out / "checkpoints", 2).latest()
    assert checkpoint.json("trainer.json")["step"] == 4
    state = saved_tensors(checkpoint.directory(f"agents/{agent}"))
    return {key: tensor for key, tensor in state.items() if key.startswith("critic/")}
