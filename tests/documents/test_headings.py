"""Headings have the level of the outline; without one, that of their number or of the size of their letters."""

from __future__ import annotations

from collections.abc import Sequence

import pymupdf
import pytest

from batchocr.data import Block, OutlineEntry, PageResult
from batchocr.documents.assembly.assemble import assemble
from batchocr.documents.assembly.document import Piece
from batchocr.documents.assembly.headings import heading_levels
from batchocr.documents.assembly.numbering import depths, parse_number
from batchocr.documents.assembly.outline import Heading as Title
from batchocr.pages.input.outline import read_outline
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


def set_levels(headings: Sequence[tuple[str, int]], *, with_outline: bool = False) -> list[int | None]:
    elements: list[Element] = []
    for text, level in headings:
        elements += [Heading(text, SIZES[level], level), Paragraph("Some text. " * 90)]
    set = typeset(elements)
    outline: Sequence[OutlineEntry] = ()
    if with_outline:
        with pymupdf.open("pdf", set.pdf()) as document:
            outline = read_outline(document)
        assert [entry.title for entry in outline] == [text for text, _ in headings]
    document = assemble("set.pdf", set.rows, outline)
    return [part.level for part in document.parts if isinstance(part, Piece) and part.type == "title"]


def test_the_levels_of_set_headings_are_those_of_the_pdfs_outline() -> None:
    for numbered in (0, 1):
        headings = [(row[numbered], row[2]) for row in SET]
        assert set_levels(headings, with_outline=True) == [level for _, level in headings]
    odd = [(name, at % 4 + 1) for at, (name, _, _) in enumerate(SET)]  # as neither number nor size tells
    assert set_levels(odd, with_outline=True) == [level for _, level in odd]


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
        (["1 总则", "1.2 范围", "（一）适用", "（二）例外", "1.3 定义", "2 其他"], [1, 2, 3, 3, 2, 1]),
        (["一、总则", "（一）目的", "二、其他"], [1, 2, 1]),
        (["03 We", "09 You", "13 Air", "29 Soil", "Chapter 1"], [None, None, None, None, 1]),
        (["1 A", "2 B", "4 D", "1 E", "1. F"], [1, 1, 1, 1, 1]),
        (["A Study of Water", "3D printing", "2024 in review", "12.05.2024", "5 stars are"], [None] * 5),
    ],
)
def test_the_depth_of_numbers(headings: list[str], expected: list[int | None]) -> None:
    assert depths([parse_number(heading) for heading in headings]) == expected


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        # behind a cover the title is on the second page; it comes again before the text
        ([(1, 20, "On rivers"), (2, 17, "On rivers"), (3, 14, "Springs"), (4, 14, "Lakes")], [1, 1, 2, 2]),
        ([(1, 20, "On rivers"), (2, 10, "I. Springs"), (3, 10, "A. Cold"), (4, 10, "II. Lakes")], [1, 2, 3, 2]),
        ([(9, 20, "On rivers"), (10, 10, "I. Springs"), (11, 10, "A. Cold"), (12, 10, "II. Lakes")], [1, 1, 2, 1]),
        # a first heading as large as the others is the title; a table of contents may be larger
        ([(0, 12, "Gloves"), (1, 12, "Left"), (2, 11.8, "Right"), (3, 9, "Thumb")], [1, 2, 2, 3]),
        ([(0, 20, "A boat"), (1, 26, "Contents"), (2, 8, "Care"), (3, 8, "Sails"), (4, 6, "Rips")], [1, 2, 2, 2, 3]),
        # numbers of pages are none of headings, and nothing stands below an entry of a table of contents
        (
            [
                *((0, 18, "Contents"), (0, 9, "03 We"), (0, 9, "09 You"), (0, 22, "Air"), (0, 22, "Soil")),
                *((0, 9, "13 It"), (1, 17, "We"), (2, 11, "Us"), (3, 17, "You"), (4, 11, "Them")),
            ],
            [1, 2, 2, 1, 1, 2, 1, 2, 1, 2],
        ),
        ([(4, 9, "A note"), (5, 20, "A part"), (6, 9, "Another")], [1, 1, 2]),
    ],
)
def test_the_title_and_the_highest_headings_of_odd_documents(
    said: list[tuple[int, float, str]], expected: list[int]
) -> None:
    headings = [Title(text, page, 0.1) for page, _, text in said]
    assert heading_levels(headings, [size for _, size, _ in said]) == expected


