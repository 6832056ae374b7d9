"""The objects that a page is drawn with, and what is wrong with them that MuPDF does not say.

MuPDF skips objects that are not in the file, inflates an image only to its last row, short of the checksum, and drops
what libjpeg says of corrupt data. Of 434 pages of public test sets only those broken on purpose have such faults.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import pymupdf

from batchocr.pages.input.image_faults import JPEG_SIGNATURE, fault_of_jpeg
from batchocr.pages.input.jbig2 import is_drawn_wrong
from batchocr.pages.input.mupdf_warnings import REFUSALS
from batchocr.pages.input.pdf_objects import (
    array_references,
    inherited_text,
    object_text,
    references,
    resolved_text,
    unpacked,
    value_text,
)

_NOT_DRAWN = re.compile(
    r"/(Parent|Metadata|PieceInfo|OC|Properties|ToUnicode|ICCBased|Length[123]|(?<=/Transparency/)CS) ?\d+ \d+ R|"
    r"/Properties ?<<[^<>]*>>"
)
"""References to what is not part of the page, or is never drawn, or done without, as a space to blend colours in."""

_CHECKED_IMAGE = re.compile(r"(?=.*/Subtype ?/Image\b)(?=.*/Filter\b.*?/(Flate|DCT)Decode\b)", re.DOTALL)
_NONE = re.compile(r"/Separation ?/None\b")
_FORM = re.compile(r"/Subtype ?/Form\b")
_INLINE_JPEG = re.compile(rb"\bBI\b[^I]*?/F(?:ilter)?\s*(\[[^\]]*?/DCT\w*\s*\]|/DCT\w*).*?\bID\s(.*?)\sEI\b", re.DOTALL)
_INLINE_DEFLATED = re.compile(rb"\bBI\s[^I]*?/Fl")
_NAME = re.compile(r"/\w+")
_JPEG_FILTERS, _DEFLATE_FILTERS = ("/DCTDecode", "/DCT"), ("/FlateDecode", "/Fl")
_NOT_SHOWN = 2 | 32
"""Flags of annotations that are hidden, or not for the screen. Source: PDF 1.7, table 165."""

_MAX_UNPACKED = 64 << 20
"""The most bytes of images that are unpacked for one page, lowest object numbers first: 8 A4 pages in grey at 300 dpi,
in 0.2 s."""

_JPEG_RATIO = 10
"""About how many bytes of pixels there are to a byte of JPEG."""

_PIECE = 1 << 20
_FLUSHED = b"\0\0\xff\xff"
_HEADER_BYTES = 2


@dataclass(frozen=True, slots=True)
class _Object:
    """What is known of an object of the file."""

    is_missing: bool
    is_checked_image: bool
    is_jbig2: bool
    is_form: bool
    may_have_odd_ink: bool
    references: frozenset[int]
    """The numbers of the objects that are drawn with this one."""


class DrawnObjects:
    """The objects of a document's pages; those that pages share are looked at once."""

    def __init__(self, document: pymupdf.Document) -> None:
        self._document = document
        self._objects: dict[int, _Object] = {}
        self._intact: dict[int, tuple[bool, int]] = {}
        self._corrupt_within: dict[tuple[int, ...], int] = {}

    def faults(self, page: int) -> list[str]:
        """What is wrong with the objects of a page, in words. page: the number of its own object."""
        contents = self._contents(page)
        drawn = self._drawn_with(page)
        missing = [number for number in drawn if self._object(number).is_missing]
        images = sorted(number for number in drawn if self._object(number).is_checked_image)
        forms = [(number,) for number in drawn if self._object(number).is_form]
        num_corrupt = self._num_corrupt(images) + sum(map(self._num_inline_corrupt, [tuple(contents), *forms]))
        found = [f"the file lacks {len(missing)} of the objects that the page is drawn with"] if missing else []
        if num_corrupt:
            found.append(f"{num_corrupt} of the page's images {'is' if num_corrupt == 1 else 'are'} corrupt")
        if any(self._object(number).is_jbig2 and self._is_drawn_wrong(number) for number in drawn):
            found.append("an image has a coding of JBIG2 that MuPDF draws wrong: the page may be incomplete")
        return found

    def show_without_layers(self, page: int) -> None:
        """Have MuPDF draw what is in a list of no layers, which it would hide. page: as for `faults`. Source: PDF 1.7,
        table 99, where such a list has no effect."""
        texts = [object_text(self._document, number) for number in self._drawn_with(page)]
        for number in references(" ".join([inherited_text(self._document, page, "Resources"), *texts])):
            if resolved_text(self._document, number, "OCGs") == "[]":
                self._document.xref_set_key(number, "OCGs", "null")

    def may_have_odd_ink(self, page: int) -> bool:
        """Whether a page may have what `odd_ink` finds: a font that is not in the file, or the colour None."""
        drawn = (self._object(number).may_have_odd_ink for number in self._drawn_with(page))
        return any(drawn) or _may_have_odd_ink(inherited_text(self._document, page, "Resources"))

    def are_inflated(self, page: int) -> bool:
        """Whether all deflated streams that the page is drawn with are sound, though they may not end as they should;
        if one is packed twice, or within others, that is not known."""
        for number in filter(self._document.xref_is_stream, self._drawn_with(page)):
            first, *others = _NAME.findall(value_text(self._document, number, "Filter")) or [""]
            is_cut = first in _DEFLATE_FILTERS and not _inflates(self._stream(number), _MAX_UNPACKED)[0]
            if is_cut or {*others} & {*_DEFLATE_FILTERS} or _INLINE_DEFLATED.search(self._stream(number, plain=True)):
                return False
        return True

    def are_intact(self, page: int) -> bool:
        """Whether all JPEGs and deflated images of the page are known to be sound, once its faults were looked for."""
        images = [number for number in self._drawn_with(page) if self._object(number).is_checked_image]
        return all(number in self._intact and self._intact[number][0] for number in images)

    def _drawn_with(self, page: int) -> set[int]:
        """The numbers of the objects that a page is drawn with."""
        resources = _drawn(inherited_text(self._document, page, "Resources"))
        return {*self._contents(page), *self._reachable(resources | self._appearances(page))}

    def _contents(self, page: int) -> list[int]:
        """The numbers of the page's content streams."""
        streams = array_references(self._document, page, "Contents")
        return references(value_text(self._document, page, "Contents")) if streams is None else streams

    def _appearances(self, page: int) -> set[int]:
        """The annotations of the page that are not there, and how the others that are shown look."""
        found = set()
        for annotation in array_references(self._document, page, "Annots") or ():
            flags = resolved_text(self._document, annotation, "F")
            if self._object(annotation).is_missing:
                found.add(annotation)
            elif not (flags.isdecimal() and int(flags) & _NOT_SHOWN):
                normal = value_text(self._document, annotation, "AP/N")
                state = resolved_text(self._document, annotation, "AS").removeprefix("/")
                of_state = value_text(self._document, annotation, f"AP/N/{state}")
                found |= _drawn(of_state if of_state != "null" else normal)
        return found

    def _reachable(self, waiting: set[int]) -> set[int]:
        """These objects, and all that they refer to."""
        seen = set(waiting)
        while waiting:
            following = self._object(waiting.pop()).references - seen
            seen |= following
            waiting |= following
        return seen

    def _object(self, number: int) -> _Object:
        """The object of this number; an object whose stream is in another file is missing."""
        if number not in self._objects:
            text = object_text(self._document, number)
            is_here = not self._document.xref_is_stream(number) or value_text(self._document, number, "F") == "null"
            self._objects[number] = _Object(
                is_missing=text == "null" or not is_here,
                is_checked_image=bool(_CHECKED_IMAGE.match(text)),
                is_jbig2="/JBIG2Decode" in text,
                is_form=bool(_FORM.search(text)),
                may_have_odd_ink=_may_have_odd_ink(text),
                references=frozenset(_drawn(text)),
            )
        return self._objects[number]

    def _num_corrupt(self, images: Sequence[int]) -> int:
        """How many of these images are corrupt, as far as _MAX_UNPACKED goes."""
        num_corrupt = num_bytes = 0
        for number in images:
            if num_bytes >= _MAX_UNPACKED:
                break
            if number not in self._intact:
                filters, *sides = (resolved_text(self._document, number, key) for key in ("Filter", "Width", "Height"))
                size = (int(sides[0]), int(sides[1])) if all(map(str.isdecimal, sides)) else None
                self._intact[number] = _is_intact(self._stream(number), filters, size)
            is_intact, num_unpacked = self._intact[number]
            if not is_intact:
                num_corrupt += 1
            num_bytes += num_unpacked
        return num_corrupt

    def _is_drawn_wrong(self, number: int) -> bool:
        """Whether MuPDF draws a JBIG2 image wrong, with the segments that it shares with others."""
        numbers = references(resolved_text(self._document, number, "DecodeParms"))
        shared = b"".join(self._stream(each, plain=True) for each in numbers)
        outer = _NAME.findall(resolved_text(self._document, number, "Filter"))[:-1]
        return is_drawn_wrong(shared + (unpacked(self._stream(number), f"[{' '.join(outer)}]") or b""))

    def _num_inline_corrupt(self, streams: tuple[int, ...]) -> int:
        """How many JPEGs within the content of these streams are corrupt."""
        if streams not in self._corrupt_within:
            content = b"\n".join(self._stream(number, plain=True) for number in streams)
            images = (_is_intact(found[2], found[1].decode("latin-1")) for found in _INLINE_JPEG.finditer(content))
            self._corrupt_within[streams] = sum(not is_intact for is_intact, _ in images)
        return self._corrupt_within[streams]

    def _stream(self, number: int, *, plain: bool = False) -> bytes:
        """The bytes of a stream, as they are in the file or unpacked; none if it cannot be read."""
        try:
            read = self._document.xref_stream if plain else self._document.xref_stream_raw
            return bytes(read(number) or b"")
        except REFUSALS:  # MuPDF says so itself
            return b""


