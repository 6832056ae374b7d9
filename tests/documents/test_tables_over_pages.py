"""A table that continues on the next page is one table; one that does not is none."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from batchocr.data import Block, PageResult
from batchocr.documents.assembly.assemble import assemble
from batchocr.documents.assembly.document import Piece
from batchocr.documents.assembly.tables import table_rows
from tests.support.typeset import Element, Heading, Paragraph, Table, html, typeset

BOX = (0.1, 0.1, 0.9, 0.5)
HEADER = "<tr><td>Year</td><td>Flow</td></tr>"


def tables(*pages: Sequence[Block]) -> list[Piece]:
    rows = [PageResult("a", index, "ok", blocks=tuple(blocks)) for index, blocks in enumerate(pages)]
    return [part for part in assemble("a", rows).parts if isinstance(part, Piece) and part.type == "table"]


def table(rows: str, box: tuple[float, float, float, float] = BOX) -> Block:
    return Block("table", box, 0, f"<table>{rows}</table>")


def caption(text: str, type: str = "table_caption") -> Block:
    return Block(type, (0.1, 0.06, 0.9, 0.08), 0, text)


@pytest.mark.parametrize("repeats_header", [True, False])
def test_a_set_table_of_three_pages_is_one(repeats_header: bool) -> None:
    rows = [["Year", "Flow", "Remark"], *([str(1800 + at), f"{at * 7}.5", f"remark {at}"] for at in range(150))]
    elements: list[Element] = [
        Heading("Results"),
        Paragraph("The flow of each year is given below."),
        Table(rows, "Table 1: flow", "Source: the author.", repeats_header),
        Paragraph("It has grown."),
    ]
    set = typeset(elements)
    assert len(set.rows) >= 3
    found = [part for part in assemble("set.pdf", set.rows).parts if isinstance(part, Piece)]
    assert [piece.type for piece in found] == ["title", "text", "table", "text"]
    assert found[2].content == html(rows)
    assert [place.page_index for place in found[2].places] == list(range(len(set.rows)))
    assert [piece.content for piece in found[2].captions] == ["Table 1: flow"]
    assert [piece.content for piece in found[2].footnotes] == ["Source: the author."]


def test_columns_are_counted_with_cells_that_reach_over_several() -> None:
    spanning = '<tr><td rowspan="2">Year</td><td colspan="2">Flow</td></tr><tr><td>least</td><td>most</td></tr>'
    found = table_rows(f"<table>{spanning}<tr><td>1800</td><td>1</td><td>2</td></tr></table>")
    assert found is not None and found.num_columns == 3
    [one] = tables(
        [table(f"{spanning}<tr><td>1</td><td>2</td><td>3</td></tr>")],
        [table("<tr><td>4</td><td>5</td><td>6</td></tr>")],
    )
    assert one.content is not None and one.content.count("<tr>") == 4


def test_a_header_is_dropped_whole_and_as_it_was_misread() -> None:
    header = '<tr><td rowspan="2">Year</td><td colspan="2">Flow, least</td></tr><tr><td>least</td><td>most</td></tr>'
    first, second = "<tr><td>1</td><td>2</td><td>3</td></tr>", "<tr><td>4</td><td>5</td><td>6</td></tr>"
    [one] = tables([table(header + first)], [table(header.replace("Flow,", "Flow.") + second)])
    assert one.content == f"<table>{header}{first}{second}</table>"
    half = header.replace("<td>most</td>", "<td>something else</td>")
    [one] = tables([table(header + first)], [table(half + second)])
    assert one.content == f"<table>{header}{first}{half}{second}</table>"


@pytest.mark.parametrize(
    "second",
    [
        [table("<tr><td>1</td><td>2</td><td>3</td></tr>")],
        [caption("Table 2: something else"), table(HEADER)],
        [table(f"<caption>Table 2: costs</caption>{HEADER}")],
        [Block("table", BOX, 0, f"<table>{HEADER}</table> in thousands")],
        [Block("text", BOX, 0, "Some text."), table(HEADER)],
        [Block("image", BOX, 0, None), table(HEADER)],
        [table(HEADER, (0.1, 0.1, 0.5, 0.5))],
        [table('<tr><td><img src="#bbox=0,0,1,1"/></td><td>a picture of the second page</td></tr>')],
        [table("<tr><td><table><tr><td>1</td><td>2</td></tr></table></td></tr>")],
        [table("<tr><td>not closed</td><td>2</tr>")],
        [table('<tr><td rowspan="3">beyond the end</td><td>2</td></tr>')],
        [Block("table", BOX, 0, "Year Flow\n1800 12")],
    ],
)
def test_what_is_another_table_stays_one(second: list[Block]) -> None:
    first = table(f"\n{HEADER}\n{HEADER}\n")
    assert [piece.content for piece in tables([first], second)] == [first.content, second[-1].content]


def test_a_table_below_its_footnote_or_text_is_ended() -> None:
    below = Block("table_footnote", (0.1, 0.52, 0.9, 0.54), 0, "Source: the author.")
    assert len(tables([table(HEADER), below], [table(HEADER)])) == 2
    assert len(tables([table(HEADER), Block("text", BOX, 0, "Some text.")], [table(HEADER)])) == 2


def test_headers_page_footnotes_and_the_caption_that_it_continues_part_no_table() -> None:
    foot = [Block(type, (0.1, 0.9, 0.9, 0.92), 0, type) for type in ("page_footnote", "footer", "page_number")]
    head = [Block("header", (0.1, 0.01, 0.9, 0.02), 0, "header"), caption("Table 1 (continued)")]
    [one] = tables([caption("Table 1"), table(HEADER), *foot], [*head, table("<tr><td>1</td><td>2</td></tr>")])
    assert one.content == f"<table>{HEADER}<tr><td>1</td><td>2</td></tr></table>"
    assert [piece.content for piece in one.captions] == ["Table 1", "Table 1 (continued)"]


def row(*cells: str) -> str:
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def test_a_repeated_heading_outweighs_a_column_more_and_the_other_part_is_stretched() -> None:
    wide = '<tr><td>Year</td><td colspan="2">Flow</td></tr>'
    for first, second, whole in [
        (
            row("1", "a"),
            wide + row("2", "•", "b"),
            wide + '<tr><td>1</td><td colspan="2">a</td></tr>' + row("2", "•", "b"),
        ),
        (
            row("1", "a"),
            HEADER + row("2", "•", "b"),
            wide + '<tr><td>1</td><td colspan="2">a</td></tr>' + row("2", "•", "b"),
        ),
    ]:
        [one] = tables([table(HEADER + first)], [table(second)])
        assert one.content == f"<table>{whole}</table>"
    narrow = row("3", "c")
    [one] = tables([table(wide + row("1", "•", "a"))], [table(HEADER + narrow)], [table(narrow)])
    stretched = '<tr><td>3</td><td colspan="2">c</td></tr>'
    assert one.content == f"<table>{wide}{row('1', '•', 'a')}{stretched}{stretched}</table>"
    title = "<tr><td>Flow of the rivers</td></tr>"
    assert len(tables([table(title + row("1", "2"))], [table(title + row("1", "2", "3"))])) == 2


def test_captions_below_a_table_and_footnotes_within_do_not_part_it_if_its_heading_is_repeated() -> None:
    below = Block("table_caption", (0.1, 0.51, 0.9, 0.53), 0, "Table 1: flow")
    note = Block("table_footnote", (0.1, 0.52, 0.9, 0.54), 0, "m³/s")
    [one] = tables([table(HEADER + row("1", "2")), note], [table(HEADER + row("3", "4")), below])
    assert one.content == f"<table>{HEADER}{row('1', '2')}{row('3', '4')}</table>"
    assert [piece.content for piece in (*one.captions, *one.footnotes)] == ["Table 1: flow", "m³/s"]
    assert len(tables([table(HEADER + row("1", "2")), note], [table(row("3", "4")), below])) == 2


@pytest.mark.parametrize("repeated", ["", HEADER])
def test_a_row_that_a_page_end_cuts_is_whole_again(repeated: str) -> None:
    for last, rest, whole in [
        (("1900", "It rose in"), ("", "spring."), ("1900", "It rose in spring.")),
        (("1900", "It was mea-"), ("", "sured."), ("1900", "It was measured.")),
        (("1900", "这一点已经"), ("", "得到证实"), ("1900", "这一点已经得到证实")),
        (("1900", "<b>a</b>"), (" ", "b"), ("1900", "<b>a</b> b")),
    ]:
        [one] = tables([table(HEADER + row(*last))], [table(repeated + row(*rest) + row("1901", "No."))])
        assert one.content == f"<table>{HEADER}{row(*whole)}{row('1901', 'No.')}</table>"


def test_a_row_that_takes_three_pages_is_one() -> None:
    [one] = tables([table(HEADER + row("1", "a"))], [table(row("", "b"))], [table(row("", "c") + row("2", "d"))])
    assert one.content == f"<table>{HEADER}{row('1', 'a b c')}{row('2', 'd')}</table>"


def test_a_cut_row_of_a_group_is_known_by_the_first_cell_that_spans_no_rows() -> None:
    heading = row("Land", "River", "Flow")
    group = '<tr><td rowspan="2">North</td>' + row("Danube", "It rose.").removeprefix("<tr>")
    more = row("Enns", "No.")
    for rest, whole in [
        (row("", "", "spring") + row("South", "Po", "It rose."), row("South", "Po", "It rose.")),
        ('<tr><td rowspan="2"></td><td></td><td>spring</td></tr>' + more, row("", "Enns", "No.")),
    ]:
        [one] = tables([table(heading + group + row("Inn", "It fell in"))], [table(rest)])
        assert one.content == f"<table>{heading}{group}{row('Inn', 'It fell in spring')}{whole}</table>"


def test_a_row_of_its_own_at_the_top_of_a_page_stays_one() -> None:
    for last, first in [
        (row("1900", "It rose"), row("1901", "in spring")),
        (row("1900", "12.5"), row("", "1 300")),
        (row("1900", "It rose"), row("", "")),
        (row("", "It rose"), row("", "in spring")),
        (row("Rivers", ""), row("", "Danube")),
        (row("1900", "It rose"), '<tr><td></td><td rowspan="2">in spring</td></tr><tr><td>1901</td></tr>'),
        (row("1900", "It rose"), '<tr><td rowspan="2"></td><td>in spring</td></tr><tr><td>in May</td></tr>'),
        ('<tr><td rowspan="2">1900</td><td>It rose</td></tr><tr><td>It fell</td></tr>', row("", "in spring")),
    ]:
        [one] = tables([table(HEADER + last)], [table(first + row("1902", "No."))])
        assert one.content == f"<table>{HEADER}{last}{first}{row('1902', 'No.')}</table>"
    [one] = tables([table(HEADER)], [table(row("", "in spring"))])
    assert one.content == f"<table>{HEADER}{row('', 'in spring')}</table>"
    both = '<tr><td></td><td colspan="2">of both</td></tr>'
    [one] = tables([table(row("Year", "a", "b") + row("1900", "It rose", "It fell"))], [table(both)])
    assert one.content is not None and both in one.content


@pytest.mark.long
@pytest.mark.slow
def test_hostile_tables_take_time_in_proportion_to_their_length() -> None:
    many = 10_000
    started = time.process_time()
    for content in (
        "<table>" + "<tr><td>" * many,
        "<table>" + "<tr>" * many + "</table>",
        "<table>" + "<td" * many,
        "<table" + "<table>" * many,
        "<table><tr>" + '<td rowspan="9999" colspan="9999">' * many,
        "<table>" + '<tr><td rowspan="9999" colspan="9999">x</td></tr>' * many + "</table>",
        "<table><tr>" + "<td>1</td>" * many + "</tr></table>",
        "<table>" + "<tr><td>1</td><td>2</td></tr>" * (many // 2) + "</table>",
    ):
        tables([Block("table", BOX, 0, content)], [Block("table", BOX, 0, content)])
    heading, cells = "<td>a</td>" * 4_000, "<td></td>" + "<td>1</td>" * 3_999
    wide = [table(f"<tr>{heading}</tr><tr>{cells}{more}</tr>" + f"<tr>{cells}</tr>" * 5) for more in ("", "<td>2</td>")]
    assert len(tables(*([each] for each in wide))) == 1
    assert time.process_time() - started < 5


@pytest.mark.parametrize(
    ("first", "second", "num_tables"),
    [("Name Age", "Item Price", 2), ("Item Price", "Item Price", 1), ("Item Price", "", 1)],
)
def test_two_headings_are_two_tables_and_one_that_repeats_is_one(first: str, second: str, num_tables: int) -> None:
    def heading(names: str) -> str:
        return "".join(["<tr>", *(f"<th>{name}</th>" for name in names.split()), "</tr>"]) if names else ""

    rows = "<tr><td>Bolt</td><td>2</td></tr><tr><td>Key</td><td>3</td></tr>"
    assert len(tables([table(heading(first) + rows)], [table(heading(second) + rows)])) == num_tables


def test_a_table_that_ends_high_on_its_page_is_ended_unless_its_heading_is_repeated() -> None:
    rest = "<tr><td>1800</td><td>5</td></tr><tr><td>1801</td><td>6</td></tr>"
    high = (0.1, 0.1, 0.9, 0.3)
    assert len(tables([table(HEADER + rest, high)], [table(rest)])) == 2
    assert len(tables([table(HEADER + rest, high)], [table(HEADER + rest)])) == 1


def test_a_caption_below_the_second_part_that_is_another_s_says_that_it_is_another() -> None:
    rows = f"{HEADER}<tr><td>1800</td><td>5</td></tr>"
    below = Block("table_caption", (0.1, 0.51, 0.9, 0.53), 0, "Table 2: the flow of lakes")
    assert len(tables([caption("Table 1: the flow of rivers"), table(rows)], [table(rows), below])) == 2
    assert len(tables([table(rows)], [table(rows), below])) == 1


def test_a_caption_with_another_number_names_another_table_whatever_words_it_has() -> None:
    rows = f"{HEADER}<tr><td>1800</td><td>5</td></tr>"
    for first, second, num_tables in [
        ("Table 1. Staff", "Table 2. Continued employment", 2),
        ("表1 人员", "表2 手续费", 2),
        ("Table 1. Staff", "Table 1 (continued)", 1),
        ("表1 人员", "续表1", 1),
    ]:
        assert len(tables([caption(first), table(rows)], [caption(second), table(rows)])) == num_tables


def test_a_row_of_th_that_names_a_group_of_rows_is_no_other_heading() -> None:
    first = "<tr><th>Name</th><th>Age</th></tr><tr><td>Anna</td><td>31</td></tr>"
    assert (
        len(tables([table(first)], [table('<tr><th colspan="2">Sales</th></tr><tr><td>Bob</td><td>40</td></tr>')])) == 1
    )
