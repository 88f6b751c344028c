"""A symptom that lasts long enough is reported once, with what to change."""

from types import SimpleNamespace

import pytest

from hacrl.methods.commons import Commons
from hacrl.methods.hacpo import Hacpo
from hacrl.symptoms import AUDIT_PATIENCE, PATIENCE, with_own
from hacrl.training.alerts import RETIRE_AFTER, Alerts, NoAgentLeft


def new(method=Hacpo):
    return Alerts(with_own(method.symptoms))


def warnings(alerts, steps, **metrics):
    """All messages of so many steps with the same measurements."""
    return [message for _ in range(steps) for message in alerts.lasting(metrics)]


def test_a_symptom_is_reported_once_when_its_patience_is_over():
    alerts = new()
    closed = {"cross/ada->eve/zero_gradient": 0.97}
    assert warnings(alerts, PATIENCE - 1, **closed) == []
    (message,) = warnings(alerts, 5, **closed)
    assert message.startswith(
        "ada->eve: 97% of the source's responses have no gradient (at most 0.9 expected)"
    )
    assert "raise method.delta" in message
    assert message.endswith("10 times in a row.")


def test_the_advice_is_on_settings_that_the_method_has():
    (message,) = warnings(new(Commons), PATIENCE, **{"cross/ada->eve/zero_gradient": 0.97})
    assert "method.delta" not in message


def test_a_good_step_starts_the_count_again_and_a_missing_one_does_not():
    alerts = new()
    bad, good = {"cross/a->b/cosine": -0.2}, {"cross/a->b/cosine": 0.2}
    warnings(alerts, AUDIT_PATIENCE - 1, **bad)
    warnings(alerts, 4, **{"cross/a->b/omega": 1.0})  # steps that are not audited
    assert len(warnings(alerts, 1, **bad)) == 1
    warnings(alerts, 1, **good)
    assert warnings(alerts, AUDIT_PATIENCE - 1, **bad) == []
    resumed = new()
    resumed.load_state_dict(alerts.state_dict())
    assert len(warnings(resumed, 1, **bad)) == 1


def test_a_bias_counts_in_both_directions_and_nan_not_at_all():
    alerts = new()
    assert len(warnings(alerts, PATIENCE, **{"agent/ada/baseline_bias": -0.08})) == 1
    assert warnings(alerts, PATIENCE, **{"agent/eve/baseline_bias": float("nan")}) == []
    assert warnings(alerts, PATIENCE, **{"agent/eve/baseline_bias": 0.04}) == []


class TwoAgents:
    """What alerts look at in a team."""

    def __init__(self):
        self.retired = {}

    @property
    def learners(self):
        return [SimpleNamespace(name=name) for name in ("ann", "bob") if name not in self.retired]


def test_when_the_updates_of_all_agents_keep_failing_the_run_ends_with_their_causes():
    team, alerts = TwoAgents(), new()
    failed = {name: f"agent {name!r}: loss nan" for name in ("ann", "bob")}
    for step in range(1, RETIRE_AFTER):
        alerts.observe(team, SimpleNamespace(step=step, failures=failed), {})
    with pytest.raises(NoAgentLeft, match=r"no agent is left .*'ann': loss nan; .*'bob': loss nan"):
        alerts.observe(team, SimpleNamespace(step=RETIRE_AFTER, failures=failed), {})
