"""The page of results, from runs whose outcomes are known."""

from dataclasses import replace
from xml.etree import ElementTree

import pytest
import yaml

from hacrl.analysis.compare.report import DASH
from hacrl.analysis.compare.suite import load_suite
from hacrl.analysis.compare.suite_runs import run_suite
from hacrl.analysis.compare.tuning import sweeps_of, tune
from hacrl.analysis.compare.workers import WorkerPool
from helpers_suite import finish_all, suite, write_suite

CLAIMS = [
    {"text": "Sharing helps", "better": "hacpo", "worse": "gspo", "measure": "greedy"},
    {"text": "Wide is better", "better": "wide", "worse": "hacpo", "measure": "greedy", "settings": ["pair"]},
]


@pytest.fixture
def page(tmp_path):
    found = suite(tmp_path, claims=CLAIMS)
    solved = {"hacpo": (30, 31, 30), "gspo": (10, 11, 10), "gspo_x2": (10, 18, 2)}
    for setting in found.file.settings:
        finish_all(found.plan(setting, tmp_path / "out"), solved)
    run_suite(found, tmp_path / "out", tmp_path / "docs" / "results.md", WorkerPool())
    return tmp_path / "docs" / "results.md"


def test_the_summary_holds_differences_verdicts_and_dashes(page):
    text = page.read_text()
    assert (
        "24 runs, 0.0 hours one after another: 2 settings, each method with the reported seeds 0, 1, 2"
        in text
    )
    of_gspo, of_x2 = (part.split("###")[0] for part in text.split("difference to gspo")[1:3])
    accuracy = text.split("### Greedy accuracy, mean of the agents")[1].split("###")[0]
    assert "| before training | 0.000 | 0.000 |" in accuracy
    assert "| gspo | 0.258 | 0.258 |" in accuracy
    assert "| hacpo | +0.500 better = | +0.500 better = |" in of_gspo
    assert "| gspo_x2 | -0.008 ? = | -0.008 ? = |" in of_gspo
    assert f"| wide | {DASH} | -0.008 ? = |" in of_gspo
    assert "| gspo | +0.008 ? = | +0.008 ? = |" in of_x2, "the same comparison from the other side"


def test_sentences_about_claims_are_computed(page):
    text = page.read_text()
    assert "- Sharing helps: holds in pair, short." in text
    assert "- Wide is better: was not tested." in text


def test_every_setting_has_its_tables_and_plots_that_can_be_read(page):
    text = page.read_text()
    row = "| hacpo | 0.758 | 0.758 | 100 | 8 | 2,000 | 3.0 |"  # greedy, alike, and what they cost
    assert text.count(row) == 2
    assert text.count("| before training | 0.000 | 1.000 |") == 2
    assert text.count("#### Greedy accuracy on") == 2
    for setting in ("pair", "short"):
        assert f"(results/{setting}.md)" in text
        everything = (page.parent / "results" / f"{setting}.md").read_text()
        assert all(title in everything for title in ("## Greedy accuracy on", "## Similarity between agents"))
    shown = {line.split("(")[-1].rstrip(")") for line in text.splitlines() if line.startswith("![")}
    assert shown == {
        f"results/{name}.svg"
        for name in ("pair", "short", "greedy-difference-to-gspo", "greedy-difference-to-gspo_x2")
    }
    for plot in shown:
        root = ElementTree.fromstring((page.parent / plot).read_text())
        assert root.tag.endswith("svg")
    forest = ElementTree.fromstring((page.parent / "results/greedy-difference-to-gspo.svg").read_text())
    assert len([part for part in forest if part.tag.endswith("circle")]) == 2 + 4, "one for each difference"
    curves = ElementTree.fromstring((page.parent / "results/pair.svg").read_text())
    assert len([part for part in curves if part.tag.endswith("polyline")]) == 3


