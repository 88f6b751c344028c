"""Thresholds crossed for long enough are told once, with what to change."""

from hacrl.training.alerts import AUDIT_PATIENCE, PATIENCE, Alerts


def told(alerts, steps, **metrics):
    """All messages of so many steps with the same measurements."""
    return [message for _ in range(steps) for message in alerts._beyond(metrics)]


def test_a_threshold_is_told_once_when_its_patience_is_over():
    alerts = Alerts()
    dead = {"cross/ada->eve/dead": 0.97}
    assert told(alerts, PATIENCE - 1, **dead) == []
    (message,) = told(alerts, 5, **dead)
    assert message.startswith(
        "ada->eve: 97% of the source's responses have no gradient (at most 0.9 expected)"
    )
    assert "raise method.delta" in message
    assert message.endswith("10 times in a row.")


def test_a_good_step_starts_the_count_again_and_a_missing_one_does_not():
    alerts = Alerts()
    bad, good = {"cross/a->b/cosine": -0.2}, {"cross/a->b/cosine": 0.2}
    told(alerts, AUDIT_PATIENCE - 1, **bad)
    told(alerts, 4, **{"cross/a->b/omega": 1.0})  # steps that are not audited
    assert len(told(alerts, 1, **bad)) == 1
    told(alerts, 1, **good)
    assert told(alerts, AUDIT_PATIENCE - 1, **bad) == []
    resumed = Alerts()
    resumed.load_state_dict(alerts.state_dict())
    assert len(told(resumed, 1, **bad)) == 1


def test_a_bias_counts_in_both_directions_and_nan_not_at_all():
    alerts = Alerts()
    assert len(told(alerts, PATIENCE, **{"agent/ada/baseline_bias": -0.08})) == 1
    assert told(alerts, PATIENCE, **{"agent/eve/baseline_bias": float("nan")}) == []
    assert told(alerts, PATIENCE, **{"agent/eve/baseline_bias": 0.04}) == []
