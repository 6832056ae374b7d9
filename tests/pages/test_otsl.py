"""Tables that a model writes in OTSL become HTML in which nothing that it wrote is lost."""

from __future__ import annotations

import re

import pytest

from batchocr.pages.protocol.otsl import table_html


@pytest.mark.parametrize(
    ("otsl", "rows"),
    [
        ("<fcel>a<fcel>b<nl>", ["<td>a</td><td>b</td>"]),
        ("<fcel>a<fcel>b", ["<td>a</td><td>b</td>"]),
        ("<fcel>a<lcel><nl><fcel>b<fcel>c<nl>", ['<td colspan="2">a</td>', "<td>b</td><td>c</td>"]),
        ("<fcel>a<fcel>b<nl><ucel><fcel>c<nl>", ['<td rowspan="2">a</td><td>b</td>', "<td>c</td>"]),
        ("<fcel>a<lcel><nl><ucel><xcel><nl>", ['<td rowspan="2" colspan="2">a</td>', ""]),
        ("<lcel><fcel>a<nl>", ["<td></td><td>a</td>"]),
        ("<fcel> <b> & \\(x < y\\) <nl>", ["<td>&lt;b&gt; &amp; \\(x &lt; y\\)</td>"]),
        ("<fcel><fcel>a<nl>", ["<td></td><td>a</td>"]),
        ("before<fcel>a<nl>", ["<td>before</td><td>a</td>"]),
        ("<fcel>a<lcel>b<ecel>c<nl>", ["<td>a</td><td>b</td><td>c</td>"]),
        ("<fcel>a<ecel><ecel><nl><fcel>b<nl><fcel>c<nl>", ["<td>a</td>", "<td>b</td>", "<td>c</td>"]),
        ("<fcel>a<fcel>b<nl><fcel>c<nl>", ["<td>a</td><td>b</td>", "<td>c</td><td></td>"]),
    ],
)
def test_each_cell_stands_in_its_row_with_all_that_belongs_to_it(otsl: str, rows: list[str]) -> None:
    html = table_html(otsl)
    assert re.findall("<tr>(.*?)</tr>", html) == rows
    assert html == f"<table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


@pytest.mark.parametrize("text", ["", "no table", "a<nl>b", "<nl>", "<table></table>", "<lcel><ucel><nl><xcel><nl>"])
def test_what_has_no_cells_is_no_table(text: str) -> None:
    assert table_html(text) == ""


def test_a_row_so_long_that_all_others_would_fill_the_memory_makes_no_table() -> None:
    assert table_html("<fcel>a" * 10_000 + "<nl><fcel>b" * 10_000) == ""
