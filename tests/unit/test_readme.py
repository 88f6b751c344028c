"""The README's table and the page of results are what the kept outcomes give."""

from pathlib import Path

import pytest

from hacrl.analysis.compare.readme import BEGIN, END, readme_text
from hacrl.analysis.compare.suite import load_suite
from hacrl.analysis.compare.suite_runs import PICTURE, data_folder, page_from_data

ROOT = Path(__file__).parents[2]
PLAN = Path("recipes/experiments/claims.yaml")
PAGE = Path("docs/results.md")


def table() -> str:
    section = (ROOT / "README.md").read_text().split("## Does it help?")[1].split("\n## ")[0]
    return section.partition(BEGIN)[2].partition(END)[0].strip()


@pytest.mark.slow
def test_pages_and_readme_are_made_from_the_outcomes(tmp_path, monkeypatch):
    """Without any outcomes the README must not show a table at all."""
    monkeypatch.chdir(ROOT)
    if not data_folder(PAGE).is_dir():
        assert table().startswith("The runs of this plan are not finished.")
        return
    suite = load_suite(PLAN)
    experiments = page_from_data(suite, data_folder(PAGE), tmp_path / PAGE.name)
    assert (tmp_path / PAGE.name).read_text() == PAGE.read_text()
    for made in (tmp_path / PAGE.stem).iterdir():
        assert made.read_text() == (PAGE.with_suffix("") / made.name).read_text()
    assert suite.file.readme
    assert table() == readme_text(suite.file.readme, experiments, f"docs/results/{PICTURE}")