def test_tuning_keeps_the_best_values_of_every_method_and_says_so(tmp_path):
    tuning = {
        "seeds": [7, 8],
        "changes": {"task.seed": 1},
        "sweeps": {
            "hacpo": {"method.delta": [0.1, 0.4, 0.2]},
            "wide": {"optimiser.learning_rate": [0.1, 0.2, 0.3]},
        },
    }
    path = write_suite(tmp_path, tuning=tuning)
    found = load_suite(path)
    for sweep in sweeps_of(found, tmp_path / "out").values():
        assert sweep.plan.seeds == (7, 8)
        assert all(recipe.task.settings == {"seed": 1} for recipe in sweep.plan.recipes.values())
        solved = {"hacpo-delta-0.1": 12, "hacpo-delta-0.4": 20, "wide-learning_rate-0.2": 30}
        finish_all(sweep.plan, solved)
    text = tune(found, tmp_path / "out", tmp_path / "data", WorkerPool()).read_text()
    assert yaml.safe_load(text) == {
        "pair": {"hacpo": {"method.delta": 0.4}},
        "short": {"hacpo": {"method.delta": 0.4}, "wide": {"optimiser.learning_rate": 0.2}},
    }
    assert "# short, hacpo-delta-0.4: 0.500" in text
    assert "# hacpo: method.delta 0.4 is at the edge of the values tried" in text
    assert "wide: optimiser" not in text
    tuned = load_suite(path)
    assert tuned.plan("pair", tmp_path).recipes["hacpo"].method.delta == 0.4
    for setting in tuned.file.settings:
        finish_all(tuned.plan(setting, tmp_path / "out"), {})
    run_suite(tuned, tmp_path / "out", tmp_path / "results.md", WorkerPool())
    assert (
        "tuned on the seeds 7, 8, task.seed 1, none of which is reported, with 3 trials of each: hacpo, wide"
        in (tmp_path / "results.md").read_text()
    )


def test_tuned_on_some_settings_the_best_on_average_holds_for_all(tmp_path):
    sweeps = {"hacpo": {"method.delta": [0.1, 0.4]}}
    found = suite(tmp_path, tuning={"seeds": [7, 8], "settings": ["short"], "sweeps": sweeps})
    [(setting, sweep)] = sweeps_of(found, tmp_path / "out").items()
    assert setting == "short"
    finish_all(sweep.plan, {"hacpo-delta-0.1": 12, "hacpo-delta-0.4": 20})
    chosen = yaml.safe_load(tune(found, tmp_path / "out", tmp_path / "data", WorkerPool()).read_text())
    assert chosen == {key: {"hacpo": {"method.delta": 0.4}} for key in ("pair", "short")}


def test_the_second_key_is_tuned_at_the_best_value_of_the_first(tmp_path):
    keys = {"optimiser.learning_rate": [0.1, 0.2], "method.delta": [0.3, 0.4]}
    found = suite(tmp_path, tuning={"seeds": [7, 8], "settings": ["pair"], "sweeps": {"hacpo": keys}})
    solved = {
        "hacpo-learning_rate-0.1-delta-0.3": 10,
        "hacpo-learning_rate-0.2-delta-0.3": 20,
        "hacpo-learning_rate-0.2-delta-0.4": 18,
        "hacpo-learning_rate-0.1-delta-0.4": 40,  # never tried
    }
    first = sweeps_of(found, tmp_path / "out")["pair"].plan
    assert list(first.recipes) == list(solved)[:2]
    best = {"pair": {"hacpo": {"optimiser.learning_rate": 0.2, "method.delta": 0.3}}}
    second = sweeps_of(found, tmp_path / "out", 1, best)["pair"].plan
    assert list(second.recipes) == list(solved)[1:3]
    finish_all(replace(first, recipes={**first.recipes, **second.recipes}), solved)
    assert found.file.tuning.trials("hacpo") == 3
    text = tune(found, tmp_path / "out", tmp_path / "data", WorkerPool()).read_text()
    assert yaml.safe_load(text)["pair"] == best["pair"]
    assert text.count("learning_rate-0.2-delta-0.3") == 1