def _is_intact(data: bytes, filters: str, size: tuple[int, int] | None = None) -> tuple[bool, int]:
    """Whether the data of an image is sound, as far as can be told; and about how many bytes it unpacks to. filters:
    the value of its key Filter. size: width and height that the document gives it."""
    data = data.lstrip(b"\r\n")  # MuPDF skips these before a JPEG; deflated data has none
    names = _NAME.findall(filters)
    if data.startswith(JPEG_SIGNATURE) or names[-1] in _JPEG_FILTERS:
        plain = data if data.startswith(JPEG_SIGNATURE) else unpacked(data, f"[{' '.join(names[:-1])}]")
        return (False, 0) if plain is None else (fault_of_jpeg(plain, size) is None, len(plain) * _JPEG_RATIO)
    return _inflates(data, _MAX_UNPACKED) if names[0] in _DEFLATE_FILTERS else (True, 0)


def _may_have_odd_ink(text: str) -> bool:
    return ("/FontName" in text and "/FontFile" not in text) or _NONE.search(text) is not None


def _drawn(text: str) -> set[int]:
    return set(references(_NOT_DRAWN.sub("", text)))


def _inflates(data: bytes, max_bytes: int) -> tuple[bool, int]:
    """Whether deflated data is sound to its end, or to `max_bytes`; and how many bytes it was. A writer may leave out
    the end, if it flushes, or all behind the header, if there is nothing; what is left of the checksum has to fit."""
    inflate = zlib.decompressobj(-zlib.MAX_WBITS)
    num_bytes, checksum, left = 0, 1, data[_HEADER_BYTES:]
    try:
        while left and not inflate.eof and num_bytes < max_bytes:
            piece = inflate.decompress(left, _PIECE)
            num_bytes, checksum = num_bytes + len(piece), zlib.adler32(piece, checksum)
            left = inflate.unconsumed_tail
    except zlib.error:
        return False, num_bytes
    if inflate.eof:
        return checksum.to_bytes(4, "big").startswith(inflate.unused_data[:4]), num_bytes
    return num_bytes >= max_bytes or len(data) <= _HEADER_BYTES or data.endswith(_FLUSHED), num_bytes
