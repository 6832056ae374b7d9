"""Where a page has ink, and which of it the blocks leave out."""

from __future__ import annotations

import pytest
from PIL import Image, ImageDraw

from batchocr.data import Page
from batchocr.pages.protocol.ink import Box, Ink
from tests.support.page_reading import completion, line, read

UPPER, LOWER = (0.0, 0.0, 1.0, 0.5), (0.0, 0.5, 1.0, 1.0)


def text_page(paper: str = "white", ink: str = "black", *, size: tuple[int, int] = (850, 1100)) -> Image.Image:
    """Twenty lines of words above the middle of the page, ten below."""
    page = Image.new("RGB", size, paper)
    pen = ImageDraw.Draw(page)
    for number in range(30):
        pen.text((60, 40 + number * 34 + (number >= 15) * 20), "many words in a line of text " * 3, ink, font_size=20)
    return page


def page_of(*boxes: Box) -> Page:
    """A page with text in these places, as shares of it."""
    image = Image.new("RGB", (850, 1100), "white")
    pen = ImageDraw.Draw(image)
    for x0, y0, _, _ in boxes:
        pen.text((x0 * 850 + 4, y0 * 1100 + 4), "words that anyone can read", "black", font_size=24)
    return Page(image, 100)


@pytest.mark.parametrize(
    ("paper", "ink"),
    [("white", "black"), ("black", "white"), ("#e8d9b0", "#503010"), ("white", "#ffd000"), ("navy", "yellow")],
)
def test_ink_is_what_stands_out_on_paper_of_any_colour(paper: str, ink: str) -> None:
    seen = Ink(text_page(paper, ink))
    assert seen.share_outside([]) == 1.0
    assert seen.share_outside([UPPER, LOWER]) == 0.0
    assert seen.share_outside([LOWER]) == pytest.approx(0.5, abs=0.05)
    assert seen.fills((0.07, 0.03, 0.5, 0.06))
    assert not seen.fills((0.93, 0.0, 1.0, 0.5))


@pytest.mark.parametrize("colour", ["white", "black", "#c0c0c0"])
def test_a_blank_page_has_no_share(colour: str) -> None:
    blank = Ink(Image.new("RGB", (850, 1100), colour))
    assert (blank.share_outside([]), blank.share_outside([UPPER])) == (None, None)
    assert not blank.fills((0.0, 0.0, 1.0, 1.0))


def test_specks_on_a_blank_page_are_no_ink() -> None:
    page = Image.new("RGB", (850, 1100), "white")
    for number in range(40):
        ImageDraw.Draw(page).point((20 * number + 7, 1000 - 23 * number), "black")
    assert Ink(page).share_outside([]) is None


def test_the_black_edges_of_a_scan_and_its_shadows_are_little_beside_its_text() -> None:
    page = text_page()
    shade = Image.linear_gradient("L").resize(page.size).point(lambda level: 150 + level * 105 // 255)
    page = Image.composite(page, Image.new("RGB", page.size, "black"), shade)
    ImageDraw.Draw(page).rectangle((0, 0, 45, 1100), "black")
    ImageDraw.Draw(page).rectangle((0, 1085, 850, 1100), "black")
    outside = Ink(page).share_outside([(0.06, 0.0, 1.0, 0.98)])
    assert outside is not None
    assert outside < 0.1


@pytest.mark.parametrize("size", [(1, 1), (1, 3000), (3000, 1), (5, 7), (4000, 30)])
def test_a_page_of_any_shape_has_ink_or_none(size: tuple[int, int]) -> None:
    ink = Ink(Image.new("RGB", size, "white"))
    assert ink.share_outside([UPPER, (0.5, 0.5, 0.5, 0.5), (1.0, 1.0, 1.0, 1.0)]) is None
    assert not ink.fills((0.5, 0.5, 0.5, 0.5))
    assert not ink.fills((1.0, 1.0, 1.0, 1.0))


def test_blocks_of_every_type_cover_ink() -> None:
    there = (0.1, 0.1, 0.6, 0.13)
    for kind in ("text", "image", "header", "page_number", "table"):
        assert read(line("100 090 600 140", kind), "read", page=page_of(there)).ink_outside == 0.0
    assert read(line("100 600 600 640", "text"), "read", page=page_of(there)).ink_outside == 1.0
    assert read("", page=page_of(there)).ink_outside == 1.0


def test_what_the_model_calls_no_text_and_leaves_out_is_not_covered() -> None:
    there = (0.1, 0.1, 0.6, 0.13)
    reading = read(line("100 090 600 140", "text"), "[Non-Text]", page=page_of(there))
    assert (reading.blocks, reading.ink_outside, reading.error_message) == ((), 1.0, None)


@pytest.mark.parametrize("kind", ["text", "title", "table", "equation", "code", "caption", "header", "list_item"])
def test_a_block_that_is_empty_though_there_is_ink_degrades_the_page_by_its_number(kind: str) -> None:
    first, second, third = (0.1, 0.1, 0.6, 0.13), (0.1, 0.2, 0.6, 0.23), (0.1, 0.3, 0.6, 0.33)
    layout = line("100 095 600 140", "text") + line("100 195 600 240", kind) + line("100 295 600 340", "image")
    reading = read(layout, "words", "", page=page_of(first, second, third))
    assert reading.error_message == "nothing was read in block 1, though there is ink"
    assert read(layout, "words", " \n", page=page_of(first, second, third)).error_message == reading.error_message


def test_a_block_without_ink_may_be_empty() -> None:
    layout = line("100 095 600 140", "text") + line("100 195 600 240", "text")
    assert read(layout, "words", "", page=page_of((0.1, 0.1, 0.6, 0.13))).error_message is None


def test_an_empty_block_is_named_once() -> None:
    layout, there = line("100 095 600 140", "text"), page_of((0.1, 0.1, 0.6, 0.13))
    said = [
        read(layout, completion("", "length"), page=there).error_message,
        read(layout, completion("", "repetition"), page=there).error_message,
        read(layout, completion("", error="no room"), page=there).error_message,
        read(line("100 095 600 140", "header"), "[Non-Text]", page=there).error_message,
    ]
    assert said == ["block 0 hit the token limit", "block 0 looped", "block 0 could not be read: no room", None]
