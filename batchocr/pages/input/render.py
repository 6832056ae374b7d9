"""From a file's bytes to the pixels of its pages. Runs in a worker process, where the code may hang or crash: no
torch."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from io import BufferedReader
from typing import TypeAlias

from batchocr.data import TextLayerUse
from batchocr.errors import ChangedError, DamagedError, NotFoundError, UnreadableError, UnsupportedError
from batchocr.pages.input.image import FORMAT_NAMES, ImageDocument, begins_like_an_image, open_image
from batchocr.pages.input.pdf import PdfDocument
from batchocr.storage.members import CONTAINERS

_HEAD_BYTES = 1024
"""How many first bytes of a file may hold the PDF header, as readers accept it (PDF 1.7, appendix H.3, note 13)."""

_ARCHIVES = (b"7z\xbc\xaf\x27\x1c", b"Rar!", b"\xfd7zXZ\0", b"BZh", b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"LZIP")
"""How files begin that 7-Zip, RAR, xz, bzip2, gzip, Zstandard and lzip have packed."""

RenderableDocument: TypeAlias = PdfDocument | ImageDocument
"""A file whose pages can be rendered in any order and repeatedly; a page that fails does not affect the others.
`page_count` is as the document claims, which can be wrong: a page that does not exist fails when it is rendered. Every
method but `close` may raise PageError."""


def open_document(
    path: str, *, password: str | None, dpi: int, text_layer: TextLayerUse = "check", name: str | None = None
) -> RenderableDocument:
    """Return the document at `path`, whatever its name suggests. Raises PageError.

    password, dpi, text_layer: for PDFs; an image is taken as it is. name: of the object that `path` is a copy of.
    """
    as_pdf = partial(PdfDocument, path, password=password, dpi=dpi, text_layer=text_layer)
    with reading(path) as file:
        head = file.read(_HEAD_BYTES)
    if not head:
        raise DamagedError("the file is empty (0 bytes)")
    if begins_like_an_image(head):
        return open_image(path)
    if b"%PDF" in head:
        return as_pdf()
    if head.startswith(_ARCHIVES):
        raise UnsupportedError(f"it is an archive of a kind that is not read; those that are: {' '.join(CONTAINERS)}")
    if (name or path).lower().endswith(".pdf"):
        try:
            return as_pdf()  # MuPDF repairs some PDFs without a header
        except DamagedError as error:
            raise UnsupportedError("the file is not a PDF, despite its name") from error
    raise UnsupportedError(f"the file is neither a PDF nor an image of a known format ({FORMAT_NAMES})")


def fingerprint(path: str) -> tuple[str, int, int]:
    """Return the file's SHA-256 (hex), and its size in bytes and mtime in ns from before it was read.

    Raises PageError.
    """
    with reading(path) as file:
        status = os.fstat(file.fileno())
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return digest, status.st_size, status.st_mtime_ns


@contextmanager
def one_version(path: str, size: int, mtime_ns: int) -> Iterator[None]:
    """Require that the file is the one of this size and mtime before and after the block: then what that read, or
    failed to read, is of that version. Raises ChangedError, or another PageError if there is no file."""
    _require_version(path, size, mtime_ns)
    try:
        yield
    finally:
        _require_version(path, size, mtime_ns)


def version_of(path: str) -> tuple[int, int]:
    """The file's size in bytes and mtime in ns. Raises PageError."""
    with _reasons():
        status = os.stat(path)
    return status.st_size, status.st_mtime_ns


def _require_version(path: str, size: int, mtime_ns: int) -> None:
    if version_of(path) != (size, mtime_ns):
        raise ChangedError("the file changed while it was read: run again to read it as it is now")


@contextmanager
def reading(path: str) -> Iterator[BufferedReader]:
    """Open the file. The system's errors on opening or reading it become a PageError."""
    with _reasons():
        if not stat.S_ISREG(os.stat(path).st_mode):  # opening a pipe would wait for its writer
            raise UnreadableError("it is a folder or a device, not a file")
        with open(path, "rb") as file:
            yield file


@contextmanager
def _reasons() -> Iterator[None]:
    """Turn the system's errors about a file into a PageError."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFoundError("the file does not exist, or no longer") from error
    except OSError as error:
        raise UnreadableError(f"the file cannot be read: {error.strerror or error}") from error
