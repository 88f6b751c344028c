from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from hacrl.agents.rendering import Rendering
from hacrl.algorithm import GspoObjective
from hacrl.recipe.settings import ExchangeSettings
from hacrl.sharing.batches import LearnerBatch, LossTerm, build_batches
from hacrl.sharing.reencode import Learner, Reencoder
from hacrl.sharing.table import arrange
from hacrl.types import Prompt, Trajectory
from helpers_sharing import char_level, trajectory

PROMPTS = {f"p{n}": Prompt(f"p{n}", f"{n}+{n}=") for n in range(4)}
ENCODER = Rendering(char_level())


def full_step(agents: str, samples: int = 2, step: int = 1) -> list[Trajectory]:
    return [
        trajectory(agent, prompt, i, step=step, text=f"{i}{agent}")
        for agent in agents
        for prompt in PROMPTS
        for i in range(samples)
    ]


def batch_for(
    name: str,
    trajectories: Sequence[Trajectory],
    agents: str,
    exchange: ExchangeSettings | None = None,
    learner: Learner | None = None,
    mini_batches: int = 2,
    **how: Any,
) -> LearnerBatch:
    """Advantages number the places: 100 j + 10 b + i. Coefficients are 1.5, 2.5, ..."""
    table = arrange(trajectories[0].step, trajectories, list(agents), list(PROMPTS))
    j, b, i = (torch.arange(size, dtype=torch.float64) for size in table.mask.shape)
    advantages = 100 * j[:, None, None] + 10 * b[:, None] + i
    learner = learner or Learner(name, ENCODER)
    term = LossTerm(GspoObjective(), advantages, table.mask, torch.arange(len(agents)) + 1.5, **how)
    return build_batches(
        table, Reencoder(learner, PROMPTS), [term], exchange or ExchangeSettings(), mini_batches
    )


def sources(batch: LearnerBatch) -> str:
    """The one source of each mini-batch, in order."""
    assert all(len({row.source for row in mini_batch}) == 1 for mini_batch in batch.mini_batches)
    return "".join(mini_batch[0].source for mini_batch in batch.mini_batches)


def test_an_own_row_without_eos_has_the_mean_of_what_is_left() -> None:
    own = trajectory("a", "p2", token_ids=(31, 32, 2), token_logps=(-0.5, -1.0, -3.0), text="zz")
    ((row,),) = batch_for("a", [own], "ab", learner=Learner("a", ENCODER, trains_eos=False)).mini_batches
    assert (row.response_ids, row.source_logps, row.source_mean_logp) == ((31, 32), (-0.5, -1.0), -0.75)


def test_an_own_row_keeps_tokens_and_log_probs_with_eos() -> None:
    own = trajectory("a", "p2", token_ids=(31, 32, 2), token_logps=(-0.5, -1.0, -3.0), text="zz")
    ((row,),) = batch_for("a", [own], "ab").mini_batches
    assert (row.prompt_id, row.source, row.own) == ("p2", "a", True)
    assert row.prompt_ids == ENCODER.encode_prompt(PROMPTS["p2"])
    assert (row.response_ids, row.source_logps) == ((31, 32, 2), (-0.5, -1.0, -3.0))
    assert (row.source_mean_logp, row.length_scale) == (-1.5, 1.0)
    assert (row.advantage, row.omega) == (20.0, 1.0)


def test_a_peers_row_is_in_the_learners_tokens_without_eos() -> None:
    peer = trajectory("b", "p1", token_ids=(900, 901, 2), token_logps=(-0.5, -1.0, -3.0), text="1+2")
    ((row,),) = batch_for("a", [peer], "ab").mini_batches
    assert (row.source, row.own) == ("b", False)
    assert row.response_ids == ENCODER.encode_response("1+2")
    assert (row.source_logps, row.source_mean_logp, row.length_scale) == ((), -0.75, 1.0)
    assert (row.advantage, row.omega) == (110.0, 2.5)


