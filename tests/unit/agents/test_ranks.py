from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from hacrl.agents.backends import fused_packing, head
from hacrl.agents.policy import Policy
from hacrl.agents.ranks import Ranks
from hacrl.agents.updater import UpdateReport
from hacrl.algorithm.critic import CriticParams
from hacrl.recipe.agent_settings import LoraSettings
from hacrl.recipe.settings import OptimiserSettings, SamplingSettings, UpdatesSettings
from hacrl.runs.files import StorageError
from helpers_agents import (
    CONFIGS,
    Largest,
    likelihood,
    random_rows,
    text_prompts,
    tiny_model,
    tiny_tokenizer,
    training_rows,
)
from helpers_ranks import COUNT, together
from helpers_states import saved_parts, saved_tensors

pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")

OPTIMISER = OptimiserSettings(learning_rate=1e-4, kl=0.1, max_grad_norm=0.5)
UPDATES = UpdatesSettings(tokens_per_micro_batch=40)
SAMPLING = SamplingSettings(max_new_tokens=6, max_rows=5)
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
    options = {"optimiser": OPTIMISER, "updates": UPDATES} | options
    return Policy("ada", model, tiny_tokenizer(), **options, ranks=ranks)


def life(policy: Policy, folder: Path) -> dict[str, Any]:
    """All an agent does, before and after it has learned."""
    seen: dict[str, Any] = {"rollouts": [], "scores": [], "features": [], "reports": [], "gradients": []}
    for done in range(2):
        seen["rollouts"].append(policy.sample(PROMPTS, 2, SAMPLING, done))
        seen["scores"].append(policy.score(ROWS))
        seen["features"].append(policy.features(PROMPTS))
        seen["gradients"].append(policy.gradient(BATCHES[0], likelihood, done))
        seen["reports"] += policy.update(policy.prepare(BATCHES), likelihood)
    seen["fingerprint"] = policy.fingerprint()
    policy.write_state(folder)
    seen["folder"] = folder
    return seen


def close(ours: Any, theirs: Any, tolerance: float = 1e-5) -> bool:
    return bool(torch.allclose(torch.as_tensor(ours), torch.as_tensor(theirs), tolerance, tolerance, True))


def compare(alone: dict[str, Any], ranks: list[dict[str, Any]]) -> None:
    first = ranks[0]
    for kind in ("rollouts", "scores", "features"):
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
    state, expected = saved_tensors(first["folder"]), saved_tensors(alone["folder"])
    assert state.keys() == expected.keys()
    for key, tensor in expected.items():
        if key.partition("/")[0] in ("weight", "critic/weight", "step", "updates"):
            assert close(state[key], tensor), key
    assert repr(ranks[1]["reports"]) == repr(first["reports"])  # NaN is not NaN
    assert ranks[1]["fingerprint"] == first["fingerprint"]


KINDS: dict[str, dict[str, Any]] = {
    "tied weights and a frozen copy": {},
    "untied, recomputed": {
        "architecture": "llama",
        "optimiser": OptimiserSettings(learning_rate=1e-4, kl=0.0),
        "updates": UpdatesSettings(gradient_checkpointing=True),
    },
    "adapters, and a critic on the same frozen weights": {
        "lora": LoraSettings(rank=2),
        "critic": CriticParams(),
    },
    "a critic": {"critic": CriticParams()},
    "a vision tower": {"architecture": "gemma3_vision"},
}


@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS.keys())
def test_two_ranks_do_the_same_as_one(options: dict[str, Any], tmp_path: Path):
    alone = life(make(**options), tmp_path / "alone")
    compare(alone, together(lambda ranks: life(make(ranks, **options), tmp_path / "ranks")))


@pytest.mark.parametrize("options", [{"critic": CriticParams()}, {"lora": LoraSettings(rank=2)}], ids=str)
def test_half_precision_is_trained_through_sharded_copies_in_fp32(options: dict[str, Any], tmp_path: Path):
    def begin(ranks: Ranks | None = None) -> list[UpdateReport]:
        policy = make(ranks, dtype=torch.bfloat16, **options)
        policy.sample(PROMPTS, 1, SAMPLING, 0)
        reports = policy.update(policy.prepare(BATCHES), likelihood)
        policy.write_state(tmp_path / ("ranks" if ranks else "alone"))
        return reports

    reports, (first, _) = begin(), together(begin)
    assert close([report.loss for report in first], [report.loss for report in reports], 0.05)
    assert close([report.grad_norm for report in first], [report.grad_norm for report in reports], 0.05)
    alone, sharded = saved_tensors(tmp_path / "alone"), saved_tensors(tmp_path / "ranks")
    for key in alone:
        assert alone[key].dtype == sharded[key].dtype
        if "weight/" in key:  # two updates, whose sign may depend on rounding where the gradient is tiny
            rate = 1e-3 if key.startswith("critic/") else 1e-4
            assert (alone[key] - sharded[key]).abs().max() < 5 * rate
            assert sharded[key].dtype == torch.float32


def test_a_sharded_agent_can_wait_elsewhere():
    """fp64 plays the place where it waits: no bit is lost there."""

    def wait(ranks: Ranks) -> tuple[str, str, set[str]]:
        staying, moving = (make(ranks, critic=CriticParams()) for _ in range(2))
        for policy in (staying, moving):
            policy.update(policy.prepare(BATCHES), likelihood)
        for place in (torch.float64, torch.float32):
            moving.move(place)  # type: ignore[arg-type]
        for policy in (staying, moving):
            policy.update(policy.prepare(BATCHES), likelihood)
        half = make(ranks, dtype=torch.bfloat16)
        half.update(BATCHES, likelihood)
        half.move(torch.device("meta"))
        held = {key: tensor.device.type for key, tensor in half._optimisers[""].tensors().items()}
        left = {key for key, device in held.items() if device != "meta"}
        return staying.fingerprint(), moving.fingerprint(), left

    for staying, moving, left in together(wait):
        assert staying == moving
        assert left == {"updates"}


