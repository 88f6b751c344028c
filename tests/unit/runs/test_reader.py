"""Every file of a run directory is read in one place; what is wrong is named by file and line."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from hacrl.runs.checkpoints import CheckpointStore
from hacrl.runs.files import StorageError
from hacrl.runs.reader import RunReader
from hacrl.symptoms import COMMON, Symptom
from helpers_checkpoint import assert_holds, save_steps

RECIPE: dict[str, Any] = {
    "agents": [{"name": "eve", "model": "m"}, {"name": "ada", "model": "n"}],
    "method": {"name": "hacpo"},
    "task": {"name": "digits"},
    "seed": 3,
}


SUMMARY: dict[str, Any] = {"method": "hacpo", "task": "digits", "steps": 2, "seconds": 1.5, "agents": {}}


def test_the_rules_of_symptoms_come_back(tmp_path: Path) -> None:
    rules = [asdict(symptom) for symptom in COMMON]
    config = {"recipe": RECIPE, "versions": {}, "symptoms": rules}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert [Symptom(**rule) for rule in RunReader(tmp_path).symptoms] == list(COMMON)
    write_config(tmp_path)
    assert RunReader(tmp_path).symptoms == []


def with_recipe(**changes: Any) -> str:
    return json.dumps({"recipe": RECIPE | changes, "versions": {}})


def with_symptom(**changes: Any) -> str:
    return json.dumps({"recipe": RECIPE, "versions": {}, "symptoms": [asdict(COMMON[0]) | changes]})


def write_config(path: Path, **changes: Any) -> None:
    (path / "config.json").write_text(json.dumps({"recipe": RECIPE | changes, "versions": {"hacrl": "1"}}))


def test_the_small_files_of_a_run(tmp_path: Path) -> None:
    write_config(tmp_path)
    run = RunReader(tmp_path)
    assert (run.recipe, run.versions) == (RECIPE, {"hacrl": "1"})
    assert (run.agents, run.method) == (["ada", "eve"], "hacpo")
    assert (run.metrics, run.warnings, run.summary) == ([], [], None)
    with pytest.raises(StorageError, match=r"is not finished: it has no summary\.json"):
        _ = run.final_summary
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "x": 0.5}\n{"step": 2, "x"')
    (tmp_path / "warnings.jsonl").write_text('{"step": 1, "message": "flat"}\n')
    (tmp_path / "summary.json").write_text(json.dumps(SUMMARY))
    (tmp_path / "evaluations").mkdir()
    (tmp_path / "evaluations" / "step_000004.json").write_text('{"ada": {}}')
    run = RunReader(tmp_path)
    assert run.metrics == [{"step": 1, "x": 0.5}]  # the second line is still being written
    assert run.warnings == [{"step": 1, "message": "flat"}]
    assert run.summary == run.final_summary == SUMMARY
    assert run.evaluation(4) == {"ada": {}}


def test_a_directory_without_a_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        StorageError, match=r"holds no run \(no config\.json\): give the --out of hacrl train"
    ):
        _ = RunReader(tmp_path).recipe


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", r"config\.json is not JSON"),
        ("[]", r"config\.json is not a JSON object"),
        ("{}", r"config\.json is not the configuration of a run: it has no recipe"),
        ("[" * 100_000, r"config\.json is not JSON: nested more than 64 levels deep"),
        ('{"a": ' + "[" * 70 + "]" * 70 + "}", r"config\.json is not JSON: nested more than 64 levels deep"),
        ('{"x": NaN}', r"config\.json is not JSON: NaN is not a number"),
        ('{"x": "\0"}', r"config\.json is not JSON: Invalid control character"),
        ('{"recipe": 3}', "recipe: .*valid dictionary"),
        (json.dumps({"recipe": RECIPE, "versions": {}, "symptoms": [{}]}), r"symptoms\.0\.measure: Field"),
        (json.dumps({"recipe": RECIPE}), "versions: Field required"),
        (
            json.dumps({"recipe": RECIPE, "versions": {"torch": 2}}),
            r"versions\.torch: .* valid string, got 2",
        ),
        (with_recipe(agents=[{"name": 1}]), r"agents\.0\.name: .*got 1"),
        (with_recipe(agents=[{"name": "../../etc", "model": "m"}]), r"name: .*pattern.*got '\.\./\.\./etc'"),
        (with_recipe(agents=[{"name": "a\n", "model": "m"}]), r"agents\.0\.name: .*pattern"),
        (with_recipe(method="hacpo"), r"method: .*got 'hacpo'"),
        (with_recipe(seed="3"), r"seed: .*valid integer, got '3'"),
        (with_recipe(seed=10**30), "seed: .*less than or equal to"),
        (with_recipe(task=None), "task.*: .*got None"),
        (with_symptom(found="{value.__class__}"), r"symptoms\.0\.found: .*no placeholder but {value}"),
        (with_symptom(found="{value:9999999999f}"), "no placeholder but {value}"),
        (with_symptom(found="{"), "found: "),
        (with_symptom(side="beside"), "side: Input should be 'above' or 'below', got 'beside'"),
        (with_symptom(bound="much"), "bound: .*valid number, got 'much'"),
    ],
)
def test_a_bad_configuration_is_named(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(StorageError, match=message):
        _ = RunReader(tmp_path).recipe


@pytest.mark.parametrize(
    ("file", "line", "message"),
    [
        ("metrics", "nonsense", "line 2 is not JSON"),
        ("metrics", '{"x": 1}', "line 2: step: expected a whole number, got 'None'"),
        ("metrics", '{"step": 2, "x": "1"}', "line 2: x: expected a number, got '1'"),
        ("warnings", '{"step": 2}', "line 2: message: expected a text, got 'None'"),
        ("warnings", '{"step": true, "message": ""}', "line 2: step: expected a whole number, got 'True'"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, file: str, line: str, message: str) -> None:
    first = {"metrics": '{"step": 1}', "warnings": '{"step": 1, "message": "m"}'}[file]
    (tmp_path / f"{file}.jsonl").write_text(f"{first}\n{line}\n")
    with pytest.raises(StorageError, match=rf"{file}\.jsonl, {message}"):
        getattr(RunReader(tmp_path), file)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "a JSON object"),
        ("{}", "method: Field required"),
        (json.dumps(SUMMARY | {"agents": 3}), "agents: .*got 3"),
        (json.dumps(SUMMARY | {"seconds": "x"}), "seconds: .*valid number, got 'x'"),
        (json.dumps(SUMMARY)[:-1] + ', "seconds": 1e999}', "seconds: .*finite number"),
        (json.dumps(SUMMARY | {"steps": -1}), "steps: .*greater than or equal to 0, got -1"),
        (json.dumps(SUMMARY | {"agents": {"a": {"after": []}}}), r"agents\.a\.model: Field required"),
        (json.dumps(SUMMARY | {"agents": {"../a": {}}}), r"agents\.\.\./a.*pattern"),
    ],
)
def test_a_bad_summary_is_named(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "summary.json").write_text(content)
    with pytest.raises(StorageError, match=rf"summary\.json is not .*{message}"):
        _ = RunReader(tmp_path).summary


def test_files_of_steps_come_in_order_and_others_are_passed_over(tmp_path: Path) -> None:
    names = ["step_1000000.jsonl", "step_000002.jsonl", "step_x.jsonl", ".step_000001.jsonl.tmp"]
    for directory in ("trajectories", "updates"):
        (tmp_path / directory).mkdir()
        for name in names:
            (tmp_path / directory / name).touch()
    run = RunReader(tmp_path)
    assert list(run.trajectory_files()) == list(run.update_files()) == [2, 1_000_000]
    assert RunReader(tmp_path / "nowhere").update_files() == {}


def test_checkpoints_are_found_and_checked(tmp_path: Path) -> None:
    run = RunReader(tmp_path)
    assert run.checkpoints() == {}
    with pytest.raises(StorageError, match="no checkpoint of step 1, only of none"):
        run.checkpoint(1)
    save_steps(CheckpointStore(tmp_path / "checkpoints", keep=2), 1, 2)
    assert list(run.checkpoints()) == [1, 2]
    assert_holds(run.checkpoint(2), 2)
    with pytest.raises(StorageError, match="no checkpoint of step 7, only of 1, 2"):
        run.checkpoint(7)
    (run.checkpoints()[1] / "trainer.json").unlink()
    with pytest.raises(StorageError, match=r"trainer\.json is missing"):
        run.checkpoint(1)


def test_the_tag_changes_with_the_files(tmp_path: Path) -> None:
    write_config(tmp_path)
    before = RunReader(tmp_path).version_tag()
    assert RunReader(tmp_path).version_tag() == before
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n')
    assert RunReader(tmp_path).version_tag() != before
