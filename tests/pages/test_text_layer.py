"""The text that a PDF has of its own, and where on the drawn page it is."""

from __future__ import annotations

from pathlib import Path

import pymupdf
import pytest

from batchocr.data import Page
from batchocr.pages.input import text_layer
from batchocr.pages.input.render import open_document
from tests.pages.rendering import render
from tests.support.running import raising


def page_of(path: Path, document: pymupdf.Document) -> Page:
    document.save(path)
    return render(path)


@pytest.fixture
def document() -> pymupdf.Document:
    document = pymupdf.open()
    page = document.new_page(width=400, height=200)
    page.insert_text((40, 50), "left office", fontsize=20)
    page.insert_text((300, 150), "low", fontsize=20)
    return document


def darkest(page: Page, x: float, y: float) -> int:
    """The darkest pixel in some px around a place."""
    width, height = page.image.size
    left, top = int(x * width), int(y * height)
    return page.image.convert("L").crop((left - 12, top - 12, left + 12, top + 12)).getextrema()[0]


@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
@pytest.mark.parametrize("cropped", [False, True])
def test_a_words_centre_is_where_it_is_drawn(
    tmp_path: Path, document: pymupdf.Document, rotation: int, cropped: bool
) -> None:
    if cropped:
        document[0].set_cropbox(pymupdf.Rect(30, 20, 390, 180))
    document[0].set_rotation(rotation)
    page = page_of(tmp_path / "a.pdf", document)
    assert sorted(text for _, _, text in page.words) == ["left", "low", "office"]
    assert all(darkest(page, x, y) < 60 for x, y, _ in page.words)
    low = next((x, y) for x, y, text in page.words if text == "low")
    x, y = ((314 - 30) / 360, (144 - 20) / 160) if cropped else (314 / 400, 144 / 200)
    expected = {0: (x, y), 90: (1 - y, x), 180: (1 - x, 1 - y), 270: (y, 1 - x)}[rotation]
    assert low == pytest.approx(expected, abs=0.03)


@pytest.mark.parametrize(("x", "y"), [(0.0, 0.0), (0.3, 0.0), (-0.4, 0.2), (1.5, 1.5)])
def test_text_that_is_drawn_twice_for_bold_or_a_shadow_is_one_text(tmp_path: Path, x: float, y: float) -> None:
    lines = ["the boats lay side by side,", "and the gulls, the the gulls,", "had had to go, II of II: 1 1 1"]
    document = pymupdf.open()
    page = document.new_page(width=400, height=200)
    for shift_x, shift_y in ((0.0, 0.0), (x, y)):
        for number, line in enumerate(lines):
            page.insert_text((40 + shift_x, 50 + 14 * number + shift_y), line, fontsize=11)
    assert [text for _, _, text in page_of(tmp_path / "a.pdf", document).words] == " ".join(lines).split()


def test_text_behind_a_scan_counts(tmp_path: Path) -> None:
    document = pymupdf.open()
    page = document.new_page(width=400, height=200)
    page.insert_text((40, 50), "hidden", fontsize=20, render_mode=3)
    assert [text for _, _, text in page_of(tmp_path / "a.pdf", document).words] == ["hidden"]


def test_what_lies_outside_of_the_page_is_not_its_text(tmp_path: Path, document: pymupdf.Document) -> None:
    document[0].insert_text((40, 900), "below", fontsize=20)
    assert len(page_of(tmp_path / "a.pdf", document).words) == 3


def test_more_text_than_a_page_can_have_is_none(
    tmp_path: Path, document: pymupdf.Document, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_layer, "_MAX_LETTERS", 12)
    monkeypatch.setattr(text_layer.pymupdf.TextPage, "extractWORDS", raising(AssertionError("words take memory")))
    assert page_of(tmp_path / "a.pdf", document).words == ()


@pytest.mark.parametrize(
    "error", [MemoryError(), SystemError("returned a result with an exception set"), RuntimeError("code=2")]
)
def test_a_page_whose_text_cannot_be_had_is_drawn_all_the_same(
    tmp_path: Path, document: pymupdf.Document, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    whole = page_of(tmp_path / "a.pdf", document)
    monkeypatch.setattr(text_layer.pymupdf.TextPage, "extractWORDS", raising(error))
    page = page_of(tmp_path / "b.pdf", document)
    assert (page.words, page.lost, page.image.tobytes()) == ((), None, whole.image.tobytes())


def test_a_page_whose_text_is_for_nothing_has_no_words(tmp_path: Path, document: pymupdf.Document) -> None:
    document.save(tmp_path / "a.pdf")
    assert open_document(str(tmp_path / "a.pdf"), password=None, dpi=72, text_layer="off").render(0).words == ()


def test_an_image_and_a_scan_have_no_words(sample_data: Path) -> None:
    for name in ("fax.tiff", "scanned-letter.png"):
        assert render(sample_data / "documents" / name).words == ()
