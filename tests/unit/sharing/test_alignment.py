"""Log-probs of one tokenizer on the tokens of another: sums over common pieces of text are preserved."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hacrl.sharing.alignment import Span, common_spans, shared_out, token_ends
from helpers_sharing import HARD_TEXTS, rendering

NAMES = ("byte-level", "metaspace", "char-level")
PIECES = {1: "ab", 2: "c", 3: "a", 4: "bc", 5: "", 6: "def", 9: ""}


def decode(ids: tuple[int, ...]) -> str:
    return "".join(PIECES[i] for i in ids)


def aligned(first: tuple[int, ...], second: tuple[int, ...], text: str, ended: bool = False) -> list[Span]:
    return common_spans(*(token_ends(decode, ids, text, ended) for ids in (first, second)))


def test_spans_are_as_small_as_both_cuts_allow() -> None:
    """ab|c|def and a|bc|def, then an EOS each: the first three letters belong together."""
    found = aligned((1, 2, 6, 9), (3, 4, 6, 9), "abcdef", ended=True)
    assert found == [
        Span(range(2), range(2)),
        Span(range(2, 3), range(2, 3)),
        Span(range(3, 4), range(3, 4)),
    ]
    shares = shared_out((-1.0, -3.0, -0.5, -0.1), (-2.0, -4.0, -0.25, -0.2), found)
    assert shares == pytest.approx((-2.0, -4.0, -0.25, -0.2))  # -6 for -4: each token of the two gets -1
    assert shared_out((-5.0, -0.01), (-3.0, -2.01), found[:1]) == pytest.approx((-5.0, -0.01))  # they agree


def test_tokens_without_text_belong_to_a_neighbour() -> None:
    assert aligned((5, 1, 5, 2), (3, 4), "abc") == [Span(range(4), range(2))]
    assert aligned((5, 6, 5), (6,), "def") == [Span(range(3), range(1))]
    assert aligned((5, 9), (9,), "", ended=True) == [Span(range(2), range(1))]


def test_a_decoder_whose_pieces_do_not_add_up_has_one_span() -> None:
    def spaced(ids: tuple[int, ...]) -> str:
        return " ".join(PIECES[i] for i in ids)

    text = spaced((1, 2) * 9)
    ends = token_ends(spaced, (1, 2) * 9, text, ended=False)
    assert ends == {0: 0, 2: 1, len(text): 18}


@pytest.mark.parametrize("text", HARD_TEXTS)
@pytest.mark.parametrize("learner", NAMES)
@pytest.mark.parametrize("scorer", NAMES)
@pytest.mark.parametrize("ended", [True, False])
def test_sums_are_preserved_over_every_span(text: str, learner: str, scorer: str, ended: bool) -> None:
    sides = []
    for encoder in (rendering(learner), rendering(scorer)):
        tokens = encoder.encode_response(text)
        if encoder.decode_response(tokens) != text:
            return  # it cannot write this text, and would not be asked
        ids = (*tokens, encoder.eos_id) if ended else tokens
        sides.append((ids, token_ends(encoder.decode_response, ids, text, ended)))
    (first, ends), (second, others) = sides
    found = common_spans(ends, others)
    assert [i for span in found for i in span.learner] == list(range(len(first)))
    assert [i for span in found for i in span.scorer] == list(range(len(second)))
    own, scores = ([-0.1 - (7 * i % 5) for i in range(len(ids))] for ids in (first, second))
    shares = shared_out(own, scores, found)
    for span in found:
        assert sum(shares[i] for i in span.learner) == pytest.approx(sum(scores[i] for i in span.scorer))
    if learner == scorer:
        whole = text.isascii()  # a character of several tokens is one span
        assert not whole or shares == tuple(scores)
    if {learner, scorer} <= {"byte-level", "char-level"} and text.isascii() and text:
        assert len(found) > len(text) / 5, "pieces, not the whole text"


@given(
    st.lists(st.floats(-20, 0), min_size=1, max_size=8), st.lists(st.floats(-20, 0), min_size=1, max_size=8)
)
def test_one_span_shares_the_difference_equally(own: list[float], scores: list[float]) -> None:
    shares = shared_out(own, scores, [Span(range(len(own)), range(len(scores)))])
    assert sum(shares) == pytest.approx(sum(scores), abs=1e-9)
    differences = [share - logp for share, logp in zip(shares, own, strict=True)]
    assert differences == pytest.approx([differences[0]] * len(own), abs=1e-9)
