"""What is sound is read, and not called damaged; what is of no kind that can be read says of which kind it is."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from batchocr.errors import EncryptedError
from batchocr.pages.input.pdf import PdfDocument
from tests.pages.rendering import opened, render, written
from tests.support.pdf_files import lines, stream, text_pages

TEXT = text_pages(stream(lines("words")))


# --- Pages -------------------------------------------------------------------------------------------------------


def test_a_page_in_place_of_the_tree_of_pages_is_read(tmp_path: Path) -> None:
    plain = render(written(tmp_path / "plain.pdf", TEXT))
    path = written(tmp_path / "a.pdf", TEXT.replace(b"/Pages 2 0 R", b"/Pages 3 0 R"))
    assert render(path) == plain
    document = opened(path)
    assert isinstance(document, PdfDocument)
    with closing(document), document.copy_at(str(path)) as copy:
        assert document.page_count == copy.page_count == 1


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
