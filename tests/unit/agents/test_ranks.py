from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.distributed.checkpoint import HuggingFaceStorageReader

from hacrl.agents.learner import UpdateReport
from hacrl.agents.policy import Policy
from hacrl.agents.ranks import Ranks, whole
from hacrl.agents.settings import LoraSettings, Optimisation, Sampling
from hacrl.algorithm.critic import CriticParams
from helpers_agents import likelihood, random_rows, text_prompts, tiny_model, tiny_tokenizer, training_rows
from helpers_ranks import COUNT, together

pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")

OPTIMISATION = Optimisation(learning_rate=1e-4, kl=0.1, tokens_per_micro_batch=40, max_grad_norm=0.5)
SAMPLING = Sampling(max_new_tokens=6, max_rows=5)
PROMPTS = text_prompts(5)
ROWS = random_rows(3, 3)
BATCHES = (training_rows(ROWS[:6]), training_rows(ROWS[6:], own=False, seed=1))


def make(
    ranks: Ranks | None = None,
    architecture: str = "qwen3",
    dtype: torch.dtype = torch.float32,
    **options: Any,
) -> Policy:
    model = tiny_model(architecture).to(dtype)
    return Policy("ada", model, tiny_tokenizer(), **({"optimisation": OPTIMISATION} | options), ranks=ranks)


def life(policy: Policy) -> dict[str, Any]:
    """All an agent does, before and after it has learned."""
    seen: dict[str, Any] = {"rollouts": [], "scores": [], "reports": [], "gradients": []}
    for done in range(2):
        seen["rollouts"].append(policy.sample(PROMPTS, 2, SAMPLING, done))
        seen["scores"].append(policy.score(ROWS))
        seen["gradients"].append(policy.gradient(BATCHES[0], likelihood, done))
        seen["reports"] += policy.update(policy.judge(BATCHES), likelihood)
    seen["fingerprint"] = policy.fingerprint()
    seen["state"] = policy.state()
    return seen


def close(ours: Any, theirs: Any, tolerance: float = 1e-5) -> bool:
    return bool(torch.allclose(torch.as_tensor(ours), torch.as_tensor(theirs), tolerance, tolerance, True))


def compare(alone: dict[str, Any], ranks: list[dict[str, Any]]) -> None:
    first = ranks[0]
    for kind in ("rollouts", "scores"):
        for step, expected in enumerate(alone[kind]):
            joined = [item for rank in ranks for item in rank[kind][step]]
            assert len(joined) == len(expected)
            for ours, theirs in zip(joined, expected, strict=True):
                if kind == "rollouts":
                    assert ours.token_ids == theirs.token_ids
                    assert ours.prompt_id == theirs.prompt_id
                else:
                    assert close(ours, theirs)
    for ours, theirs in zip(first["gradients"], alone["gradients"], strict=True):
        assert close(ours, theirs)
    for report, expected in zip(first["reports"], alone["reports"], strict=True):
        assert report.tokens == expected.tokens
        for field in ("loss", "grad_norm", "mean_logps", "kl", "value_loss"):
            assert close(getattr(report, field), getattr(expected, field), 1e-4), field
    assert first["state"].keys() == alone["state"].keys()
    for key, tensor in alone["state"].items():
        if key.partition("/")[0] in ("weight", "critic/weight", "step", "updates"):
            assert close(first["state"][key], tensor), key
    assert repr(ranks[1]["reports"]) == repr(first["reports"])  # NaN is not NaN
    assert ranks[1]["fingerprint"] == first["fingerprint"]


KINDS: dict[str, dict[str, Any]] = {
    "tied weights and a frozen copy": {},
    "untied, recomputed": {
        "architecture": "llama",
        "optimisation": Optimisation(learning_rate=1e-4, gradient_checkpointing=True),
    },
    "adapters": {"lora": LoraSettings(rank=2)},
    "a critic": {"critic": CriticParams()},
}


@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS.keys())
def test_two_ranks_do_the_same_as_one(options: dict[str, Any]):
    compare(life(make(**options)), together(lambda ranks: life(make(ranks, **options))))


@pytest.mark.parametrize("options", [{"critic": CriticParams()}, {"lora": LoraSettings(rank=2)}], ids=str)
def test_half_precision_is_trained_through_sharded_copies_in_fp32(options: dict[str, Any]):
    def begin(ranks: Ranks | None = None) -> tuple[list[UpdateReport], dict[str, Tensor]]:
        policy = make(ranks, dtype=torch.bfloat16, **options)
        policy.sample(PROMPTS, 1, SAMPLING, 0)
        return policy.update(policy.judge(BATCHES), likelihood), policy.state()

    (reports, state), (first, _) = begin(), together(begin)
    assert close([report.loss for report in first[0]], [report.loss for report in reports], 0.05)
    assert close([report.grad_norm for report in first[0]], [report.grad_norm for report in reports], 0.05)
    for key in state:
        assert state[key].dtype == first[1][key].dtype
        if "weight/" in key:  # two updates, whose sign may depend on rounding where the gradient is tiny
            rate = 1e-3 if key.startswith("critic/") else 1e-4
            assert (state[key] - first[1][key]).abs().max() < 5 * rate
            assert first[1][key].dtype == torch.float32


def test_a_state_goes_from_two_ranks_to_one_and_back_bit_by_bit():
    def begin(ranks: Ranks) -> dict[str, Tensor]:
        policy = make(ranks)
        policy.update(BATCHES, likelihood)
        return policy.state()

    state, nothing = together(begin)
    assert set(nothing) <= {key for key in state if not key.startswith(("weight/", "exp_avg"))}

    def again(ranks: Ranks | None = None) -> tuple[dict[str, Tensor], str]:
        policy = make(ranks)
        policy.load_state(state)
        return policy.state(), policy.fingerprint()

    one, (two, _) = again(), together(again)
    for restored, fingerprint in (one, two):
        assert fingerprint == one[1]
        assert restored.keys() == state.keys()
        assert all(torch.equal(restored[key], state[key]) for key in state)


def test_a_state_on_disk_is_a_torch_distributed_checkpoint_in_safetensors(tmp_path: Path):
    state = make().state()
    save_file(state, tmp_path / "state.safetensors")

    def read(ranks: Ranks) -> dict[str, Tensor]:
        policy = make(ranks, optimisation=Optimisation())
        found = {f"weight/{name}": torch.zeros_like(p.detach()) for name, p in policy._trainable().items()}
        dcp.load(found, storage_reader=HuggingFaceStorageReader(str(tmp_path)))
        return {key: whole(tensor) for key, tensor in found.items()}

    for found in together(read):
        assert found.keys() == {key for key in state if key.startswith("weight/")}
        assert all(torch.equal(found[key], state[key]) for key in found)


def test_two_ranks_save_one_directory(tmp_path: Path):
    saved = together(saving(tmp_path))
    weights = load_file(tmp_path / "model.safetensors")
    make().save(tmp_path / "alone")
    expected = load_file(tmp_path / "alone" / "model.safetensors")
    assert weights.keys() == expected.keys()
    assert all(torch.equal(weights[key], expected[key]) for key in expected)
    assert (tmp_path / "config.json").read_text() == (tmp_path / "alone" / "config.json").read_text()
    assert saved == [make().fingerprint()] * COUNT


def saving(directory: Path) -> Callable[[Ranks], str]:
    def work(ranks: Ranks) -> str:
        policy = make(ranks)
        policy.save(directory)
        return policy.fingerprint()

    return work
