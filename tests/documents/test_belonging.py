"""Captions, footnotes, items and pictures stay with what they belong to; nothing comes out twice."""

from __future__ import annotations

from batchocr.data import Block, PageResult
from batchocr.documents.assembly.assemble import assemble
from batchocr.documents.assembly.document import Piece
from tests.support.typeset import Element, Figure, Items, Paragraph, Table, typeset


def block(
    type: str, top: float, bottom: float, content: str | None = None, *, x: tuple[float, float] = (0.1, 0.9)
) -> Block:
    return Block(type, (x[0], top, x[1], bottom), 0, content)


def pieces(*pages: list[Block]) -> list[Piece]:
    rows = [PageResult("a", index, "ok", blocks=tuple(blocks)) for index, blocks in enumerate(pages)]
    return [part for part in assemble("a", rows).parts if isinstance(part, Piece)]


def contents(found: tuple[Piece, ...] | list[Piece]) -> list[str | None]:
    return [piece.content for piece in found]


def test_captions_and_footnotes_of_set_figures_and_tables_are_theirs() -> None:
    elements: list[Element] = []
    for number in range(30):
        elements += [
            Figure(60, f"Figure {number}: a figure", f"Source of figure {number}"),
            Table([["a", "b"], [str(number), "2"]], f"Table {number}: a table", f"Note of table {number}"),
        ]
    for num_columns in (1, 2):
        set = typeset(elements, num_columns=num_columns)
        found = [part for part in assemble("set.pdf", set.rows).parts if isinstance(part, Piece)]
        assert [piece.type for piece in found] == ["image", "table"] * 30
        for number, (figure, table) in enumerate(zip(found[::2], found[1::2], strict=True)):
            assert contents(figure.captions) == [f"Figure {number}: a figure"]
            assert contents(figure.footnotes) == [f"Source of figure {number}"]
            assert contents(table.captions) == [f"Table {number}: a table"]
            assert contents(table.footnotes) == [f"Note of table {number}"]


def test_a_caption_goes_to_the_nearest_of_its_kind_on_its_usual_side() -> None:
    above, below = block("image", 0.1, 0.3), block("image", 0.4, 0.6)
    first, second = pieces([above, block("image_caption", 0.34, 0.36, "Figure 1"), below])
    assert (contents(first.captions), contents(second.captions)) == (["Figure 1"], [])
    one, other = block("table", 0.1, 0.3, "<table></table>"), block("table", 0.4, 0.6, "<table></table>")
    first, second = pieces([one, block("table_caption", 0.34, 0.36, "Table 2"), other])
    assert (contents(first.captions), contents(second.captions)) == ([], ["Table 2"])
    left, right = block("image", 0.1, 0.3, x=(0.1, 0.4)), block("chart", 0.1, 0.3, x=(0.6, 0.9))
    below_right = block("image_caption", 0.32, 0.34, "Figure 2", x=(0.6, 0.9))
    first, second = pieces([left, below_right, right])
    assert (contents(first.captions), contents(second.captions)) == ([], ["Figure 2"])


def test_captions_of_no_kind_go_to_any_and_one_without_a_figure_stays_for_itself() -> None:
    [code] = pieces([block("caption", 0.1, 0.12, "Listing 1"), block("code", 0.13, 0.3, "x = 1")])
    assert contents(code.captions) == ["Listing 1"]
    found = pieces([block("table_caption", 0.1, 0.12, "Table 1"), block("image", 0.43, 0.6)])
    assert [(piece.type, piece.content) for piece in found] == [("table_caption", "Table 1"), ("image", None)]
    found = pieces([block("image", 0.0, 0.1), block("image_caption", 0.9, 0.95, "Figure 9")])
    assert [piece.type for piece in found] == ["image", "image_caption"]


