"""PDF pages as pixels, through PyMuPDF.

MuPDF reads nothing but the file it is given: when traced, it opened no file and no socket for content in other files
(`/F` of a stream, reference XObjects), URLs, missing fonts or JavaScript (PyMuPDF 1.28.2).
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pymupdf
from PIL import Image

from batchocr.data import Page
from batchocr.errors import DamagedError, EncryptedError, PageOutOfMemoryError, UnsupportedError

# A broken PDF becomes a row with a reason; what MuPDF prints as well would end up among the run's own lines.
pymupdf.TOOLS.mupdf_display_errors(False)
pymupdf.TOOLS.mupdf_display_warnings(False)

_POINTS_PER_INCH = 72

_REFUSALS = (pymupdf.mupdf.FzErrorBase, RuntimeError, ValueError)
"""What PyMuPDF raises on bad input: MuPDF's own errors, those it turns into RuntimeError (FileDataError, EmptyFileError
and the C++ side's), and ValueError for a page that the document claims but does not have."""


_MAX_MISSING_PAGES = 100
"""If a document claims pages beyond its last real one, at most this many of them get a row that says so."""

_FEWEST_BYTES_PER_PAGE = 3
"""Blank pages, compressed as far as they go, take 7 bytes each; but a file of 4 KB can use one page millions of times
over, and then has no more pages than this allows."""

_OUT_OF_MEMORY = re.compile(
    r"\b[cm]alloc\b.* failed|(not enough|insufficient|out of) memory|failed to allocate|exceeds system limits",
    re.IGNORECASE,
)
"""What MuPDF and its bundled libraries say about a failed allocation. There is no error class for it; and if it kept an
image from being decoded, there is only a warning, and a page without the image."""


class PdfDocument:
    """An open, unlocked PDF."""

    def __init__(self, document: pymupdf.Document, num_bytes: int, *, dpi: int, max_edge: int) -> None:
        """num_bytes: size of the file."""
        self._document = document
        self._dpi = dpi
        self._max_edge = max_edge
        self.page_count = min(_count_pages(document), num_bytes // _FEWEST_BYTES_PER_PAGE + _MAX_MISSING_PAGES)

    def render(self, page_index: int) -> Page:
        """Return the page as a viewer shows it, annotations and form fields included."""
        with _refusals_of("the page", "drawn"):
            page = self._document.load_page(page_index)
            long_side = max(page.rect.width, page.rect.height)
            scale = min(self._dpi / _POINTS_PER_INCH, self._max_edge / long_side)
            pixmap = page.get_pixmap(matrix=pymupdf.Matrix(scale, scale), colorspace=pymupdf.csRGB, alpha=False)
            if not (pixmap.width and pixmap.height):
                raise DamagedError(f"the page is too thin to be drawn: {pixmap.width} × {pixmap.height} px")
            image = Image.frombytes("RGB", (pixmap.width, pixmap.height), pixmap.samples_mv)
        return Page(image=image, dpi=scale * _POINTS_PER_INCH)

    def close(self) -> None:
        self._document.close()


def open_pdf(path: str, *, password: str | None, dpi: int, max_edge: int) -> PdfDocument:
    """Return the PDF at `path`, to be rendered at `dpi` with at most `max_edge` px on its long side.

    Raises EncryptedError, DamagedError, UnsupportedError, PageOutOfMemoryError.
    """
    with _refusals_of("the document", "opened"), ExitStack() as closing:
        document = closing.enter_context(_load(path))
        if not document.is_pdf:
            raise UnsupportedError("the file is not a PDF, despite its name")
        _unlock(document, password)
        opened = PdfDocument(document, os.path.getsize(path), dpi=dpi, max_edge=max_edge)
        closing.pop_all()
    return opened


def _load(path: str) -> pymupdf.Document:
    """Open the file. `filetype` decides what MuPDF cannot tell from the content; it still opens HTML or SVG as such."""
    try:
        path.encode()
    except UnicodeEncodeError:
        # MuPDF takes only names in UTF-8. A descriptor's name is ASCII, whatever bytes the file's own name has.
        with open(path, "rb") as file:
            return pymupdf.open(f"/dev/fd/{file.fileno()}", filetype="pdf")
    return pymupdf.open(path, filetype="pdf")


def _unlock(document: pymupdf.Document, password: str | None) -> None:
    """A PDF that the empty password opens is already unlocked."""
    if not document.needs_pass:
        return
    if password is None:
        raise EncryptedError("the document asks for a password; give it with --password or BATCHOCR_PASSWORD")
    if not document.authenticate(password):
        raise EncryptedError("the given password does not open the document")


def _count_pages(document: pymupdf.Document) -> int:
    """How many pages the document claims to have, without most of those that do not exist: a small file can claim
    hundreds of thousands."""
    claimed = int(document.page_count)
    if claimed <= _MAX_MISSING_PAGES or _has_page(document, claimed - 1):
        return claimed
    present = bisect_left(range(claimed), True, key=lambda index: not _has_page(document, index))
    return min(claimed, present + _MAX_MISSING_PAGES)


def _has_page(document: pymupdf.Document, page_index: int) -> bool:
    try:
        return bool(document.page_xref(page_index))
    except _REFUSALS:
        return False


@contextmanager
def _refusals_of(what: str, done: str) -> Iterator[None]:
    """Turn PyMuPDF's errors about a document or a page into a PageError. done: what cannot be done with it then."""
    try:
        yield
        if (failure := _OUT_OF_MEMORY.search(pymupdf.TOOLS.mupdf_warnings())) is not None:
            raise PageOutOfMemoryError(f"{what} needs more memory than there is; MuPDF says: {failure[0]}")
    except MemoryError as error:
        raise PageOutOfMemoryError(f"{what} needs more memory than there is") from error
    except _REFUSALS as error:
        reason = _reason(error)
        if _OUT_OF_MEMORY.search(reason):
            raise PageOutOfMemoryError(f"{what} needs more memory than there is: {reason}") from error
        raise DamagedError(f"{what} cannot be {done}: {reason}") from error
    finally:
        pymupdf.TOOLS.reset_mupdf_warnings()  # PyMuPDF keeps them all, and a worker lives long


def _reason(error: BaseException) -> str:
    """MuPDF's own words, which FileDataError hides; they can quote the file, so odd bytes are escaped."""
    words = str(error.__cause__ or error).removesuffix("\n")
    return re.sub(r"^code=\d+: ", "", words).encode("utf-8", "backslashreplace").decode()
