"""PDF pages as pixels, through PyMuPDF.

MuPDF reads nothing but the file it is given: when traced, it opened no file and no socket for content in other files
(`/F` of a stream, reference XObjects), URLs, missing fonts or JavaScript (PyMuPDF 1.28.2).
"""

from __future__ import annotations

import mmap
import os
import re
import stringprep
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unicodedata import normalize

import pymupdf
from PIL import Image

from batchocr.data import NO_LETTERS, OutlineEntry, Page, PageSeen, TextLayerUse, valid_text
from batchocr.errors import DamagedError, EncryptedError, PageOutOfMemoryError, UnsupportedError
from batchocr.pages.input.drawn_objects import DrawnObjects
from batchocr.pages.input.mupdf_warnings import REFUSALS, all_warnings, forget_warnings, lost_content, reason_of
from batchocr.pages.input.odd_ink import odd_ink
from batchocr.pages.input.outline import PdfFile, read_outline
from batchocr.pages.input.page_pixels import LEAST_DPI, MAX_EDGE
from batchocr.pages.input.page_tree import count_pages, require_meant_to_be_empty
from batchocr.pages.input.pdf_objects import object_text, resolved_text, value_text
from batchocr.pages.input.plain_text import plain_glyphs
from batchocr.pages.input.text_layer import font_size, text_on
from batchocr.pages.writing import line_height

_POINTS_PER_INCH = 72
_LEAST_HEIGHT = 10 * LEAST_DPI / _POINTS_PER_INCH
"""The height of letters of 10 pt at the least resolution, in px. The sample model misreads many words below 20."""

_TEXT_BLOCK = 0
"""MuPDF's number for a block that is no image."""

_OUT_OF_MEMORY = re.compile(
    r"^(?!unknown )[^'(\n]*?(\b[cm]alloc\b.* failed|(not enough|insufficient|out of) memory|failed to allocate|"
    r"exceeds system limits)",
    re.IGNORECASE | re.MULTILINE,
)
"""What MuPDF and its bundled libraries say about a failed allocation. There is no error class for it; and if it kept an
image from being decoded, there is only a warning, and a page without the image. A name that MuPDF quotes from the file,
in quotes, in parentheses or as unknown, can be any words, and is none of this."""

_ENDS_EARLY = "MuPDF says: premature end of data in flate filter"
_JPEG_ENDS_EARLY = "MuPDF says: premature end of file in jpeg"
"""What MuPDF says of a JPEG that ends early, also if it lacks only a mark of its end. It says `_ENDS_EARLY` also of 0
bytes, which some writers give a blank page."""

_HOLE = bytes(128)
"""Zeros between objects, as many as only a damaged file has. A sound one has fewer: the keys of an encrypted PDF are
followed by 79."""

_HEADER, _STREAM, _END = b"%PDF", b"stream", b"end"
_END_OF_OBJECT = b"endobj"
_OF_A_STRING = re.compile(rb"\\.|[()]|endobj", re.DOTALL)
_MARK_OF_END = b"%%EOF"
_OBJECT = re.compile(rb"\b\d+ +\d+ +obj\b")
_TRAILER = re.compile(rb"\bstartxref\s+\d+\s*$")

_PDF_DOC_ENCODING = dict(enumerate("•†‡…—–ƒ⁄‹›−‰„“”‘’‚™ﬁﬂŁŒŠŸŽıłœšž\x9f€", 0x80))
"""The letters of PDFDocEncoding by their bytes, where they are not those of Latin-1."""