def test_a_caption_of_another_type_belongs_to_the_table_that_it_stands_at_or_names() -> None:
    html = "<table><tr><td>1</td></tr></table>"
    for type in ("image_caption", "code_caption", "table_caption"):
        [table] = pieces([block(type, 0.1, 0.12, "Flow of the rivers"), block("table", 0.13, 0.3, html)])
        assert contents(table.captions) == ["Flow of the rivers"], type
    figure, other = block("image", 0.1, 0.3), block("table", 0.37, 0.6, html)
    for said, is_the_tables in [
        ("Table 3. Flow", True),
        ("TABLE IV", True),
        ("表 3 流量", True),
        ("Tableau 3", True),
        ("Figure 3. Flow", False),
        ("图3 流量", False),
        ("Table of the rivers", False),
        ("Flow of the rivers", False),
    ]:
        image, table = pieces([figure, block("image_caption", 0.32, 0.35, said), other])
        assert (contents(image.captions), contents(table.captions)) == (
            ([], [said]) if is_the_tables else ([said], [])
        ), said
    [image] = pieces([figure, block("table_caption", 0.32, 0.35, "Figure 3")])
    assert contents(image.captions) == ["Figure 3"]


def test_a_list_is_its_items_each_on_a_line_and_once() -> None:
    items = [block("text", 0.1 + 0.05 * at, 0.14 + 0.05 * at, f"{at}) item\nof two lines") for at in range(3)]
    outside = block("text", 0.5, 0.6, "A paragraph.")
    found = pieces([block("list", 0.1, 0.26), *items, outside])
    assert [(piece.type, piece.content) for piece in found] == [
        ("list", "0) item of two lines\n1) item of two lines\n2) item of two lines"),
        ("text", "A paragraph."),
    ]
    assert [place.block for place in found[0].places] == [1, 2, 3]


def test_a_list_goes_on_behind_what_stands_within_it() -> None:
    formula = block("equation", 0.15, 0.19, "\\[x\\]")
    items = [block("text", 0.1, 0.14, "1) one"), formula, block("text", 0.2, 0.24, "2) two")]
    found = pieces([block("list", 0.1, 0.24), *items])
    assert [(piece.type, piece.content) for piece in found] == [
        ("list", "1) one"),
        ("equation", "\\[x\\]"),
        ("list", "2) two"),
    ]


def test_an_empty_list_is_nothing_and_one_with_a_text_of_its_own_is_a_list() -> None:
    found = pieces([block("list", 0.1, 0.2), block("list", 0.3, 0.4, "- one\n- two")])
    assert [(piece.type, piece.content) for piece in found] == [("list", "- one\n- two")]


def test_items_are_nested_as_their_boxes_are_indented() -> None:
    def listed(*items: tuple[float, float, str]) -> str | None:
        made = [block("text", top, top + 0.03, content, x=(left, 0.9)) for left, top, content in items]
        [found] = pieces([block("list", 0.1, 0.5), *made])
        return found.content

    nested = listed((0.1, 0.1, "1. First"), (0.15, 0.14, "a) one"), (0.2, 0.18, "• deep"), (0.1, 0.22, "2. Second"))
    assert nested == "1. First\n    a) one\n        • deep\n2. Second"
    scanned = listed((0.1, 0.1, "1. First"), (0.11, 0.14, "2. On a sheet that lies askew"), (0.12, 0.18, "3. Third"))
    assert scanned == "1. First\n2. On a sheet that lies askew\n3. Third"
    assert listed((0.1, 0.1, "1. First"), (0.15, 0.14, "which goes on")) == "1. First\nwhich goes on"
    assert listed((0.1, 0.3, "1. First"), (0.55, 0.1, "2. In the next column")) == "1. First\n2. In the next column"


def test_each_list_is_nested_by_itself_and_begins_on_the_highest_level() -> None:
    first = [block("list", 0.1, 0.2), block("text", 0.1, 0.13, "1. First"), block("text", 0.14, 0.17, "2. Second")]
    further_in = [block("text", 0.3 + 0.04 * at, 0.33 + 0.04 * at, f"• {at}", x=(0.15, 0.9)) for at in range(2)]
    between = block("title", 0.22, 0.25, "Of another")
    found = pieces([*first, between, block("list", 0.3, 0.4, x=(0.15, 0.9)), *further_in])
    assert contents(found) == ["1. First\n2. Second", "Of another", "• 0\n• 1"]
    arabic = [("١. أولا", 0.9), ("أ) فرع", 0.85), ("٢. ثانيا", 0.9)]
    items = [
        block("text", 0.1 * at, 0.1 * at + 0.03, text, x=(0.1, right)) for at, (text, right) in enumerate(arabic, 1)
    ]
    [found_arabic] = pieces([block("list", 0.1, 0.4), *items])
    assert found_arabic.content == "١. أولا\n    أ) فرع\n٢. ثانيا"


