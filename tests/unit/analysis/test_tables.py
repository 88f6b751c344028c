import pytest

from hacrl.analysis.tables import TextTable, as_markdown, print_tables

TABLE = TextTable("Speed", ("side", "seconds"), [("ours", "1.5"), ("theirs", "3.0")])


def test_markdown_keeps_title_cells_and_alignment() -> None:
    assert as_markdown(TABLE).splitlines() == [
        "Speed",
        "",
        "| side | seconds |",
        "| --- | ---: |",
        "| ours | 1.5 |",
        "| theirs | 3.0 |",
    ]


@pytest.mark.parametrize("markdown", [True, False])
def test_both_forms_print_every_cell(markdown: bool, capsys: pytest.CaptureFixture[str]) -> None:
    print_tables([TABLE], markdown=markdown)
    printed = capsys.readouterr().out
    assert all(cell in printed for row in (TABLE.header, *TABLE.rows) for cell in row)
