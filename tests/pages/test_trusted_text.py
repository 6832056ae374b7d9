"""--text-layer trust: a block has the page's own text where its ink is plain visible text, and nowhere else."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pymupdf
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageFilter
from pymupdf import mupdf

from batchocr.data import Document, Page
from batchocr.errors import PageError
from batchocr.pages.input import plain_text
from batchocr.pages.input.render import open_document
from batchocr.pages.protocol.agreement import agreement_of
from batchocr.pages.protocol.trusted_text import TrustedText
from benchmarks.text_layer import text_layers
from tests.support.page_reading import Reader, line

LINES = (
    "Reading what a page says about its-",
    "elf is cheap, if its maker can be",
    "trusted. No model has to look at it.",
)
SAID = "Reading what a page says about itself is cheap, if its maker can be trusted. No model has to look at it."
BOX = (0.05, 0.1, 0.95, 0.45)
Draw = Callable[[pymupdf.Page], Any]


def write(page: pymupdf.Page, **options: Any) -> None:
    for number, text in enumerate(LINES):
        page.insert_text((40, 60 + 20 * number), text, **({"fontsize": 14} | options))


def picture(color: str = "white", size: tuple[int, int] = (300, 100)) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", size, color).save(file, "PNG")
    return file.getvalue()


def page_of(tmp_path: Path, *draw: Draw) -> Page:
    document = pymupdf.open()
    page = document.new_page(width=400, height=300)
    for each in draw:
        each(page)
    document.save(tmp_path / "a.pdf")
    return opened(tmp_path / "a.pdf")


def opened(path: Path) -> Page:
    return open_document(str(path), password=None, dpi=144, text_layer="trust").render(0)


def taken(page: Page, box: tuple[float, float, float, float] = BOX) -> str | None:
    own = TrustedText(page.glyphs, page.image).of(box)
    return own and own.text


def filled(page: pymupdf.Page, color: tuple[float, float, float]) -> None:
    page.draw_rect((10, 20, 395, 140), color=None, fill=color)


PLAIN: dict[str, list[Draw]] = {
    "black": [write],
    "coloured": [lambda page: write(page, color=(0.2, 0.2, 0.8))],
    "with serifs": [lambda page: write(page, fontname="tiro")],
    "on a tinted box": [lambda page: filled(page, (0.9, 0.95, 1)), write],
    "white on a dark box": [lambda page: filled(page, (0, 0, 0.3)), lambda page: write(page, color=(1, 1, 1))],
    "a word underlined": [write, lambda page: page.draw_line((40, 62), (120, 62))],
}


@pytest.mark.parametrize("name", PLAIN)
def test_a_paragraph_of_plain_text_has_its_own_text_with_its_lines_joined(tmp_path: Path, name: str) -> None:
    assert taken(page_of(tmp_path, *PLAIN[name])) == SAID


def test_a_raised_number_is_written_as_the_model_writes_it(tmp_path: Path) -> None:
    def draw(page: pymupdf.Page) -> None:
        page.insert_text((40, 60), "As others say", fontsize=14)
        width = pymupdf.get_text_length("As others say", fontsize=14)
        page.insert_text((40 + width, 55), "12", fontsize=9)
        page.insert_text((40 + width + pymupdf.get_text_length("12", fontsize=9), 60), ", it is so.", fontsize=14)

    assert taken(page_of(tmp_path, draw)) == r"As others say\(^{12}\), it is so."


COVERS: dict[str, list[Draw]] = {
    "a scan with an OCR layer": [
        lambda page: page.insert_image(page.rect, stream=picture()),
        lambda page: write(page, render_mode=3),
    ],
    "an OCR layer without a scan": [lambda page: write(page, render_mode=3)],
    "text used as a clip": [lambda page: write(page, render_mode=7)],
    "visible text behind an image": [write, lambda page: page.insert_image(page.rect, stream=picture("#ddd"))],
    "visible text on an image": [lambda page: page.insert_image(page.rect, stream=picture("#ddd")), write],
    "white text": [lambda page: write(page, color=(1, 1, 1))],
    "all but white text": [lambda page: write(page, color=(0.95, 0.95, 0.95))],
    "transparent text": [lambda page: write(page, fill_opacity=0, stroke_opacity=0)],
    "text under white": [write, lambda page: page.draw_rect((30, 44, 160, 66), color=None, fill=(1, 1, 1))],
    "text under a black bar": [write, lambda page: page.draw_rect((30, 44, 160, 66), color=None, fill=(0, 0, 0))],
    "text under a thick line": [write, lambda page: page.draw_line((30, 55), (160, 55), width=16)],
    "a drawing beside text": [write, lambda page: page.draw_circle((330, 110), 15, fill=(1, 0, 0))],
    "turned text": [lambda page: write(page, morph=(pymupdf.Point(40, 60), pymupdf.Matrix(4)))],
    "signs of mathematics": [write, lambda page: page.insert_text((300, 118), "abc", fontname="symb", fontsize=14)],
    "two columns": [
        write,
        lambda page: [page.insert_text((330, 60 + 20 * n), "column", fontsize=14) for n in range(3)],
    ],
    "cells of a table": [
        lambda page: [page.insert_text((x, 60 + 20 * n), "cell", fontsize=14) for n in range(3) for x in (40, 150)]
    ],
    "lines in another order": [
        lambda page: [page.insert_text((40, 60 + 20 * n), LINES[n], fontsize=14) for n in (2, 0, 1)]
    ],
    "text twice in one place": [write, write],
    "a backslash": [write, lambda page: page.insert_text((300, 118), "\\(a", fontsize=14)],
    "no text": [],
}


@pytest.mark.parametrize("name", COVERS)
def test_what_is_not_plain_visible_text_is_left_to_the_model(tmp_path: Path, name: str) -> None:
    assert taken(page_of(tmp_path, *COVERS[name])) is None


@pytest.mark.parametrize("code", ["\ue000", "\uf8ff", "\ufffd", "\u0007"])
def test_letters_of_private_use_or_unknown_are_left_to_the_model(tmp_path: Path, code: str) -> None:
    page = page_of(tmp_path, write)
    assert taken(page) == SAID
    glyphs = list(page.glyphs)
    glyphs[3] = replace(glyphs[3], text=code)
    assert taken(replace(page, glyphs=tuple(glyphs))) is None


def test_a_font_without_unicode_is_left_to_the_model(tmp_path: Path) -> None:
    def draw(page: pymupdf.Page) -> None:
        page.insert_font(fontname="F0", fontbuffer=pymupdf.Font("cjk").buffer)
        write(page, fontname="F0")

    page_of(tmp_path, draw)
    document = pymupdf.open(tmp_path / "a.pdf")
    for number in range(1, document.xref_length()):
        if document.xref_get_key(number, "ToUnicode")[0] != "null":
            document.xref_set_key(number, "ToUnicode", "null")
    document.save(tmp_path / "b.pdf")
    assert taken(opened(tmp_path / "a.pdf")) == SAID
    assert taken(opened(tmp_path / "b.pdf")) is None


def test_a_page_of_too_many_objects_has_no_glyphs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert page_of(tmp_path, write).glyphs
    monkeypatch.setattr(plain_text, "_MOST_GLYPHS", 40)
    assert page_of(tmp_path, write).glyphs == ()


def test_glyphs_are_noted_only_if_they_are_trusted(tmp_path: Path) -> None:
    page_of(tmp_path, write)
    checked = open_document(str(tmp_path / "a.pdf"), password=None, dpi=144, text_layer="check").render(0)
    assert checked.glyphs == () and checked.words


def test_a_trusted_block_is_not_asked_about_and_says_where_it_is_from(tmp_path: Path) -> None:
    page = page_of(tmp_path, write)
    layout = line("050 100 950 450", "text") + line("050 500 950 900", "text") + line("050 500 950 900", "table")
    reader = Reader(layout)
    reading = reader.read(page)
    assert [len(batch) for batch in reader.batches] == [1, 1]
    first, table = reading.blocks[0], reading.blocks[-1]
    assert (first.content, first.text_source, first.confidence, first.tokens) == (SAID, "page", None, None)
    assert (table.type, table.text_source) == ("table", "model")
    assert reading.markdown.startswith(f"{SAID}\n")


@pytest.mark.parametrize("type", ["table", "equation", "code", "image", "index"])
def test_only_blocks_of_text_are_trusted(tmp_path: Path, type: str) -> None:
    reading = Reader(line("050 100 950 450", type)).read(page_of(tmp_path, write))
    assert [block.text_source for block in reading.blocks] == [None if type == "image" else "model"]


def test_a_turned_block_is_left_to_the_model(tmp_path: Path) -> None:
    reading = Reader(line("050 100 950 450", "text", turn="right")).read(page_of(tmp_path, write))
    assert [block.text_source for block in reading.blocks] == ["model"]


def test_a_page_that_is_trusted_in_full_asks_only_for_its_layout(tmp_path: Path) -> None:
    reader = Reader(line("050 100 950 450", "text"))
    reading = reader.read(page_of(tmp_path, write))
    assert [len(batch) for batch in reader.batches] == [1]
    assert (reading.markdown, reading.error_message) == (f"{SAID}\n", None)


def test_what_is_the_pages_own_says_nothing_about_what_was_read(tmp_path: Path) -> None:
    page = page_of(tmp_path, write)
    [block] = Reader(line("050 100 950 450", "text")).read(page).blocks
    assert agreement_of(page.words, [block]) is None
    assert agreement_of(page.words, [replace(block, text_source="model")]) == 1.0


class TextOnly(mupdf.FzDevice2):  # type: ignore[misc]
    """Draws text in black, and nothing else."""

    def __init__(self, picture: Any) -> None:
        super().__init__()
        self.use_virtual_fill_text()
        self._picture = picture

    def fill_text(self, _ctx: Any, text: Any, ctm: Any, *_color: Any) -> None:
        kept, black = mupdf.FzText(mupdf.ll_fz_keep_text(text)), mupdf.fz_device_gray()
        mupdf.fz_fill_text(self._picture, kept, mupdf.FzMatrix(ctm), black, (0.0,), 1.0, mupdf.FzColorParams())


def text_alone(page: pymupdf.Page, dpi: float) -> Image.Image:
    """The page's visible text, black on white."""
    drawn, scale = page.get_displaylist(), dpi / 72
    matrix = mupdf.FzMatrix(scale, 0, 0, scale, 0, 0)
    box = mupdf.fz_round_rect(mupdf.fz_transform_rect(mupdf.fz_bound_display_list(drawn.this), matrix))
    pixmap = mupdf.fz_new_pixmap_with_bbox(mupdf.fz_device_gray(), box, mupdf.FzSeparations(), 0)
    mupdf.fz_clear_pixmap_with_value(pixmap, 255)
    picture = mupdf.fz_new_draw_device(mupdf.FzMatrix(), pixmap)
    device = TextOnly(picture)
    mupdf.fz_run_display_list(drawn.this, device, matrix, mupdf.FzRect(box), mupdf.FzCookie())
    mupdf.fz_close_device(device)
    mupdf.fz_close_device(picture)
    size = (mupdf.fz_pixmap_width(pixmap), mupdf.fz_pixmap_height(pixmap))
    return Image.frombytes("L", size, bytes(mupdf.fz_pixmap_samples_memoryview(pixmap)))


