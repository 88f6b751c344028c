"""The README's table: rows of a plan, the best of several, costs, and its place in the text."""

from xml.etree import ElementTree

import pytest

from hacrl.analysis.compare.readme import (
    END,
    Shown,
    begin,
    cell_text,
    readme_picture,
    readme_table,
    readme_text,
    with_table,
)
from hacrl.analysis.compare.report import DASH
from hacrl.analysis.compare.statistics import Estimate
from hacrl.analysis.compare.suite_runs import run_suite, write_readme
from hacrl.analysis.compare.workers import WorkerPool
from helpers_suite import finish_all, suite

README = {
    "settings": ["short", "pair"],
    "rows": {"before": "before", "alone": "gspo", "best of sharing": ["hacpo", "wide"], "twice": "gspo_x2"},
}
BEGIN = begin("plan.yaml")
SOLVED = {"hacpo": 20, "gspo": 10, "gspo_x2": 12, "wide": 24}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("readme")
    found = suite(folder, readme=README)
    for setting in found.file.settings:
        finish_all(found.plan(setting, folder / "out"), SOLVED)
    return found, run_suite(found, folder / "out", folder / "docs" / "page.md", WorkerPool()), folder


def test_rows_settings_the_best_of_several_and_what_they_cost(made):
    found, experiments, _ = made
    assert readme_table(found.file.readme, experiments).splitlines() == [
        "|  | short | pair | rollouts | updates | CPU s |",
        "| --- | --- | --- | --- | --- | --- |",
        f"| before | 0.000 | 0.000 | {DASH} | {DASH} | {DASH} |",
        "| alone | 0.250 | 0.250 | 100 | 8 | 3 |",
        "| best of sharing | **0.600** (wide) | **0.500** (hacpo) | 100 | 8 | 3 |",
        "| twice | 0.300 | 0.300 | 100 | 8 | 3 |",
    ]


def test_each_measure_has_its_own_best():
    def shown(greedy, sampled):
        means = {"greedy": greedy, "pass_at_k": sampled}
        return Shown("m", {kind: Estimate(mean, mean, mean, 0.05) for kind, mean in means.items()})

    column = [shown(0.5, 0.9), shown(0.6, 0.8)]
    assert [cell_text(one, False, column) for one in column] == ["0.500 / **0.900**", "**0.600** / 0.800"]


def test_of_one_setting_every_agent_has_a_column(made):
    found, experiments, _ = made
    readme = found.file.readme.model_copy(update={"settings": ("short",)})
    assert readme_table(readme, experiments).splitlines() == [
        "|  | mean | ada | bob | rollouts | updates | CPU s |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        f"| before | 0.000 | 0.000 | 0.000 | {DASH} | {DASH} | {DASH} |",
        "| alone | 0.250 | 0.250 | 0.250 | 100 | 8 | 3 |",
        "| best of sharing | **0.600** (wide) | **0.600** (wide) | **0.600** (wide) | 100 | 8 | 3 |",
        "| twice | 0.300 | 0.300 | 0.300 | 100 | 8 | 3 |",
    ]
    assert "mean of the agents and each of them, over 3 seeds" in readme_text(readme, experiments, "a.svg")


def test_the_picture_has_a_bar_for_every_row_of_every_setting(made):
    found, experiments, _ = made
    root = ElementTree.fromstring(readme_picture(found.file.readme, experiments))
    assert len([part for part in root if "fill-opacity" in part.attrib]) == 4 * 2


def test_the_table_is_written_between_the_marks_and_nothing_else_changes(made):
    found, experiments, folder = made
    path = folder / "README.md"
    path.write_text(f"# Title\n\n{BEGIN}\n\nan earlier one\n\n{END}\n\nText.\n")
    write_readme(found, experiments, folder / "docs" / "page.md", path)
    text = path.read_text()
    assert text.startswith(f"# Title\n\n{BEGIN}\n\n![Greedy accuracy")
    assert text.endswith(f"\n\n{END}\n\nText.\n")
    assert "(docs/page/readme.svg)" in text
    assert "an earlier one" not in text
    assert (folder / "docs/page/readme.svg").exists()
    write_readme(found, experiments, folder / "docs" / "page.md", path)
    assert path.read_text() == text


def test_a_readme_without_marks_is_refused():
    with pytest.raises(ValueError, match=r"README.md: expected the lines '<!-- written by"):
        with_table("# Title\n", "table", "plan.yaml", "README.md")
