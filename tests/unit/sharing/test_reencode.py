from __future__ import annotations

import math
import random

import pytest
import torch

from hacrl.recipe.settings import LengthNorm
from hacrl.sharing.reencode import Encoded, Learner, LeftOut, Reencoder, own_ending, source_unit
from hacrl.types import Prompt, Trajectory
from helpers_sharing import HARD_TEXTS, REAL, SMALL, rendering, tokenizer, trajectory

EXACT = tuple(name for name in (*SMALL, *REAL) if name != "char-level")
PROMPTS = {"p0": Prompt("p0", "1+1=")}


def encode(response: Trajectory, name: str = "char-level", **limits: int) -> Encoded | LeftOut:
    return Reencoder(Learner("me", rendering(name), **limits), PROMPTS).encode(response)


def response_ids(response: Trajectory, name: str = "char-level", **limits: int) -> tuple[int, ...]:
    encoded = encode(response, name, **limits)
    assert not isinstance(encoded, str)
    assert encoded.prompt_ids == rendering(name).encode_prompt(PROMPTS["p0"])
    return encoded.response_ids


def test_own_responses_keep_their_tokens_whatever_their_text() -> None:
    own = trajectory("me", text="日本", token_ids=(901, 902, 903), token_logps=(-1.0, -1.0, -1.0))
    assert response_ids(own) == (901, 902, 903)


@pytest.mark.parametrize("text", [text for text in HARD_TEXTS if text])
@pytest.mark.parametrize("name", EXACT)
def test_a_peers_text_is_written_exactly_without_eos(name: str, text: str) -> None:
    tokens = response_ids(trajectory("peer", text=text), name)
    assert rendering(name).decode_response(tokens) == text
    assert not set(rendering(name).eos_ids).intersection(tokens)


@pytest.mark.parametrize("learner", EXACT)
@pytest.mark.parametrize("source", EXACT)
def test_whatever_a_peer_may_draw_reaches_the_learner_exactly(source: str, learner: str) -> None:
    """Any tokens at all, as an untrained model draws them: broken UTF-8, special tokens, rare scripts."""
    rng = random.Random(f"{source} -> {learner}")
    vocabulary = len(tokenizer(source))
    for _ in range(50):
        drawn = [rng.randrange(vocabulary) for _ in range(rng.randrange(1, 20))]
        text = rendering(source).decode_response(drawn)
        outcome = encode(trajectory("peer", text=text, token_ids=(*drawn, 0)), learner)
        if "▁" not in text:  # the one character SentencePiece keeps for itself
            assert outcome == "empty" if not text else outcome != "drift"


def test_a_truncated_response_is_written_like_any_other() -> None:
    cut = trajectory("peer", text="12", finish_reason="length", token_ids=(5, 6), token_logps=(-1.0, -1.0))
    assert response_ids(cut) == rendering("char-level").encode_response("12")


def test_a_response_of_one_eos_becomes_the_learners_own_eos() -> None:
    only_eos = trajectory("peer", text="", token_ids=(77,), token_logps=(-0.5,))
    assert response_ids(only_eos, "byte-level") == (rendering("byte-level").eos_id,)


def test_a_peer_that_claims_a_lone_eos_for_a_text_is_taken_at_its_text() -> None:
    odd = trajectory("peer", text="12", token_ids=(77,), token_logps=(-0.5,))
    assert response_ids(odd) == rendering("char-level").encode_response("12")


def test_a_response_cut_before_any_text_teaches_nothing() -> None:
    cut = trajectory("peer", text="", token_ids=(77,), token_logps=(-0.5,), finish_reason="length")
    assert encode(cut) == "empty"


def test_a_text_the_learner_cannot_write_is_drift() -> None:
    assert encode(trajectory("peer", text="1 π"), "char-level") == "drift"
    assert encode(trajectory("peer", text="1▁2"), "metaspace") == "drift"


@pytest.mark.parametrize(
    ("limits", "outcome"),
    [
        ({"context_length": 9}, 4),
        ({"context_length": 8}, "response_too_long"),
        ({"context_length": 6}, "response_too_long"),
        ({"context_length": 5}, "prompt_too_long"),
    ],
)
def test_nothing_is_cut_to_fit(limits: dict[str, int], outcome: int | str) -> None:
    """The prompt has 5 tokens with BOS, the response 4."""
    encoded = encode(trajectory("peer", text="1234"), **limits)
    assert (encoded if isinstance(encoded, str) else len(encoded.response_ids)) == outcome


def test_peers_are_left_out_or_cut_at_their_own_limits() -> None:
    """The prompt has 5 tokens with BOS, the response 4; own responses have no such limits."""
    peer, limits = trajectory("peer", text="1234"), {"max_prompt_tokens": 3, "max_response_tokens": 2}
    assert encode(peer, max_prompt_tokens=4) == "prompt_too_long"
    assert encode(peer, max_response_tokens=3) == "response_too_long"
    whole = encode(peer)
    cut = encode(peer, truncates=True, **limits)
    assert not isinstance(whole, str)
    assert cut == Encoded(whole.prompt_ids[-3:], whole.response_ids[:2])
    assert encode(peer, truncates=True, context_length=7) == Encoded(whole.prompt_ids, whole.response_ids[:2])
    own = trajectory("me", text="1234", token_ids=(5, 6, 7, 8), token_logps=(-1.0,) * 4)
    assert encode(own, truncates=True, **limits) == Encoded(whole.prompt_ids, (5, 6, 7, 8))