def ink_of(crop: Image.Image) -> tuple[NDArray[Any], NDArray[Any]]:
    """Where there is ink, and where there is some within two pixels."""
    grey = np.asarray(crop, dtype=np.int16)
    paper = np.bincount(grey.ravel()).argmax()
    ink = np.abs(grey - paper) > 40
    near = np.asarray(Image.fromarray((255 * ink).astype(np.uint8)).filter(ImageFilter.MaxFilter(5))) > 0
    return ink, near


def check_by_drawing(path: Path, max_pages: int) -> int:
    """Draw the text of a document's pages alone, and compare it with each block that is taken. Returns how many."""
    document, num_taken = open_document(str(path), password=None, dpi=144, text_layer="trust"), 0
    layers = text_layers(Document(str(path), path.name))
    with pymupdf.open(path) as plain:
        for index in range(min(max_pages, document.page_count)):
            page = document.render(index)
            drawn = text_alone(plain[index], page.dpi or 0)
            trusted, (width, height) = TrustedText(page.glyphs, page.image), page.image.size
            for block in layers[index]:
                x0, y0, x1, y1 = (value / 1000 for value in block.bbox)
                if (own := trusted.of((x0, y0, x1, y1))) is None:
                    continue
                place = (round(x0 * width), round(y0 * height), round(x1 * width), round(y1 * height))
                ink, near_ink = ink_of(page.image.convert("L").crop(place))
                alone, near_text = ink_of(drawn.crop(place))
                said = f"{path.name}, page {index + 1}: {own.text[:60]!r}"
                assert (alone & ~near_ink).sum() <= 0.01 * alone.sum(), f"not all of it can be seen: {said}"
                assert (ink & ~near_text).sum() <= max(20, 0.15 * ink.sum()), f"something else has ink there: {said}"
                num_taken += 1
    document.close()
    return num_taken


