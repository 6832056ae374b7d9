"""Which blocks show nothing but the PDF's own text, and what their lines are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pymupdf
import pytest

from batchocr.input.pdf import open_pdf
from batchocr.protocol.layer_text import LayerBlock, LegiblePage

WIDTH, HEIGHT = 400, 200
LINES = ["The path of the earth is", "longer on one side than on", "the other."]


def block_of(path: Path, document: pymupdf.Document, box: tuple[float, float, float, float]) -> LayerBlock | None:
    """The block in a box, given in points."""
    document.save(path)
    page = open_pdf(str(path), password=None, dpi=144, max_edge=3500, text_layer="use").render(0)
    if page.layer is None:
        return None
    x0, y0, x1, y1 = box
    return LegiblePage(page.layer, page.image).block((x0 / WIDTH, y0 / HEIGHT, x1 / WIDTH, y1 / HEIGHT))


@pytest.fixture
def legible(tmp_path: Path) -> Callable[..., LayerBlock | None]:
    """Sets lines, calls a function with the page, and returns the block around the lines."""

    def legible(
        change: Callable[[pymupdf.Page], object] = lambda page: None,
        *,
        lines: list[str] = LINES,
        box: tuple[float, float, float, float] = (36, 20, 380, 100),
        **options: object,
    ) -> LayerBlock | None:
        document = pymupdf.open()
        page = document.new_page(width=WIDTH, height=HEIGHT)
        for number, line in enumerate(lines):
            page.insert_text((40, 40 + 20 * number), line, **{"fontsize": 16} | options)
        change(page)
        return block_of(tmp_path / "page.pdf", document, box)

    return legible


def text_of(block: LayerBlock | None) -> list[str]:
    """What the lines of a block say."""
    assert block is not None
    return [" ".join("".join(glyph.text for glyph in word) for word in line.words) for line in block.lines]


def test_plain_lines_are_legible(legible: Callable[..., LayerBlock | None]) -> None:
    block = legible()
    assert text_of(block) == LINES
    assert block is not None
    assert block.flowing
    assert not any(line.hyphenated for line in block.lines)


@pytest.mark.parametrize("color", [(0.7, 0, 0), (0, 0, 0.4), (0.6, 0.6, 0.6)])
def test_the_colour_of_letters_and_of_paper_makes_no_difference(
    legible: Callable[..., LayerBlock | None], color: tuple[float, float, float]
) -> None:
    assert text_of(legible(color=color)) == LINES
    on_blue = legible(lambda page: page.draw_rect(page.rect, fill=(0.1, 0.1, 0.5), overlay=False), color=(1, 1, 1))
    assert text_of(on_blue) == LINES


def test_lines_are_in_the_order_in_which_they_are_seen(legible: Callable[..., LayerBlock | None]) -> None:
    def below(page: pymupdf.Page) -> None:
        page.insert_text((120, 40), "earth", fontsize=16)
        page.insert_text((40, 40), "The path", fontsize=16)

    assert text_of(legible(below, lines=[])) == ["The path earth"]


@pytest.mark.parametrize(
    "change",
    [
        lambda page: page.draw_rect((60, 28, 66, 44), fill=(1, 1, 1), color=None),  # a letter covered
        lambda page: page.draw_rect((60, 38, 62, 39), fill=(1, 1, 1), color=None),  # a part of one
        lambda page: page.draw_rect((0, 0, 400, 200), fill=(0, 0, 0)),
        lambda page: page.draw_line((40, 43), (100, 43)),
        lambda page: page.draw_rect((300, 30, 301, 31), fill=(0, 0, 0)),  # a speck
        lambda page: page.insert_text((200, 40), "seen", fontsize=16, render_mode=1),
        lambda page: page.insert_text((250, 40), "there", fontsize=16, color=(1, 1, 1)),  # white on white
        lambda page: page.insert_text((250, 60), "pale", fontsize=16, color=(0.9, 0.9, 0.9)),
        lambda page: page.insert_text((40, 40), "The path", fontsize=16),  # the same once more
        lambda page: page.insert_text((190, 32), "2", fontsize=9),  # raised
        lambda page: page.insert_text((260, 40), "apart", fontsize=16),  # beyond a gap
        lambda page: page.insert_text((230, 40), "x²", fontsize=16),
        lambda page: page.insert_text((230, 40), "a = b", fontsize=16),
        lambda page: page.insert_text((40, 92), "close", fontsize=16),  # to the line above
        lambda page: page.insert_text((100, 104), "cut", fontsize=16),  # by the lower edge
    ],
)
def test_a_block_with_anything_else_is_not_legible(
    legible: Callable[..., LayerBlock | None], change: Callable[[pymupdf.Page], object]
) -> None:
    assert legible(change) is None


def test_invisible_text_is_not_there(legible: Callable[..., LayerBlock | None]) -> None:
    assert text_of(legible(lambda page: page.insert_text((200, 40), "unseen", render_mode=3))) == LINES
    assert legible(render_mode=3) is None
    assert legible(lines=[]) is None


@pytest.mark.parametrize(("word", "is_legible"), [("x", False), ("xy", True)])
def test_a_letter_alone_in_another_font_may_be_mathematics(
    legible: Callable[..., LayerBlock | None], word: str, is_legible: bool
) -> None:
    def set_in_italics(page: pymupdf.Page) -> None:
        page.insert_text((40, 40), "where", fontsize=16)
        page.insert_text((88, 40), word, fontsize=16, fontname="heit")
        page.insert_text((109, 40), "is", fontsize=16)

    assert (legible(set_in_italics, lines=[]) is not None) == is_legible


def test_letters_may_not_hide_each_other_or_make_up_a_third(legible: Callable[..., LayerBlock | None]) -> None:
    def at(*letters: tuple[float, str]) -> Callable[[pymupdf.Page], object]:
        return lambda page: [page.insert_text((x, 40), letter, fontsize=16) for x, letter in letters]

    assert text_of(legible(at((40, "b"), (49, "l")), lines=[])) == ["bl"]
    assert legible(at((40, "b"), (40.5, "l")), lines=[]) is None
    assert legible(at((40, "v"), (46, "v")), lines=[]) is None
    assert legible(at((40, "l"), (41.5, "V")), lines=[]) is None
    assert text_of(legible(at((40, "A"), (49.5, "V")), lines=[])) == ["AV"]


def test_two_columns_are_not_one_block(legible: Callable[..., LayerBlock | None]) -> None:
    def second_column(page: pymupdf.Page) -> None:
        for number in range(3):
            page.insert_text((100, 40 + 20 * number), "column", fontsize=16)

    assert legible(second_column, lines=["left is"] * 3) is None


def test_spaces_are_where_letters_are_apart(legible: Callable[..., LayerBlock | None]) -> None:
    def without_spaces(page: pymupdf.Page) -> None:
        page.insert_text((40, 40), "path", fontsize=16)
        page.insert_text((74.6, 40), "of", fontsize=16)

    assert text_of(legible(without_spaces, lines=[])) == ["path of"]


def test_whether_a_narrow_gap_is_a_space_is_left_to_the_model(legible: Callable[..., LayerBlock | None]) -> None:
    def tight(page: pymupdf.Page) -> None:
        page.insert_text((40, 40), "path", fontsize=16)
        page.insert_text((73.5, 40), "of", fontsize=16)

    block = legible(tight, lines=[])
    assert block is not None
    assert not block.flowing


@pytest.mark.parametrize(
    ("lines", "flowing", "hyphenated"),
    [
        (["The path of the circum-", "ference of the earth"], True, [True, False]),
        (["The path of the circum-"], True, [False]),
        (["Fenn", "The path of the earth is", "longer"], False, [False] * 3),  # there is room for more
        (["The path of the earth and/", "or the sun"], False, [False] * 2),
        (["It is at http://www.exam", "ple.org, she said"], False, [False] * 2),
        (["It is at sun@example.", "org, she said"], False, [False] * 2),
        (["They are 1,876,", "304 in all"], False, [False] * 2),
        (["There are twelve (12)", "altogether, and 13 of them"], True, [False] * 2),
        (["It ends here.", "Then comes what"], True, [False] * 2),
        (["It ends here", "-then comes what"], False, [False] * 2),
        (["It is dell'", "uomo, and of it all"], False, [False] * 2),
        (["It is J.", "S. who says this all"], False, [False] * 2),
        (["It costs about 12", "% of this and of that"], False, [False] * 2),
        (["There are twelve", "in all, and these"], False, [False] * 2),  # there is no room, not for a letter
    ],
)
def test_where_lines_end_is_seen(
    legible: Callable[..., LayerBlock | None], lines: list[str], flowing: bool, hyphenated: list[bool]
) -> None:
    block = legible(lines=lines)
    assert block is not None
    assert block.flowing == flowing
    assert [line.hyphenated for line in block.lines] == hyphenated
