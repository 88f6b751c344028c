"""The README's tables and the pages of results are what the kept outcomes give."""

from pathlib import Path

import pytest

from hacrl.analysis.compare.readme import END, begin, readme_text
from hacrl.analysis.compare.suite import load_suite
from hacrl.analysis.compare.suite_runs import PICTURE, data_folder, page_from_data

ROOT = Path(__file__).parents[2]
PLANS = {
    Path("recipes/experiments/claims.yaml"): Path("docs/results.md"),
    Path("recipes/experiments/real.yaml"): Path("docs/real-models.md"),
    Path("recipes/experiments/regime.yaml"): Path("docs/regime.md"),
}
"""The page of each plan."""


@pytest.mark.slow
@pytest.mark.parametrize(("plan", "page"), PLANS.items(), ids=lambda path: path.stem)
def test_pages_and_readme_are_made_from_the_outcomes(plan, page, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    suite = load_suite(plan)
    experiments = page_from_data(suite, data_folder(page), tmp_path / page.name)
    assert (tmp_path / page.name).read_text() == page.read_text()
    for made in (tmp_path / page.stem).iterdir():
        assert made.read_text() == (page.with_suffix("") / made.name).read_text()
    if suite.file.readme:
        table = readme_text(suite.file.readme, experiments, f"{page.with_suffix('')}/{PICTURE}")
        text = (ROOT / "README.md").read_text()
        assert text.partition(begin(plan.name))[2].partition(END)[0].strip() == table