class PdfDocument:
    """An open, unlocked PDF, to be rendered at `dpi`, with at most MAX_EDGE px on its long side."""

    format = "PDF"

    def __init__(self, path: str, *, password: str | None, dpi: int, text_layer: TextLayerUse) -> None:
        """text_layer: what the pages' own text is for; pages are rendered with as much of it as that takes.

        Raises EncryptedError, DamagedError, UnsupportedError, PageOutOfMemoryError.
        """
        self._path = path
        self._password = password
        self._text_layer = text_layer
        self._dpi = dpi
        self._open()
        self._faults = [*_faults_of_file(path), *_faults_of_document(self._document)]

    def _open(self) -> None:
        """Open the file, again if need be: a page is what it is in a document of which nothing has been drawn yet."""
        with ExitStack() as closing:
            with _refusals_of("the document", "opened"):
                self._document = closing.enter_context(_load(self._path))
                if not self._document.is_pdf:
                    raise UnsupportedError("the file is not a PDF, despite its name")
                _unlock(self._document, self._password)
                self._cut_off = "object missing 'endobj' token" in all_warnings()
                self._objects = DrawnObjects(self._document)
                num_bytes = os.path.getsize(self._path)
                self._num_claimed, self._num_tried = count_pages(self._document, num_bytes)
            self.page_count = min(self._num_claimed, self._num_tried + 1)
            if not self.page_count:
                require_meant_to_be_empty(self._document)
            closing.pop_all()
        self._is_altered = False

    def render(self, page_index: int, dpi: int | None = None, *, with_glyphs: bool = False) -> Page:
        """Return the page as a viewer shows it, with annotations and form fields. dpi: if not the document's.
        with_glyphs: give its glyphs also if its text is not trusted."""
        self._require_tried(page_index)
        if self._is_altered:
            self.close()
            self._open()
        self._is_altered = True
        with _refusals_of("the page", "drawn"):
            page = self._load_page(page_index)
            number = page.xref  # a repair while it is drawn can lose the page
            scale = self._scale(page, dpi)
            if value_text(self._document, self._document.pdf_catalog(), "OCProperties") != "null":
                self._objects.show_without_layers(number)
            drawn = page.get_displaylist()
            pixmap = drawn.get_pixmap(matrix=pymupdf.Matrix(scale, scale), colorspace=pymupdf.csRGB, alpha=False)
            if not (pixmap.width and pixmap.height):
                raise DamagedError(f"the page is too thin to be drawn: {pixmap.width} × {pixmap.height} px")
            image = Image.frombytes("RGB", (pixmap.width, pixmap.height), pixmap.samples_mv)
        has_spoken = bool(all_warnings())
        lost = self._lost(number, drawn)
        if lost is not None and len(image.getcolors() or ()) == 1:
            raise DamagedError(f"nothing of the page can be drawn: {lost}")
        # Last, for what MuPDF may say about the text is not about what was drawn.
        words, letters_run = ((), NO_LETTERS) if self._text_layer == "off" else text_on(drawn)
        glyphs = plain_glyphs(drawn, scale) if with_glyphs or self._text_layer == "trust" else ()
        doubt = _doubt_of(drawn, image, scale) if scale < (dpi or self._dpi) / _POINTS_PER_INCH else None
        self._is_altered = has_spoken
        return Page(image, scale * _POINTS_PER_INCH, lost, doubt, words, letters_run, glyphs)

    def look(self, page_index: int) -> PageSeen:
        """Return what a page is like; its text is what MuPDF takes it to be."""
        self._require_tried(page_index)
        self._is_altered = True
        with _refusals_of("the page", "looked at"):
            page = self._load_page(page_index)
            scale = self._scale(page)
            width, height = round(page.rect.width * scale), round(page.rect.height * scale)
            texts = [block for block in page.get_text("blocks") if block[6] == _TEXT_BLOCK]
            return PageSeen(width, height, sum(len("".join(block[4].split())) for block in texts))

    def outline(self) -> list[OutlineEntry]:
        self._is_altered = True
        with _refusals_of("the outline", "read"):
            return read_outline(self._document)

    def copy_at(self, path: str) -> pymupdf.Document:
        """A copy of the file, open and unlocked, to be written to. Raises PageError."""
        with ExitStack() as closing, _refusals_of("the document", "opened"):
            document = closing.enter_context(_load(path))
            _unlock(document, self._password)
            count_pages(document, os.path.getsize(path))  # else it has no page beyond those claimed
            closing.pop_all()
        return document

    def close(self) -> None:
        if not self._document.is_closed:
            self._document.close()

    def _load_page(self, page_index: int) -> pymupdf.Page:
        """The page, with all of its sheet if its crop box leaves nothing of the sheet, as in other readers."""
        page = self._document.load_page(page_index)
        kind, contents = (resolved_text(self._document, page.xref, key) for key in ("Type", "Contents"))
        if not object_text(self._document, page.xref).startswith("<<"):
            raise DamagedError("the document names a page that it does not have")
        if contents == "null" and kind not in ("/Page", "null"):
            raise DamagedError(f"what the document names as this page is none, but of the type {valid_text(kind)}")
        if contents.startswith("[") and "null" in contents:  # MuPDF warns of it, as it is no stream
            self._document.xref_set_key(page.xref, "Contents", re.sub(r"\bnull\b", "", contents))
        crop = pymupdf.mupdf.pdf_dict_gets_inheritable(pymupdf.mupdf.pdf_page_from_fz_page(page.this).obj(), "CropBox")
        if crop.m_internal and (pymupdf.Rect(pymupdf.mupdf.pdf_to_rect(crop)) & page.mediabox).is_empty:
            self._document.xref_set_key(page.xref, "CropBox", f"[{' '.join(map(str, page.mediabox))}]")
            page = self._document.load_page(page_index)
        return page

    def _require_tried(self, page_index: int) -> None:
        """Raise DamagedError if the page is one that the document only claims to have."""
        if page_index >= self._num_tried:
            raise DamagedError(
                f"this page and all behind it are left out: the document claims {self._num_claimed:,} pages, which is "
                f"{self._num_claimed - self._num_tried:,} more than it can have"
            )

    def _scale(self, page: pymupdf.Page, dpi: int | None = None) -> float:
        """Pixels for each point of the page. Raises DamagedError."""
        long_side: float = max(page.rect.width, page.rect.height)
        if not long_side:
            raise DamagedError("the page has no size")
        return min((dpi or self._dpi) / _POINTS_PER_INCH, MAX_EDGE / long_side)

    def _lost(self, page: int, drawn: pymupdf.DisplayList) -> str | None:
        """What the page just drawn lacks, in words; None if it lacks nothing. page: the number of its object."""
        said = lost_content(all_warnings(), cut_off=self._cut_off)
        faults = [*self._faults, *self._objects.faults(page)]
        checks = {_ENDS_EARLY: self._objects.are_inflated, _JPEG_ENDS_EARLY: self._objects.are_intact}
        if said in checks and not (faults or self._cut_off) and checks[said](page):
            said = None
        odd = odd_ink(drawn) if self._objects.may_have_odd_ink(page) else []
        return "; ".join(filter(None, [*faults, *odd, said])) or None


