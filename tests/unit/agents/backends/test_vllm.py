"""What hacrl does around vLLM, with a stand-in for it; `tests/vllm_engine` runs the real one."""

from __future__ import annotations

import gc
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from hacrl.agents.blueprint import Blueprint
from hacrl.agents.errors import AgentError, EngineFailed
from hacrl.agents.policy import Policy
from hacrl.recipe.agent_settings import AgentSettings, VllmSettings
from hacrl.recipe.settings import OptimiserSettings, SamplingSettings
from hacrl.types import TrainingRow
from helpers_agents import (
    likelihood,
    random_rows,
    text_prompts,
    tiny_model,
    tiny_policy,
    tiny_tokenizer,
    training_rows,
)
from helpers_vllm import FakeLLM, install

GREEDY = SamplingSettings(max_new_tokens=6).as_greedy()


def make(settings: VllmSettings | None = None, architecture: str = "qwen3") -> Policy:
    optimiser = OptimiserSettings(learning_rate=1e-2, kl=0.0)
    engine = settings or VllmSettings()
    return Policy("ada", tiny_model(architecture), tiny_tokenizer(), optimiser=optimiser, engine=engine)


def rows() -> tuple[TrainingRow, ...]:
    return training_rows(random_rows(3, 2))


def test_every_update_reaches_the_engine_before_it_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    llm = install(monkeypatch)
    policy, plain = make(), Policy("ada", tiny_model("qwen3"), tiny_tokenizer())
    prompts = text_prompts(3)
    first = policy.sample(prompts, 1, GREEDY, seed=0)
    assert [r.token_ids for r in first] == [r.token_ids for r in plain.sample(prompts, 1, GREEDY, seed=0)]
    policy.sample(prompts, 1, GREEDY, seed=0)  # nothing has changed: nothing is loaded
    for _ in range(3):
        policy.update([rows()], likelihood)
    second = policy.sample(prompts, 1, GREEDY, seed=0)
    assert second != first
    assert [r.engine.difference for r in second if r.engine] == pytest.approx([0.0] * 3, abs=1e-4)
    (engine,) = llm.made
    assert engine.calls == ["load", "reset", "generate", "generate", "load", "reset", "generate"]


def test_an_engine_that_would_sample_with_old_weights_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    llm = install(monkeypatch)
    policy = make()
    policy.sample(text_prompts(1), 1, GREEDY, seed=0)
    llm.forgetful = True
    policy.update([rows()], likelihood)
    for _ in range(2):  # also when it is asked again
        with pytest.raises(EngineFailed, match=r"agent 'ada'.*still does not hold.*engine: builtin"):
            policy.sample(text_prompts(1), 1, GREEDY, seed=0)
    assert llm.made[0].calls.count("generate") == 1


def test_an_engine_that_breaks_down_names_its_agent_and_stays_unusable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    llm = install(monkeypatch)
    policy = make()

    def die(*arguments: Any, **settings: Any) -> None:
        raise RuntimeError("out of blocks")

    working, llm.generate = llm.generate, die  # type: ignore[method-assign, assignment]
    with pytest.raises(EngineFailed, match=r"agent 'ada'.*broke down: RuntimeError: out of blocks"):
        policy.sample(text_prompts(1), 1, GREEDY, seed=0)
    llm.generate = working  # type: ignore[method-assign]
    with pytest.raises(EngineFailed, match="out of blocks"):
        policy.sample(text_prompts(1), 1, GREEDY, seed=0)


def test_log_probs_that_are_no_numbers_are_a_breakdown(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, noise=math.nan)
    with pytest.raises(EngineFailed, match=r"agent 'ada'.*broke down.*nan"):
        make().sample(text_prompts(1), 1, GREEDY, seed=0)


@pytest.mark.parametrize(("noise", "rescored"), [(0.01, False), (0.03, True)])
def test_log_probs_beyond_the_bound_are_those_of_the_trained_model(
    monkeypatch: pytest.MonkeyPatch, noise: float, rescored: bool
) -> None:
    install(monkeypatch, noise=noise)
    policy = make(VllmSettings(max_logprob_difference=0.02))
    prompts = text_prompts(4)
    for prompt, rollout in zip(prompts, policy.sample(prompts, 1, GREEDY, seed=0), strict=True):
        (trainer,) = policy.score([(policy.encoder.encode_prompt(prompt), rollout.token_ids)])
        used = trainer if rescored else tuple(logp + noise for logp in trainer)
        assert rollout.token_logps == pytest.approx(used, abs=1e-5)
        check = rollout.engine
        assert check is not None
        assert (check.rescored, check.weight) == (rescored, 1.0)
        assert check.trainer_logp == pytest.approx(sum(trainer) / len(trainer))
        assert check.engine_logp == pytest.approx(check.trainer_logp + noise, abs=1e-5)


@pytest.mark.parametrize("noise", [-0.5, -0.05, 0.05])
def test_the_correction_is_the_ratio_of_the_whole_response_cut_off(
    monkeypatch: pytest.MonkeyPatch, noise: float
) -> None:
    install(monkeypatch, noise=noise)
    policy = make(VllmSettings(correction="truncated", correction_cap=1.5))
    for rollout in policy.sample(text_prompts(4), 1, GREEDY, seed=0):
        assert rollout.engine is not None
        expected = min(math.exp(-noise * len(rollout.token_ids)), 1.5)
        assert rollout.engine.weight == pytest.approx(expected, rel=1e-3)