def test_a_list_goes_on_with_nested_items_on_the_next_page() -> None:
    def listed(*items: tuple[float, str]) -> list[Block]:
        made = [
            block("text", 0.1 + 0.04 * at, 0.13 + 0.04 * at, said, x=(x, 0.9)) for at, (x, said) in enumerate(items)
        ]
        return [block("list", 0.1, 0.9), *made]

    found = pieces(listed((0.1, "1. One"), (0.15, "a) two")), listed((0.15, "b) three"), (0.1, "2. Four")))
    assert contents(found) == ["1. One\n    a) two\n    b) three\n2. Four"]


def test_lists_of_slides_do_not_go_on() -> None:
    slides = [[block("list", 0.1, 0.9), block("text", 0.1, 0.13, f"• {said}")] for said in ("one", "two")]
    rows = [PageResult("a", at, "ok", width=1600, height=900, blocks=tuple(each)) for at, each in enumerate(slides)]
    assert contents([part for part in assemble("a", rows).parts if isinstance(part, Piece)]) == ["• one", "• two"]


def test_a_number_goes_to_the_formula_that_it_stands_beside() -> None:
    formulas = [block("equation", 0.2, 0.24, "\\[\nx = 1\n\\]"), block("equation", 0.3, 0.34, "y = 2")]
    beside = (0.92, 0.97)
    numbers = [
        block("formula_number", 0.2, 0.23, "(1)", x=beside),
        block("formula_number", 0.3, 0.33, "（A.2）", x=beside),
    ]
    for blocks in ([*formulas, *numbers], [formulas[0], numbers[0], formulas[1], numbers[1]]):
        found = pieces(blocks)
        assert contents(found) == ["\\[\nx = 1 \\tag{1}\n\\]", "y = 2 \\tag{A.2}"]
        assert [len(piece.places) for piece in found] == [2, 2]
    for number in ("(1}", "see above", "(1)"):
        other = block("formula_number", 0.6 if number == "(1)" else 0.2, 0.63, number, x=(0.92, 0.97))
        assert contents(pieces([formulas[0], other])) == [formulas[0].content, number]
    left, right = (0.15, 0.4), (0.6, 0.85)
    columns = [block("equation", 0.2, 0.24, name, x=x) for name, x in (("x", left), ("y", right))]
    beside_them = [
        block("formula_number", 0.2, 0.23, number, x=x) for number, x in (("(2)", (0.53, 0.57)), ("(1)", (0.1, 0.13)))
    ]
    assert contents(pieces([*columns, *beside_them])) == ["x \\tag{1}", "y \\tag{2}"]
    many = [block("equation", 0.05 * at, 0.05 * at + 0.03, f"x_{at}") for at in range(1, 16)]
    theirs = [block("formula_number", 0.05 * at, 0.05 * at + 0.03, f"({at})", x=beside) for at in range(1, 16)]
    assert contents(pieces([*many, *theirs])) == [f"x_{at} \\tag{{{at}}}" for at in range(1, 16)]
    tagged = block("equation", 0.2, 0.24, "x \\tag{7}")
    assert contents(pieces([tagged, numbers[0]])) == ["x \\tag{7}", "(1)"]


def test_a_caption_in_two_blocks_is_one_where_it_is_cut_in_mid_sentence() -> None:
    figure = block("image", 0.1, 0.3)
    first, rest = (
        block("image_caption", 0.31, 0.33, "Figure 1: the flow of"),
        block("image_caption", 0.335, 0.355, "Lakes."),
    )
    [found] = pieces([figure, first, rest])
    assert contents(found.captions) == ["Figure 1: the flow of Lakes."]
    panels = [block("image_caption", 0.31, 0.33, "(a) a lake"), block("image_caption", 0.335, 0.355, "(b) a river")]
    [found] = pieces([figure, *panels])
    assert contents(found.captions) == ["(a) a lake", "(b) a river"]