PAPER = [
    (0, 1, "The response of ﬂow duration curves to afforestation", (161, 230, 830, 253), (162, 232, 829, 252)),
    (
        0,
        None,
        "Patrick N.J. Lanea,c,*, Alice E. Bestb,c,d, Klaus Hickelb,c, Lu Zhangb,c",
        (160, 269, 832, 290),
        (161, 270, 831, 289),
    ),
    (1, 2, "1. Introduction", (87, 124, 206, 138), (88, 125, 206, 135)),
    (2, 2, "2. Methods", (78, 317, 166, 331), (78, 318, 165, 328)),
    (2, 3, "2.1. Characterisation of ﬂow regime", (78, 350, 348, 363), (78, 351, 347, 363)),
    (3, 3, "2.2. Zero ﬂow day analysis", (87, 625, 288, 639), (87, 627, 288, 639)),
    (3, 3, "2.3. Statistical analyses", (527, 243, 702, 257), (527, 244, 701, 256)),
    (4, 2, "3. Data sets", (518, 430, 608, 444), (518, 431, 608, 441)),
    (5, 2, "4. Results", (527, 559, 603, 573), (527, 560, 602, 569)),
    (5, 3, "4.1. Model evaluation", (527, 592, 690, 605), (527, 592, 688, 602)),
    (6, 3, "4.2. Adjusted FDCs—magnitude of ﬂow reductions", (78, 607, 457, 621), (78, 608, 456, 620)),
    (7, 3, "4.3. Timing of ﬂow reductions", (527, 407, 741, 421), (527, 408, 740, 421)),
    (8, 3, "4.4. Comparison with paired catchment studies", (78, 571, 416, 584), (78, 572, 415, 584)),
    (8, 3, "4.5. Zero ﬂow days", (518, 482, 655, 495), (517, 483, 654, 495)),
    (8, 2, "5. Discussion", (518, 784, 615, 798), (518, 785, 615, 795)),
    (10, 2, "6. Summary and conclusions", (518, 656, 736, 669), (518, 656, 736, 668)),
    (11, 2, "Acknowledgements", (87, 458, 233, 471), (87, 459, 233, 471)),
    (11, 2, "References", (87, 743, 169, 757), (87, 744, 169, 754)),
]
"""The headings of a paper, and one line that is as large: page, level in the PDF's outline, text, and box in
thousandths of the page, around the line and around the ink. Lane et al., "The response of flow duration curves to
afforestation", Journal of Hydrology, 2005."""


@pytest.mark.parametrize("around_the_ink", [False, True])
@pytest.mark.parametrize("is_outline_given", [False, True])
def test_the_headings_of_a_real_paper_agree_with_its_outline(around_the_ink: bool, is_outline_given: bool) -> None:
    rows, outline = [], []
    for page in range(13):
        blocks = []
        for _, level, text, line, ink in (heading for heading in PAPER if heading[0] == page):
            x0, y0, x1, y1 = (side / 1000 for side in (ink if around_the_ink else line))
            blocks.append(Block("title", (x0, y0, x1, y1), 0, text))
            title = text.replace("\ufb02", "fl").replace("\u2014", "-").lstrip("0123456789. ")
            outline += [OutlineEntry(level, title, page)] if level is not None else []
        rows.append(PageResult("a", page, "ok", "0", 13, 1088, 1486, 144.0, markdown="", blocks=tuple(blocks)))
    document = assemble("a", rows, outline if is_outline_given else ())
    found = [part for part in document.parts if isinstance(part, Piece) and part.type == "title"]
    of_outline = [(part, level) for part, (_, level, *_) in zip(found, PAPER, strict=True) if level is not None]
    assert len(of_outline) == 17
    assert [part.level for part, _ in of_outline] == [level for _, level in of_outline]


def headings_of(*blocks: Block) -> list[str | None]:
    parts = assemble("a", [PageResult("a", 0, "ok", blocks=blocks)]).parts
    return [part.content for part in parts if isinstance(part, Piece) and part.level is not None]


def title(top: float, content: str, *, left: float = 0.1, height: float = 0.03, type: str = "title") -> Block:
    return Block(type, (left, top, 0.9, top + height), 0, content)


def test_a_heading_in_two_blocks_is_one_where_it_is_cut_in_a_word_or_a_sentence() -> None:
    for first, second, whole in [
        ("3.32.010 City Public Utilities—Gen-", "eral Manager", "3.32.010 City Public Utilities—General Manager"),
        ("On the flow of", "Rivers and Lakes", "On the flow of Rivers and Lakes"),
        ("The History and", "Geography of Rome", "The History and Geography of Rome"),
        ("On the flow of rivers", "and of lakes", "On the flow of rivers and of lakes"),
    ]:
        assert headings_of(title(0.1, first), title(0.135, second)) == [whole]
    for first_block, second_block in [
        (title(0.1, "On the flow"), title(0.135, "Rivers and lakes")),
        (title(0.1, "2 On the flow of"), title(0.135, "2.1 Rivers and lakes")),
        (title(0.1, "On the flow of"), title(0.135, "rivers", type="paragraph_title")),
        (title(0.1, "On the flow of"), title(0.135, "rivers", height=0.06)),
        (title(0.1, "On the flow of"), title(0.135, "rivers", left=0.3)),
        (title(0.1, "On the flow of"), title(0.3, "rivers")),
    ]:
        assert headings_of(first_block, second_block) == [first_block.content, second_block.content]


def test_entries_of_a_table_of_contents_are_no_headings() -> None:
    entries = ["Preface ..... iii", "1 Introduction 1", "2 Methods ..... 4", "3 Results 9", "References 15"]
    blocks = [title(0.1, "Contents"), *(title(0.2 + 0.05 * at, entry) for at, entry in enumerate(entries))]
    assert headings_of(*blocks) == ["Contents"]
    [_, contents, *_] = assemble("a", [PageResult("a", 0, "ok", blocks=tuple(blocks))]).parts
    assert isinstance(contents, Piece)
    assert (contents.type, contents.content) == ("index", "\n".join(entries))
    for years in (["Report of 2019", "Report of 2020", "Report of 2030"], ["Part 1", "Part 5", "Part 9"]):
        assert headings_of(*(title(0.1 + 0.3 * at, year) for at, year in enumerate(years))) == years
    steps = ["Step 1", "Step 2", "Step 3"]
    assert headings_of(*(title(0.2 + 0.05 * at, step) for at, step in enumerate(steps))) == steps
