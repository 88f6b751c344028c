"""What holds for every step, however unequal the agents' responses are."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hacrl.agents.rendering import Rendering
from hacrl.algorithm import Capability
from hacrl.methods import View
from hacrl.methods.hacpo import Hacpo
from hacrl.recipe.settings import ExchangeSettings
from hacrl.recipe.topology import make_topology
from hacrl.runs.json_files import LARGEST_NUMBER
from hacrl.sharing import (
    Learner,
    LearnerBatch,
    Reencoder,
    arrange,
    build_batches,
    collect,
    read_step,
    receive,
    write_step,
)
from hacrl.types import Prompt, Trajectory
from helpers_sharing import byte_level_bpe, char_level, metaspace_bpe, trajectory

AGENTS = ["bytes", "chars", "metaspace"]
ENCODERS = {
    "bytes": Rendering(byte_level_bpe()),
    "chars": Rendering(char_level()),
    "metaspace": Rendering(metaspace_bpe()),
}
PROMPTS = {f"p{n}": Prompt(f"p{n}", f"{n}?") for n in range(4)}

logps = st.floats(-30, 0)
texts = st.text(st.sampled_from("12 aπ日<>/s|"), max_size=6) | st.sampled_from(["</s>", "<|im_end|>", "12"])


@st.composite
def responses(draw: st.DrawFn) -> Trajectory:
    count = draw(st.integers(1, 4))
    return trajectory(
        draw(st.sampled_from(AGENTS)),
        draw(st.sampled_from(list(PROMPTS))),
        draw(st.integers(0, 5)),
        text=draw(texts),
        reward=draw(st.none() | st.floats(0, 1)),
        finish_reason=draw(st.sampled_from(["stop", "length"])),
        token_ids=tuple(draw(st.lists(st.integers(0, 300), min_size=count, max_size=count))),
        token_logps=tuple(draw(st.lists(logps, min_size=count, max_size=count))),
    )


steps = st.lists(responses(), min_size=1, max_size=40)


def batches(
    agents: list[str], step: list[Trajectory], kind: str, mini_batches: int = 2, **options: object
) -> dict[str, LearnerBatch]:
    """One step of every learner, from everybody's trajectories to its mini-batches."""
    trajectories, _ = collect({t.id: t for t in reversed(step)}.values())
    capability = Capability(len(agents))
    capability.update([0.1 + len(name) / 20 for name in agents])
    exchange = ExchangeSettings(topology=kind, hub="chars" if kind == "star" else None, **options)  # type: ignore[arg-type]
    method, topology = Hacpo(), make_topology(exchange, agents)
    result = {}
    for name in agents:
        received, _ = receive(trajectories, name, topology[name])
        table = arrange(1, received, agents, list(PROMPTS))
        terms = method.loss_terms(View(name, table, capability.omega, reward_max=1.0, mini_batches=2))
        tokens = Reencoder(Learner(name, ENCODERS[name]), PROMPTS)
        result[name] = build_batches(table, tokens, terms, exchange, mini_batches)
    return result


def without_rounding(batch: LearnerBatch) -> list[list[object]]:
    """Sums over agents in another order differ in the last bits."""
    return [
        [replace(row, advantage=round(row.advantage, 9), omega=round(row.omega, 9)) for row in mini_batch]
        for mini_batch in batch.mini_batches
    ]


@settings(max_examples=60)
@given(steps, st.permutations(AGENTS), st.sampled_from(["everybody", "ring", "star"]), st.randoms())
def test_the_order_of_agents_and_of_arrival_changes_nothing(
    step: list[Trajectory], order: list[str], kind: str, random: object
) -> None:
    first = list({t.id: t for t in step}.values())
    shuffled = list(first)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    one, other = batches(AGENTS, first, kind), batches(order, shuffled, kind)
    for name in AGENTS:
        assert without_rounding(one[name]) == without_rounding(other[name])
        assert one[name].left_out == other[name].left_out


@settings(max_examples=60)
@given(steps, st.integers(1, 3), st.sampled_from(["interleaved", "sequential"]))
def test_every_scored_response_is_one_row_or_counted_as_left_out(
    step: list[Trajectory], parts: int, order: str
) -> None:
    unique = {t.id: t for t in reversed(step)}.values()
    scored = [t for t in unique if t.reward is not None]
    for name, batch in batches(AGENTS, step, "everybody", mini_batches=parts, peer_order=order).items():
        rows = [row for mini_batch in batch.mini_batches for row in mini_batch]
        assert len(rows) + batch.left_out.total() == len(scored)
        own = Counter((t.prompt_id, t.token_ids, t.token_logps) for t in scored if t.source == name)
        assert Counter((r.prompt_id, r.response_ids, r.source_logps) for r in rows if r.own) == own
        assert [row.own for row in rows] == sorted((row.own for row in rows), reverse=True)
        for mini_batch in batch.mini_batches:
            assert mini_batch
            assert len({row.source for row in mini_batch}) == 1


@settings(max_examples=60)
@given(steps)
def test_a_peers_row_is_a_verified_text_in_the_learners_tokens(step: list[Trajectory]) -> None:
    for name, batch in batches(AGENTS, step, "everybody").items():
        encoder = ENCODERS[name]
        texts_of = {(t.source, t.prompt_id, t.text) for t in step}
        for row in (row for mini_batch in batch.mini_batches for row in mini_batch if not row.own):
            assert (row.source, row.prompt_id, encoder.decode_response(row.response_ids)) in texts_of
            assert encoder.eos_id not in row.response_ids or row.response_ids == (encoder.eos_id,)
            assert row.response_ids


@settings(max_examples=30)
@given(steps)
def test_any_step_reads_back_identically(step: list[Trajectory]) -> None:
    with TemporaryDirectory() as run:
        assert list(read_step(write_step(Path(run), 1, step))) == step


@given(st.floats(-LARGEST_NUMBER, LARGEST_NUMBER), st.text())
def test_any_number_and_text_reads_back_identically(number: float, text: str) -> None:
    with TemporaryDirectory() as run:
        written = trajectory(text=text, reward=number, token_ids=(5,), token_logps=(number,), prompt_id=text)
        (found,) = read_step(write_step(Path(run), 1, [written]))
        assert found == written
        assert (
            torch.tensor([found.reward, *found.token_logps]).signbit().tolist()
            == [torch.tensor(number).signbit().item()] * 2
        )
