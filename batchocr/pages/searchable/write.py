"""A document as a PDF that can be searched: a PDF with invisible text added, an image as the pages of one."""

from __future__ import annotations

import errno
import hashlib
import mmap
import os
import re
import shutil
from collections.abc import Iterator
from functools import partial
from typing import Final

import pymupdf

from batchocr.data import Additions, SearchableMade
from batchocr.errors import DamagedError
from batchocr.pages.input.mupdf_warnings import REFUSALS
from batchocr.pages.input.pdf import PdfDocument
from batchocr.pages.input.pdf_objects import value_text
from batchocr.pages.input.render import RenderableDocument
from batchocr.pages.searchable.image_pages import add_pages
from batchocr.pages.searchable.pdf_text import TextWriter
from batchocr.pages.searchable.placed_text import pages_in

# PyMuPDF's `save` would have viewers show the attachments first, and remove an empty collection.
pymupdf.JM_embedded_clean = lambda _document: None

_FIRST_ID: Final = re.compile(r"\[\s*(<[^>]*>|\((?:\\.|[^\\()])*\))")
"""The name that a PDF got when it was made: the first of the two strings of its ID, which its encryption depends on."""


def write_searchable(
    document: RenderableDocument, path: str, additions: Additions, *, text_path: str, to_path: str
) -> Iterator[SearchableMade | None]:
    """Write the document at `path` to `to_path`, with the text of the file at `text_path`; yields None after each page,
    and at last what was done.

    A PDF keeps all it has, byte for byte, with what is new behind it; one that has to be repaired is written anew. A
    signed one is copied as it is. Encryption and permissions stay. Raises PageError.
    """
    is_new = not isinstance(document, PdfDocument)
    try:
        if not is_new:
            shutil.copyfile(path, to_path)
            if _is_signed(path):
                yield SearchableMade(is_signed=True)
                return
        with document.copy_at(to_path) if isinstance(document, PdfDocument) else pymupdf.open() as pdf:
            if not isinstance(document, PdfDocument):
                yield from add_pages(pdf, path, document)
            writer = TextWriter(pdf, additions)
            yield from writer.write(pages_in(text_path))
            if pdf.is_dirty:
                if value_text(pdf, -1, "Encrypt") == "null":  # else the first ID is part of the key
                    _identify(pdf, text_path)
                _save(pdf, to_path, is_new=is_new)
            yield SearchableMade(writer.num_hidden_lines)
    except (OSError, *REFUSALS) as error:
        if not any(os.strerror(number) in str(error) for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)):
            raise DamagedError(f"no text can be added to it: {error}") from error
        yield SearchableMade(lacks_room=True)


def _is_signed(path: str) -> bool:
    """Whether the file has a signature: only a signature says which bytes of the file it holds for, and it is never
    compressed. Source: PDF 1.7, sections 7.5.7 and 12.8.1."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return data.find(b"/ByteRange") >= 0


def _identify(pdf: pymupdf.Document, text_path: str) -> None:
    """Name this version of the PDF by its text, and not by chance as MuPDF does: the same text makes the same file."""
    with open(text_path, "rb") as text:
        digest = hashlib.file_digest(text, partial(hashlib.blake2b, digest_size=16)).hexdigest()
    first = _FIRST_ID.match(pdf.xref_get_key(-1, "ID")[1])
    pdf.xref_set_key(-1, "ID", f"[{first[1] if first else f'<{digest}>'}<{digest}>]")


def _save(pdf: pymupdf.Document, path: str, *, is_new: bool) -> None:
    if not is_new and pdf.can_save_incrementally():
        pdf.save(path, incremental=True, encryption=pymupdf.PDF_ENCRYPT_KEEP, no_new_id=True)
        return
    data = pdf.tobytes(deflate=True, encryption=pymupdf.PDF_ENCRYPT_KEEP, use_objstms=is_new, no_new_id=True)
    with open(path, "wb") as file:
        file.write(data)
