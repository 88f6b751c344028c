"""What goes wrong says so: which agent, which prompt or row, and what to do."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from hacrl.agents.errors import AgentError, NonFiniteLoss, OutOfMemory
from hacrl.agents.policy import Policy
from hacrl.algorithm import CriticParams
from hacrl.algorithm.batch import SourceData
from hacrl.recipe.agent_settings import LoraSettings
from hacrl.recipe.settings import SamplingSettings, UpdatesSettings
from hacrl.types import Prompt
from helpers_agents import (
    PAD,
    likelihood,
    random_rows,
    tiny_model,
    tiny_policy,
    tiny_tokenizer,
    training_rows,
)


def without_special_tokens() -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(tokenizer_object=tiny_tokenizer().backend_tokenizer)


def test_no_eos() -> None:
    model = tiny_model("qwen3")
    model.config.eos_token_id = model.generation_config.eos_token_id = None
    with pytest.raises(AgentError, match=r"agent 'ada' has no EOS token.*set eos_token in the tokenizer"):
        Policy("ada", model, without_special_tokens())


def test_no_pad_token_is_no_problem() -> None:
    """Padding is masked everywhere, so any token will do."""
    tokenizer = tiny_tokenizer()
    tokenizer.pad_token = None
    model = tiny_model("llama")
    assert model.config.pad_token_id is None
    policy = Policy("ada", model, tokenizer)
    prompts = [Prompt(id="a", text="a"), Prompt(id="b", text="bcdef")]
    padded = policy.sample(prompts, 2, SamplingSettings(max_new_tokens=6), seed=0)
    assert padded == tiny_policy("llama").sample(prompts, 2, SamplingSettings(max_new_tokens=6), seed=0)
    assert any(PAD not in r.token_ids for r in padded)


def test_vocabulary_smaller_than_the_tokenizer() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens(["<extra>"])
    with pytest.raises(AgentError, match=r"agent 'ada': the tokenizer has 43 tokens but the model only 42"):
        Policy("ada", tiny_model("qwen3"), tokenizer)


def test_a_prompt_that_leaves_no_room() -> None:
    policy = tiny_policy("gpt2")
    prompts = [Prompt(id="fine", text="a"), Prompt(id="huge", text="a" * 128)]
    with pytest.raises(AgentError, match=r"prompt 'huge' has 128 tokens.*'ada' no room.*128 tokens: shorten"):
        policy.sample(prompts, 2, SamplingSettings(max_new_tokens=4), seed=0)
    with pytest.raises(AgentError, match=r"prompt 'empty' has no tokens"):
        policy.sample([Prompt(id="empty", text="")], 2, SamplingSettings(max_new_tokens=4), seed=0)


def test_an_agent_without_an_optimiser_cannot_be_trained(tmp_path: Path) -> None:
    policy, rows = tiny_policy("qwen3", None), training_rows(random_rows(2, 2))
    for training in (
        lambda: policy.update([rows], likelihood),
        lambda: policy.gradient(rows, likelihood, 0),
        lambda: policy.write_state(tmp_path),
        lambda: policy.read_state(tmp_path),
    ):
        with pytest.raises(AgentError, match=r"agent 'ada' was made without an optimiser"):
            training()
    with pytest.raises(AgentError, match=r"agent 'ada': a critic has to be trained"):
        Policy("ada", tiny_model("qwen3"), tiny_tokenizer(), critic=CriticParams())


def test_rows_that_cannot_be_scored() -> None:
    policy = tiny_policy("gpt2")
    with pytest.raises(AgentError, match="row 1: response has no tokens"):
        policy.score([((3,), (4,)), ((3,), ())])
    with pytest.raises(
        AgentError, match="row 0: 100 prompt and 29 response tokens do not fit the context of 128"
    ):
        policy.score([((3,) * 100, (4,) * 29)])


@pytest.mark.parametrize("number", [0, 2])
def test_nan_stops_before_the_weights_are_touched(number: int) -> None:
    policy = tiny_policy("qwen3")
    good = training_rows(random_rows(2, 2))
    bad = (*good[:-1], replace(good[-1], advantage=float("nan"), prompt_id="culprit"))
    batches = [good] * number + [bad, good]
    reference = tiny_policy("qwen3")
    reference.update([good] * number, likelihood)
    with pytest.raises(NonFiniteLoss, match=rf"agent 'ada', mini-batch {number}: loss nan.*culprit"):
        policy.update(batches, likelihood)
    assert policy.fingerprint() == reference.fingerprint()
    assert policy.update([good], likelihood) == reference.update([good], likelihood)


def test_an_infinite_gradient_stops_as_well() -> None:
    """The loss is finite, its gradient is not: the square root of 0."""
    policy = tiny_policy("qwen3")
    before = policy.fingerprint()

    def root(logps: Tensor, mask: Tensor, data: SourceData, update: int) -> Tensor:
        return (logps - logps.detach()).sum(1).abs().sqrt()

    with pytest.raises(NonFiniteLoss, match=r"mini-batch 0: loss 0.0, gradient norm (nan|inf)"):
        policy.update([training_rows(random_rows(2, 2))], root)
    assert policy.fingerprint() == before


def test_out_of_memory_names_the_setting() -> None:
    policy = tiny_policy("qwen3")

    def greedy(logps: Tensor, mask: Tensor, data: SourceData, update: int) -> Tensor:
        return torch.empty(1 << 50)

    with pytest.raises(
        OutOfMemory, match=r"agent 'ada' ran out of memory while updating: lower tokens_per_micro"
    ):
        policy.update([training_rows(random_rows(2, 2))], greedy)


def test_out_of_memory_while_sampling(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory")

    policy = tiny_policy("qwen3")
    monkeypatch.setattr("hacrl.agents.sampler.pick", full)
    with pytest.raises(OutOfMemory, match="while sampling: lower max_rows or max_new_tokens"):
        policy.sample([Prompt(id="a", text="a")], 1, SamplingSettings(max_new_tokens=4), seed=0)


def test_other_errors_are_left_alone() -> None:
    def wrong(logps: Tensor, mask: Tensor, data: SourceData, update: int) -> Tensor:
        raise RuntimeError("shapes do not match")

    with pytest.raises(RuntimeError, match="shapes do not match"):
        tiny_policy("qwen3").update([training_rows(random_rows(1, 1))], wrong)


def test_half_a_gradient_does_not_leak_into_the_next_update() -> None:
    """The second micro-batch fails; the update after it is as if nothing had happened."""
    rows = training_rows(random_rows(3, 3))
    updates = UpdatesSettings(tokens_per_micro_batch=30)
    policy, calls = tiny_policy("qwen3", updates=updates), iter(range(100))

    def failing(logps: Tensor, mask: Tensor, data: SourceData, update: int) -> Tensor:
        if next(calls) == 1:
            raise RuntimeError("stop")
        return likelihood(logps, mask, data, update)

    with pytest.raises(RuntimeError, match="stop"):
        policy.update([rows], failing)
    assert policy.update([rows], likelihood) == tiny_policy("qwen3", updates=updates).update(
        [rows], likelihood
    )


def test_wrong_directories(tmp_path: Path) -> None:
    with pytest.raises(AgentError, match=r"model directory .*nowhere' does not exist"):
        Policy.load("ada", tmp_path / "nowhere")
    with pytest.raises(
        AgentError, match=r"has no config\.json: give the directory that save_pretrained wrote"
    ):
        Policy.load("ada", tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    with pytest.raises(AgentError, match=r"has no weights: a model\.safetensors is expected"):
        Policy.load("ada", tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(AgentError, match=r"only as pickle \(pytorch_model\.bin\), which can run code"):
        Policy.load("ada", tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(AgentError, match=r"model\.safetensors is not a safetensors file"):
        Policy.load("ada", tmp_path)


def test_lora_without_peft_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "peft", None)
    with pytest.raises(AgentError, match=r"pip install 'hacrl\[lora\]'"):
        Policy("ada", tiny_model("qwen3"), tiny_tokenizer(), lora=LoraSettings())


def test_weights_that_are_not_finite() -> None:
    model = tiny_model("qwen3")
    name, weights = list(model.named_parameters())[2]
    with torch.no_grad():
        weights.view(-1)[1] = torch.nan
    with pytest.raises(AgentError, match=f"agent 'ada': its weights hold NaN or infinite numbers, in {name}"):
        Policy("ada", model, tiny_tokenizer())


def test_weights_that_become_infinite_while_training() -> None:
    policy = tiny_policy("qwen3")
    with torch.no_grad():
        for weights in policy._model.parameters():
            weights.fill_(torch.inf)
    with pytest.raises(AgentError, match=r"log-probs are not finite: .* with a lower learning_rate"):
        policy.sample([Prompt("p", "a b")], 2, SamplingSettings(max_new_tokens=3), seed=0)
