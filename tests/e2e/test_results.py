"""A plan of experiments in real processes: its outcomes are kept, and nothing is run twice."""

import json
import shutil

import pytest
from typer.testing import CliRunner

from hacrl.analysis.compare.data import data_file
from hacrl.analysis.compare.readme import END, begin
from hacrl.cli.app import app
from helpers_train import make_agent, recipe


@pytest.fixture
def plan(tmp_path):
    agents = {
        "ada": make_agent(tmp_path / "ada", 1),
        "bob": make_agent(tmp_path / "bob", 2, cut="digit-pairs"),
    }
    evaluation = {"prompts": 9, "samples": 2, "many": 4, "many_prompts": 3, "every": 1, "curve": "greedy"}
    settings = recipe(agents, steps=2, evaluation=evaluation)
    settings.pop("method", None)
    (tmp_path / "pair.yaml").write_text(json.dumps(settings))
    values = {
        "seeds": [0, 1],
        "references": ["gspo"],
        "methods": {"gspo": None, "commons": None},
        "settings": {"pair": {"recipe": "pair.yaml"}},
        "claims": [
            {"text": "No harm", "better": "commons", "worse": "gspo", "margin": 0.5, "agents": "each"}
        ],
        "readme": {"settings": ["pair"], "rows": {"before": "before", "alone": "gspo", "ours": "commons"}},
    }
    path = tmp_path / "plan.yaml"
    path.write_text(json.dumps(values))
    (tmp_path / "README.md").write_text(f"{begin(path.name)}\n{END}\n")
    return path


def results(plan, *options):
    folder = plan.parent
    fixed = ["--out", str(folder / "out"), "--page", str(folder / "docs" / "page.md"), "--jobs", "1"]
    done = CliRunner().invoke(
        app, ["results", str(plan), *fixed, "--readme", str(folder / "README.md"), *options]
    )
    assert done.exit_code == 0, done.output
    files = [folder / "README.md", folder / "docs" / "page.md", *(folder / "docs" / "page").glob("*.*")]
    return {path.name: path.read_text() for path in files}


@pytest.mark.slow
def test_a_plan_is_run_once_and_its_pages_need_only_its_outcomes(plan):
    made = results(plan)
    assert {"page.md", "README.md", "pair.md", "pair.svg", "readme.svg"} <= set(made)
    for title in ("Greedy accuracy", "pass@2", "mean@2", "pass@4", "entropy", "alike", "before training"):
        assert title in made["page.md"]
    data = plan.parent / "docs" / "page" / "data"
    run = data_file(data, "pair").runs["commons", 1]
    assert len(run["after"]["digits"]["agents"]["ada"]["greedy"]) == 9
    assert len(run["after"]["digits"]["agents"]["ada"]["pass_at_many"]) == 3
    assert list(run["during"]) == ["1"]
    assert "mean_at_k" not in run["during"]["1"]["digits"]["agents"]["ada"], "curves are greedy alone"
    assert run["before"] == {}, "the first method has measured the agents before training"

    shutil.rmtree(plan.parent / "out")
    assert results(plan, "--from", str(data)) == made
    assert results(plan) == made
    assert not list((plan.parent / "out").glob("pair/runs/*")), "no run was begun"
