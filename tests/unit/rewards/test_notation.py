from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hacrl.rewards.notation import as_number, compact, tidy

whole = st.integers(-(10**15), 10**15)


@given(whole)
def test_whole_numbers_in_every_spelling(value: int) -> None:
    for text in (
        f"{value}",
        f"{value:,}",
        f"{value:,}".replace(",", r",\!"),
        f"${value}$",
        rf"\({value}\).",
        f"{value}.0",
    ):
        assert as_number(tidy(text)) == value


@given(whole, st.integers(1, 10**6))
def test_fractions_in_every_spelling(top: int, bottom: int) -> None:
    sign, size = "-" if top < 0 else "", abs(top)
    for text in (rf"\frac{{{top}}}{{{bottom}}}", rf"{sign}\dfrac{{{size}}}{{{bottom}}}", f"{top}/{bottom}"):
        assert as_number(tidy(text)) == Fraction(top, bottom)


@given(st.integers(1, 999), st.integers(0, 99), st.integers(-30, 30))
def test_scientific_notation(mantissa: int, decimals: int, power: int) -> None:
    number = f"{mantissa}.{decimals:02d}"
    expected = Fraction(number) * Fraction(10) ** power
    for text in (f"{number}e{power}", rf"{number} \times 10^{{{power}}}", rf"{number}\cdot 10^{{{power}}}"):
        assert as_number(tidy(text)) == expected


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r"1\frac{4}{5}", Fraction(9, 5)),
        (r"-2\frac12", Fraction(-5, 2)),
        ("1 1/2", Fraction(3, 2)),
        (r"\frac9{19}", Fraction(9, 19)),
        (".35", Fraction(7, 20)),
        (r"\$32,\!348", Fraction(32348)),
        (r"6\,000\,000", Fraction(6_000_000)),
        ("-$5", Fraction(-5)),
        ("10^6", Fraction(10**6)),
        (r"15\mbox{ cm}^2", Fraction(15)),
        ("12 square units", Fraction(12)),
        (r"106^{\circ}", Fraction(106)),
    ],
)
def test_numbers_with_decoration(text: str, value: Fraction) -> None:
    assert as_number(tidy(text)) == value


@pytest.mark.parametrize(
    "text", ["1,2", "x", "", "1/0", r"\frac{1}{0}", "10^{999999999}", "9" * 5000, "1e999999999", "2 3"]
)
def test_text_that_is_not_a_plain_number(text: str) -> None:
    assert as_number(tidy(text)) is None


def test_tidying_keeps_what_matters() -> None:
    assert tidy(r"\text{east}") == "east"
    assert tidy("2k") == "2k"
    assert tidy(r"3\text{ m}") == tidy("3 cm") == tidy("3cm^2") == "3"
    assert tidy("3 m") == "3 m"
    assert compact(r"\pi r") != compact(r"\pir")
    assert compact(tidy(r"\left( 3, \dfrac{\pi}{2} \right)")) == compact(tidy(r"(3,\frac{\pi}{2})"))
