"""A PDF page that lost what other readers show, or ask for, says so; and is the same whatever was drawn before it."""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from PIL import Image

from batchocr.data import Page
from batchocr.errors import PageError
from batchocr.pages.input.render import open_document
from tests.conftest import ROOT
from tests.support.pdf_files import FLATE, GREY, JPEG, WIDTH, lines, page, page_of, pdf, scan, stream, text_pages

HALF_JPEG = JPEG[: len(JPEG) // 2] + b"\xff\xd9"
CORRUPT = "1 of the page's images is corrupt"
XFA = "the document is an XFA form, whose content is not in its pages: print it to a PDF first"
PORTFOLIO = "the document is a portfolio, and the files in it are not read: extract them first"
UPDATE = "the file ends within its last update: what that changed is not in its pages"


def lacks(number: int) -> str:
    return f"the file lacks {number} of the objects that the page is drawn with"


def said(path: Path, indices: Sequence[int]) -> dict[int, tuple[str | None, str]]:
    """What is said of these pages, and a digest of their pixels, drawn one after the other in a document."""
    found: dict[int, tuple[str | None, str]] = {}
    with closing(open_document(str(path), password="batchocr", dpi=40)) as document:
        for index in indices:
            try:
                drawn: Page = document.render(index)
                found[index] = drawn.lost, hashlib.sha256(drawn.image.tobytes()).hexdigest()
            except PageError as error:
                found[index] = f"failed: {error}", ""
    return found


def lost(folder: Path, data: bytes) -> str | None:
    (folder / "a.pdf").write_bytes(data)
    return said(folder / "a.pdf", [0])[0][0]


def with_entries(data: bytes, catalogue: bytes = b"", first_page: bytes = b"") -> bytes:
    """A PDF with more entries in its catalogue and first page. MuPDF repairs the offsets, so these are mended here."""
    data = data.replace(b"<</Type /Catalog", b"<</Type /Catalog " + catalogue, 1)
    data = data.replace(b"<</Type /Page /", b"<</Type /Page " + first_page + b" /", 1)
    bodies = data[data.index(b"1 0 obj") : data.index(b"xref\n")].split(b"endobj\n")[:-1]
    return pdf(*(body.partition(b" obj\n")[2].rstrip(b"\n") for body in bodies))


TEXT = text_pages(stream(lines("words")))


@pytest.mark.parametrize(
    ("catalogue", "expected"),
    [
        (b"/NeedsRendering true /AcroForm <</XFA 9 0 R /Fields []>>", XFA),
        (b"/AcroForm <</XFA [(template) 9 0 R] /Fields []>>", XFA),
        (b"/AcroForm <</XFA 9 0 R>>", XFA),
        (b"/AcroForm <</XFA 9 0 R /Fields [4 0 R]>>", None),
        (b"/AcroForm <</Fields []>>", None),
        (b"/Collection <</View /T>>", PORTFOLIO),
    ],
)
def test_a_form_or_portfolio_whose_content_is_elsewhere_says_so(
    tmp_path: Path, catalogue: bytes, expected: str | None
) -> None:
    assert lost(tmp_path, with_entries(TEXT, catalogue)) == expected


@pytest.mark.parametrize(
    ("data", "filters"),
    [
        (zlib.compress(HALF_JPEG), b"[/FlateDecode /DCTDecode]"),
        (base64.a85encode(HALF_JPEG) + b"~>", b"[/ASCII85Decode /DCTDecode]"),
        (HALF_JPEG.hex().encode() + b">", b"[/ASCIIHexDecode/DCTDecode]"),
        (zlib.compress(HALF_JPEG.hex().encode() + b">"), b"[/FlateDecode /ASCIIHexDecode /DCTDecode]"),
        (HALF_JPEG, b"[/DCTDecode]"),
    ],
)
def test_a_truncated_jpeg_is_told_behind_any_filter(tmp_path: Path, data: bytes, filters: bytes) -> None:
    assert lost(tmp_path, scan(GREY + b"/Filter " + filters, data)) == CORRUPT


def test_a_sound_jpeg_behind_other_filters_is_not_told(tmp_path: Path) -> None:
    for data, filters in ((zlib.compress(JPEG), b"[/FlateDecode /DCTDecode]"), (JPEG.hex().encode(), b"[/AHx /DCT]")):
        assert lost(tmp_path, scan(GREY + b"/Filter " + filters, data)) is None


@pytest.mark.parametrize(("data", "expected"), [(JPEG, None), (HALF_JPEG, CORRUPT)])
@pytest.mark.parametrize(
    "names", [b"/W 200 /H 300 /BPC 8 /CS /G /F /DCT", b"/F [/AHx /DCT] /W 200 /H 300 /BPC 8 /CS /G"]
)
@pytest.mark.parametrize("in_form", [False, True])
def test_a_truncated_jpeg_within_content_is_told(
    tmp_path: Path, data: bytes, expected: str | None, names: bytes, in_form: bool
) -> None:
    encoded = data.hex().encode() + b">" if b"AHx" in names else data
    content = b"q 200 0 0 300 0 0 cm BI " + names + b" ID " + encoded + b"\nEI Q"
    form = stream(content, b"/Type /XObject /Subtype /Form /BBox [0 0 200 300]")
    assert lost(tmp_path, page_of(b"/I Do", form) if in_form else page_of(content, stream(b""))) == expected


def test_a_truncated_jpeg_as_a_soft_mask_is_told(tmp_path: Path) -> None:
    size = b"/Type /XObject /Subtype /Image /Width 200 /Height 300"
    image = stream(zlib.compress(bytes(200 * 300)), size + FLATE + b"/SMask 6 0 R")
    mask = stream(zlib.compress(HALF_JPEG), size + GREY + b"/Filter [/FlateDecode /DCTDecode]")
    tree = b"<</Type /Pages /Kids [3 0 R] /Count 1>>"
    content = stream(b"0 0 9 9 re f 200 0 0 300 0 0 cm /I Do")
    only = page(4, b"/XObject <</I 5 0 R>>")
    assert CORRUPT in str(lost(tmp_path, pdf(b"<</Type /Catalog /Pages 2 0 R>>", tree, only, content, image, mask)))


STAMP = b"<</Type /Annot /Subtype /Stamp /Rect [9 9 99 99] /F %s /AP <</N %s>> %s>>"


def annotated(annotation: bytes) -> bytes:
    """A page with an annotation, object 6, after its text and an appearance, object 5; behind it, flags and a state."""
    tree = b"<</Type /Pages /Kids [3 0 R] /Count 1>>"
    only = page(4, b"").replace(b"/Type /Page", b"/Type /Page /Annots [6 0 R]")
    seen = stream(b"0 0 9 9 re f", b"/Type /XObject /Subtype /Form /BBox [0 0 9 9]")
    return pdf(b"<</Type /Catalog /Pages 2 0 R>>", tree, only, stream(b"9 9 9 9 re f"), seen, annotation, b"6", b"/Off")


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (STAMP % (b"4", b"5 0 R", b""), None),
        (STAMP % (b"4", b"9 0 R", b""), lacks(1)),
        (STAMP % (b"6", b"9 0 R", b""), None),  # hidden
        (STAMP % (b"7 0 R", b"9 0 R", b""), None),
        (STAMP % (b"4", b"<</On 9 0 R /Off 5 0 R>>", b"/AS 8 0 R"), None),
        (STAMP % (b"4", b"<</On 5 0 R /Off 9 0 R>>", b"/AS /On"), None),
        (STAMP % (b"4", b"<</On 5 0 R /Off 9 0 R>>", b"/AS /Off"), lacks(1)),
        (b"null", lacks(1)),
    ],
)
def test_annotations_that_are_shown_have_to_be_there(tmp_path: Path, annotation: bytes, expected: str | None) -> None:
    assert str(lost(tmp_path, annotated(annotation))).partition("; ")[0] == str(expected)


