"""A table's cells stand where a browser puts them."""

from __future__ import annotations

from batchocr.documents.assembly.tables import table_cells


def places(html: str) -> list[tuple[str, int, int, int, int]]:
    table = table_cells(html)
    assert table is not None
    return [(cell.html, cell.row, cell.column, cell.rowspan, cell.colspan) for row in table.rows for cell in row]


def test_cells_go_around_those_that_reach_into_their_row() -> None:
    html = (
        '<table><tr><td rowspan="2">a</td><td colspan="2">b</td></tr><tr><td>c</td><td rowspan="9">d</td></tr>'
        "<tr><td>e</td><td>f</td><td>g</td></tr></table>"
    )
    assert places(html) == [
        *(("a", 0, 0, 2, 1), ("b", 0, 1, 1, 2), ("c", 1, 1, 1, 1), ("d", 1, 2, 2, 1)),
        *(("e", 2, 0, 1, 1), ("f", 2, 1, 1, 1), ("g", 2, 3, 1, 1)),
    ]


def test_a_table_in_a_cell_is_part_of_the_cell() -> None:
    inner = "<table><tr><td>x</td></tr></table>"
    assert places(f"<table><tr><td>{inner}</td></tr></table>") == [(inner, 0, 0, 1, 1)]


def test_text_around_a_table_and_its_caption_are_kept() -> None:
    inner = "<table><caption>no</caption><tr><td>y</td></tr></table>"
    caption = f"<caption>Sales <sup>a</sup>{inner}</caption>"
    table = table_cells(f"before <table>{caption}<tbody><tr><td>{inner}</td></tr></tbody></table> after")
    assert table is not None
    assert (table.before, table.caption, table.after) == ("before ", caption, " after")


def test_a_grid_beyond_all_bounds_is_none() -> None:
    assert table_cells('<table><tr><td colspan="1000" rowspan="1000">x</td><td>' + "</td></tr><tr><td>" * 1100) is None
    wide = "".join('<td colspan="1000">x</td>' for _ in range(500))
    assert table_cells("<table>" + f"<tr>{wide}</tr>" * 3 + "</table>") is None
    assert table_cells("<table><tr></tr></table><table><tr></tr></table>") is None
    assert table_cells("<table></table>") is None


def num_header_rows(*rows: str) -> int:
    table = table_cells("<table>" + "".join(f"<tr>{row}</tr>" for row in rows) + "</table>")
    assert table is not None
    return table.num_header_rows


def test_the_header_is_the_first_row_with_what_it_reaches_into_or_rows_of_header_cells() -> None:
    plain = "<td>x</td><td>y</td>"
    assert num_header_rows(plain, plain, plain) == 1
    assert num_header_rows('<td rowspan="2">x</td><td>y</td>', "<td>z</td>", plain) == 2
    assert num_header_rows("<th>a</th>", "<th>b</th>", plain) == 2
    assert num_header_rows(plain) == 0
    assert num_header_rows('<td rowspan="3">x</td><td>y</td>', plain, plain) == 0
