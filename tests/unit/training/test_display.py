import io
from types import SimpleNamespace

from rich.console import Console

from hacrl.methods.hacpo import Hacpo
from hacrl.training.display import LiveDisplay, PlainDisplay, make_display

TEAM = SimpleNamespace(
    names=("ada", "bob"),
    topology={"ada": ("bob",), "bob": ()},
    recipe=SimpleNamespace(steps=40),
    method=Hacpo(),
)
METRICS = {
    "agent/ada/reward": 0.25,
    "agent/ada/accuracy": 0.5,
    "agent/ada/completions/mean_length": 7.25,
    "time/tokens_per_second/ada": 12345.6,
    "cross/bob->ada/inside": 0.31,
    "cross/bob->ada/omega": 1.25,
    "agent/bob/reward": 0.75,
}


def shown(make, terminal):
    stream = io.StringIO()
    display = make(Console(file=stream, force_terminal=terminal, width=120))
    display.start(TEAM, 0)
    display.status("evaluating ada")
    for step in range(1, 41):
        display.step(step, METRICS)
    display.warn("[brackets] stay")
    display.close()
    return stream.getvalue()


def test_plain_lines_are_few_and_have_no_control_codes():
    text = shown(PlainDisplay, terminal=False)
    assert text.count("step ") == 20
    assert "step 40/40  reward: ada 0.250  bob 0.750" in text
    assert "warning: [brackets] stay" in text
    assert "\x1b" not in text


def test_the_live_table_shows_each_agent():
    text = shown(LiveDisplay, terminal=True)
    for figure in ("0.250", "50.0%", "7.2", "12,346", "31%", "1.25", "40/40", "[brackets] stay"):
        assert figure in text


def test_the_display_follows_the_terminal():
    assert isinstance(make_display(Console(file=io.StringIO())), PlainDisplay)
    assert isinstance(make_display(Console(file=io.StringIO(), force_terminal=True)), LiveDisplay)