def test_each_distinct_text_is_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder, seen = rendering("char-level"), []
    plain = encoder.encode_response
    monkeypatch.setattr(encoder, "encode_response", lambda text: seen.append(text) or plain(text))
    writer = Reencoder(Learner("me", encoder), PROMPTS)
    for text in ("12", "13", "12", "π", "π"):
        writer.encode(trajectory("peer", text=text))
    assert seen == ["12", "13", "π"]


# Four tokens with EOS; three are exchanged: the sum is -3, the text has 8 UTF-8 bytes.
SOURCE = trajectory(
    text="日本12", token_ids=(5, 6, 7, 2), token_logps=(-0.5, -1.5, -1.0, -4.0), finish_reason="stop"
)
LEARNER_LOGPS = torch.tensor([-0.25, -0.25, -0.5, -0.25, -1.25], dtype=torch.float64)


@pytest.mark.parametrize(
    ("norm", "log_ratio"),
    [("own", -2.5 / 5 + 3 / 3), ("learner", (-2.5 + 3) / 5), ("bytes", (-2.5 + 3) / 8)],
)
def test_the_log_ratio_in_each_unit(norm: LengthNorm, log_ratio: float) -> None:
    """The loss computes length_scale * (mean over the learner's tokens - source mean)."""
    unit = source_unit(SOURCE, len(LEARNER_LOGPS), norm)
    found = unit.length_scale * (LEARNER_LOGPS.mean().item() - unit.mean_logp)
    assert math.isclose(found, log_ratio, rel_tol=1e-12)


@pytest.mark.parametrize("norm", ["own", "learner", "bytes"])
def test_a_response_of_one_eos_is_compared_token_with_token(norm: LengthNorm) -> None:
    only_eos = trajectory(text="", token_ids=(2,), token_logps=(-0.75,))
    assert source_unit(only_eos, 1, norm) == (-0.75, 1.0)


def test_all_units_agree_where_every_byte_is_a_token() -> None:
    plain = trajectory(text="123")
    units = {source_unit(plain, 3, norm) for norm in ("own", "learner", "bytes")}
    assert units == {(plain.logp_sum / 3, 1.0)}


def stopped(
    source: str = "peer", text: str = "12", ending: str = ", ", stop: str = ",", **changes: object
) -> Trajectory:
    """A response that a stop string ended; the last of its two tokens wrote more than that."""
    ids, logps = (5, 6), (-0.5, -1.5)
    return trajectory(
        source, text=text, ending=ending, stop=stop, token_ids=ids, token_logps=logps, **changes
    )


def completed(response: Trajectory, ending: str = "") -> tuple[int, ...] | str:
    writer = Reencoder(Learner("me", rendering("char-level")), PROMPTS, ending)
    encoded = writer.encode(response, complete=True)
    return encoded if isinstance(encoded, str) else encoded.response_ids


def test_ratios_are_taken_over_all_that_a_stopped_response_wrote() -> None:
    """Both sides of the ratio are the same text: the source's tokens write the stop string as well."""
    encoder = rendering("char-level")
    assert response_ids(stopped()) == encoder.encode_response("12, ")
    assert stopped().exchanged_logps == (-0.5, -1.5)
    assert trajectory(text="12", finish_reason="stop").logp_count == 2  # of three tokens: EOS is no text
    assert source_unit(stopped(), 4, "bytes") == (-2.0 / 4, 4 / 4)
    assert response_ids(stopped(text="")) == encoder.encode_response(", ")


def test_an_imitated_response_ends_as_the_learners_own() -> None:
    encoder = rendering("char-level")
    with_eos = trajectory("peer", text="12")
    for response in (stopped(), with_eos):
        assert completed(response) == (*encoder.encode_response("12"), encoder.eos_id)
        assert completed(response, ending="=") == encoder.encode_response("12=")
    assert completed(stopped(text="")) == (encoder.eos_id,)
    assert completed(stopped(text="π")) == "drift"
    included = stopped(text="12,", ending=" ")
    assert completed(included) == completed(included, ending="=") == encoder.encode_response("12,")
    cut = trajectory("peer", text="12", finish_reason="length")
    assert completed(cut, ending="=") == encoder.encode_response("12")


def test_without_training_on_eos_nobodys_is_left() -> None:
    encoder = rendering("char-level")
    writer = Reencoder(Learner("me", encoder, trains_eos=False), PROMPTS)
    mine = trajectory("me", text="12", token_ids=(31, 32, 1), token_logps=(-0.5, -1.0, -3.0))
    cut = trajectory("me", text="12", finish_reason="length")
    alone = trajectory("me", text="", token_ids=(1,), token_logps=(-2.0,))
    for response, kept in ((mine, 2), (cut, 3), (alone, 1), (stopped("me"), 2)):
        encoded = writer.encode(response)
        assert not isinstance(encoded, str)
        assert encoded.response_ids == response.token_ids[:kept]
        assert writer.own_logps(response) == response.token_logps[:kept]
    for response in (stopped(), trajectory("peer", text="12")):
        encoded = writer.encode(response, complete=True)
        assert not isinstance(encoded, str)
        assert encoded.response_ids == encoder.encode_response("12")
    assert writer.encode(stopped(text=""), complete=True) == (writer.encode(alone)[0], (encoder.eos_id,))


def test_a_learners_ending_is_that_of_most_of_its_own_responses() -> None:
    mine = [stopped("me", sample=0), stopped("me", sample=1), trajectory("me", sample=2)]
    others = [stopped("peer", ending="=", stop="=", sample=n) for n in range(9)]
    assert own_ending([*others, *mine], "me") == ", "
    assert own_ending([*mine, trajectory("me", sample=3)], "me") == ""  # as many with EOS
    assert own_ending([trajectory("me", finish_reason="length")], "me") == ""
    assert own_ending([stopped("me", text="12,", ending=" ")], "me") == ""  # the text has the stop string
