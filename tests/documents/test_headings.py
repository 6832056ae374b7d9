"""Headings have the level of the outline; without one, that of their number or of the size of their letters."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pymupdf
import pytest

from batchocr.data import OutlineEntry
from batchocr.documents.assembly.assemble import assemble
from batchocr.documents.assembly.document import Piece
from batchocr.documents.assembly.headings import heading_levels
from batchocr.documents.assembly.numbering import depths, parse_number
from batchocr.documents.assembly.outline import Heading as Title
from batchocr.pages.input.outline import read_outline
from benchmarks.headings import find_headings, levels
from tests.support.typeset import Element, Heading, Paragraph, typeset

SIZES = {1: 20.0, 2: 15.0, 3: 12.5, 4: 10.0}
SET = [
    ("On the flow of rivers", "On the flow of rivers", 1),
    ("Introduction", "1 Introduction", 2),
    ("Methods and materials", "2 Methods and materials", 2),
    ("Gauges", "2.1 Gauges", 3),
    ("Calibration", "2.1.1 Calibration", 4),
    ("Models", "2.2 Models", 3),
    ("Results", "3 Results", 2),
    ("References", "References", 2),
    ("Proofs", "Appendix A: Proofs", 2),
    ("The first of them", "A.1 The first of them", 3),
]


def set_levels(headings: Sequence[tuple[str, int]], *, outline: Sequence[OutlineEntry] = ()) -> list[int | None]:
    elements: list[Element] = []
    for text, level in headings:
        elements += [Heading(text, SIZES[level], level), Paragraph("Some text. " * 90)]
    set = typeset(elements)
    if outline is SAME:
        with pymupdf.open("pdf", set.pdf()) as document:
            outline = read_outline(document)
        assert [entry.title for entry in outline] == [text for text, _ in headings]
    document = assemble("set.pdf", set.rows, outline)
    return [part.level for part in document.parts if isinstance(part, Piece) and part.type == "title"]


SAME = [OutlineEntry(1, "the outline of the PDF that was set", 0)]


def test_the_levels_of_set_headings_are_those_of_the_pdfs_outline() -> None:
    for numbered in (0, 1):
        headings = [(row[numbered], row[2]) for row in SET]
        assert set_levels(headings, outline=SAME) == [level for _, level in headings]
    odd = [(name, at % 4 + 1) for at, (name, _, _) in enumerate(SET)]  # as neither number nor size tells
    assert set_levels(odd, outline=SAME) == [level for _, level in odd]


def test_without_an_outline_numbers_tell_and_without_numbers_sizes_do() -> None:
    for numbered in (1, 0):
        headings = [(row[numbered], row[2]) for row in SET]
        assert set_levels(headings) == [level for _, level in headings]


@pytest.mark.parametrize("left_out", ["", "1 "])
def test_no_size_skips_a_level_and_headings_of_one_size_in_a_row_stand_side_by_side(left_out: str) -> None:
    names = ["A report", "Note", "Aside", "1 Chapter", "Part", "Detail", "Remark", "Hint", "1 Next", "Tip"]
    headings = [Title(name.removeprefix(left_out), at, 0.1) for at, name in enumerate(names)]
    sizes = [20.0, 8.0, 8.0, 16.0, 12.0, 10.0, 8.0, 8.0, 16.0, 8.0]
    assert heading_levels(headings, sizes) == [1, 2, 2, 2, 3, 4, 5, 5, 2, 3]
    outline = [OutlineEntry(4, "Note", 1), OutlineEntry(4, "Tip", 9)]
    assert [heading_levels(headings, sizes, outline)[at] for at in (0, 1, 9)] == [1, 4, 4]


def test_an_outline_is_matched_although_words_are_misread_or_left_out() -> None:
    titles = [
        Title("2.l Meth0ds and materials", 0, 0.1),
        Title("Results", 1, 0.1),
        Title("A very long title of some", 2, 0.1),
    ]
    outline = [
        OutlineEntry(3, "Methods and Materials", 0),
        OutlineEntry(1, "3. Results", 0),  # leads to the page before
        OutlineEntry(4, "A very long title of something else", 2),
    ]
    assert heading_levels(titles, [10.0] * 3, outline) == [3, 1, 4]


@pytest.mark.parametrize(
    ("headings", "expected"),
    [
        (["1 A", "1.1 B", "1.1.1 C", "2 D"], [1, 2, 3, 1]),
        (["Chapter 1", "1.1 B", "Chapter 2", "Appendix B", "B.1 C"], [1, 2, 1, 1, 2]),
        (["Part I", "Chapter One", "1.1 B", "Part II"], [1, 2, 3, 1]),
        (["I. INTRO", "A. First", "1) Small", "B. Second", "II. METHODS", "C. Third"], [1, 2, 3, 2, 1, 2]),
        (["1 Intro", "2 End", "A Proofs", "B Tables"], [1, 1, 1, 1]),
        (["第一章 绪论", "第一节 背景", "第二章 方法"], [1, 2, 1]),
        (["A Study of Water", "3D printing", "2024 in review", "12.05.2024", "5 stars are"], [None] * 5),
    ],
)
def test_the_depth_of_numbers(headings: list[str], expected: list[int | None]) -> None:
    assert depths([parse_number(heading) for heading in headings]) == expected


def test_the_headings_of_a_real_paper_agree_with_its_outline_given_or_not(corpus: Path) -> None:
    with pymupdf.open(corpus / "real" / "mineru_demo1.pdf") as document:
        for ink in (False, True):
            headings = find_headings(document, ink=ink)
            assert len(headings.level_of) == 17
            for outline in ((), headings.outline):
                assert all(found == expected for found, expected in levels(headings, outline))