def test_set_lists_that_columns_and_pages_cut_are_one() -> None:
    long = "that is described at such length that it takes more than one line of any column that a page may have"
    items = [f"• the item with number {at} {long}" for at in range(90)]
    for num_columns in (1, 2):
        set = typeset(
            [Paragraph("These are the items:"), Items(items), Paragraph("These were they.")], num_columns=num_columns
        )
        assert len(set.rows) > 1
        found = [part for part in assemble("set.pdf", set.rows).parts if isinstance(part, Piece)]
        assert contents(found) == ["These are the items:", "\n".join(items), "These were they."]


def test_another_list_on_the_next_page_is_another() -> None:
    first = [block("list", 0.8, 0.9), block("text", 0.8, 0.9, "3. the last")]
    for mark, num_lists in (
        ("4. the fourth", 1),
        ("1. a first", 2),
        ("• a bullet", 2),
        ("(a) a letter", 2),
        ("and its rest", 1),
    ):
        second = [block("list", 0.1, 0.2), block("text", 0.1, 0.2, mark)]
        assert len(pieces(first, second)) == num_lists, mark
    assert contents(pieces(first, [block("text", 0.1, 0.2, "and its rest")])) == ["3. the last and its rest"]


def test_a_group_of_pictures_is_its_pictures_and_an_empty_one_a_picture() -> None:
    parts = [block("image", 0.1, 0.2, x=(0.1, 0.4)), block("chart", 0.1, 0.2, x=(0.5, 0.9))]
    found = pieces([block("image_block", 0.1, 0.2), *parts, block("image_caption", 0.21, 0.23, "Figure 1")])
    assert [piece.type for piece in found] == ["image", "chart"]
    assert [contents(piece.captions) for piece in found if piece.captions] == [["Figure 1"]]
    assert [piece.type for piece in pieces([block("image_block", 0.1, 0.2)])] == ["image"]


def test_what_belongs_to_the_sheet_and_blocks_without_text_are_no_pieces() -> None:
    sheet = [block(type, 0.0, 0.05, type) for type in ("header", "footer", "page_number", "aside_text")]
    assert (
        pieces([*sheet, block("text", 0.1, 0.2, " \n"), block("table", 0.3, 0.4), block("title", 0.5, 0.6, "")]) == []
    )


def test_texts_that_the_model_joins_are_joined_even_over_a_figure() -> None:
    continued = Block("text", (0.1, 0.6, 0.9, 0.7), 0, "tion of it.", merge_prev=True)
    found = pieces([block("text", 0.1, 0.2, "A descrip-"), block("image", 0.3, 0.5), continued])
    assert contents(found) == ["A description of it.", None]
    assert [place.block for place in found[0].places] == [0, 2]
    alone = Block("text", (0.1, 0.1, 0.9, 0.2), 0, "Of a page before.", merge_prev=True)
    assert contents(pieces([alone])) == ["Of a page before."]
    assert contents(pieces([block("text", 0.1, 0.2, "A page.")], [alone])) == ["A page. Of a page before."]


def test_only_texts_go_on_with_a_text() -> None:
    box = (0.1, 0.6, 0.9, 0.7)
    for type, content in (("image", None), ("chart", "42"), ("title", "A heading"), ("table", "<table></table>")):
        found = pieces([block("text", 0.1, 0.2, "A text"), Block(type, box, 0, content, merge_prev=True)])
        assert [(piece.type, piece.content) for piece in found] == [("text", "A text"), (type, content)]


def test_a_note_that_goes_on_at_the_foot_of_the_next_page_is_one() -> None:
    first = [block("text", 0.1, 0.2, "Text."), block("page_footnote", 0.9, 0.95, "1 A note that is")]
    second = [
        block("page_footnote", 0.8, 0.85, "longer than its page."),
        block("page_footnote", 0.9, 0.95, "2 Another."),
    ]
    assert contents(pieces(first, [block("text", 0.1, 0.2, "More."), *second])) == [
        "Text.",
        "1 A note that is longer than its page.",
        "More.",
        "2 Another.",
    ]
