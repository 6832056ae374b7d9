"""What is sound is read, and not called damaged; what is of no kind that can be read says of which kind it is."""

from __future__ import annotations

import random
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
from tests.support.pdf_files import deflated, lines, page, pdf, stream, text_pages

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
