"""A critic beside an agent: what its values see, how it learns, and that it resumes exactly."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from hacrl.agents.critic import Critic
from hacrl.agents.errors import AgentError, NonFiniteLoss
from hacrl.agents.policy import Policy
from hacrl.algorithm import CriticParams, PpoObjective
from hacrl.recipe.agent_settings import LoraSettings
from hacrl.recipe.settings import OptimiserSettings, UpdatesSettings
from hacrl.types import MiniBatch, TrainingRow
from helpers_agents import random_rows, tiny_model, tiny_policy, tiny_tokenizer, training_rows
from helpers_states import saved_tensors

FAST = OptimiserSettings(learning_rate=1e-3, kl=0.0)


def rewarded(seed: int) -> MiniBatch:
    """Own rows whose advantage is still their reward, 0 or 1."""
    rows = training_rows(random_rows(3, 4, seed=seed), seed=seed)
    return tuple(replace(row, advantage=float(number % 2)) for number, row in enumerate(rows))


MINI_BATCHES = [rewarded(1), rewarded(2)]


def policy_with_critic(lora: LoraSettings | None = None, updates: UpdatesSettings | None = None) -> Policy:
    return Policy(
        "ada",
        tiny_model("qwen3"),
        tiny_tokenizer(),
        optimiser=FAST,
        updates=updates,
        lora=lora,
        critic=CriticParams(gamma=0.9, lam=0.8),
    )


def trained_critic(architecture: str) -> Critic:
    critic = Critic("ada", tiny_model(architecture), CriticParams(), FAST)
    for _ in range(3):
        critic.update(critic.judge(MINI_BATCHES)[0])
    return critic


@pytest.mark.parametrize("architecture", ["qwen3", "gemma3", "gpt2"])
def test_a_value_is_read_before_its_token_and_padding_changes_nothing(architecture: str) -> None:
    critic = trained_critic(architecture)
    rows = random_rows(3, 3, seed=4)
    with torch.no_grad():
        together = critic.values(rows)
        for row, (prompt, response) in zip(together, rows, strict=True):
            alone = critic.values([(prompt, response)])[0]
            torch.testing.assert_close(row[: len(response)], alone, atol=1e-5, rtol=1e-4)
            assert not row[len(response) :].any()
            other_end = critic.values([(prompt, (*response[:-1], response[-1] ^ 1))])[0]
            torch.testing.assert_close(alone, other_end)
            first = critic.values([(prompt, response[:1])])[0]
            torch.testing.assert_close(first, alone[:1], atol=1e-5, rtol=1e-4)
    assert float(together.abs().max()) > 0.01


def test_judging_by_hand() -> None:
    """Before the first update every value is 0: a token's advantage is its response's reward, whitened."""
    critic = Critic("ada", tiny_model("qwen3"), CriticParams(), FAST)
    judged = critic.judge(MINI_BATCHES)
    assert [len(mini_batch) for mini_batch in judged] == [len(mini_batch) for mini_batch in MINI_BATCHES]
    before, after = [row for b in MINI_BATCHES for row in b], [row for b in judged for row in b]
    tokens = sum(len(row.response_ids) for row in before)
    mean = sum(len(row.response_ids) * row.advantage for row in before) / tokens
    spread = (mean * (1 - mean)) ** 0.5
    for row, found in zip(before, after, strict=True):
        assert found.judgement is not None
        length = len(row.response_ids)
        assert found.judgement.values == (0.0,) * length
        assert found.judgement.returns == (row.advantage,) * length
        expected = (row.advantage - mean) / spread
        assert found.judgement.advantages == pytest.approx([expected] * length, rel=1e-5)
        assert found.advantage == pytest.approx(expected, rel=1e-5)
    assert critic.judge([]) == ()


def test_the_critic_learns_the_reward_of_each_response() -> None:
    policy_rate = OptimiserSettings(learning_rate=3e-4, kl=0.0)
    critic = Critic("ada", tiny_model("qwen3"), CriticParams(value_clip=10.0), policy_rate)
    (judged,) = critic.judge([MINI_BATCHES[0]])
    tokens = sum(len(row.response_ids) for row in judged)
    right = sum(len(row.response_ids) for row in judged if row.judgement and row.judgement.returns[0] == 1.0)
    losses = [critic.update(judged) for _ in range(60)]
    assert losses[0] == pytest.approx(0.5 * right / tokens)
    assert losses[-1] < 0.2 * losses[0]


def test_the_learning_rate_is_ten_times_the_agents_unless_it_is_set() -> None:
    """AdamW's first step moves the head's bias by the learning rate."""
    for rate, expected in ((None, 1e-2), (3e-4, 3e-4)):
        critic = Critic("ada", tiny_model("qwen3"), CriticParams(learning_rate=rate), FAST)
        critic.update(critic.judge(MINI_BATCHES)[0])
        assert float(critic.optimiser.tensors()["weight/head.bias"]) == pytest.approx(expected, rel=1e-3)


def test_micro_batches_change_neither_judgement_nor_updates() -> None:
    whole = policy_with_critic()
    parts = policy_with_critic(updates=UpdatesSettings(tokens_per_micro_batch=25))
    for _ in range(2):
        judged, again = whole.prepare(MINI_BATCHES), parts.prepare(MINI_BATCHES)
        for row, other in zip(judged[0], again[0], strict=True):
            assert row.judgement is not None
            assert other.judgement is not None
            assert other.judgement.advantages == pytest.approx(row.judgement.advantages, abs=1e-3)
        first, second = whole.update(judged, PpoObjective()), parts.update(judged, PpoObjective())
        assert [r.loss for r in second] == pytest.approx([r.loss for r in first], rel=1e-3, abs=1e-5)
        assert [r.value_loss for r in second] == pytest.approx([r.value_loss for r in first], rel=1e-3)


def test_the_agents_loss_is_the_mean_over_all_tokens() -> None:
    """The source's log-probs are the policy's own: all ratios are 1, the loss is minus the mean advantage."""
    policy = policy_with_critic()
    rows = [(row.prompt_ids, row.response_ids) for row in MINI_BATCHES[0]]
    own = tuple(
        replace(row, source_logps=logps)
        for row, logps in zip(MINI_BATCHES[0], policy.score(rows), strict=True)
    )
    judged = policy.prepare([own, MINI_BATCHES[1]])
    advantages = [a for row in judged[0] if row.judgement for a in row.judgement.advantages]
    (report,) = policy.update(judged[:1], PpoObjective())
    assert report.loss == pytest.approx(-sum(advantages) / len(advantages), abs=1e-4)
    assert report.tokens == len(advantages)


def test_a_row_whose_advantages_cancel_is_trained_on() -> None:
    policy = policy_with_critic()
    (judged,) = policy.prepare([MINI_BATCHES[0]])
    row = next(row for row in judged if len(row.response_ids) >= 2)
    length = len(row.response_ids)
    assert row.judgement is not None
    cancelling = (1.0, -1.0) + (0.0,) * (length - 2)
    row = replace(row, advantage=0.0, judgement=replace(row.judgement, advantages=cancelling))
    (report,) = policy.update([(row,)], PpoObjective())
    assert report.tokens == length
    assert report.grad_norm > 0


@pytest.mark.parametrize("lora", [None, LoraSettings(rank=2)])
def test_resuming_from_a_state_is_exact(lora: LoraSettings | None, tmp_path: Path) -> None:
    def step(policy: Policy, folder: Path) -> dict[str, Tensor]:
        policy.update(policy.prepare(MINI_BATCHES), PpoObjective())
        policy.write_state(folder)
        return saved_tensors(folder)

    whole = policy_with_critic(lora=lora)
    middle = step(whole, tmp_path / "middle")
    resumed = policy_with_critic(lora=lora)
    resumed.read_state(tmp_path / "middle")
    last, again = step(whole, tmp_path / "last"), step(resumed, tmp_path / "again")
    assert last.keys() == again.keys()
    assert all(last[key].equal(again[key]) for key in last)
    assert any(not last[key].equal(middle[key]) for key in last if key.startswith("critic/weight/body"))


def test_the_critic_is_not_saved_with_the_agent_and_another_state_is_refused(tmp_path: Path) -> None:
    policy, plain = policy_with_critic(), tiny_policy("qwen3", FAST)
    policy.save(tmp_path / "with")
    plain.save(tmp_path / "without")
    files = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("with", "without")]
    assert files[0] == files[1]
    plain.write_state(tmp_path / "state")
    with pytest.raises(AgentError, match=r"belongs to another model .*'critic/weight/body"):
        policy.read_state(tmp_path / "state")


def test_without_a_critic_rows_stay_as_they_are_and_unjudged_rows_are_refused() -> None:
    assert tiny_policy().prepare(MINI_BATCHES) == tuple(MINI_BATCHES)
    with pytest.raises(ValueError, match="has no judgement"):
        policy_with_critic().update([MINI_BATCHES[0]], PpoObjective())


def test_a_loss_that_is_not_finite_leaves_the_critic_alone() -> None:
    critic = Critic("ada", tiny_model("qwen3"), CriticParams(), FAST)
    (judged,) = critic.judge([MINI_BATCHES[0]])
    assert judged[0].judgement is not None
    endless = replace(judged[0].judgement, returns=(float("inf"),) * len(judged[0].response_ids))
    broken: tuple[TrainingRow, ...] = (replace(judged[0], judgement=endless), *judged[1:])
    before = {key: tensor.clone() for key, tensor in critic.optimiser.tensors().items()}
    with pytest.raises(NonFiniteLoss, match="agent 'ada': its critic's loss is inf"):
        critic.update(broken)
    after = critic.optimiser.tensors()
    assert all(before[key].equal(after[key]) for key in before)
    assert critic.update(judged) == pytest.approx(
        Critic("ada", tiny_model("qwen3"), CriticParams(), FAST).update(judged)
    )
