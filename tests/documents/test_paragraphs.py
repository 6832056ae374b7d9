"""Documents that a script set are put together from their rows, and come out as they were set."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial

import pytest

from batchocr.data import Block, PageResult
from batchocr.documents.assembly.assemble import assemble
from batchocr.documents.assembly.document import AssembledDocument, PageEnd, Piece
from tests.support.documents import block, text_row
from tests.support.typeset import Element, Figure, Paragraph, Typeset, typeset

WORDS = (
    "water rises slowly through the porous ground while several measurements of temperature and pressure continue "
    "without interruption at neighbouring stations whose instruments were calibrated against Kew standards in May"
)

text, page = partial(block, "text"), partial(text_row, "a")


def prose(number: int, *, sentences: int = 9) -> str:
    """A paragraph of sentences, none of which is another's."""
    drawn = random.Random(number)
    said = [[*drawn.choices(WORDS.split(), k=drawn.randint(8, 24)), f"of{number}x{at}"] for at in range(sentences)]
    return " ".join(" ".join([words[0].capitalize(), *words[1:]]) + "." for words in said)


def pieces(document: AssembledDocument) -> list[Piece]:
    return [part for part in document.parts if isinstance(part, Piece)]


def said(document: AssembledDocument, *types: str) -> list[str | None]:
    return [piece.content for piece in pieces(document) if piece.type in types]


def recognisable(set: Typeset, text: str) -> list[str]:
    """What a paragraph should come out as: two, if a page end has cut it between two sentences."""
    for before, after in set.cuts:
        first, between, rest = text.partition(f"{before[-60:]} {after[:60]}")
        if between and before.endswith("."):
            return [first + before[-60:], after[:60] + rest]
    return [text]


@pytest.mark.parametrize("num_columns", [1, 2])
def test_paragraphs_that_columns_and_pages_cut_are_whole_again(num_columns: int) -> None:
    texts = [prose(number) for number in range(60)]
    set = typeset([Paragraph(text) for text in texts], num_columns=num_columns)
    assert any(before.endswith("-") for before, _ in set.cuts)
    assert said(assemble("set.pdf", set.rows), "text") == [part for text in texts for part in recognisable(set, text)]


def test_every_piece_knows_its_pages_and_boxes_and_stands_before_the_end_of_its_first_page() -> None:
    set = typeset([Paragraph(prose(number)) for number in range(30)], num_columns=2)
    document = assemble("set.pdf", set.rows)
    placed = [(place.page_index, place.block) for piece in pieces(document) for place in piece.places]
    assert sorted(placed) == [
        (row.page_index, at) for row in set.rows for at, block in enumerate(row.blocks) if block.type == "text"
    ]
    page = 0
    for part in document.parts:
        if isinstance(part, Piece):
            assert part.places[0].page_index == page
            for place in part.places:
                assert set.rows[place.page_index].blocks[place.block].bbox == place.bbox
        elif isinstance(part, PageEnd):
            assert part.page_index == page
            page += 1
    assert page == len(set.rows) == document.page_count


@pytest.mark.parametrize("num_columns", [1, 2])
def test_figures_tables_and_notes_between_its_halves_do_not_part_a_paragraph(num_columns: int) -> None:
    elements: list[Element] = []
    for number in range(24):
        note = f"{number + 1} A note that belongs to page and mark." if number % 3 == 0 else None
        elements.append(Paragraph(prose(number), note))
        if number % 5 == 1:
            elements.append(Figure(90, f"Figure {number}: what was seen.", "Source: the author."))
    set = typeset(elements, num_columns=num_columns)
    top = Block("image", (0.1, 0.05, 0.9, 0.07), 0, None)  # of the page on which a paragraph goes on
    rows = [replace(row, blocks=(row.blocks[0], top, *row.blocks[1:])) for row in set.rows]
    document = assemble("set.pdf", rows)
    texts = [element.text for element in elements if isinstance(element, Paragraph)]
    assert said(document, "text") == [part for text in texts for part in recognisable(set, text)]
    notes = [element.note for element in elements if isinstance(element, Paragraph) and element.note]
    assert said(document, "page_footnote") == notes
    assert len(said(document, "image")) == 5 + len(rows)


