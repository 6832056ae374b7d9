"""The objects that a page is drawn with, and what is wrong with them that MuPDF does not say.

It does without those that are not in the file: one that was cut off loses those at its end, a damaged sector one or
two. It inflates an image only as far as its last row, just short of the checksum, and keeps what libjpeg finds corrupt
to itself. Sound files have none of these faults: of 434 pages of public test sets none, but for those that were broken
on purpose.
"""

from __future__ import annotations

import re
import zlib

import pymupdf

from batchocr.input.jpeg import JPEG_SIGNATURE, fault_of_jpeg
from batchocr.input.mupdf_warnings import REFUSALS
from batchocr.input.pdf_objects import array_references, object_text, references, value_text

_NOT_DRAWN = re.compile(r"/(Parent|Metadata|PieceInfo|OC|Properties) ?\d+ \d+ R|/Properties ?<<[^<>]*>>")
"""References that lead away from the page, or to what is never drawn, as what content is marked with."""

_CHECKED_IMAGE = re.compile(r"(?=.*/Subtype ?/Image\b)(?=.*/Filter ?\[? ?/(Flate|DCT)Decode\b)", re.DOTALL)

_MAX_UNPACKED = 64 << 20
"""Bytes of images that are unpacked for one page: a fifth of a second's work, and 8 A4 pages in grey at 300 dpi. The
rest is left to the pages after it."""

_JPEG_RATIO = 10
"""A JPEG is about so much smaller than its pixels."""

_PIECE = 1 << 20
_FLUSHED = b"\0\0\xff\xff"


class DrawnObjects:
    """Looks at the objects of page after page, at what several pages share only once."""

    def __init__(self, document: pymupdf.Document) -> None:
        self._document = document
        self._sound: set[int] = set()
        self._intact: dict[int, bool] = {}

    def faults(self, page: int) -> list[str]:
        """What is wrong with the objects of a page, in words. page: the number of its own object."""
        contents = self._contents(page)
        if not contents:
            return []
        missing = {number for number in contents if object_text(self._document, number) == "null"}
        images = set()
        waiting = _drawn(self._resources(page)) - self._sound
        seen = waiting | self._sound
        while waiting:
            number = waiting.pop()
            text = object_text(self._document, number)
            if text == "null":
                missing.add(number)
            elif _CHECKED_IMAGE.match(text):
                images.add(number)
            waiting |= _drawn(text) - seen
            seen |= waiting
        self._unpack(images - self._intact.keys())
        corrupt = {number for number in images if not self._intact.get(number, True)}
        if not missing and not corrupt and images <= self._intact.keys():
            self._sound = seen
        return _in_words(len(missing), len(corrupt))

    def is_blank(self, page: int) -> bool:
        """Whether the page's content streams have no bytes."""
        return not any(self._stream(number) for number in self._contents(page))

    def _contents(self, page: int) -> list[int]:
        """The numbers of the page's content streams."""
        streams = array_references(self._document, page, "Contents")
        return references(value_text(self._document, page, "Contents")) if streams is None else streams

    def _resources(self, page: int) -> str:
        """Those of the page, or of the nearest node of the page tree that has any."""
        nodes: set[int] = set()
        while page not in nodes:
            if (resources := value_text(self._document, page, "Resources")) != "null":
                return resources
            nodes.add(page)
            page = next(iter(references(value_text(self._document, page, "Parent"))), page)
        return "null"

    def _unpack(self, images: set[int]) -> None:
        """Find out which of these images are intact, as far as _MAX_UNPACKED goes."""
        num_left = _MAX_UNPACKED
        for number in images:
            if num_left <= 0:
                return
            data = self._stream(number).lstrip(b"\r\n")  # MuPDF skips these before a JPEG; deflated data has none
            if data.startswith(JPEG_SIGNATURE):
                self._intact[number], num_bytes = fault_of_jpeg(data) is None, len(data) * _JPEG_RATIO
            else:
                self._intact[number], num_bytes = _inflates(data, num_left)
            num_left -= num_bytes

    def _stream(self, number: int) -> bytes:
        try:
            return bytes(self._document.xref_stream_raw(number) or b"")
        except REFUSALS:  # MuPDF says so itself
            return b""


def _drawn(text: str) -> set[int]:
    return set(references(_NOT_DRAWN.sub("", text)))


def _in_words(num_missing: int, num_corrupt: int) -> list[str]:
    found = []
    if num_missing:
        found.append(f"the file lacks {num_missing} of the objects that the page is drawn with")
    if num_corrupt:
        found.append(f"{num_corrupt} of the page's images {'is' if num_corrupt == 1 else 'are'} corrupt")
    return found


def _inflates(data: bytes, max_bytes: int) -> tuple[bool, int]:
    """Whether deflated data is sound to its end, or to `max_bytes`; and how many bytes it was. A writer may leave out
    the end, and the checksum with it, if it flushes."""
    inflate = zlib.decompressobj()
    num_bytes = 0
    left = data
    try:
        while left and not inflate.eof and num_bytes < max_bytes:
            num_bytes += len(inflate.decompress(left, _PIECE))
            left = inflate.unconsumed_tail
    except zlib.error:
        return False, num_bytes
    return inflate.eof or num_bytes >= max_bytes or not data or data.endswith(_FLUSHED), num_bytes
