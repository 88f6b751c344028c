import pytest

from benchmarks.memory import peak_megabytes
from benchmarks.trl import side_process
from benchmarks.trl.side_process import measure_memory
from helpers_benchmarks import TINY


def test_the_peak_follows_what_is_allocated() -> None:
    before = peak_megabytes()
    block = bytearray(b"x") * (int(before + 64) * 2**20)  # larger than the peak so far, whatever it is
    assert peak_megabytes() >= len(block) / 2**20


@pytest.mark.slow
def test_a_side_is_measured_in_a_process_of_its_own() -> None:
    found = measure_memory(TINY, "fused")
    assert found.peak > found.after_imports > 50


def test_a_failed_measurement_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side_process, "__name__", "benchmarks.trl.missing")
    with pytest.raises(RuntimeError, match=r"the process of fused failed[\s\S]*benchmarks.trl.missing"):
        measure_memory(TINY, "fused")