def test_a_row_s_weight_multiplies_its_gradient() -> None:
    policy = tiny_policy("qwen3")
    one, other = rows()[:2]
    alone = [policy.gradient((row,), likelihood, 0) for row in (one, other)]
    both = policy.gradient((replace(one, weight=0.25), other), likelihood, 0)
    torch.testing.assert_close(both, (0.25 * alone[0] + alone[1]) / 2)


def test_requests_carry_the_sampling_of_the_built_in_sampler(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def remember(self: FakeLLM, prompts: Any, parameters: Any, use_tqdm: bool) -> Any:
        asked.extend(parameters)
        return FakeLLM.generate(self, prompts, parameters, use_tqdm)

    install(monkeypatch, generate=remember)
    policy = make()
    sampling = SamplingSettings(max_new_tokens=200, temperature=0.7, top_p=0.9)
    prompts = text_prompts(2)
    policy.sample(prompts, 2, sampling, seed=3)
    policy.sample(prompts[1:], 2, sampling, seed=3)
    assert {(each.temperature, each.top_p) for each in asked} == {(0.7, 0.9)}
    room = 128 - len(policy.encoder.encode_prompt(prompts[0]))
    assert asked[0].max_tokens == room, "the context is shorter than max_new_tokens"
    assert asked[0].stop_token_ids == list(policy.encoder.eos_ids)
    seeds = [each.seed for each in asked]
    assert len(set(seeds[:4])) == 4
    assert seeds[4:] == seeds[2:4], "a response's seed depends on the response alone"


def test_a_second_engine_ends_the_first_which_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    llm = install(monkeypatch)
    first = make()
    second = make()
    assert llm.made[0].calls == ["shutdown"]
    with pytest.raises(EngineFailed, match=r"agent 'ada'.*started another in this process.*runtime: ray"):
        first.sample(text_prompts(1), 1, GREEDY, seed=0)
    second.sample(text_prompts(1), 1, GREEDY, seed=0)
    assert llm.made[1].calls == ["load", "reset", "generate"]


def test_an_engine_ends_with_its_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    llm = install(monkeypatch)
    policy = make()
    del policy
    gc.collect()
    assert llm.made[0].calls == ["shutdown"]
    make()
    assert llm.made[0].calls == ["shutdown"], "not a second time, which would end the new one's groups"


def test_the_engine_is_told_the_model_s_class(monkeypatch: pytest.MonkeyPatch) -> None:
    llm = install(monkeypatch)
    policy = make(architecture="qwen3")
    assert policy._model.config.architectures is None, "vLLM would take such a model for one without a head"
    assert llm.made[0].settings["hf_overrides"] == {"architectures": ["Qwen3ForCausalLM"]}


def test_the_engine_decodes_as_many_rows_at_once_as_the_recipe_allows(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    llm = install(monkeypatch)
    tiny_policy("qwen3").save(tmp_path)
    settings = AgentSettings(name="ada", model=str(tmp_path), device="cpu", engine=VllmSettings())
    Blueprint(settings, sampling=SamplingSettings(max_rows=7)).load()
    assert llm.made[0].settings["max_num_seqs"] == 7


def test_without_vllm_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(AgentError, match=r"agent 'ada'.*hacrl\[vllm\]"):
        make()


def test_stop_strings_end_vllms_responses_as_the_built_in_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    llm = install(monkeypatch)
    sampling = SamplingSettings(max_new_tokens=12, stop=("a", "7"), top_k=5, min_p=0.1, top_p=0.9)
    plain = Policy("ada", tiny_model("qwen3"), tiny_tokenizer())
    policy = Policy(
        "ada", tiny_model("qwen3"), tiny_tokenizer(), engine=VllmSettings(), sampling=sampling.as_greedy()
    )
    prompts = text_prompts(20)
    found = policy.sample(prompts, 1, sampling.as_greedy(), seed=0)
    wanted = plain.sample(prompts, 1, sampling.as_greedy(), seed=0)
    assert [replace(rollout, engine=None) for rollout in found] == [
        replace(rollout, token_logps=mine.token_logps) for rollout, mine in zip(wanted, found, strict=True)
    ]
    assert len({rollout.stop for rollout in found}) > 1
    assert llm.made[0].settings["skip_tokenizer_init"] is False


def test_sampling_settings_reach_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    llm = install(monkeypatch)
    passed: list[Any] = []
    monkeypatch.setattr(
        llm, "generate", lambda self, prompts, parameters, use_tqdm: passed.extend(parameters) or []
    )
    sampling = SamplingSettings(
        stop=("\n",), include_stop=True, top_k=5, min_p=0.1, top_p=0.9, temperature=0.7
    )
    policy = Policy("ada", tiny_model("qwen3"), tiny_tokenizer(), engine=VllmSettings(), sampling=sampling)
    for settings in (sampling, sampling.as_greedy(), SamplingSettings()):
        with pytest.raises(ValueError, match="zip"):  # it returned nothing
            policy.sample(text_prompts(1), 1, settings, seed=0)
    keys = ("temperature", "top_p", "top_k", "min_p", "stop", "include_stop_str_in_output", "detokenize")
    assert [tuple(getattr(each, key) for key in keys) for each in passed] == [
        (0.7, 0.9, 5, 0.1, ["\n"], True, True),
        (0.0, 1.0, 0, 0.0, ["\n"], True, True),
        (1.0, 1.0, 0, 0.0, [], False, False),
    ]


def test_an_engine_started_without_stop_strings_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    with pytest.raises(AgentError, match=r"agent 'ada'.*without stop strings.*sampling\.stop"):
        make().sample(text_prompts(1), 1, SamplingSettings(stop=("a",)), seed=0)
