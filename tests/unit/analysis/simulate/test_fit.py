import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hacrl.analysis.simulate.fit import fit
from hacrl.analysis.simulate.hardware import Cost
from hacrl.analysis.simulate.work import Work

WORKS = [Work(1e9, 2e7, 10), Work(3e9, 1e7, 40), Work(2e9, 9e7, 25), Work(5e8, 3e7, 400), Work(1e10, 1e8, 50)]
AMOUNTS = [(work.flops, work.bytes, work.passes) for work in WORKS]
COSTS = st.sampled_from([0.0, 0.3, 1.0, 7.0])


@given(COSTS, COSTS, COSTS)
def test_known_costs_are_found_again(flop: float, byte: float, layer: float):
    assume(flop + byte + layer > 0)
    true = Cost(flop * 1e-11, byte * 1e-10, layer * 1e-5)
    found = fit(AMOUNTS, [true.seconds(work) for work in WORKS])
    assert found[0] == pytest.approx(true.per_flop, abs=1e-17)
    assert found[1] == pytest.approx(true.per_byte, abs=1e-16)
    assert found[2] == pytest.approx(true.per_pass, abs=1e-11)


def test_no_cost_is_negative():
    found = fit(AMOUNTS, [0.1, 0.1, 0.01, 0.3, 0.2])  # more bytes, less time
    assert min(found) >= 0
    assert max(found) > 0
