"""`hacrl eval`: the options reach task and agent, and single responses are shown and written."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from hacrl.agents.policy import Policy
from hacrl.cli.app import app
from hacrl.cli.responses import ADVICE, CUT_OFF, NO_ANSWER, WRONG, explanation, shown, verdict
from hacrl.rewards.verifiers import VERIFIERS
from hacrl.training.evaluation import ScoredResponse
from hacrl.types import Prompt
from helpers_train import make_agent


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_agent(tmp_path_factory.mktemp("agents") / "ada", 0))


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["eval", *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def test_every_response_is_written_with_what_was_extracted(model: str, tmp_path: Path) -> None:
    file = tmp_path / "responses.jsonl"
    options = ("--max-new-tokens", "6", "--samples", "2", "--responses", str(file), "--show", "2")
    output = run(model, "--task", "digits", "--set", "test=30", "--set", "train=30", *options)
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(rows) == 30 * 3  # the task's own setting: 30 test prompts
    assert [row["greedy"] for row in rows] == [True] * 30 + [False] * 60
    assert {row["reward"] for row in rows} == {0.0}
    for row in rows:
        assert row["extracted"] == (row["response"].strip() or None)
        ended = NO_ANSWER if row["extracted"] is None else WRONG
        assert row["verdict"] == (CUT_OFF if row["finish_reason"] == "length" else ended)
    for row in rows[:2]:
        assert f"prompt     {row['prompt']}\nresponse   {row['response']}\n" in output
        assert f"answer     {row['answer']}\n" in output
    assert output.count("prompt     ") == 2
    cut = sum(row["finish_reason"] == "length" for row in rows[:30])
    assert "None of the 30 greedy responses counted:" in output
    assert f"  {cut:>5}  cut off at the token limit. If they are unfinished, raise --max-new-tokens" in output


def test_prompt_and_stop_options_reach_the_agent(model: str, tmp_path: Path) -> None:
    found = {}
    task = ("--task", "sort", "--set", "test=20", "--set", "train=20", "--max-new-tokens", "12")
    for name, options in (
        ("plain", []),
        ("template", ["--prompt-template", r"1\n{prompt}"]),
        ("stop", ["--stop", "VY", "--stop", "q"]),
    ):
        file = tmp_path / f"{name}.jsonl"
        run(model, *task, "--responses", str(file), *options)
        found[name] = [json.loads(line) for line in file.read_text().splitlines()]
    texts = {name: [row["response"] for row in rows] for name, rows in found.items()}
    assert texts["template"] != texts["plain"]
    assert texts["stop"] != texts["plain"]
    for short, whole in zip(texts["stop"], texts["plain"], strict=True):
        assert whole.startswith(short)
        assert "VY" not in short
        assert "q" not in short


def test_a_large_model_computes_in_what_auto_chooses(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in training; a wish is not measured."""
    chosen = []
    load = Policy.load

    def loaded(*arguments: Any, **options: Any) -> Policy:
        chosen.append(options["dtype"])
        return load(*arguments, **options)

    monkeypatch.setattr(Policy, "load", loaded)
    monkeypatch.setattr("hacrl.agents.precision.SMALL", 1)
    monkeypatch.setattr("hacrl.agents.precision.bf16_speedup", lambda *_: 2.0)
    words = ["--task", "sort", "--set", "test=2", "--set", "train=2"]
    words += ["--max-new-tokens", "2", "--samples", "0"]
    run(model, *words)
    run(model, *words, "--dtype", "float32")
    assert chosen == [torch.bfloat16, torch.float32]


def test_a_pipe_is_not_replaced_by_responses(model: str, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    options = ["--task", "digits", "--prompts", "2", "--max-new-tokens", "2", "--responses", str(pipe)]
    result = CliRunner().invoke(app, ["eval", model, *options])
    assert result.exit_code == 2
    assert f"{pipe} is not a regular file" in result.output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--set", "tests=30"], "wrong settings: tests"),
        (["--set", "test"], "expected key=value"),
        (["--prompt-template", "no place"], "prompt_template: expected {prompt} exactly once"),
        (["--stop", ""], "sampling.stop.0: expected text that is not empty"),
        (["--system-prompt", "Be brief."], "system_prompt is for a chat template"),
    ],
)
def test_mistakes_name_the_setting(model: str, options: list[str], message: str) -> None:
    result = CliRunner().invoke(app, ["eval", model, "--task", "digits", *options])
    assert result.exit_code == 2
    assert message in result.output


def response(text: str, reward: float | None = 0.0, finish: str = "stop", **more: object) -> ScoredResponse:
    prompt = Prompt("p", "How many?", columns={"answer": "12"})
    cause = "timeout" if reward is None else None
    return ScoredResponse(prompt, True, 0, text, finish, reward, cause)  # type: ignore[arg-type]


def test_what_a_response_looks_like() -> None:
    numeric = VERIFIERS["numeric"]
    cases = {
        "right": response("It is 12.", 1.0),
        "reward 0.5": response("It is 12.", 0.5),
        CUT_OFF: response("It is 1", finish="length"),
        NO_ANSWER: response("I do not know."),
        WRONG: response("It is 13."),
        "could not be scored: timeout": response("12", None),
    }
    for expected, found in cases.items():
        assert verdict(found, numeric.extracted(found.text)) == expected
    wrong = [cases[key] for key in (CUT_OFF, NO_ANSWER, WRONG)]
    assert list(explanation([*wrong, wrong[1]], numeric)) == [
        "None of the 4 greedy responses counted:",
        f"      2  no answer found. {ADVICE[NO_ANSWER]}",
        f"      1  cut off at the token limit. {ADVICE[CUT_OFF]}",
        "      1  wrong.",
    ]
    assert list(explanation(list(cases.values()), numeric)) == []


def test_a_response_is_harmless_for_the_terminal_and_shows_its_end() -> None:
    lines = list(shown([response("\x1b[31m" + "x" * 1000 + "\n#### 13")], VERIFIERS["numeric"]))
    assert "\x1b" not in "".join(lines)
    assert lines[1].endswith(r"\n#### 13")
    assert lines[2:5] == ["extracted  13", "answer     12", "           wrong"]


@pytest.mark.parametrize(
    ("verifier", "text", "extracted"),
    [
        ("exact", " 12 \n", "12"),
        ("boxed", r"so \boxed{3} or \boxed{4}", "4"),
        ("boxed", "4", None),
        ("numeric", "12 apples\n#### 1,300", "1300"),
        ("choice", "the answer is (b)", "B"),
        ("math", r"Thus $x = \frac{1}{2}$.", r"x = \frac{1}{2}"),
        ("math", "", None),
    ],
)
def test_what_is_extracted(verifier: str, text: str, extracted: str | None) -> None:
    assert VERIFIERS[verifier].extracted(text) == extracted
