"""What a comparison reports besides accuracy."""

import json
import math

from hacrl.analysis.compare.besides import besides, last_means
from hacrl.analysis.compare.report import report
from hacrl.analysis.compare.results import make_results
from helpers_compare import read
from helpers_suite import finish_all, suite

SOLVED = {"hacpo": (30, 31, 30), "gspo": (10, 11, 10), "gspo_x2": (10, 18, 2)}


def test_metrics_are_means_of_the_last_steps_that_have_them():
    lines = [
        {"step": step, "agent/a/gate/accepted": step / 10, "cross/a->b/inside": math.nan, "time/step": 3.0}
        for step in range(10)
    ]
    lines[-1]["cross/a->b/ratio/mean"] = 0.123456
    assert last_means(lines) == {"agent/a/gate/accepted": 0.7, "cross/a->b/ratio/mean": 0.1235}


def test_what_was_measured_is_averaged_over_seeds_and_shown_by_agent(tmp_path):
    plan = suite(tmp_path).plan("short", tmp_path / "out")
    finish_all(plan, SOLVED)
    first, second, *_ = (plan.run("hacpo", seed).directory for seed in plan.seeds)
    for directory, kl in ((first, 0.25), (second, 0.75)):
        summary = json.loads(directory.summary.read_text())
        learner, source = summary["agents"]
        summary["agents"][learner]["drift"] = {"kl": kl}
        directory.summary.write_text(json.dumps(summary))
    line = {
        "step": 1,
        f"cross/{source}->{learner}/inside": 0.5,
        f"agent/{source}/completions/mean_length": 9.0,
        f"agent/{learner}/kl": 0.0,  # the penalty in the loss, not the distance from the start
    }
    first.metrics.write_text(json.dumps(line) + "\n")
    found = besides(outcomes := read(plan))
    assert found["hacpo"] == {
        learner: {"kl": 0.5, "inside": 0.5},
        source: {"completions/mean_length": 9.0},
    }
    assert not any(found["gspo"].values())
    text = report(make_results(outcomes, ("gspo",), {}, []))
    assert "| method | agent | KL from the start | length | inside the window |" in text
    assert f"| hacpo | {learner} | 0.5 |  | 0.5 |" in text