def test_a_peer_with_the_same_tokens_gives_its_log_prob_of_each() -> None:
    ids = ENCODER.encode_response("1+2")
    peer = trajectory("b", token_ids=(*ids, 2), token_logps=(-0.5, -1.0, -1.5, -3.0), text="1+2")
    ((row,),) = batch_for("a", [peer], "ab").mini_batches
    assert (row.source_logps, row.source_mean_logp) == ((-0.5, -1.0, -1.5), -1.0)
    ((row,),) = batch_for("a", [peer], "ab", complete=True).mini_batches
    assert row.source_logps == (-0.5, -1.0, -1.5, -3.0)
    finer = replace(peer, token_ids=(ids[0], 900, 901, 2))
    ((row,),) = batch_for("a", [finer], "ab").mini_batches
    assert row.source_logps == ()


def test_with_a_number_of_updates_prompts_keep_their_order_whoever_responded_to_them() -> None:
    step = [t for t in full_step("ab") if t.source == "b" or t.prompt_id in ("p1", "p3")]
    batch = batch_for("b", step, "ab", updates=2)
    prompts = [[(row.prompt_id, row.source) for row in mini_batch] for mini_batch in batch.mini_batches]
    assert prompts[0] == [("p0", "b"), ("p0", "b"), ("p1", "a"), ("p1", "a"), ("p1", "b"), ("p1", "b")]
    assert prompts[1] == [("p2", "b"), ("p2", "b"), ("p3", "a"), ("p3", "a"), ("p3", "b"), ("p3", "b")]


def test_the_length_normalisation_reaches_peers_rows_only() -> None:
    wide = [trajectory(name, "p0", token_ids=(9, 2), token_logps=(-1.0, -2.0), text="123") for name in "ab"]
    own, peer = batch_for("a", wide, "ab", ExchangeSettings(length_norm="learner")).mini_batches
    assert (own[0].source_mean_logp, peer[0].source_mean_logp) == (-1.5, -1.0 / 3)


def test_own_first_then_peers_with_whole_prompts_in_each_mini_batch() -> None:
    batch = batch_for("b", full_step("ab"), "ab")
    prompts = [[row.prompt_id for row in mini_batch] for mini_batch in batch.mini_batches]
    assert sources(batch) == "bbaa"
    assert prompts == [["p0", "p0", "p1", "p1"], ["p2", "p2", "p3", "p3"]] * 2


@pytest.mark.parametrize(("parts", "sizes"), [(1, [8]), (3, [2, 2, 4]), (4, [2, 2, 2, 2]), (9, [2, 2, 2, 2])])
def test_a_source_is_split_as_evenly_as_its_prompts_allow(parts: int, sizes: list[int]) -> None:
    batch = batch_for("a", full_step("a"), "a", mini_batches=parts)
    assert [len(mini_batch) for mini_batch in batch.mini_batches] == sizes


def test_the_papers_order_takes_one_peer_after_the_other() -> None:
    exchange = ExchangeSettings(peer_order="sequential")
    assert sources(batch_for("c", full_step("dbca"), "dbca", exchange)) == "ccaabbdd"


def test_interleaved_peers_take_turns_at_every_place() -> None:
    """Over as many steps as there are peers, each is equally often at each place, the last included."""
    orders = [sources(batch_for("a", full_step("abcd", step=step), "abcd"))[2:] for step in range(3)]
    assert orders == ["bcdcdb", "cdbdbc", "dbcbcd"]
    assert all(sorted(place) == ["b", "c", "d"] for place in zip(*orders, strict=True))


def test_agents_may_respond_to_prompts_of_their_own() -> None:
    disjoint = [trajectory("a", "p0"), trajectory("a", "p2"), trajectory("b", "p1"), trajectory("b", "p3")]
    batch = batch_for("a", disjoint, "ab")
    prompts = [[(row.source, row.prompt_id) for row in mini_batch] for mini_batch in batch.mini_batches]
    assert prompts == [[("a", "p0")], [("a", "p2")], [("b", "p1")], [("b", "p3")]]


