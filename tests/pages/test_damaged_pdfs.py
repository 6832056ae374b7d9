"""A page that lost something is never ok; one that lost nothing is, whatever MuPDF says about it."""

from __future__ import annotations

import random
import zlib
from collections import Counter
from contextlib import closing
from pathlib import Path

import pymupdf
import pytest

from batchocr.data import Page
from batchocr.errors import DamagedError, PageError
from batchocr.pages.input.drawn_objects import DrawnObjects
from batchocr.pages.input.mupdf_warnings import lost_content
from batchocr.pages.input.pdf_objects import object_text
from batchocr.pages.input.render import RenderableDocument
from tests.pages.rendering import opened, written
from tests.support.pdf_files import (
    CCITT,
    DCT,
    FLATE,
    GREY,
    JBIG2,
    JPEG,
    JPX,
    deflated,
    encoded,
    letter,
    lines,
    page,
    pdf,
    scan,
    stream,
    text_pages,
)

JPEG_2000, DEFLATED = encoded(letter(), "JPEG2000"), zlib.compress(letter().tobytes())


def pages(folder: Path, data: bytes) -> list[Page | PageError]:
    """Each page, or why it has none; the error alone if the document cannot be opened."""
    try:
        document = opened(written(folder / "a.pdf", data))
    except PageError as error:
        return [error]
    with closing(document):
        return [rendered(document, index) for index in range(document.page_count)]


def rendered(document: RenderableDocument, page_index: int) -> Page | PageError:
    try:
        return document.render(page_index)
    except PageError as error:
        return error


def only_page(folder: Path, data: bytes) -> Page:
    [found] = pages(folder, data)
    assert isinstance(found, Page), found
    return found


# --- Cut off -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["plain", "deflated", "object streams"])
def test_a_page_of_a_pdf_cut_off_anywhere_is_not_ok_unless_it_looks_as_before(tmp_path: Path, form: str) -> None:
    encode = stream if form == "plain" else deflated
    data = text_pages(*(encode(lines(f"words of page {number}")) for number in range(3)))
    if form == "object streams":
        with pymupdf.open(stream=data) as document:
            data = document.tobytes(garbage=3, deflate=True, use_objstms=1)
    sound = pages(tmp_path, data)
    for length in range(9, len(data) - 1, 61):
        found = pages(tmp_path, data[:length])
        assert found, f"no row after {length} bytes"
        for after, before in zip(found, sound, strict=False):
            assert isinstance(before, Page)
            told = isinstance(after, PageError) or after.lost is not None
            assert told or after.image == before.image, f"{length} of {len(data)} bytes"
        assert len(found) == len(sound) or isinstance(found[-1], PageError), f"{length} of {len(data)} bytes"


def test_a_pdf_of_which_a_repair_finds_no_page_is_damaged(tmp_path: Path) -> None:
    whole = text_pages(stream(lines("words")))
    [error] = pages(tmp_path, whole[: whole.index(b"2 0 obj")])
    assert str(error).startswith("no page is left of the document")
    [error] = pages(tmp_path, whole[: whole.index(b"3 0 obj")])
    assert isinstance(error, DamagedError)


@pytest.mark.parametrize("fields", [None, b"/Count 0", b"/Count 1 /Kids [9 0 R]", b"/Count 0 /Kids [2 0 R 2 0 R]"])
def test_a_document_whose_page_tree_is_gone_or_leads_nowhere_or_back_is_not_one_without_pages(
    tmp_path: Path, fields: bytes | None
) -> None:
    tree = b"null" if fields is None else b"<</Type /Pages %s>>" % fields
    data = pdf(b"<</Type /Catalog /Pages 2 0 R>>", tree)
    assert all(isinstance(found, DamagedError) for found in pages(tmp_path, data))
    assert pages(tmp_path, data)


def test_zeros_between_objects_are_a_hole_and_those_in_a_stream_or_behind_the_end_are_none(tmp_path: Path) -> None:
    whole = text_pages(stream(lines("words") + b"\n%" + bytes(600)))
    for content, lost in (
        (whole, None),
        (whole + bytes(600), None),
        (whole.replace(b"endobj", b"endobj" + bytes(128), 1), "the file has zeros where some of its objects should be"),
    ):
        assert only_page(tmp_path, content).lost == lost


