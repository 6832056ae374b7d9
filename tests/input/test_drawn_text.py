"""The glyphs that a PDF draws as plain text, and a picture of nothing else."""

from __future__ import annotations

from pathlib import Path

import pymupdf
import pytest
from PIL import Image, ImageChops

from batchocr.data import Page, TextLayer
from batchocr.input import drawn_text
from batchocr.input.pdf import open_pdf
from tests.support.running import raising


def page_of(path: Path, document: pymupdf.Document) -> Page:
    document.save(path)
    opened = open_pdf(str(path), password=None, dpi=144, max_edge=3500, text_layer="use")
    try:
        return opened.render(0)
    finally:
        opened.close()


def layer_of(path: Path, document: pymupdf.Document) -> TextLayer:
    layer = page_of(path, document).layer
    assert layer is not None
    return layer


@pytest.fixture
def document() -> pymupdf.Document:
    document = pymupdf.open()
    document.new_page(width=300, height=100).insert_text((20, 50), "An office", fontsize=20)
    return document


def said(layer: TextLayer) -> str:
    return "".join(glyph.text for glyph in layer.glyphs)


def test_glyphs_are_where_they_are_drawn(tmp_path: Path, document: pymupdf.Document) -> None:
    page = page_of(tmp_path / "a.pdf", document)
    assert page.layer is not None
    first, last = page.layer.glyphs[0], page.layer.glyphs[-1]
    assert said(page.layer) == "An office"
    assert (first.x, first.y, first.size) == pytest.approx((40, 100, 40), abs=0.01)
    black = page.image.convert("L").point([255 * (level < 128) for level in range(256)]).getbbox()
    assert black is not None
    assert black == pytest.approx((first.box[0], first.box[1], last.box[2], first.box[3]), abs=1.5)


def test_the_picture_of_the_glyphs_is_the_page_if_there_is_nothing_else(
    tmp_path: Path, document: pymupdf.Document
) -> None:
    page = page_of(tmp_path / "a.pdf", document)
    assert page.layer is not None
    difference = ImageChops.difference(page.image.convert("L"), ImageChops.invert(page.layer.ink))
    assert difference.getextrema() in ((0, 0), (0, 1))
    document[0].draw_rect((10, 10, 200, 80), fill=(0, 0, 0))
    covered = page_of(tmp_path / "b.pdf", document)
    assert covered.layer is not None
    assert covered.layer.ink.tobytes() == page.layer.ink.tobytes()
    assert covered.layer.glyphs == page.layer.glyphs


@pytest.mark.parametrize("rotation", [90, 180, 270])
def test_a_page_that_is_turned_with_its_text_has_none(
    tmp_path: Path, document: pymupdf.Document, rotation: int
) -> None:
    document[0].set_rotation(rotation)
    assert page_of(tmp_path / "a.pdf", document).layer is None


def test_equal_shapes_have_equal_numbers_and_other_fonts_have_others(
    tmp_path: Path, document: pymupdf.Document
) -> None:
    document[0].insert_text((20, 80), "of", fontsize=12)
    document[0].insert_text((100, 80), "of", fontsize=12, fontname="tiro")
    glyphs = layer_of(tmp_path / "a.pdf", document).glyphs
    assert len({glyph.font for glyph in glyphs}) == 2
    shapes = [glyph.shape for glyph in glyphs]
    [first_o, second_o, third_o] = [glyph.shape for glyph in glyphs if glyph.text == "o"]
    assert first_o == second_o != third_o
    assert len(set(shapes)) == len(set("An office")) + len("of")


def test_a_squeezed_glyph_has_another_shape(tmp_path: Path, document: pymupdf.Document) -> None:
    squeezed = (pymupdf.Point(20, 80), pymupdf.Matrix(0.7, 1))
    document[0].insert_text((20, 80), "of", fontsize=20, morph=squeezed)
    [plain, narrow] = [glyph for glyph in layer_of(tmp_path / "a.pdf", document).glyphs if glyph.text == "o"]
    assert plain.font == narrow.font
    assert plain.shape != narrow.shape
    assert narrow.advance == pytest.approx(0.7 * plain.advance)


@pytest.mark.parametrize(
    "options",
    [
        {"rotate": 90},
        {"morph": (pymupdf.Point(20, 80), pymupdf.Matrix(1, 0, 0.3, 1, 0, 0))},  # slanted
        {"morph": (pymupdf.Point(40, 80), pymupdf.Matrix(-1, 1))},  # mirrored
        {"morph": (pymupdf.Point(20, 80), pymupdf.Matrix(2, 1))},  # stretched
        {"render_mode": 1},
        {"render_mode": 3},
        {"fontsize": 3},
        {"fontname": "symb"},
    ],
)
def test_text_that_is_not_plain_is_neither_listed_nor_drawn(
    tmp_path: Path, document: pymupdf.Document, options: dict[str, object]
) -> None:
    plain = layer_of(tmp_path / "a.pdf", document)
    document[0].insert_text((20, 80), "other", **options)
    layer = layer_of(tmp_path / "b.pdf", document)
    assert said(layer) == "An office"
    assert layer.ink.tobytes() == plain.ink.tobytes()


def test_without_text_or_use_for_it_there_is_no_layer(tmp_path: Path, document: pymupdf.Document) -> None:
    blank = pymupdf.open()
    blank.new_page()
    assert page_of(tmp_path / "a.pdf", blank).layer is None
    document.save(tmp_path / "b.pdf")
    assert open_pdf(str(tmp_path / "b.pdf"), password=None, dpi=72, max_edge=3500).render(0).layer is None
    off = open_pdf(str(tmp_path / "b.pdf"), password=None, dpi=72, max_edge=3500, text_layer="off").render(0)
    assert (off.layer, off.words) == (None, ())


def test_a_page_with_too_many_glyphs_has_no_layer(
    tmp_path: Path, document: pymupdf.Document, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drawn_text, "_MAX_GLYPHS", 8)
    assert page_of(tmp_path / "a.pdf", document).layer is None


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("no such glyph")])
def test_a_page_is_drawn_even_if_its_text_cannot_be(
    tmp_path: Path, document: pymupdf.Document, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(drawn_text._Font, "ink_of", raising(error))
    page = page_of(tmp_path / "a.pdf", document)
    assert page.layer is None
    assert isinstance(page.image, Image.Image)