def test_a_paragraph_ends_where_a_heading_a_formula_or_a_list_comes() -> None:
    first, rest = "It ends in the middle of a sentence, as they often do, and", "then goes on with small letters."
    for between in (block("title", "Methods"), block("equation", "x"), block("index", "1 A 2")):
        document = assemble("a", [page(0, text(first)), page(1, between, text(rest))])
        assert said(document, "text") == [first, rest]


def test_what_is_no_continuation_stays_apart() -> None:
    long = "A line that is as long as its column and has no full stop at its end because it is an address"
    for first, second in [
        ("The sentence is ended.", "And another begins, which is a paragraph of its own."),
        ("Is it ended? (Yes.)", "And another begins."),
        ("Dr A. Smith", "Department of Geology"),
        (long, "(a) the first of several"),
        (long, "[12] Smith, J. On water."),
        ("The following was found:", "water"),
        ("The flow of rivers and what the ground has of it ........ 5", "Temperature of the ground ........ 7"),
        ("The flow of rivers and what the ground has of it . . . . . xii", "temperature of the ground"),
        ("河流的流量以及地下水的来源和它们的变化 ……… 5", "地下水的温度"),
        ("The sentence is ended, and a note belongs to it.12", "And another begins."),
        ("He said “it is ended, and a note belongs to it.”3", "And another begins."),
        ("The sentence is ended, and a note belongs to it.<sup>1</sup>", "And another begins."),
        ("The law of flow is, as all the measurements have shown,\n\\[\nx = 1\n\\]", "And another begins."),
        ("水是从地下慢慢上升的，这一点已经得到证实。", "另一段从这里开始。"),
    ]:
        assert said(assemble("a", [page(0, text(first)), page(1, text(second))]), "text") == [first, second]


def test_what_goes_on_is_joined_as_its_language_is_written() -> None:
    for first, second, whole in [
        ("measured by Smith et al.", "and others.", "measured by Smith et al. and others."),
        ("as shown in Fig.", "3 of the book.", "as shown in Fig. 3 of the book."),
        ("a divi-", "ded word", "a divided word"),
        ("a soft\u00ad", "ly divided word", "a softly divided word"),
        ("Jean-", "Paul said", "Jean-Paul said"),
        ("from 1990-", "1995 on", "from 1990-1995 on"),
        (
            "水是从地下慢慢上升的，这一点在很多地方都",
            "已经得到证实。",
            "水是从地下慢慢上升的，这一点在很多地方都已经得到证实。",
        ),
        ("the formula\n\\[\nx = 1\n\\]", "where x is", "the formula\n\\[\nx = 1\n\\] where x is"),
        ("他在这里说了很多关于河流的话……然后", "他走了。", "他在这里说了很多关于河流的话……然后他走了。"),
        ("it rose by 2.5", "percent", "it rose by 2.5 percent"),
        ("a line that was cut by the end of the page with the name of", "Kew", None),
    ]:
        document = assemble("a", [page(0, text(first)), page(1, text(second))])
        assert said(document, "text") == [whole or f"{first} {second}"]


def test_a_paragraph_does_not_go_on_over_a_page_that_is_missing() -> None:
    halves = text("It ends in the middle of"), text("a sentence.")
    failed = PageResult("a", 1, "failed", error_kind="damaged", error_message="the page is damaged")
    document = assemble("a", [page(0, halves[0]), failed, page(2, halves[1])])
    assert said(document, "text") == ["It ends in the middle of", "a sentence."]
    assert said(assemble("a", [page(0, halves[0]), page(2, halves[1])]), "text") == said(document, "text")
    assert said(assemble("a", [page(0, halves[0]), page(1), page(2, halves[1])]), "text") == [
        "It ends in the middle of a sentence."
    ]


LEFT, RIGHT = (0.1, 0.7, 0.48, 0.9), (0.52, 0.1, 0.9, 0.3)
CUT = "The response of the neonatal ground to the rain of that year was not signifi"


def of_page(*blocks: tuple[str, tuple[float, float, float, float], str | None]) -> list[str | None]:
    """The texts of a page with these blocks: type, box, content."""
    made = (Block(type, box, 0, content) for type, box, content in blocks)
    return said(assemble("a", [text_row("a", 0, *made)]), "text")


