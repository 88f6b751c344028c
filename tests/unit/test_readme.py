"""The README quotes the page of results and nothing else."""

from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_table_of_results_is_that_of_the_page():
    section = (ROOT / "README.md").read_text().split("## Does it help?")[1].split("\n## ")[0]
    quoted = [line for line in section.splitlines() if line.startswith("|") and "---" not in line]
    page = (ROOT / "docs" / "results.md").read_text().splitlines()
    assert len(quoted) > 3
    for line in quoted:
        assert line in page