def _doubt_of(drawn: pymupdf.DisplayList, image: Image.Image, scale: float) -> str | None:
    """Why the letters of a page that had to be drawn smaller than asked for may not be read, in words."""
    in_points = font_size(drawn)
    height = line_height(image) if in_points is None else in_points * scale
    if height is None or height >= _LEAST_HEIGHT:
        return None
    return (
        f"the page was drawn at {scale * _POINTS_PER_INCH:.0f} dpi, to be {MAX_EDGE:,} px long, and its letters are "
        f"about {height:.0f} px high: they may be misread; cut it into parts"
    )


def _faults_of_file(path: str) -> list[str]:
    """What is wrong with the file, in words. Raises OSError."""
    if not os.path.getsize(path):
        return []
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        end = data.rfind(_MARK_OF_END)
        faults = ["the file has zeros where some of its objects should be"] if _has_hole(data, end) else []
        if end >= 0 and _OBJECT.search(data, end) and not _TRAILER.search(data, end):
            faults.append("the file ends within its last update: what that changed is not in its pages")
    return faults


def _has_hole(data: mmap.mmap, end: int) -> bool:
    """Whether there are zeros between objects, as of blocks never written, which MuPDF takes for white space. Those
    within streams and strings, before the header, and behind the end, do not count."""
    position = data.find(_HOLE, max(0, data.find(_HEADER)), end)
    while position >= 0:
        keyword = data.rfind(_STREAM, 0, position)
        if keyword < 0 or data[max(0, keyword - len(_END)) : keyword] == _END:
            if (following := _end_of_string(data, position)) is None:
                return True
        elif (following := data.find(_END + _STREAM, position)) < 0:
            return False
        position = data.find(_HOLE, following, end)
    return False