def test_the_text_of_sample_documents_is_what_is_drawn(sample_data: Path) -> None:
    assert check_by_drawing(sample_data / "documents" / "article.pdf", 2) > 5


@pytest.mark.slow
def test_every_block_that_is_taken_of_real_documents_is_visible_text(corpus: Path) -> None:
    num_taken = 0
    for path in sorted((corpus / "real").glob("*.pdf")):
        try:
            num_taken += check_by_drawing(path, 3)
        except PageError:
            continue
    assert num_taken > 150


@pytest.mark.parametrize("name", ["horribleocr", "newspaper", "small_page_size", "lincoln_letter"])
def test_scans_are_left_to_the_model(corpus: Path, name: str) -> None:
    page = opened(corpus / "real" / f"olmocr_{name}.pdf")
    assert not [glyph for glyph in page.glyphs if glyph.text.strip(" \xa0\ufffd")]


def test_a_line_of_which_a_box_leaves_letters_out_is_left_to_the_model(tmp_path: Path) -> None:
    page = page_of(tmp_path, write)
    assert taken(page, (0.05, 0.18, 0.95, 0.45)) == SAID
    assert taken(page, (0.05, 0.185, 0.95, 0.45)) is None
    assert taken(page, (0.05, 0.195, 0.95, 0.45)) == SAID[SAID.index("elf") :]


def test_a_line_that_goes_on_beside_a_box_is_left_to_the_model_wherever_its_edge_is(tmp_path: Path) -> None:
    text = "Total of the amounts that are due 123 456"
    page = page_of(tmp_path, lambda page: page.insert_text((40, 60), text, fontsize=14))
    right = 40 + pymupdf.get_text_length(text, fontsize=14)
    ends = {taken(page, (0.05, 0.1, edge / 400, 0.45)) for edge in range(60, int(right) - 4, 2)}
    assert ends == {None}
    assert taken(page, (0.05, 0.1, (right + 2) / 400, 0.45)) == text
