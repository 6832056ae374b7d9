"""A document as a PDF that can be searched: a PDF with invisible text added, an image as the pages of one."""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Final

import pymupdf

from batchocr.data import Additions, SearchableMade
from batchocr.pages.input.pdf import opened_pdf
from batchocr.pages.input.pdf_objects import value_text
from batchocr.pages.input.render import RenderableDocument
from batchocr.pages.searchable.image_pages import add_pages
from batchocr.pages.searchable.pdf_text import TextWriter
from batchocr.pages.searchable.placed_text import pages_in

_SIGNED: Final = (1, 3)
"""The flags of a form with a signature."""

_FIRST_ID: Final = re.compile(r"\[\s*(<[^>]*>|\((?:\\.|[^\\()])*\))")
"""What a PDF was named when it was made: the first of the two strings of its ID, which its encryption depends on."""


def write_searchable(
    document: RenderableDocument, path: str, password: str | None, additions: Additions, *, text_path: str, to_path: str
) -> Iterator[SearchableMade | None]:
    """Write the document at `path` to `to_path`, with the text of the file at `text_path`; yields None after each page,
    and at last what was done.

    A PDF keeps all it has, byte for byte, with what is new behind it; one that has to be repaired is written anew. A
    signed one is copied as it is. Encryption and permissions stay. Raises PageError.
    """
    if document.format == "PDF":
        shutil.copyfile(path, to_path)
        pdf = opened_pdf(to_path, password)
    else:
        pdf = pymupdf.open()
    with pdf:
        is_signed = pdf.get_sigflags() in _SIGNED or value_text(pdf, pdf.pdf_catalog(), "Perms") != "null"
        if document.format == "PDF" and is_signed:
            yield SearchableMade(0, is_signed=True)
            return
        if document.format != "PDF":
            yield from add_pages(pdf, path, document)
        writer = TextWriter(pdf, additions)
        yield from writer.write(pages_in(text_path))
        _identify(pdf, text_path)
        _save(pdf, to_path, is_new=document.format != "PDF")
        yield SearchableMade(writer.num_changed)


def _identify(pdf: pymupdf.Document, text_path: str) -> None:
    """Name this version of the PDF by its text, and not by chance as MuPDF does: the same text makes the same file."""
    if not pdf.is_dirty:
        return
    with open(text_path, "rb") as text:
        digest = hashlib.file_digest(text, partial(hashlib.blake2b, digest_size=16)).hexdigest()
    first = _FIRST_ID.match(pdf.xref_get_key(-1, "ID")[1])
    pdf.xref_set_key(-1, "ID", f"[{first[1] if first else f'<{digest}>'}<{digest}>]")


def _save(pdf: pymupdf.Document, path: str, *, is_new: bool) -> None:
    if not is_new and not pdf.is_dirty:
        return
    if not is_new and pdf.can_save_incrementally():
        pdf.save(path, incremental=True, encryption=pymupdf.PDF_ENCRYPT_KEEP, no_new_id=True)
        return
    with tempfile.TemporaryFile() as whole:
        nameless = SimpleNamespace(**{name: getattr(whole, name) for name in ("write", "seek", "tell", "truncate")})
        pdf.save(nameless, deflate=True, encryption=pymupdf.PDF_ENCRYPT_KEEP, use_objstms=is_new, no_new_id=True)
        whole.seek(0)
        with open(path, "wb") as file:
            shutil.copyfileobj(whole, file)
