import pytest

from benchmarks.verifiers import Rates, exact_rate, math_rate, rate_table


def test_right_responses_are_measured() -> None:
    pytest.importorskip("math_verify")
    assert exact_rate(100) > 0
    assert math_rate(8, group=1) > 0
    assert math_rate(8, group=8) > 0


def test_every_rate_stands_beside_its_target() -> None:
    rows = rate_table(Rates(exact=282_821.4, math=287.0, math_groups=412.3)).rows
    assert [row[1:] for row in rows] == [("282,821", "20,000"), ("287", "200"), ("412", "200")]
