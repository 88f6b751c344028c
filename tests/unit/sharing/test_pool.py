from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from hacrl.sharing.pool import TrajectoryPool
from helpers_sharing import trajectory


def pool() -> TrajectoryPool:
    """Agents with questions of their own: a answers p0 and p1, b answers p1 and p2."""
    asked = {"a": ["p0", "p1"], "b": ["p1", "p2"]}
    return TrajectoryPool(1, asked, {"a": "weights-a", "b": "weights-b"})


@pytest.mark.parametrize(
    ("sender", "changes", "cause", "reason"),
    [
        ("x", {"source": "x"}, "unknown_agent", "source 'x' is not one of"),
        ("b", {}, "impostor", "sent by 'b' as a sample of 'a'"),
        ("a", {"step": 2}, "wrong_step", "drawn in step 2, this is step 1"),
        ("a", {"fingerprint": "old"}, "wrong_fingerprint", "'old', expected 'weights-a'"),
        ("a", {"prompt_id": "p2"}, "wrong_prompt", "'a' was not asked prompt 'p2'"),
        ("a", {"token_ids": (), "token_logps": ()}, "empty", "at least one token"),
        ("a", {"token_ids": (1, 2)}, "length_mismatch", "2 tokens but 3 log-probs"),
        ("a", {"reward": math.nan}, "bad_number", "reward nan"),
        ("a", {"reward": math.inf}, "bad_number", "reward inf"),
        ("a", {"token_logps": (-1.0, math.nan, -1.0)}, "bad_number", r"token_logps[1] = nan"),
        ("a", {"token_logps": (-math.inf, -1.0, -1.0)}, "bad_number", r"token_logps[0] = -inf"),
        ("a", {"token_logps": (-1.0, -1.0, 0.5)}, "bad_number", r"token_logps[2] = 0.5"),
    ],
)
def test_what_is_wrong_is_refused_with_its_reason(
    sender: str, changes: dict[str, Any], cause: str, reason: str
) -> None:
    bad = trajectory(**changes)
    filled = pool()
    (rejection,) = filled.add(sender, [bad])
    assert (rejection.trajectory_id, rejection.cause) == (bad.id, cause)
    assert reason in rejection.reason
    assert filled.rejected == {cause: 1}
    assert filled.trajectories == ()


def test_a_bad_one_does_not_keep_out_the_others() -> None:
    filled = pool()
    good = [trajectory(sample=n) for n in range(3)]
    rejections = filled.add("a", [good[0], replace(good[1], reward=math.nan), good[2]])
    assert [rejection.cause for rejection in rejections] == ["bad_number"]
    assert filled.trajectories == (good[0], good[2])


def test_the_first_of_two_samples_with_one_number_is_kept() -> None:
    filled = pool()
    filled.add("a", [trajectory(text="first")])
    assert filled.add("a", [trajectory(text="second")])[0].cause == "duplicate"
    assert [kept.text for kept in filled.trajectories] == ["first"]
    assert filled.add("a", [trajectory(sample=1, text="first")]) == ()


def test_unscored_responses_and_rounding_above_zero_are_no_errors() -> None:
    assert pool().add("a", [trajectory(reward=None, token_logps=(1e-6, 0.0, -1.0))]) == ()


def test_the_order_of_arrival_does_not_matter() -> None:
    one, other = pool(), pool()
    samples = [trajectory("a", "p0", 10), trajectory("a", "p0", 9), trajectory("a", "p1")]
    one.add("a", samples)
    one.add("b", [trajectory("b", "p2")])
    other.add("b", [trajectory("b", "p2")])
    other.add("a", reversed(samples))
    assert one.trajectories == other.trajectories
    assert [t.sample for t in one.trajectories if t.prompt_id == "p0"] == [9, 10]


def test_every_agent_needs_a_fingerprint() -> None:
    with pytest.raises(ValueError, match="must name the same agents"):
        TrajectoryPool(1, {"a": ["p0"]}, {})