def test_a_document_that_was_made_without_pages_has_none(tmp_path: Path) -> None:
    assert pages(tmp_path, pdf(b"<</Type /Catalog /Pages 2 0 R>>", b"<</Type /Pages /Count 0 /Kids []>>")) == []


# --- Damaged within ----------------------------------------------------------------------------------------------


def halved(data: bytes) -> bytes:
    return data[: len(data) // 2]


@pytest.mark.parametrize(
    ("entries", "data"),
    [(DCT, halved(JPEG)), (FLATE, halved(DEFLATED))],
    ids=["half a JPEG", "half a deflated image"],
)
def test_a_page_whose_image_is_damaged_is_drawn_and_says_what_mupdf_says(
    tmp_path: Path, entries: bytes, data: bytes
) -> None:
    lost = only_page(tmp_path, scan(entries, data)).lost
    assert lost is not None
    assert "MuPDF says: " in lost


@pytest.mark.parametrize(
    ("entries", "data"),
    [
        *((DCT, b""), (CCITT, b""), (JBIG2, b""), (JPX, b""), (FLATE, b"")),
        *((DCT, bytes(999)), (JPX, bytes(999)), (JBIG2, b"nonsense" * 9), (FLATE, bytes(999))),
        (JPX, halved(JPEG_2000)),
    ],
    ids=[
        *("empty JPEG", "empty CCITT", "empty JBIG2", "empty JPEG 2000", "empty Flate"),
        *("zeroed JPEG", "zeroed JPEG 2000", "nonsense JBIG2", "zeroed Flate"),
        "half a JPEG 2000",
    ],
)
def test_a_page_whose_only_image_cannot_be_decoded_is_damaged(tmp_path: Path, entries: bytes, data: bytes) -> None:
    [error] = pages(tmp_path, scan(entries, data))
    assert isinstance(error, DamagedError)
    assert str(error).startswith("nothing of the page can be drawn: ")
    assert "MuPDF says: " in str(error)


@pytest.mark.parametrize("start", [0.6, 0.8])
def test_a_jpeg_that_libjpeg_finds_corrupt_is_so(tmp_path: Path, start: float) -> None:
    position = int(start * len(JPEG))
    found = only_page(tmp_path, scan(DCT, JPEG[:position] + bytes(range(60)) + JPEG[position + 60 :]))
    assert found.lost == "1 of the page's images is corrupt"


@pytest.mark.parametrize("seed", range(8))
def test_a_deflated_image_is_looked_at_up_to_its_checksum(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    start = dice.randrange(100, len(DEFLATED) - 100)
    found = pages(tmp_path, scan(FLATE, DEFLATED[:start] + dice.randbytes(60) + DEFLATED[start + 60 :]))
    assert all(isinstance(one, DamagedError) or one.lost for one in found)


@pytest.mark.parametrize("content", [b"BT /F1 ] >> (", b"\x80\x81 \xff ) } nonsense"])
def test_a_page_whose_content_is_not_understood_says_so(tmp_path: Path, content: bytes) -> None:
    lost = only_page(tmp_path, text_pages(stream(lines("words") + b"\n" + content))).lost
    assert lost is not None
    assert "syntax error" in lost


def test_a_page_whose_content_cannot_be_inflated_is_damaged_and_half_of_it_degraded(tmp_path: Path) -> None:
    content = zlib.compress(lines("words"))
    [found] = pages(tmp_path, text_pages(stream(bytes(len(content)), b"/Filter /FlateDecode")))
    assert isinstance(found, DamagedError)
    assert only_page(tmp_path, text_pages(stream(halved(content), b"/Filter /FlateDecode"))).lost


@pytest.mark.parametrize("lacking", ["content", "image", "font", "resources"])
def test_a_page_that_lacks_an_object_says_so(tmp_path: Path, lacking: str) -> None:
    catalogue, tree = b"<</Type /Catalog /Pages 2 0 R>>", b"<</Type /Pages /Kids [3 0 R] /Count 1>>"
    resources = b"/XObject <</I 9 0 R>>" if lacking == "image" else b"/Font <</F1 9 0 R>>"
    one = page(
        8 if lacking == "content" else 4, resources.replace(b"9 0 R", b"<<>>") if lacking == "content" else resources
    )
    if lacking == "resources":
        one = one.replace(b"<<" + resources + b">>", b"9 0 R")
    content = lines("words") + b" 0 0 20 20 re f" + b" /I Do" * (lacking == "image")
    [found] = pages(tmp_path, pdf(catalogue, tree, one, stream(content)))
    told = str(found) if isinstance(found, DamagedError) else found.lost if isinstance(found, Page) else None
    assert told is not None
    assert "the file lacks 1 of the objects that the page is drawn with" in told


def test_every_page_that_uses_a_damaged_image_says_so(tmp_path: Path) -> None:
    document = pymupdf.open(stream=scan(DCT, halved(JPEG)))
    document.fullcopy_page(0)
    found = pages(tmp_path, document.tobytes())
    assert [isinstance(one, Page) and bool(one.lost) for one in found] == [True, True]


def test_many_and_long_warnings_make_a_short_message() -> None:
    lost = lost_content("\n".join([f"broken {number} {'x' * 999}\udcff" for number in range(9)] * 2))
    assert lost is not None
    assert lost.endswith(", and 6 more")
    assert len(lost) < 700
    assert lost.isascii()


# --- Pages that are not claimed, and claimed that are not --------------------------------------------------------


@pytest.mark.parametrize("count", [b"0", b"1", b"2", b"(x)", b"null", b"99 0 R"])
def test_pages_beyond_the_number_claimed_are_read(tmp_path: Path, count: bytes) -> None:
    contents = [stream(lines(f"page {number}")) for number in range(3)]
    sound, found = (pages(tmp_path, text_pages(*contents, count=claimed)) for claimed in (None, count))
    assert [one.image for one in found if isinstance(one, Page)] == [
        one.image for one in sound if isinstance(one, Page)
    ]
    assert len(found) == 3


# --- Sound -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        text_pages(stream(b"10 10 m h S " + lines("a path closed before it began"))),
        text_pages(stream(lines("restored too often") + b" EMC EMC")),
        text_pages(stream(lines("words"))).replace(b"startxref\n", b"startxref\n9"),
        text_pages(stream(b"")),
        text_pages(stream(b"", b"/Filter /FlateDecode")),
        scan(DCT, JPEG),
        scan(DCT, b"\r\n" + JPEG),
        scan(JPX, JPEG_2000),
    ],
    ids=["path", "marks", "repaired", "blank", "blank and deflated", "JPEG", "JPEG behind a line's end", "JPEG 2000"],
)
def test_a_page_that_lost_nothing_is_ok(tmp_path: Path, data: bytes) -> None:
    assert only_page(tmp_path, data).lost is None