def test_content_in_another_file_is_missing(tmp_path: Path) -> None:
    inside, outside = stream(lines("words")), stream(b"", b"/F (rest.bin)")
    tree = b"<</Type /Pages /Kids [3 0 R] /Count 1>>"
    only = page(4, b"").replace(b"/Contents 4 0 R", b"/Contents [4 0 R 5 0 R]")
    catalogue = b"<</Type /Catalog /Pages 2 0 R>>"
    assert lost(tmp_path, pdf(catalogue, tree, only, inside, stream(b""))) is None
    assert lost(tmp_path, pdf(catalogue, tree, only, inside, outside)) == lacks(1)


@pytest.mark.parametrize("box", [b"[1000 1000 1200 1200]", b"[0 0 0 0]", b"[-90 -90 -10 -10]", b"[5 5 5 300]"])
def test_a_crop_box_that_leaves_nothing_of_the_sheet_is_ignored(tmp_path: Path, box: bytes) -> None:
    (tmp_path / "whole.pdf").write_bytes(TEXT)
    (tmp_path / "a.pdf").write_bytes(with_entries(TEXT, first_page=b"/CropBox " + box))
    assert said(tmp_path / "a.pdf", [0]) == said(tmp_path / "whole.pdf", [0])


NUMBERS = (b"1000", b"1200", b"1300", b"[5 0 R 5 0 R 6 0 R 7 0 R]", b"10", b"20", b"90", b"2")
"""Objects 5 to 12."""


def shown(folder: Path, entries: bytes) -> Image.Image:
    """A page with two squares, and these entries in place of its sheet."""
    tree = b"<</Type /Pages /Kids [3 0 R] /Count 1>>"
    only = b"<</Type /Page /Parent 2 0 R /Contents 4 0 R %s>>" % entries
    content = stream(b"20 30 40 40 re f 150 250 60 60 re f")
    (folder / "a.pdf").write_bytes(pdf(b"<</Type /Catalog /Pages 2 0 R>>", tree, only, content, *NUMBERS))
    with closing(open_document(str(folder / "a.pdf"), password=None, dpi=72)) as document:
        return document.render(0).image


