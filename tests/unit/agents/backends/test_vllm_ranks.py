"""An agent of two ranks with an engine on each, with a stand-in for vLLM and for its server."""

from __future__ import annotations

from typing import Any

import pytest

from hacrl.agents import engines
from hacrl.agents.errors import AgentError
from hacrl.agents.policy import Policy
from hacrl.agents.ranks import Ranks
from hacrl.recipe.agent_settings import LoraSettings, VllmSettings
from hacrl.recipe.settings import OptimiserSettings, SamplingSettings
from helpers_agents import likelihood, random_rows, text_prompts, tiny_model, tiny_tokenizer, training_rows
from helpers_ranks import together
from helpers_vllm import install
from helpers_vllm_server import FakeServer, serve_vllm

pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")

GREEDY = SamplingSettings(max_new_tokens=5).as_greedy()
ROWS = training_rows(random_rows(3, 2))


def life(engine: VllmSettings | None, lora: LoraSettings | None, ranks: Ranks | None = None) -> list[Any]:
    """Responses before and after an update; with ranks, this one's share."""
    policy = Policy(
        "ada",
        tiny_model("qwen3"),
        tiny_tokenizer(),
        optimiser=OptimiserSettings(learning_rate=1e-2, kl=0.0),
        lora=lora,
        engine=engine,
        ranks=ranks,
    )
    seen = []
    for prompts in (5, 1):  # then there is none for one of the ranks
        found = policy.sample(text_prompts(prompts), 2, GREEDY, seed=0)
        seen.append([(r.prompt_id, r.sample, r.token_ids) for r in found])
        assert all(r.engine.difference < 1e-4 for r in found if r.engine)
        policy.update([ROWS], likelihood)
    return seen


@pytest.mark.parametrize("lora", [None, LoraSettings(rank=2)])
def test_ranks_draw_their_shares_with_engines_of_their_own(
    monkeypatch: pytest.MonkeyPatch, lora: LoraSettings | None
) -> None:
    expected = life(None, lora)
    llm = install(monkeypatch)

    def work(ranks: Ranks) -> tuple[list[Any], Any, list[str]]:
        found = life(VllmSettings(), lora, ranks)
        (engine,) = llm.made
        assert engine.settings["hf_overrides"] == {"architectures": ["Qwen3ForCausalLM"]}
        return found, engine.settings.get("distributed_executor_backend"), engine.calls

    first, second = together(work)
    assert [one + other for one, other in zip(first[0], second[0], strict=True)] == expected
    assert [len(share) for share in first[0] + second[0]] == [4, 0, 6, 2]
    assert first[1] == second[1] == "external_launcher"
    loads = "load" if lora is None else "adapter ada"
    assert [calls.count(loads) for _, _, calls in (first, second)] == [2, 2]
    assert "shutdown" not in first[2] + second[2]


def test_ranks_share_a_server_and_the_first_sends_the_weights() -> None:
    expected = life(None, None)
    with serve_vllm(FakeServer(tiny_model("qwen3"))) as server:
        engine = VllmSettings(url=server.url, retries=0)
        first, second = together(lambda ranks: life(engine, None, ranks))
        assert [one + other for one, other in zip(first, second, strict=True)] == expected
        assert server.paths.count("/collective_rpc") == 1


def test_ranks_that_split_an_engine_draw_together_and_return_their_shares(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The stand-in can do so on CPUs too."""
    monkeypatch.setattr(engines, "refuse_what_cpus_cannot", lambda *settings: None)
    expected = life(None, None)
    llm = install(monkeypatch)

    def work(ranks: Ranks) -> tuple[list[Any], Any, list[int]]:
        found = life(VllmSettings(tensor_parallel=2), None, ranks)
        (engine,) = llm.made
        return found, engine.settings["tensor_parallel_size"], engine.asked

    first, second = together(work)
    assert [one + other for one, other in zip(first[0], second[0], strict=True)] == expected
    assert first[1] == second[1] == 2
    assert first[2] == second[2] == [10, 2], "all ranks of an engine get the same requests"


def test_on_cpus_an_engine_is_not_split() -> None:
    with pytest.raises(AgentError, match=r"agent 'ada': engine\.tensor_parallel: expected 1 on CPUs, got 2"):
        life(VllmSettings(tensor_parallel=2), None)
