from __future__ import annotations

import ctypes

import pytest
import torch

from hacrl.agents.memory_use import bytes_in_use, give_back

CPU = torch.device("cpu")


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="needs glibc")
def test_freed_memory_goes_back_to_the_system() -> None:
    """The last of many small tensors keeps glibc from returning the freed ones before it."""
    tensors = [torch.ones(16_000) for _ in range(4000)]
    last, all_of_them = tensors[-1], bytes_in_use(CPU)
    del tensors
    give_back(CPU)
    assert bytes_in_use(CPU) < all_of_them - 200e6
    assert last.sum() == 16_000


def test_other_devices_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", pytest.fail)
    give_back(torch.device("meta"))