@pytest.mark.parametrize("box", [b"[1000 1000 1200 1300]", b"[5 0 R 5 0 R 6 0 R 7 0 R]", b"8 0 R"])
def test_a_crop_box_beside_a_sheet_that_begins_elsewhere_is_ignored_also_by_references(
    tmp_path: Path, box: bytes
) -> None:
    sheet = b"/MediaBox [100 200 300 500]"
    assert shown(tmp_path, sheet + b"/CropBox " + box) == shown(tmp_path, sheet)
    assert shown(tmp_path, sheet).getpixel((60, 200)) == (0, 0, 0)


def test_numbers_of_a_page_may_be_references(tmp_path: Path) -> None:
    direct = b"/MediaBox [10 20 90 120] /CropBox [10 20 90 90] /Rotate 90 /UserUnit 2"
    references = b"/MediaBox [9 0 R 10 0 R 90 120] /CropBox [9 0 R 20 11 0 R 90] /Rotate 11 0 R /UserUnit 12 0 R"
    assert shown(tmp_path, references).size == (140, 160)
    assert shown(tmp_path, references) == shown(tmp_path, direct)


def test_a_crop_box_on_the_sheet_crops(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(with_entries(TEXT, first_page=b"/CropBox [50 0 900 900]"))
    with closing(open_document(str(tmp_path / "a.pdf"), password=None, dpi=72)) as document:
        assert document.render(0).image.width == WIDTH - 50


def test_a_file_cut_within_its_last_update_says_so(tmp_path: Path) -> None:
    update = b"4 0 obj\n" + stream(lines("other words")) + b"\nendobj\n"
    trailer = b"xref\n4 1\n%010d 00000 n \ntrailer <</Root 1 0 R /Size 5 /Prev %d>>\nstartxref\n%d\n%%%%EOF\n"
    start = int(TEXT.rpartition(b"startxref")[2].split()[0])
    whole = TEXT + update + trailer % (len(TEXT), start, len(TEXT) + len(update))
    assert lost(tmp_path, whole) is None
    for end in range(len(TEXT) + 12, len(whole) - len(b"startxref\n1234\n%%EOF\n"), 23):
        assert UPDATE in str(lost(tmp_path, whole[:end])), whole[len(TEXT) : end]
    assert lost(tmp_path, whole.removesuffix(b"%%EOF\n")) is None
    assert lost(tmp_path, TEXT + b"<!-- added by a server -->" + bytes(99)) is None


@pytest.mark.parametrize(
    ("kids", "expected"),
    [
        (b"3 0 R 5 0 R", [None, "what the document names as this page is none, but of the type /Font"]),
        (b"3 0 R null 9 0 R", [None, "the page cannot be drawn", "the document names a page that it does not have"]),
        (b"9 0 R 3 0 R", ["the document names a page that it does not have", None]),
    ],
)
def test_a_page_that_is_none_fails_whatever_was_drawn_before(
    tmp_path: Path, kids: bytes, expected: list[str | None]
) -> None:
    tree = b"<</Type /Pages /Kids [%s] /Count %d>>" % (kids, len(expected))
    font = b"<</Type /Font /Subtype /Type1 /BaseFont /Helvetica>>"
    only = page(4, b"/Font <</F1 5 0 R>>")
    path = tmp_path / "a.pdf"
    path.write_bytes(pdf(b"<</Type /Catalog /Pages 2 0 R>>", tree, only, stream(lines("words")), font))
    for index, words in enumerate(require_the_same_in_any_order(path)):
        assert words is None if expected[index] is None else str(expected[index]) in str(words)


def require_the_same_in_any_order(path: Path) -> list[str | None]:
    """Draw pages of a document alone, in order and in reverse. Returns what is said of them."""
    try:
        with closing(open_document(str(path), password="batchocr", dpi=40)) as document:
            count = document.page_count
    except PageError:
        return []
    indices = [index for index in range(count) if index < 6 or index >= count - 2]
    in_order = said(path, indices)
    assert said(path, indices[::-1]) == in_order, path
    assert {index: said(path, [index])[index] for index in indices} == in_order, path
    return [in_order[index][0] for index in indices]


@pytest.mark.parametrize("path", sorted((ROOT / "sample_data" / "documents").iterdir()), ids=lambda path: path.name)
def test_a_page_of_a_sample_document_is_the_same_in_any_order(path: Path) -> None:
    assert set(require_the_same_in_any_order(path)) <= {None}


@pytest.mark.slow
def test_a_page_of_the_corpus_is_the_same_in_any_order(corpus: Path) -> None:
    paths = [path for path in sorted(corpus.rglob("*.*")) if path.parent != corpus]
    assert sum(len(require_the_same_in_any_order(path)) for path in paths) > 100
