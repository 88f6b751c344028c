"""What commands print: nothing of the user's is markup or reaches the terminal as a control code."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from hacrl.analysis.tables import PlainTable, TextTable, print_tables
from hacrl.cli.app import app
from hacrl.cli.common import say, summary_table, user_errors
from hacrl.cli.streams import _outliving
from hacrl.runs.files import StorageError
from hacrl.training.display import LiveDisplay

NASTY = "a[/b] [red]x[/red] :boom: \x1b[31m"
SHOWN = "a[/b] [red]x[/red] :boom: \\x1b[31m"


def test_say_and_tables_show_brackets_as_they_are(capsys):
    say(NASTY, (NASTY, "bold"))
    table = PlainTable(NASTY, NASTY)
    table.add_column(NASTY)
    table.add_row(NASTY)
    Console(width=300).print(table)
    print_tables([TextTable(NASTY, (NASTY, "n"), [(NASTY, "1")])], markdown=False)
    out = capsys.readouterr().out
    assert out.count(SHOWN) + out.replace("\n", "").count(SHOWN) >= 2 + 4 + 3
    assert "\x1b" not in out


def test_every_line_of_an_error_is_cleaned(capsys):
    import typer

    with pytest.raises(typer.Exit) as end, user_errors():
        raise StorageError(f"{NASTY}\nsecond line")
    assert end.value.exit_code == 2
    assert capsys.readouterr().err == f"error: {SHOWN}\nsecond line\n"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            FileNotFoundError(2, "No such file or directory", "x[/b].yaml"),
            "x[/b].yaml: No such file or directory",
        ),
        (MemoryError(), "not enough memory"),
        (ValueError(), "ValueError"),
    ],
)
def test_errors_of_the_system_in_words(error, message, capsys):
    import typer

    with pytest.raises(typer.Exit), user_errors():
        raise error
    assert capsys.readouterr().err == f"error: {message}\n"


def test_our_own_mistakes_keep_their_traceback():
    with pytest.raises(KeyError), user_errors():
        raise KeyError("a bug")


def test_a_summary_with_a_tasks_nasty_name_is_shown():
    share = {"mean": 0.5, "low": 0.4, "high": 0.6, "problems": 4}
    found = {"greedy": share, "mean_at_k": None, "pass_at_k": None, "samples": 0}
    agent = {"before": {}, "after": {NASTY: found}, "rollouts": 3}
    summary = {"method": "gspo", "task": NASTY, "steps": 3, "agents": {"a": agent}}
    console = Console(width=300, file=io.StringIO())
    console.print(summary_table(summary))
    assert SHOWN in console.file.getvalue()


def test_the_live_display_shows_a_status_as_it_is():
    console = Console(width=300, file=io.StringIO(), force_terminal=True)
    display = LiveDisplay(console)
    display.status("evaluating a on o[/b]")
    console.print(display._bar)
    assert "o[/b]" in console.file.getvalue()


def test_a_recipe_with_a_nasty_name_is_refused_by_that_name(tmp_path: Path):
    for name in ("o[/b].yaml", "[red].yaml"):
        result = CliRunner().invoke(app, ["doctor", str(tmp_path / name)])
        assert result.exit_code == 2
        assert f"{name}: 1 problem" in result.output


def test_the_path_of_a_report_is_printed_as_it_is(tmp_path: Path):
    run = tmp_path / "run[/b]"
    run.mkdir(parents=True)
    recipe = {"agents": [{"name": "a", "model": "m"}], "method": {"name": "gspo"}, "task": {"name": "t"}}
    (run / "config.json").write_text(json.dumps({"recipe": recipe | {"seed": 0, "steps": 5}, "versions": {}}))
    result = CliRunner().invoke(app, ["report", str(run)])
    assert (result.exit_code, result.output.strip()) == (0, str(run / "report.html"))


def test_a_stream_outlives_its_reader_and_prints_what_its_encoding_lacks():
    reading, writing = os.pipe()
    with os.fdopen(writing, "w", encoding="ascii") as pipe:
        stream = _outliving(pipe)
        print("± \udcff", file=stream, flush=True)
        assert os.read(reading, 100) == b"\\xb1 \\udcff\n"
        os.close(reading)
        for _ in range(3):
            print("nobody reads this", file=stream, flush=True)
