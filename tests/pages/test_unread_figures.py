"""How much of a page lies in figures that were not read, and whether that looks like writing."""

from __future__ import annotations

import pytest
from PIL import Image, ImageDraw

from batchocr.data import Page, Reading
from batchocr.pages.protocol.families.mineru import MinerUProtocol
from tests.support.page_reading import Reader, line, read

ALL, UPPER, LOWER = "000 000 999 999", "000 000 999 499", "000 500 999 999"


def written(size: tuple[int, int], font_size: int, *, paper: str = "white", ink: str = "black") -> Image.Image:
    """A page full of lines of writing, and one line if it has no room for two."""
    page = Image.new("RGB", size, paper)
    pen = ImageDraw.Draw(page)
    for top in range(font_size, size[1] - 2 * font_size, 3 * font_size // 2):
        said = "Invoice number 1000 of this month " * 3
        pen.text((font_size, top), said[: (size[0] - 2 * font_size) * 2 // font_size], ink, font_size=font_size)
    return page


def chart() -> Image.Image:
    """Bars with an axis, a line in front of them, and a few numbers below."""
    page = Image.new("RGB", (800, 600), "white")
    pen = ImageDraw.Draw(page)
    for number in range(9):
        top = 80 + number * 37 % 190
        pen.rectangle((80 + 75 * number, top, 120 + 75 * number, 520), "#3070b0")
        pen.line((100 + 75 * number, top - 20, 175 + 75 * number, 60 + (number + 1) * 37 % 190), "black", 3)
        pen.text((85 + 75 * number, 540), str(2010 + number), "black", font_size=14)
    pen.line((60, 40, 60, 520, 760, 520), "black", 3)
    return page


def picture() -> Image.Image:
    """Something like a photograph: shades of all kinds."""
    return Image.effect_mandelbrot((600, 400), (-3, -2.5, 2, 2.5), 40).convert("RGB")


def noise() -> Image.Image:
    return Image.effect_noise((600, 800), 90).convert("RGB")


def shares(reading: Reading) -> tuple[float | None, float | None]:
    return reading.ink_in_figures, reading.writing_in_figures


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(written((900, 220), 34), id="one line"),
        pytest.param(written((1654, 2339), 24), id="a page of small letters"),
        pytest.param(written((1280, 720), 44), id="a slide"),
        pytest.param(written((1654, 2339), 30, paper="navy", ink="yellow"), id="light on dark"),
        pytest.param(written((1654, 2339), 30).rotate(1.5, fillcolor="white"), id="slanted"),
        pytest.param(written((1654, 2339), 30).transpose(Image.Transpose.ROTATE_90), id="sideways"),
        pytest.param(written((1654, 2339), 30).transpose(Image.Transpose.ROTATE_180), id="upside down"),
    ],
)
def test_writing_that_is_taken_for_a_figure_is_found(page: Image.Image) -> None:
    reading = read(line(ALL, "image"), page=Page(page, None))
    assert (reading.error_message, reading.ink_outside) == (None, 0.0)
    assert shares(reading) == (1.0, 1.0)


@pytest.mark.parametrize("page", [chart(), picture(), noise()])
def test_a_chart_or_a_picture_is_no_writing(page: Image.Image) -> None:
    assert shares(read(line(ALL, "chart"), page=Page(page, None))) == (1.0, 0.0)


def test_the_shares_are_of_the_ink_in_blocks_without_headers_and_the_like() -> None:
    page = Page(written((800, 1000), 20), None)
    half = read(line(UPPER, "text") + line(LOWER, "image"), "words", page=page)
    assert half.ink_in_figures == half.writing_in_figures == pytest.approx(0.5, abs=0.03)
    assert shares(read(line(UPPER, "header") + line(LOWER, "image"), "words", page=page)) == (1.0, 1.0)
    assert shares(read(line(LOWER, "image"), page=page)) == (1.0, 1.0)


def test_a_page_without_figures_has_none_and_one_without_ink_in_blocks_no_share() -> None:
    page = Page(written((800, 1000), 20), None)
    assert shares(read(line(ALL, "text"), "words", page=page)) == (0.0, 0.0)
    assert shares(read(line(ALL, "footer"), "words", page=page)) == (None, None)
    assert shares(read("", page=page)) == (None, None)
    assert shares(read(line(ALL, "image"))) == (None, None)


@pytest.mark.parametrize("box", ["1000 1000 1000 1000", "000 000 001 999", "500 100 501 101", "000 999 999 1000"])
def test_a_figure_without_an_extent_is_none(box: str) -> None:
    page = Page(written((800, 1000), 20), None)
    assert shares(read(line(UPPER, "text") + line(box, "image"), "words", page=page)) == (0.0, 0.0)


def test_figures_in_one_another_count_once_and_text_on_a_figure_was_read() -> None:
    page = Page(written((800, 1000), 20), None)
    assert shares(read(line(ALL, "image_block") + line(UPPER, "image"), page=page)) == (1.0, 1.0)
    assert shares(read(line(ALL, "image") + line(ALL, "text"), "words", page=page)) == (0.0, 0.0)


def test_a_figure_that_was_read_does_not_count() -> None:
    protocol = MinerUProtocol(max_new_tokens=100, penalties=True, read_figures=True)
    answer = "<|class_start|>text_image<|class_end|><|content_start|>words<|content_end|>"
    reading = Reader(line(ALL, "image"), lambda number, prompt: answer).read(
        Page(written((800, 1000), 20), None), protocol
    )
    assert reading.blocks[0].finish_reason == "stop"
    assert shares(reading) == (0.0, 0.0)