def test_masked_samples_never_become_rows_and_the_others_keep_their_advantage() -> None:
    step = [replace(t, reward=None) if t.sample == 0 else t for t in full_step("ab", samples=3)]
    rows = [row for mini_batch in batch_for("a", step, "ab").mini_batches for row in mini_batch]
    assert [row.advantage for row in rows[:4]] == [1.0, 2.0, 11.0, 12.0]
    assert len(rows) == 16


def test_what_does_not_fit_is_left_out_and_counted() -> None:
    learner = Learner("a", ENCODER, context_length=9)
    step = [
        trajectory("a", "p0", 0, text="own"),
        trajectory("b", "p0", 0, text="1234"),
        trajectory("b", "p0", 1, text="12345"),
        trajectory("b", "p0", 2, text="π"),
        trajectory("b", "p1", 0, text="", finish_reason="length"),
    ]
    batch = batch_for("a", step, "ab", learner=learner)
    assert batch.left_out == {"response_too_long": 1, "drift": 1, "empty": 1}
    assert sources(batch) == "ab"
    assert [len(mini_batch) for mini_batch in batch.mini_batches] == [1, 1]
    nothing = batch_for("a", step, "ab", learner=replace(learner, context_length=5))
    assert nothing.mini_batches == ()
    assert nothing.left_out == {"prompt_too_long": 5}


def test_every_pass_makes_the_same_updates_and_counts_what_is_left_out_once() -> None:
    step = [*full_step("ab"), trajectory("b", "p0", 2, text="π")]
    once, often = (batch_for("a", step, "ab", updates=2, passes=passes) for passes in (1, 3))
    assert len(once.mini_batches) == 2
    assert often.mini_batches == once.mini_batches * 3
    assert often.left_out == once.left_out == {"drift": 1}
    assert batch_for("a", step, "ab", updates=0).mini_batches == ()


def test_errors_name_the_argument() -> None:
    table = arrange(1, [trajectory()], ["a"], ["p0"])
    fine = LossTerm(GspoObjective(), torch.zeros(1, 1, 1), table.mask, torch.ones(1))
    tokens = Reencoder(Learner("a", ENCODER), PROMPTS)
    with pytest.raises(ValueError, match=r"learner 'x' is not one of the agents \['a'\]"):
        build_batches(table, Reencoder(Learner("x", ENCODER), PROMPTS), [fine])
    with pytest.raises(ValueError, match=r"prompts: the table has responses to \['p0'\]"):
        build_batches(table, Reencoder(Learner("a", ENCODER), {}), [fine])
    with pytest.raises(
        ValueError, match=r"loss term 1, advantages\[j, b, i\]: expected shape \(1, 1, 1\), got"
    ):
        build_batches(table, tokens, [fine, replace(fine, advantages=torch.zeros(1, 1))])
    with pytest.raises(ValueError, match=r"coefficients\[j\]: expected shape \(1,\), got \(2,\)"):
        build_batches(table, tokens, [replace(fine, coefficients=torch.ones(2))])
    with pytest.raises(ValueError, match=r"coefficients\[j\]: expected shape \(1, 1\), got \(1, 2\)"):
        build_batches(table, tokens, [replace(fine, coefficients=torch.ones(1, 2))])
    without_reward = arrange(1, [trajectory(reward=None)], ["a"], ["p0"])
    with pytest.raises(ValueError, match="loss term 0, mask: takes responses that do not exist or have no"):
        build_batches(without_reward, tokens, [fine])
    for wrong in ({"length_norm": "x"}, {"peer_order": "x"}):
        with pytest.raises(ValueError, match=f"{next(iter(wrong))}\n  Input should be"):
            ExchangeSettings(**wrong)  # type: ignore[arg-type]
