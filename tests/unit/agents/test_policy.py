"""What an agent does with its weights: updates, KL, LoRA, saving, resuming, fingerprints."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModelForCausalLM

from hacrl.agents.backends.interfaces import Row
from hacrl.agents.backends.padded import PaddedScorer
from hacrl.agents.policy import Policy
from hacrl.agents.updater import UpdateReport
from hacrl.algorithm import HacpoObjective, HacpoParams, kl_low_variance
from hacrl.algorithm.batch import SourceData
from hacrl.defaults import usual_learning_rate
from hacrl.recipe.agent_settings import LoraSettings
from hacrl.recipe.settings import OptimiserSettings, SamplingSettings, UpdatesSettings
from helpers_agents import (
    gspo,
    likelihood,
    random_rows,
    text_prompts,
    tiny_model,
    tiny_policy,
    tiny_tokenizer,
    training_rows,
)

FAST = OptimiserSettings(learning_rate=1e-3, kl=0.0)
MINI_BATCHES = [training_rows(random_rows(3, 4, seed=seed), seed=seed) for seed in (1, 2, 3)]


def weights(policy: Policy) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in policy._model.named_parameters()}


def lora_policy(optimiser: OptimiserSettings = FAST) -> Policy:
    return Policy(
        "ada", tiny_model("qwen3"), tiny_tokenizer(), optimiser=optimiser, lora=LoraSettings(rank=2)
    )


def test_an_update_is_the_gradient_of_the_mean_over_rows() -> None:
    """Against a by-hand step on the padded forward, with the mean taken over all rows at once."""
    policy, model = tiny_policy("qwen3", FAST), tiny_model("qwen3")
    rows = MINI_BATCHES[0]
    (report,) = policy.update([rows], likelihood)

    logps = PaddedScorer(model).logps([(row.prompt_ids, row.response_ids) for row in rows])
    lengths = torch.tensor([len(row.response_ids) for row in rows])
    means = logps.sum(1) / lengths
    loss = -(torch.tensor([row.advantage for row in rows]) * means).mean()
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01).step()

    assert report.loss == pytest.approx(loss.item(), rel=1e-5)
    assert report.grad_norm == pytest.approx(norm.item(), rel=1e-5)
    assert report.mean_logps == pytest.approx(means.tolist(), abs=2e-5)
    assert report.tokens == int(lengths.sum())
    assert report.learning_rate == 1e-3
    # Adam's first step is lr * sign(gradient): a gradient of nearly 0 may round to the other side.
    moved = weights(policy)
    differing = [(moved[name] - p.detach()).abs() > 1e-6 for name, p in model.named_parameters()]
    assert sum(int(d.sum()) for d in differing) <= 5


@pytest.mark.parametrize(("lora", "rate"), [(None, 2e-4), (LoraSettings(rank=2), 2e-3)])
def test_without_a_learning_rate_the_size_of_the_model_decides(
    lora: LoraSettings | None, rate: float
) -> None:
    policy = Policy(
        "a", tiny_model("qwen3"), tiny_tokenizer(), optimiser=OptimiserSettings(kl=0.0), lora=lora
    )
    (report,) = policy.update(MINI_BATCHES[:1], likelihood)
    assert report.learning_rate == pytest.approx(rate)
    sizes = {100_000: 2e-4, 50_000_000: 1e-5, 268_000_000: 2e-6, 1_000_000_000: 1e-6, 8_000_000_000: 1e-6}
    assert {size: usual_learning_rate(size) for size in sizes} == sizes


def test_micro_batches_change_nothing() -> None:
    whole = tiny_policy("qwen3", FAST).update(MINI_BATCHES, likelihood)
    for budget in (1, 25, 60):
        updates = UpdatesSettings(tokens_per_micro_batch=budget)
        parts = tiny_policy("qwen3", FAST, updates=updates).update(MINI_BATCHES, likelihood)
        assert_close_reports(parts, whole)


def assert_close_reports(first: list[UpdateReport], second: list[UpdateReport]) -> None:
    assert len(first) == len(second)
    for one, other in zip(first, second, strict=True):
        assert one.loss == pytest.approx(other.loss, rel=1e-4, abs=1e-5)
        assert one.grad_norm == pytest.approx(other.grad_norm, rel=1e-4)
        assert one.kl == pytest.approx(other.kl, rel=1e-3, abs=1e-7)
        assert one.mean_logps == pytest.approx(other.mean_logps, abs=1e-4)


def test_the_objective_is_told_the_update_and_gets_the_rows() -> None:
    seen: list[tuple[int, list[float], list[bool]]] = []

    def spy(logps: Tensor, mask: Tensor, data: SourceData, update: int) -> Tensor:
        assert data.source_logps.shape == logps.shape == mask.shape
        seen.append((update, data.advantage.tolist(), data.own.tolist()))
        return likelihood(logps, mask, data, update)

    peers = training_rows(random_rows(1, 3, seed=5), own=False)
    reports = tiny_policy("qwen3", FAST).update([MINI_BATCHES[0], (), peers], spy)
    assert [update for update, _, _ in seen] == [0, 1]
    assert len(reports) == 2
    assert sorted(seen[0][1]) == pytest.approx(sorted(row.advantage for row in MINI_BATCHES[0]))
    assert seen[1][2] == [False] * 3


@pytest.mark.parametrize("skips", [True, False])
def test_updates_without_gradient_are_skipped(skips: bool) -> None:
    """Without an advantage, or with one that the objective gives the weight 0."""
    policy = tiny_policy("qwen3", FAST.model_copy(update={"skip_empty_updates": skips}))
    policy.update(MINI_BATCHES[:1], likelihood)
    before = policy.fingerprint()
    indifferent = tuple(replace(row, advantage=0.0) for row in MINI_BATCHES[1])
    muted = tuple(replace(row, weight=0.0) for row in MINI_BATCHES[1])
    reports = policy.update([indifferent, muted], likelihood)
    assert [(report.skipped, report.grad_norm) for report in reports] == [(skips, 0.0)] * 2
    assert (policy.fingerprint() == before) is skips


def test_training_raises_the_likelihood_of_what_is_praised() -> None:
    policy = tiny_policy("llama", OptimiserSettings(learning_rate=3e-3, kl=0.0))
    rows = random_rows(2, 2)
    praised = tuple(replace(row, advantage=1.0) for row in training_rows(rows))
    before = [sum(s) / len(s) for s in policy.score(rows)]
    policy.update([praised] * 20, likelihood)
    after = [sum(s) / len(s) for s in policy.score(rows)]
    assert all(late > early + 0.5 for early, late in zip(before, after, strict=True))


@pytest.mark.parametrize(
    "make", [lora_policy, lambda o: tiny_policy("qwen3", o), lambda o: tiny_policy("gpt2", o)]
)
def test_kl_is_to_the_initial_policy_on_own_rows(make: type) -> None:
    """Two updates without KL, one with it: the report equals the KL computed from copies by hand."""
    kl = OptimiserSettings(learning_rate=1e-3, kl=0.5)
    policy, without = make(kl), make(FAST)
    peers = training_rows(random_rows(2, 2, seed=9), own=False)
    rows = [(row.prompt_ids, row.response_ids) for row in MINI_BATCHES[1]]
    at_start = policy.score(rows)
    first, _, _ = policy.update([MINI_BATCHES[0], peers, MINI_BATCHES[0]], likelihood)
    assert first.kl == pytest.approx(0.0, abs=1e-7)
    assert first.loss == pytest.approx(without.update([MINI_BATCHES[0]], likelihood)[0].loss, rel=1e-5)

    mixed = MINI_BATCHES[1] + peers
    current = policy.score(rows)
    (report,) = policy.update([mixed], likelihood)
    values = [
        kl_low_variance(torch.tensor([now]), torch.tensor([then]), torch.ones(1, len(now), dtype=torch.bool))
        for now, then in zip(current, at_start, strict=True)
    ]
    by_hand = float(torch.cat(values).mean())
    assert by_hand > 1e-4
    assert report.kl == pytest.approx(by_hand, rel=1e-3)
    expected = -sum(row.advantage * mean for row, mean in zip(mixed, report.mean_logps, strict=True))
    expected += 0.5 * by_hand * len(rows)
    assert report.loss == pytest.approx(expected / len(mixed), rel=1e-4)


def test_lora_trains_the_adapters_alone_and_round_trips(tmp_path: Path) -> None:
    base = tiny_model("qwen3")
    base.save_pretrained(tmp_path / "base")
    tiny_tokenizer().save_pretrained(tmp_path / "base")
    policy = Policy.load("ada", tmp_path / "base", optimiser=FAST, lora=LoraSettings(rank=2))
    before = weights(policy)
    policy.update(MINI_BATCHES, likelihood)
    changed = {name for name, weight in weights(policy).items() if not torch.equal(weight, before[name])}
    assert changed
    assert all("lora_" in name for name in changed)
    rows = random_rows(2, 2)
    with policy._whole.disable_adapter():
        assert policy.score(rows) == [pytest.approx(s, abs=2e-5) for s in tiny_policy("qwen3").score(rows)]

    policy.save(tmp_path / "saved")
    assert {"adapter_model.safetensors", "tokenizer.json"} <= {p.name for p in (tmp_path / "saved").iterdir()}
    again = Policy.load("ada", tmp_path / "saved", optimiser=FAST)
    assert again.score(rows) == policy.score(rows)
    again.update(MINI_BATCHES, likelihood)
    assert again.score(rows) != policy.score(rows)


@pytest.mark.parametrize("make", [lambda: tiny_policy("qwen3", FAST), lora_policy])
def test_resuming_is_exact_to_the_bit(make: type, tmp_path: Path) -> None:
    through = make()
    through.update(MINI_BATCHES[:2], likelihood)
    through.write_state(tmp_path)
    resumed = make()
    resumed.read_state(tmp_path)
    assert resumed.fingerprint() == through.fingerprint()
    assert through.update(MINI_BATCHES[2:], gspo) == resumed.update(MINI_BATCHES[2:], gspo)
    assert resumed.fingerprint() == through.fingerprint()


def test_schedule_and_reference_survive_resuming(tmp_path: Path) -> None:
    settings = OptimiserSettings(learning_rate=1e-3, schedule="linear", warmup_steps=1, kl=0.1)
    through = tiny_policy("qwen3", settings, total_steps=4)
    reports = [through.update(MINI_BATCHES[:1], likelihood, steps_done=steps)[0] for steps in (0.5, 1, 2)]
    assert [report.learning_rate for report in reports] == pytest.approx([5e-4, 1e-3, 2e-3 / 3])
    resumed = tiny_policy("qwen3", settings, total_steps=4)
    through.write_state(tmp_path)
    resumed.read_state(tmp_path)
    (report,) = resumed.update(MINI_BATCHES[:1], likelihood, steps_done=3)
    assert report.learning_rate == pytest.approx(1e-3 / 3)
    assert report.kl > 0
    assert [report] == through.update(MINI_BATCHES[:1], likelihood, steps_done=3)


def test_a_saved_agent_is_anybodys_model(tmp_path: Path) -> None:
    policy = tiny_policy("llama", FAST)
    policy.update(MINI_BATCHES, likelihood)
    policy.save(tmp_path)
    assert {"model.safetensors", "config.json", "generation_config.json", "tokenizer.json"} <= {
        path.name for path in tmp_path.iterdir()
    }
    again = Policy.load("ada", tmp_path)
    assert again.fingerprint() == policy.fingerprint()
    sampled = [
        p.sample(text_prompts(3), 2, SamplingSettings(max_new_tokens=8), seed=0) for p in (policy, again)
    ]
    assert sampled[0] == sampled[1]
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert all(torch.equal(p, weights(policy)[name]) for name, p in theirs.named_parameters())
    assert load_file(tmp_path / "model.safetensors").keys() <= theirs.state_dict().keys()


def test_a_model_with_a_vision_tower_is_saved_with_it(tmp_path: Path) -> None:
    """Its language model is trained; the rest is written as it was loaded, under the same names."""
    loaded, saved = tmp_path / "loaded", tmp_path / "saved"
    tiny_model("gemma3_vision").save_pretrained(loaded)
    tiny_tokenizer().save_pretrained(loaded)
    policy = Policy.load("ada", loaded, optimiser=FAST)
    assert policy.backends == {"decode": "FusedDecoder", "train": "FusedScorer"}
    trained = {name for name, weight in policy._model.named_parameters() if weight.requires_grad}
    assert trained == {
        name for name, _ in policy._model.named_parameters() if "language_model" in name or "lm_head" in name
    }
    policy.update(MINI_BATCHES, likelihood)
    policy.save(saved)
    assert json.loads((saved / "config.json").read_text())["model_type"] == "gemma3"
    before, after = (load_file(folder / "model.safetensors") for folder in (loaded, saved))
    assert before.keys() == after.keys()
    for name, weight in before.items():
        of_images = "vision_tower" in name or "multi_modal_projector" in name
        assert torch.equal(after[name], weight) == of_images, name


def test_fingerprints_follow_the_weights_and_nothing_else() -> None:
    policy = tiny_policy("qwen3", FAST)
    start = policy.fingerprint()
    assert start == tiny_policy("qwen3", name="bob").fingerprint()
    assert start != tiny_policy("qwen3", seed=1).fingerprint()
    policy.sample(text_prompts(2), 2, SamplingSettings(max_new_tokens=5), seed=0)
    policy.score(random_rows(2, 2))
    assert policy.fingerprint() == start
    policy.update(MINI_BATCHES[:1], likelihood)
    assert policy.fingerprint() != start
    with torch.no_grad():
        weight = next(policy._model.parameters())
        kept = weight[3, 3].item()
        moved = policy.fingerprint()
        weight[3, 3] = torch.nextafter(weight[3, 3], torch.tensor(9.0))
        assert policy.fingerprint() != moved
        weight[3, 3] = kept
    assert policy.fingerprint() == moved


def test_bf16_takes_ratios_to_the_log_probs_that_the_updates_compute() -> None:
    still = FAST.model_copy(update={"learning_rate": 1e-30})
    updates = UpdatesSettings(tokens_per_micro_batch=25)
    policy = Policy(
        "ada", tiny_model("qwen3").to(torch.bfloat16), tiny_tokenizer(), optimiser=still, updates=updates
    )
    idle, peer = replace(MINI_BATCHES[0][0], advantage=0.0), replace(MINI_BATCHES[0][1], own=False)
    batches = [(idle, peer, *MINI_BATCHES[0][2:]), MINI_BATCHES[1], ()]
    prepared = policy.prepare(batches)
    assert prepared[0][:2] == (idle, peer)
    for rows, reports in zip(prepared, policy.update(prepared, likelihood), strict=False):
        own = [i for i, row in enumerate(rows) if row.own and row.advantage]
        assert own
        for i in own:
            assert rows[i].source_mean_logp == pytest.approx(reports.mean_logps[i], abs=1e-6)
            assert rows[i].source_mean_logp != MINI_BATCHES[0][i].source_mean_logp
    assert policy.prepare(batches, ratios=False) == tuple(batches)
    assert tiny_policy("qwen3", FAST).prepare(batches) == tuple(batches), "fp32 rounds too little to matter"
    assert {p.dtype for p in policy._model.parameters()} == {torch.bfloat16}


def test_rows_outside_a_window_are_left_out_of_the_backward_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """A third of the peers' rows is inside the window of [0.8, 1]; update and report are the same."""
    peers = training_rows(random_rows(3, 4, seed=5), own=False, seed=5)
    scores = tiny_policy("qwen3", FAST).score([(row.prompt_ids, row.response_ids) for row in peers])
    log_ratios = (-0.3, -0.1, 0.1) * 4
    rows = MINI_BATCHES[0] + tuple(
        replace(row, source_mean_logp=sum(logps) / len(logps) - log_ratio)
        for row, logps, log_ratio in zip(peers, scores, log_ratios, strict=True)
    )
    found = []
    for smallest in (0, 1 << 60):
        monkeypatch.setattr("hacrl.agents.policy.SMALL", smallest)
        policy, differentiated = tiny_policy("qwen3", FAST), []
        logps_of = policy._backends.scorer.logps

        def counted(rows: Sequence[Row], logps_of: Any = logps_of, counts: Any = differentiated) -> Tensor:
            counts.append(len(rows) * torch.is_grad_enabled())
            logps: Tensor = logps_of(rows)
            return logps

        monkeypatch.setattr(policy._backends.scorer, "logps", counted)
        (report,) = policy.update([rows], HacpoObjective(HacpoParams()))
        found.append((sum(differentiated), report, weights(policy)))
    (some, report, after), (every, expected, truth) = found
    assert (some, every) == (12 + 4, 12 + 12)
    assert report.loss == pytest.approx(expected.loss, rel=1e-5)
    assert report.grad_norm == pytest.approx(expected.grad_norm, rel=1e-5)
    assert report.mean_logps == pytest.approx(expected.mean_logps, rel=1e-5)
    assert report.tokens == expected.tokens
    for name, weight in truth.items():
        assert torch.allclose(after[name], weight, rtol=0, atol=1e-5), name


@pytest.mark.parametrize(("smallest", "times"), [(0, 1), (1 << 60, 0)], ids=["large", "toy"])
def test_what_every_phase_of_a_large_model_has_freed_is_given_back(
    smallest: int, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[torch.device] = []
    monkeypatch.setattr("hacrl.agents.policy.SMALL", smallest)
    monkeypatch.setattr("hacrl.agents.policy.give_back", given.append)
    policy, prompts = tiny_policy("qwen3", FAST), text_prompts(1)
    phases: list[Callable[[], object]] = [
        lambda: policy.sample(prompts, 1, SamplingSettings(max_new_tokens=2), 0),
        lambda: policy.score([((2, 3), (4,))]),
        lambda: policy.features(prompts),
        lambda: policy.prepare(MINI_BATCHES),
        lambda: policy.update(MINI_BATCHES, likelihood),
    ]
    for phase in phases:
        given.clear()
        phase()
        assert given == [policy.device] * times