def _end_of_string(data: mmap.mmap, position: int) -> int | None:
    """Where the string ends that this place of a file is in; None if it is in none, or in one without an end."""
    depth = 0
    for found in _OF_A_STRING.finditer(data, data.rfind(_END_OF_OBJECT, 0, position) + len(_END_OF_OBJECT)):
        if found[0] == _END_OF_OBJECT or (depth == 0 and found.start() > position):
            break
        depth += {b"(": 1, b")": -1}.get(found[0], 0)
        if depth == 0 and found.start() > position:
            return found.end()
    return None


def _faults_of_document(document: pymupdf.Document) -> list[str]:
    """What the document's pages do not have, though a reader would look for it there, in words."""
    catalog = document.pdf_catalog()
    faults = []
    if value_text(document, catalog, "AcroForm/XFA") != "null":
        has_fields = resolved_text(document, catalog, "AcroForm/Fields") not in ("null", "[]")
        if not has_fields or resolved_text(document, catalog, "NeedsRendering") == "true":
            faults.append("the document is an XFA form, whose content is not in its pages: print it to a PDF first")
    if value_text(document, catalog, "Collection") != "null":
        faults.append("the document is a portfolio, and the files in it are not read: extract them first")
    return faults


def _load(path: str) -> pymupdf.Document:
    """Open the file. `filetype` decides what MuPDF cannot tell from the content; it still opens HTML or SVG as such."""
    try:
        path.encode()
    except UnicodeEncodeError:
        # MuPDF takes only names in UTF-8. A descriptor's name is ASCII, whatever bytes the file's own name has.
        with open(path, "rb") as file:
            return PdfFile(f"/dev/fd/{file.fileno()}", filetype="pdf")
    return PdfFile(path, filetype="pdf")


def _unlock(document: pymupdf.Document, password: str | None) -> None:
    """Give the password to a document that asks for one; one that the empty password opens does not, nor does one of
    which only attachments are encrypted."""
    if not document.needs_pass:
        return
    version, *filters = (value_text(document, -1, f"Encrypt/{key}") for key in ("V", "StmF", "StrF"))
    if version in ("4", "5") and set(filters) <= {"/Identity", "null"}:
        document.is_encrypted = False  # as PyMuPDF does once a password fits; source: PDF 2.0, table 20
        return
    if password is None:
        raise EncryptedError("the document asks for a password; give it with --password or BATCHOCR_PASSWORD")
    if not any(map(document.authenticate, (password, _prepared(password), _as_utf8(password)))):
        raise EncryptedError("the given password does not open the document")


def _prepared(password: str) -> str:
    """The password as PDF 2.0 wants it, whatever the keyboard made of its accents; MuPDF leaves it as it is.
    Source: RFC 4013, section 2."""
    kept = (letter for letter in password if not stringprep.in_table_b1(letter))
    return normalize("NFKC", "".join(" " if stringprep.in_table_c12(letter) else letter for letter in kept))


def _as_utf8(password: str) -> str:
    """The text that MuPDF, which writes it as PDFDocEncoding, turns into the password's UTF-8 bytes: many programs take
    these for ciphers that want PDFDocEncoding. Bytes 9F and AD have no letter in it. Source: PDF 1.7, annex D."""
    return password.encode().decode("latin-1").translate(_PDF_DOC_ENCODING)


@contextmanager
def _refusals_of(what: str, done: str) -> Iterator[None]:
    """Turn PyMuPDF's errors about a document or a page into a PageError. done: what cannot be done with it then."""
    forget_warnings()
    try:
        yield
        if (failure := _OUT_OF_MEMORY.search(all_warnings())) is not None:
            raise PageOutOfMemoryError(f"{what} needs more memory than there is; MuPDF says: {failure[0]}")
    except MemoryError as error:
        raise PageOutOfMemoryError(f"{what} needs more memory than there is") from error
    except REFUSALS as error:
        reason = reason_of(error)
        if _OUT_OF_MEMORY.search(reason):
            raise PageOutOfMemoryError(f"{what} needs more memory than there is: {reason}") from error
        if reason.startswith(("unknown encryption", "unknown crypt")):
            kind = "for a certificate, not by a password" if "PubSec" in reason else "in a way that is not known here"
            raise EncryptedError(f"{what} is encrypted {kind}: save it without that first ({reason})") from error
        raise DamagedError(f"{what} cannot be {done}: {reason}") from error
