"""What is sound is read, and not called damaged; what is of no kind that can be read says of which kind it is."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import ImageCms

from batchocr.data import Page
from batchocr.errors import EncryptedError
from batchocr.pages.input.mupdf_warnings import lost_content
from batchocr.pages.input.pdf import PdfDocument
from tests.pages.rendering import opened, render, written
from tests.support.pdf_files import (
    DCT,
    JPEG,
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

PROFILE = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
SRGB = deflated(PROFILE, b"/N 4 /Alternate /DeviceCMYK")
TEXT = text_pages(stream(lines("words")))


def bodies_of(data: bytes) -> list[bytes]:
    """The objects of a PDF that `pdf` made."""
    numbered = data[data.index(b"1 0 obj") : data.index(b"xref\n")].split(b"\nendobj\n")[:-1]
    return [body.partition(b" obj\n")[2] for body in numbered]


# --- Pages -------------------------------------------------------------------------------------------------------


def test_a_page_in_place_of_the_tree_of_pages_is_read(tmp_path: Path) -> None:
    plain = render(written(tmp_path / "plain.pdf", TEXT))
    path = written(tmp_path / "a.pdf", TEXT.replace(b"/Pages 2 0 R", b"/Pages 3 0 R"))
    assert render(path) == plain
    document = opened(path)
    assert isinstance(document, PdfDocument)
    with closing(document), document.copy_at(str(path)) as copy:
        assert document.page_count == copy.page_count == 1


def test_a_page_is_read_though_the_document_claims_fewer_than_none(tmp_path: Path) -> None:
    plain = render(written(tmp_path / "plain.pdf", TEXT))
    assert render(written(tmp_path / "a.pdf", TEXT.replace(b"/Count 1", b"/Count -1"))) == plain


def test_pages_within_the_tree_are_read_as_those_that_are_objects_of_their_own(tmp_path: Path) -> None:
    contents = stream(lines("one")), stream(lines("two"))
    path = written(tmp_path / "plain.pdf", text_pages(*contents))
    plain = [render(path, index) for index in range(2)]
    catalogue, _, one, first, two, second = bodies_of(text_pages(*contents))
    tree = b"<</Type /Pages /Kids [%s %s] /Count 2>>" % (one, two)
    path = written(tmp_path / "a.pdf", pdf(catalogue, tree, b"<<>>", first, b"<<>>", second))
    assert [render(path, index) for index in range(2)] == plain


# --- Streams that end in another way -----------------------------------------------------------------------------


def flushed(data: bytes) -> bytes:
    """Deflated as PDFium and Acrobat do it: with a flush where its last block and its checksum should be."""
    deflate = zlib.compressobj()
    return deflate.compress(data) + deflate.flush(zlib.Z_SYNC_FLUSH)


FORM, FLATE = b"/Type /XObject /Subtype /Form /BBox [0 0 200 300]", b"/Filter /FlateDecode"
HEADER = b"\x78\xda"


def page_with(content: bytes, form: bytes) -> bytes:
    """A page. content: its content stream. form: what that may draw as /I."""
    tree = b"<</Type /Pages /Kids [3 0 R] /Count 1>>"
    return pdf(b"<</Type /Catalog /Pages 2 0 R>>", tree, page(4, b"/XObject <</I 5 0 R>>"), content, form)


@pytest.mark.parametrize(
    ("content", "form"),
    [
        (flushed(b"9 9 99 99 re f"), flushed(b"")),
        (zlib.compress(b"/I Do"), flushed(b"9 9 99 99 re f")),
        (zlib.compress(b"9 9 99 99 re f /I Do"), HEADER),
        (flushed(b"9 9 99 99 re f"), HEADER),
        (zlib.compress(b"9 9 99 99 re f")[:-3], b""),
    ],
    ids=["all", "a form", "an empty form", "all, and an empty form", "a checksum cut off"],
)
def test_a_stream_that_lacks_only_the_mark_of_its_end_lost_nothing(tmp_path: Path, content: bytes, form: bytes) -> None:
    plain = render(written(tmp_path / "plain.pdf", page_with(stream(b"9 9 99 99 re f"), stream(b"", FORM))))
    data = page_with(stream(content, FLATE), stream(form, FORM + FLATE))
    assert render(written(tmp_path / "a.pdf", data)) == plain


ROWS = zlib.compress(random.Random(0).randbytes(200 * 300))[: 200 * 100]


@pytest.mark.parametrize(
    "form",
    [
        stream(zlib.compress(b"9 9 99 99 re f " * 99)[:-9], FORM + FLATE),
        stream(b"200 0 0 300 0 0 cm BI /W 200 /H 300 /BPC 8 /CS /G /F /Fl ID " + ROWS + b"\nEI", FORM),
    ],
    ids=["form", "image within it"],
)
def test_a_stream_that_was_cut_is_told_beside_one_that_lacks_only_the_mark_of_its_end(
    tmp_path: Path, form: bytes
) -> None:
    data = page_with(stream(flushed(b"9 9 9 9 re f /I Do"), FLATE), form)
    assert "premature end of data in flate filter" in str(render(written(tmp_path / "a.pdf", data)).lost)


@pytest.mark.parametrize(
    "entry", [b"/Contents [null 4 0 R null]", b"/Contents 4 0 R /Annots [null]"], ids=["contents", "annotations"]
)
def test_a_null_in_a_list_is_nothing(tmp_path: Path, entry: bytes) -> None:
    plain = render(written(tmp_path / "plain.pdf", TEXT))
    catalogue, tree, only, content = bodies_of(TEXT)
    data = pdf(catalogue, tree, only.replace(b"/Contents 4 0 R", entry), content)
    assert render(written(tmp_path / "a.pdf", data)) == plain


def test_a_filter_that_names_no_cipher_changes_nothing(tmp_path: Path) -> None:
    plain = render(written(tmp_path / "plain.pdf", TEXT))
    crypt = b"/Filter [/Crypt] /DecodeParms [<</Name /Identity>>]"
    data = text_pages(stream(lines("words"), crypt))
    assert render(written(tmp_path / "a.pdf", data)) == plain


# --- JPEGs -------------------------------------------------------------------------------------------------------


def sized(jpeg: bytes, width: int, height: int) -> bytes:
    """A JPEG that says to have this size."""
    place = jpeg.index(b"\xff\xc0")
    return jpeg[: place + 5] + struct.pack(">2H", height, width) + jpeg[place + 9 :]


@pytest.mark.parametrize("data", [JPEG[:-2], sized(JPEG, 200, 65_000)], ids=["without its end", "65,000 rows"])
def test_a_jpeg_is_sound_that_has_the_rows_that_are_drawn(tmp_path: Path, data: bytes) -> None:
    plain = render(written(tmp_path / "plain.pdf", scan(DCT, JPEG)))
    assert render(written(tmp_path / "a.pdf", scan(DCT, data))) == plain


@pytest.mark.parametrize("size", [(200, 600), (400, 300), (100, 300), (100, 150)])
def test_a_jpeg_of_another_size_than_the_document_gives_it_is_told(tmp_path: Path, size: tuple[int, int]) -> None:
    data = encoded(letter().resize(size), "JPEG")
    assert "is corrupt" in str(render(written(tmp_path / "a.pdf", scan(DCT, data))).lost)


@pytest.mark.parametrize(("progressive", "cut", "lost"), [(False, 2, False), (False, 99, True), (True, 2, True)])
def test_a_jpeg_file_is_decoded_to_its_last_row_without_the_mark_of_its_end(
    tmp_path: Path, progressive: bool, cut: int, lost: bool
) -> None:
    data = encoded(letter(), "JPEG", progressive=progressive)
    page = render(written(tmp_path / "a.jpg", data[:-cut]))
    assert (page.lost is not None) == lost
    assert cut > 2 or page.image == render(written(tmp_path / "plain.jpg", data)).image


# --- Zeros in strings --------------------------------------------------------------------------------------------

HOLE = "the file has zeros where some of its objects should be"


@pytest.mark.parametrize(
    ("string", "lost"),
    [
        (b"(%s)" % bytes(600), None),
        (b"(\\\\ \\( (a) %s \\) %s)(b)" % (bytes(200), bytes(200)), None),
        (b"(a) %s (b)" % bytes(600), HOLE),
        (b"(a %s" % bytes(600), HOLE),
    ],
    ids=["padded", "with parentheses", "between strings", "without an end"],
)
def test_zeros_are_a_hole_unless_they_are_within_a_string(tmp_path: Path, string: bytes, lost: str | None) -> None:
    other = b"<</Type /Sig /Contents [%s]>>" % string
    data = pdf(*bodies_of(TEXT), other, b"<<>>")
    assert str(render(written(tmp_path / "a.pdf", data)).lost) == str(lost)


def test_zeros_before_the_header_are_no_hole(tmp_path: Path) -> None:
    plain = render(written(tmp_path / "plain.pdf", TEXT))
    assert render(written(tmp_path / "a.pdf", bytes(500) + TEXT)) == plain


# --- What is not drawn -------------------------------------------------------------------------------------------


def marked(
    *, page: bytes = b"", catalogue: bytes = b"", more: Sequence[bytes] = (), content: bytes = lines("words")
) -> bytes:
    """A PDF with more entries in its page and its catalogue, and more objects: 5 and on."""
    first, tree, only, _ = bodies_of(TEXT)
    return pdf(first.replace(b"/Type", catalogue + b"/Type"), tree, only[:-2] + page + b">>", stream(content), *more)


LINK = b"/Annots [<</Subtype /Link /Rect [0 0 50 50] /Border [0 0 0] /Dest %s>>]"
GO_TO = b"/Annots [<</Subtype /Link /Rect [0 0 50 50] /Border [0 0 0] /A <</S /GoToR /F 7 /D [0 /Fit]>>>>]"
ICC = b"/Group <</S /Transparency /CS [/ICCBased 5 0 R]>>"
NO_ICC = deflated(b"no profile", b"/N 3 /Alternate /DeviceRGB")
CUT_ICC = stream(zlib.compress(bytes(99) * 99)[:-9], b"/N 3 /Alternate /DeviceRGB /Filter /FlateDecode")
BAD_ICC = stream(b"no deflated data at all", b"/N 3 /Alternate /DeviceRGB /Filter /FlateDecode")
STAMP = b"<</Subtype /Stamp /Rect [9 9 99 99] /F 4 /AP <</N 7 0 R>>>>"
STAMPED = stream(b"/F Do", b"/Subtype /Form /BBox [0 0 9 9] /Resources <</XObject <</F 6 0 R>>>>")
EMPTY_FORM = stream(b"", b"/Subtype /Form /BBox [0 0 9 9]")

NOT_DRAWN = {
    "layers without a default": {
        "catalogue": b"/OCProperties <</OCGs [5 0 R]>>",
        "page": b"/Annots [6 0 R]",
        "more": [b"<</Type /OCG /Name (A)>>", STAMP[:-2] + b"/OC 5 0 R>>", EMPTY_FORM],
    },
    "a link to no page": {"page": LINK % b"[99 /Fit]"},
    "a link to nothing": {"page": LINK % b"[]"},
    "a link to an action": {"page": LINK % b"<</S /GoTo /D [3 0 R /Fit]>>"},
    "a link to no file": {"page": GO_TO},
    "a profile that is none": {"page": ICC, "more": [NO_ICC]},
    "a profile cut off": {"page": ICC, "more": [CUT_ICC]},
    "a profile that cannot be inflated": {"page": ICC, "more": [BAD_ICC]},
    "no space to blend colours in": {"page": b"/Group <</S /Transparency /CS 9 0 R>>"},
    "a profile for another number of colours": {"page": ICC, "more": [SRGB]},
    "a state that is not there": {"content": lines("words") + b" /G gs"},
    "too many states restored": {"content": lines("words") + b" Q Q"},
    "a kind of note that none draws": {"page": b"/Annots [<</Subtype /Movie /Rect [0 0 9 9]>>]"},
    "a stamp by Acrobat": {"page": b"/Annots [5 0 R]", "more": [STAMP, EMPTY_FORM, STAMPED]},
    "a note that looks like object 0": {
        "page": b"/Annots [5 0 R]",
        "more": [b"<</Subtype /Stamp /Rect [0 0 0 0] /AP <</N 0 0 R>>>>"],
    },
}


@pytest.mark.parametrize("what", NOT_DRAWN)
def test_a_page_loses_nothing_by_what_is_not_drawn(tmp_path: Path, what: str) -> None:
    entries: dict[str, Any] = NOT_DRAWN[what]
    page = render(written(tmp_path / "a.pdf", marked(**entries)))
    assert page.lost is None
    assert ink_of(page) == pytest.approx(ink_of(render(written(tmp_path / "b.pdf", TEXT))), abs=2)


EMPTY = b"<</Type /OCMD /OCGs []>>"
LAYERS = b"/OCProperties <</OCGs [5 0 R] /D <<>>>>"
BOX = b"9 9 99 99 re f"


@pytest.mark.parametrize(
    ("resources", "content", "form"),
    [
        (b"/Properties <</P 6 0 R>>", b"/OC /P BDC %s EMC" % BOX, b""),
        (b"/XObject <</F 7 0 R>>", b"/F Do", b"/OC 6 0 R"),
        (b"/XObject <</F 7 0 R>>", b"/F Do", b"/Resources <</Properties <</P 6 0 R>>>>"),
    ],
    ids=["of the page", "a form", "within a form"],
)
def test_what_is_in_a_list_of_no_layers_is_drawn(tmp_path: Path, resources: bytes, content: bytes, form: bytes) -> None:
    within = b"/OC /P BDC %s EMC" % BOX if b"Properties" in form else BOX
    drawn = stream(within, b"/Subtype /Form /BBox [0 0 200 300]" + form)
    catalogue, tree, _, _ = bodies_of(TEXT)
    objects = (tree, page(4, resources), stream(content), b"<</Type /OCG /Name (A)>>", EMPTY, drawn)
    data = pdf(catalogue.replace(b"/Type", LAYERS + b"/Type"), *objects)
    plain = pdf(catalogue, tree, page(4, b""), stream(BOX))
    assert render(written(tmp_path / "a.pdf", data)) == render(written(tmp_path / "plain.pdf", plain))


def ink_of(page: Page) -> float:
    return 255 - float(np.mean(page.image.convert("L")))


@pytest.mark.parametrize(
    ("warnings", "lost"),
    [
        ("format error: one\nignoring broken ICC profile", None),
        ("format error: one\nformat error: two\nignoring broken ICC profile", "format error: one"),
        ("library error: zlib error: one\nread error; treating as end of file", "library error: zlib error: one"),
        ("premature end of data in flate filter\nsyntax error: two\nIgnoring Page blending colorspace.", "premature"),
        ("format error: one\ncannot create appearance stream", "format error: one"),
        ("FT_Load_Glyph(AB+HiddenHorzOCR,7,X): invalid argument\ncannot render glyph", None),
        ("FT_Load_Glyph(Arial,7,X): invalid argument\ncannot render glyph", "FT_Load_Glyph(Arial"),
    ],
)
def test_only_the_error_of_what_is_not_drawn_is_harmless(warnings: str, lost: str | None) -> None:
    said = lost_content(warnings)
    assert said is None if lost is None else said and said.startswith(f"MuPDF says: {lost}")


# --- Encryption without a password -------------------------------------------------------------------------------


def encrypted(entries: bytes) -> bytes:
    """A document said to be encrypted, of which nothing is."""
    keys = b"/U (%s) /O (%s) /UE (%s) /OE (%s) /Perms (%s)" % (b"u" * 48, b"o" * 48, b"u" * 32, b"o" * 32, b"p" * 16)
    return TEXT.replace(b"/Root", b"/ID [(one) (one)] /Encrypt <</P -4 %s %s>> /Root" % (entries, keys))


ATTACHMENTS = b"/CF <</StdCF <</CFM /AESV3 /AuthEvent /EFOpen>>>> /EFF /StdCF"


@pytest.mark.parametrize("rest", [b"", b"/StmF /Identity /StrF /Identity"])
def test_a_document_of_which_only_attachments_are_encrypted_needs_no_password(tmp_path: Path, rest: bytes) -> None:
    plain = render(written(tmp_path / "plain.pdf", TEXT))
    path = written(tmp_path / "a.pdf", encrypted(b"/Filter /Standard /V 5 /R 6" + ATTACHMENTS + rest))
    for password in (None, "any"):
        assert render(path, password=password) == plain
    path = written(tmp_path / "b.pdf", encrypted(b"/Filter /Standard /V 5 /R 6 /StmF /StdCF" + ATTACHMENTS))
    with pytest.raises(EncryptedError, match="asks for a password"):
        render(path)


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        (b"/Filter /Adobe.PubSec /V 4", "for a certificate"),
        (b"/Filter /FOPN_fLock /V 1", "in a way that is not known here"),
        (b"/Filter /Standard /V 6 /R 7", "in a way that is not known here"),
    ],
)
def test_a_document_that_no_password_opens_is_encrypted_and_not_damaged(
    tmp_path: Path, entries: bytes, words: str
) -> None:
    with pytest.raises(EncryptedError, match=words):
        render(written(tmp_path / "a.pdf", encrypted(entries)))
