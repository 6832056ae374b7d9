"""What is sound is read, and not called damaged; what is of no kind that can be read says of which kind it is."""

from __future__ import annotations

import random
import zlib
from contextlib import closing
from pathlib import Path

import pytest

from batchocr.errors import EncryptedError
from batchocr.pages.input.pdf import PdfDocument
from tests.pages.rendering import opened, render, written
from tests.support.pdf_files import lines, page, pdf, stream, text_pages

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
    ],
)
def test_a_stream_that_lacks_only_the_mark_of_its_end_lost_nothing(
    tmp_path: Path, content: bytes, form: bytes
) -> None:
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


# --- Encryption# --- Encryption without a password -------------------------------------------------------------------------------


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