@pytest.mark.parametrize("marked", [b"/Properties <</M 9 0 R>>", b"/Properties 9 0 R"])
def test_a_page_may_lack_what_only_marks_its_content(tmp_path: Path, marked: bytes) -> None:
    data = text_pages(stream(b"/OC /M BDC " + lines("words") + b" EMC"))
    assert only_page(tmp_path, data.replace(b"/Resources <<", b"/Resources <<" + marked)).lost is None


def test_what_pages_share_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: Counter[int] = Counter()

    def counted(document: pymupdf.Document, number: int) -> str:
        read[number] += 1
        return object_text(document, number)

    monkeypatch.setattr("batchocr.pages.input.drawn_objects.object_text", counted)
    box = b"/MediaBox [0 0 9 9] /Resources <</XObject <</I 5 0 R>>>>"
    tree = b"<</Type /Pages /Kids [3 0 R 3 0 R] /Count 2 %s>>" % box
    only = b"<</Type /Page /Parent 2 0 R /Contents 4 0 R>>"
    image = stream(bytes(1), b"/Type /XObject /Subtype /Image /Width 1 /Height 1" + GREY)
    data = pdf(b"<</Type /Catalog /Pages 2 0 R>>", tree, only, stream(b"/I Do"), image)
    objects = DrawnObjects(pymupdf.open(stream=data, filetype="pdf"))
    assert [objects.faults(3), objects.faults(3)] == [[], []]
    assert read[5] == 1


@pytest.mark.parametrize("unit", [b"0", b"-0.0"])
def test_a_page_without_a_size_is_damaged(tmp_path: Path, unit: bytes) -> None:
    data = text_pages(stream(lines("words"))).replace(b"/Type /Page /", b"/UserUnit %s /Type /Page /" % unit)
    [found] = pages(tmp_path, data)
    assert isinstance(found, DamagedError)
    assert str(found) == "the page has no size"
