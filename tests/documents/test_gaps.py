"""What is missing of a document leaves a mark; whatever its rows hold, it is put together, and in good time."""

from __future__ import annotations

import time
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchocr.data import Block, OutlineEntry, PageResult, Status
from batchocr.documents.assembly.assemble import assemble
from batchocr.documents.assembly.document import AssembledDocument, PageEnd, Piece

TYPES = (
    "text title doc_title paragraph_title table equation formula_number code algorithm aside_text ref_text index"
    " phonetic list_item table_caption image_caption code_caption caption table_footnote image_footnote footnote header"
    " footer page_number page_footnote image chart list image_block unknown anything"
)
BOX = (0.1, 0.1, 0.9, 0.2)


def page(index: int | None, *contents: str, status: Status = "ok", reason: str | None = None) -> PageResult:
    blocks = tuple(Block("text", BOX, 0, content) for content in contents)
    return PageResult("a", index, status, "0" * 64, 9, 1000, 1400, 144, error_message=reason, blocks=blocks)


def parts(document: AssembledDocument) -> list[str | int | tuple[int | None, str, str] | None]:
    """Pieces as their text, page ends as their page's index."""
    return [
        part.content
        if isinstance(part, Piece)
        else part.page_index
        if isinstance(part, PageEnd)
        else (part.page_index, part.status, part.reason)
        for part in document.parts
    ]


def test_failed_and_degraded_pages_leave_a_mark_with_their_reason_in_whatever_order_rows_are() -> None:
    rows = [
        page(0, "One."),
        page(1, status="failed", reason="the page is damaged"),
        page(2, "Three.", status="degraded", reason="block 7 looped"),
    ]
    document = assemble("a", rows)
    assert parts(document) == [
        "One.",
        0,
        (1, "failed", "the page is damaged"),
        1,
        (2, "degraded", "block 7 looped"),
        "Three.",
        2,
    ]
    assert (document.source, document.doc_id, document.page_count) == ("a", "0" * 64, 9)
    assert document.rows == tuple(rows)
    assert assemble("a", rows[::-1]).parts == document.parts


def test_a_document_that_could_not_be_opened_is_one_mark() -> None:
    row = PageResult("a", None, "failed", error_kind="encrypted")
    document = assemble("a", [row])
    assert parts(document) == [(None, "failed", "encrypted")]
    assert (document.doc_id, document.page_count) == (None, None)


def test_pages_that_nobody_asked_for_are_no_gaps_but_those_still_to_be_read_are() -> None:
    rows = [page(1, "Two."), page(4, "Five.")]
    assert parts(assemble("a", rows)) == ["Two.", 1, "Five.", 4]
    assert parts(assemble("a", rows, unfinished=True)) == [
        (0, "skipped", "page 1 has not been read yet"),
        "Two.",
        1,
        (2, "skipped", "pages 3 to 4 have not been read yet"),
        "Five.",
        4,
        (5, "skipped", "pages 6 to 9 have not been read yet"),
    ]


SHARES = st.floats(0, 1) | st.sampled_from([0.0, 0.5, 1.0])
ODD = (
    "<table><tr><td>1</td></tr></table>",
    "<table>",
    "1 A",
    "I.",
    "A.",
    "第一章",
    "-",
    "\\(x\\)",
    "Fig. 1",
    "a\u00ad",
)
CONTENTS = st.none() | st.text(max_size=30) | st.sampled_from(ODD)
BLOCKS = st.builds(
    Block,
    type=st.sampled_from(TYPES.split()),
    bbox=st.tuples(SHARES, SHARES, SHARES, SHARES),
    angle=st.sampled_from([None, 0, 90, 180, 270]),
    content=CONTENTS,
    merge_prev=st.booleans(),
)
ROWS = st.builds(
    PageResult,
    source=st.just("a"),
    page_index=st.none() | st.integers(0, 5),
    status=st.sampled_from(get_args(Status)),
    width=st.none() | st.integers(0, 2000),
    height=st.none() | st.integers(0, 2000),
    dpi=st.none() | st.floats(0, 600),
    blocks=st.lists(BLOCKS, max_size=8).map(tuple),
)
ENTRIES = st.builds(OutlineEntry, st.integers(-1, 9), st.text(max_size=9), st.integers(-1, 5), st.none() | SHARES)


def test_a_text_whose_box_has_its_sides_swapped_is_read() -> None:
    boxes = (0.0, 0.0, 0.0, 0.0), (1.0, 0.0, 0.0, 1.0)
    blocks = tuple(Block("text", box, 0, f"text {number}", False) for number, box in enumerate(boxes))
    document = assemble("a", [PageResult("a", 0, "ok", blocks=blocks)], [], unfinished=False)
    assert [part.content for part in document.parts if isinstance(part, Piece)] == ["text 0", "text 1"]


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.lists(ROWS, max_size=5), st.lists(ENTRIES, max_size=5), st.booleans())
def test_no_rows_make_it_raise_and_no_block_comes_out_twice(
    rows: list[PageResult], outline: list[OutlineEntry], unfinished: bool
) -> None:
    document = assemble("a", rows, outline, unfinished=unfinished)
    pieces = [part for part in document.parts if isinstance(part, Piece)]
    whole = [*pieces, *(piece for host in pieces for piece in (*host.captions, *host.footnotes))]
    placed = [(place.page_index, place.block) for piece in whole for place in piece.places]
    assert all(piece.places for piece in whole)
    assert all((piece.level is not None and piece.level >= 1) == ("title" in piece.type) for piece in whole)
    if len({row.page_index for row in rows}) == len(rows):
        assert len(set(placed)) == len(placed)


@pytest.mark.long
def test_a_page_of_2000_blocks_of_any_type_takes_time_in_proportion() -> None:
    long = "word " * 200_000
    started = time.perf_counter()
    types = ("text", "title", "list", "image", "table_caption", "page_footnote")
    for type in types:
        blocks = [Block(type, BOX, 0, f"{at}. word " * 20, merge_prev=type == "text") for at in range(2000)]
        around = [
            Block(other, BOX, 0, "Table 1") for other in ("list", "image_block", "image", "table_caption", "caption")
        ] * 200
        rows = [
            PageResult("a", 0, "ok", None, 2, 1000, 1000, 72, blocks=(*around, *blocks)),
            PageResult("a", 1, "ok", None, 2, 1000, 1000, 72, blocks=(Block(type, BOX, 0, long),) * 3),
        ]
        assemble("a", rows, [OutlineEntry(1, f"{at}. words " * 20, 0, 0.1) for at in range(2000)])
    assert time.perf_counter() - started < 2 * len(types)