def test_a_state_goes_between_any_numbers_of_ranks_bit_by_bit(tmp_path: Path):
    """Some weights have fewer rows than there are ranks, and old states are whole in one file."""

    def again(ranks: Ranks | None, *steps: tuple[str, str]) -> str:
        policy = make(ranks, critic=CriticParams())
        for source, target in steps:
            policy.read_state(tmp_path / source)
            policy.write_state(tmp_path / target)
        return policy.fingerprint()

    def begin(ranks: Ranks) -> str:
        policy = make(ranks, critic=CriticParams())
        policy.update(policy.prepare(BATCHES), likelihood)
        policy.write_state(tmp_path / "3")
        return policy.fingerprint()

    (fingerprint, *others) = together(begin, 3)
    state = saved_tensors(tmp_path / "3")
    (tmp_path / "old").mkdir()
    save_file(state, tmp_path / "old" / "state.safetensors")
    fingerprints = [*others, again(None, ("3", "3 1"))]
    fingerprints += together(lambda ranks: again(ranks, ("3", "3 2"), ("3 1", "3 1 2"), ("old", "old 2")))
    fingerprints.append(again(None, ("3 2", "3 2 1")))
    assert fingerprints == [fingerprint] * 6
    for path in ("3 1", "3 2", "3 1 2", "old 2", "3 2 1"):
        found = saved_tensors(tmp_path / path)
        assert found.keys() == state.keys()
        assert all(torch.equal(found[key], state[key]) for key in state), path


def test_every_rank_writes_its_part_alone_into_a_folder_that_all_share(tmp_path: Path):
    def write(ranks: Ranks) -> str | None:
        policy = make(ranks)
        policy.update(BATCHES, likelihood)
        policy.write_state(tmp_path / "shared")
        try:
            policy.write_state(tmp_path / f"of rank {ranks.rank}")
        except StorageError as error:
            return str(error)
        return None

    messages = together(write)
    parts = saved_parts(tmp_path / "shared")
    files = {file for file, *_ in parts}
    whole = sum(tensor.nbytes for tensor in saved_tensors(tmp_path / "shared").values())
    assert len(files) == COUNT
    assert sum(part.nbytes for *_, part in parts) == whole  # what all ranks have alike is written once
    for one in files:
        assert 0.45 < sum(part.nbytes for file, *_, part in parts if file == one) / whole < 0.55
    for message in messages:
        assert "of rank 0/shard-00002-model-00001-of-00001.safetensors was written by another rank" in message


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


LONG = 1500
VOCABULARY = 2048


def long_life(ranks: Ranks | None = None) -> tuple[dict[str, str], list[float], Any, int]:
    """An agent of 4 layers draws long responses and learns from some: what it got, and its largest tensor."""
    config = copy.deepcopy(CONFIGS["mistral"])
    config.update({"num_hidden_layers": 4, "max_position_embeddings": 4096, "vocab_size": VOCABULARY})
    config.update({"sliding_window": 128, "eos_token_id": 1})
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).eval()
    policy = Policy("ada", model, tiny_tokenizer(), optimiser=OPTIMISER, updates=UPDATES, ranks=ranks)
    rows = [
        ((2, 3, 4 + number % 2), (5 + number,) * length) for number, length in enumerate([LONG, 900, 7, LONG])
    ]
    with Largest() as largest:
        policy.sample(text_prompts(2), 1, SamplingSettings(max_new_tokens=20), 0)
        reports = policy.update((training_rows(rows),), likelihood)
    return policy.backends, [reports[0].loss, reports[0].grad_norm], reports[0].mean_logps, largest.elements


def test_long_responses_on_two_ranks_never_need_all_logits_or_a_mask_of_all_positions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All logits would be 3 million numbers, a mask of all positions 2 million."""
    monkeypatch.setattr(head, "LOGITS_AT_ONCE", 1 << 15)
    monkeypatch.setattr(head, "FEWEST_WORDS", 16)
    monkeypatch.setattr(fused_packing, "MASKED_AT_ONCE", 1 << 15)
    _, numbers, mean_logps, _ = long_life()
    for backends, *theirs, largest in together(long_life):
        assert backends == {"decode": "FusedDecoder", "train": "ShardedScorer"}
        assert close(theirs[0], numbers)
        assert close(theirs[1], mean_logps)
        assert largest <= 4 * LONG * 48, "activations of a micro-batch, not squares or logits of it"


@pytest.mark.parametrize("items", [0, 1, 5, 8, 13])
def test_ranks_that_work_together_get_all_their_parts(items):
    ranks = [fake_rank(rank, 4) for rank in range(4)]
    alone = [list(each.share(range(items))) for each in ranks]
    assert [each for part in alone for each in part] == list(range(items))
    pairs = [list(each.share(range(items), together=2)) for each in ranks]
    assert pairs == [alone[0] + alone[1]] * 2 + [alone[2] + alone[3]] * 2


def fake_rank(rank, count):
    """One of several ranks without a process group."""
    made = Ranks()
    made.rank, made.count = rank, count
    return made
