"""The choice between fp32 and bf16: by the recipe, the device, the model's size and a measurement."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from hacrl.agents import precision
from hacrl.agents.precision import MARGIN, SMALL, Precision, Sizes, bf16_speedup, choose_precision, sizes_of
from helpers_agents import tiny_model
from helpers_train import make_agent

LARGE = Sizes(SMALL, 576, 1536)


@pytest.fixture
def speedup(monkeypatch: pytest.MonkeyPatch) -> dict[str, float | None]:
    """What the measurement finds; None: it must not be made."""
    found: dict[str, float | None] = {"is": None}

    def measured(hidden: int, feed_forward: int) -> float:
        assert (hidden, feed_forward) == (LARGE.hidden, LARGE.feed_forward)
        assert found["is"] is not None
        return found["is"]

    monkeypatch.setattr(precision, "bf16_speedup", measured)
    return found


def test_nothing_is_measured_unless_the_choice_depends_on_it(speedup: dict[str, float | None]) -> None:
    small = Sizes(SMALL - 1, 576, 1536)
    assert choose_precision("float32", "cuda", LARGE) == Precision("float32")
    assert choose_precision("bfloat16", "cpu", small) == Precision("bfloat16")
    assert choose_precision("auto", "cuda:1", small) == Precision("bfloat16")
    assert choose_precision("auto", "cpu", small) == Precision("float32")
    assert choose_precision("auto", "cpu", None) == Precision("float32")


@pytest.mark.parametrize(
    ("found", "dtype"), [(0.12, "float32"), (MARGIN - 0.01, "float32"), (MARGIN, "bfloat16")]
)
def test_large_models_on_a_cpu_take_what_is_clearly_faster(
    speedup: dict[str, float | None], found: float, dtype: str
) -> None:
    speedup["is"] = found
    assert choose_precision("auto", "cpu", LARGE) == Precision(dtype, found)


def test_the_measurement_takes_the_shortest_times_of_both_kinds_of_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a clock that only the products move: bf16 is twice as fast in decoding, four times in training."""
    clock, calls = [0.0], [0]

    def product(tokens: Tensor, weight: Tensor) -> None:
        assert tokens.dtype == weight.dtype
        assert (tokens.shape[1], tuple(weight.shape)) == (7, (11, 7))
        calls[0] += 1
        seconds = float(len(tokens))
        if tokens.dtype == torch.bfloat16:
            seconds /= 2 if len(tokens) == precision.ROWS[0] else 4
        disturbed = calls[0] % 5  # other programs make some of them slower
        clock[0] += seconds * (1 + disturbed)

    monkeypatch.setattr(precision.F, "linear", product)
    monkeypatch.setattr(precision.time, "perf_counter", lambda: clock[0])
    # Of 2 s in fp32, half of it decoding, 0.5 s + 0.25 s are left.
    assert bf16_speedup.__wrapped__(7, 11) == pytest.approx(2 / 0.75)


def test_the_measurement_runs_here() -> None:
    """Whichever way it goes on this machine, it is a number that does not say the impossible."""
    assert 1e-3 < bf16_speedup(64, 128) < 1e3


def test_sizes_are_read_without_the_weights(tmp_path: Path) -> None:
    make_agent(tmp_path / "ada", 1)
    parameters = sum(weight.numel() for weight in tiny_model_at(tmp_path / "ada").parameters())
    (tmp_path / "ada" / "model.safetensors").unlink()
    assert sizes_of(tmp_path / "ada") == Sizes(parameters, 32, 48)
    assert sizes_of(tmp_path / "nobody") is None
    tiny_model("phi").save_pretrained(tmp_path / "phi")
    found = sizes_of(str(tmp_path / "phi"))
    assert found is not None
    assert found.parameters == tiny_model("phi").num_parameters()


def tiny_model_at(path: Path) -> torch.nn.Module:
    from transformers import AutoModelForCausalLM

    model: torch.nn.Module = AutoModelForCausalLM.from_pretrained(path)
    return model
