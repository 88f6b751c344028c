"""What a comparison shows while it runs."""

import io

from rich.console import Console

from hacrl.analysis.compare import runner
from hacrl.analysis.compare.runner import ProgressDisplay
from helpers_compare import finish, plan


def test_lines_without_a_terminal_show_the_runs_and_the_time_left(tmp_path, monkeypatch):
    planned = plan(tmp_path, ["hacpo", "gspo"])
    finish(planned, "hacpo", 0, {"ada": [1.0], "bob": [1.0]})
    clock = iter([0.0, 10.0, 100.0])
    monkeypatch.setattr(runner.time, "monotonic", lambda: next(clock))
    shown = io.StringIO()
    display = ProgressDisplay(planned.runs(), Console(file=shown, width=200))
    display.running({"gspo/seed_0": 1})  # a resumed run: its first step was done before
    display.running({"gspo/seed_0": 4})  # 3 steps in 100 s; left are 4, and 4 of hacpo
    display.ended(planned.run("gspo", 0), None)
    display.ended(planned.run("gspo", 1), "ended with code 1")
    display.close()
    assert shown.getvalue().splitlines() == [
        "1 of 4 runs are finished already",
        "[2/4] gspo/seed_0 finished  about 5 min 33 s left",
        "[3/4] gspo/seed_1 failed: ended with code 1",
    ]


def test_one_bar_on_a_terminal(tmp_path):
    planned = plan(tmp_path, ["hacpo", "gspo"])
    shown = io.StringIO()
    display = ProgressDisplay(planned.runs(), Console(file=shown, width=200, force_terminal=True))
    display.running({"hacpo/seed_0": 2, "gspo/seed_0": 2})
    display.close()
    assert "0/4 runs  hacpo/seed_0, gspo/seed_0" in shown.getvalue()
    assert "25%" in shown.getvalue()