def test_a_paragraph_goes_on_at_the_top_of_the_next_column() -> None:
    figure = ("image", (0.52, 0.05, 0.9, 0.08), None)
    for before, after, whole in [
        (CUT, "cantly another.", f"{CUT} cantly another."),
        (f"{CUT}-", "cantly another.", f"{CUT}cantly another."),
        ("The ground takes the rain that comes down from the hills of", "Kew in May.", None),
        (
            "水是从地下慢慢上升的，这一点在很多地方都",
            "已经得到证实。",
            "水是从地下慢慢上升的，这一点在很多地方都已经得到证实。",
        ),
    ]:
        found = of_page(("text", LEFT, before), figure, ("text", RIGHT, after))
        assert found == [whole or f"{before} {after}"]
    for before, after in [
        (f"{CUT}cant.", "another sentence."),
        (f"{CUT}cant: ....... 12", "another entry ....... 13"),
        (CUT, "(a) the first of several"),
    ]:
        assert of_page(("text", LEFT, before), ("text", RIGHT, after)) == [before, after]
    assert len(of_page(("text", LEFT, CUT), ("equation", (0.1, 0.91, 0.4, 0.93), "x"), ("text", RIGHT, "cantly"))) == 2


def test_what_does_not_fill_its_column_or_is_no_column_does_not_go_on_in_the_next() -> None:
    lines = ("text", (0.1, 0.1, 0.48, 0.6), "Some text of many lines, which ends.")
    assert of_page(lines, ("text", (0.1, 0.7, 0.3, 0.72), CUT), ("text", RIGHT, "cantly"))[1:] == [CUT, "cantly"]
    assert of_page(lines, ("text", (0.1, 0.7, 0.47, 0.72), CUT), ("text", RIGHT, "cantly"))[1:] == [f"{CUT} cantly"]
    boxes = ((0.1, 0.7, 0.2, 0.8), (0.3, 0.5, 0.4, 0.6))
    assert of_page(("text", boxes[0], CUT), ("text", boxes[1], "cantly")) == [CUT, "cantly"]
    assert len(of_page(("text", LEFT, CUT), ("text", (0.52, 0.1, 0.99, 0.3), "cantly"))) == 2


def test_texts_that_begin_side_by_side_are_two_unless_the_second_begins_with_a_small_letter() -> None:
    left, right = (0.1, 0.3, 0.48, 0.4), (0.52, 0.295, 0.9, 0.4)
    for after, num_texts in (("The ground takes up the rain", 2), ("cantly another.", 1)):
        assert len(of_page(("text", left, CUT), ("text", right, after))) == num_texts
    column, below_a_figure = (0.1, 0.1, 0.48, 0.9), (0.52, 0.5, 0.9, 0.6)
    assert len(of_page(("text", column, CUT), ("text", below_a_figure, "cantly another."))) == 1


def test_a_line_that_ends_before_its_column_does_not_go_on_on_the_next_page() -> None:
    lines, last = (
        text("Some text of many lines, which ends."),
        "A supplier of fibres that take more than a watt at once",
    )
    for right, num_texts in ((0.6, 3), (0.88, 2)):
        blocks = (replace(lines, bbox=(0.1, 0.1, 0.9, 0.5)), Block("text", (0.1, 0.6, right, 0.62), 0, last))
        document = assemble("a", [page(0, *blocks), page(1, text("iX-Blue, which is French"))])
        assert len(said(document, "text")) == num_texts


def test_a_paragraph_goes_on_below_a_picture_in_its_column_if_it_goes_on_with_a_small_letter() -> None:
    picture = ("image", (0.1, 0.42, 0.48, 0.8), None)
    above, below = (0.1, 0.3, 0.48, 0.4), (0.1, 0.82, 0.48, 0.9)
    assert of_page(("text", above, CUT), picture, ("text", below, "cantly.")) == [f"{CUT} cantly."]
    for before, after in [
        (CUT, "Another text begins below the picture."),
        ("772/489-2168 Fax", "www.example.org"),
        (f"{CUT}cant, as\n\\[\nx = 1\n\\]", "where x is one"),
        (f"{CUT}cant, Pharmacol. 214, 133-", "Sakurai, T., 1992"),
    ]:
        assert of_page(("text", above, before), picture, ("text", below, after)) == [before, after]
