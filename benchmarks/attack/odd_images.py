"""Image files that are odd, but lack nothing: other programs write such, and their readers say nothing of them.

Each holds the page whole, so that none may be said to be damaged.
"""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np
from PIL import Image, ImageCms

from benchmarks.attack.sound_images import (
    STRIP_ROWS,
    Writer,
    only_strip,
    pillow,
    png_chunk,
    strips_of,
    tiff,
    tiff_in_strips,
    tiff_tags,
)
from benchmarks.attack.tiff_lies import TiffPage

Pack: TypeAlias = Callable[[bytes], bytes]

_RETURN_TO_CONTROL = b"\x00\x10\x01" * 3
"""Six ends of line, without the bits that Group 3 in two dimensions has behind each."""

_PNG_HEAD_BYTES = 33


def _tiff_of(compression: int, pack: Pack) -> Writer:
    """Writes a grey TIFF, each of its strips as `pack` has it."""

    def write(page: Image.Image) -> bytes:
        tags = {**tiff_tags(np.array(page), compression), 278: [STRIP_ROWS]}
        return tiff(tags, [pack(strip) for strip in strips_of(np.array(page))])

    return write


def _fax_with(compression: str, ending: bytes, t4: int = 0) -> Writer:
    """Writes a fax as libtiff does, with something behind the data of each strip."""

    def write(page: Image.Image) -> bytes:
        page, rows = page.convert("1", dither=Image.Dither.NONE), range(0, page.height, STRIP_ROWS)
        strips = (page.crop((0, row, page.width, row + STRIP_ROWS)) for row in rows)
        tags = {256: [page.width], 257: [page.height], 258: [1], 259: [3 if t4 else 4], 262: [1], 277: [1]}
        parts = [only_strip(strip, compression, {292: t4} if t4 else {}) + ending for strip in strips]
        return tiff({**tags, 278: [STRIP_ROWS], 292: [t4]}, parts)

    return write


def _without_sizes(page: Image.Image) -> bytes:
    """A TIFF of one strip, which does not say how many bytes that has: it names another tag in its place."""
    data = tiff({**tiff_tags(np.array(page)), 278: [page.height]}, [np.array(page).tobytes()])
    return data.replace(struct.pack("<HH", 279, 4), struct.pack("<HH", 281, 4))


def _equal_strips_once(page: Image.Image) -> bytes:
    """A TIFF in which strips that are equal, as blank ones are, are in one place."""
    strips = strips_of(np.array(page))
    written = TiffPage(tiff_in_strips(page), random.Random(0))
    offsets = written.get(273)
    written.put(273, [offsets[strips.index(strip)] for strip in strips])
    return bytes(written.data)


def _pack_bits(strip: bytes) -> bytes:
    """Literals, with an operation that does nothing behind each. Source: TIFF 6.0, section 9."""
    parts = (strip[at : at + 100] for at in range(0, len(strip), 100))
    return b"".join(bytes([len(part) - 1]) + part + b"\x80" for part in parts)


def _png_with(*chunks: bytes, behind: bytes = b"", more_rows: int = 0) -> Writer:
    """Writes a grey PNG. chunks: before its data. behind: in its data, past their end."""

    def write(page: Image.Image) -> bytes:
        rows = b"".join(b"\0" + row.tobytes() for row in np.array(page)) + bytes(more_rows * (page.width + 1))
        head = pillow("PNG")(page)[:_PNG_HEAD_BYTES]
        data = png_chunk(b"IDAT", zlib.compress(rows) + behind)
        return b"".join((head, *chunks, data, png_chunk(b"IEND", b"")))

    return write


def _profile(data: bytes) -> bytes:
    return png_chunk(b"iCCP", b"profile\0\0" + zlib.compress(data))


def _changed(write: Writer, change: Callable[[bytes], bytes]) -> Writer:
    return lambda page: change(write(page))


_RGB = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
_GIF = pillow("GIF", interlace=0)

ODD: Mapping[str, Writer] = {
    "TIFF raw, no sizes of strips": _without_sizes,
    "TIFF raw, padded strips": _tiff_of(1, lambda strip: strip + bytes(3)),
    "TIFF raw, equal strips in one place": _equal_strips_once,
    "TIFF packbits, no-operations": _tiff_of(32773, _pack_bits),
    "TIFF deflate, one row more": _tiff_of(8, lambda strip: zlib.compress(strip + bytes(600))),
    "TIFF deflate, padded": _tiff_of(8, lambda strip: zlib.compress(strip) + b"\0"),
    "TIFF Group 3 2-D, ends of line without tags": _fax_with("group3", _RETURN_TO_CONTROL, t4=1),
    "TIFF Group 3 2-D, padded": _fax_with("group3", bytes(3), t4=1),
    "TIFF Group 4, padded by ones": _fax_with("group4", b"\xff\xff"),
    "PNG grey, profile of RGB": _png_with(_profile(_RGB)),
    "PNG, broken profile": _png_with(_profile(b"none")),
    "PNG, bytes behind the data": _png_with(behind=b"abc"),
    "PNG, one row more": _png_with(more_rows=1),
    "PNG, part of another in a chunk": _png_with(png_chunk(b"prVt", b"\x89PNG\r\n\x1a\n" + bytes(9))),
    "PNG, bytes behind the end": _changed(pillow("PNG"), lambda data: data + b"junk"),
    "GIF, a block ended twice": _changed(_GIF, lambda data: data[:-1] + b"\0;"),
    "GIF, screen of no size": _changed(_GIF, lambda data: data[:6] + bytes(4) + data[10:]),
    "JPEG, bytes before the end": _changed(pillow("JPEG"), lambda data: data[:-2] + b"\0\0" + data[-2:]),
    "JPEG progressive, bytes before the end": _changed(
        pillow("JPEG", progressive=True), lambda data: data[:-2] + b"\0\0" + data[-2:]
    ),
    "BMP, sizes not filled in": _changed(
        pillow("BMP"), lambda data: data[:2] + bytes(4) + data[6:34] + bytes(4) + data[38:]
    ),
    "PGM, two images": _changed(pillow("PPM"), lambda data: data * 2),
}
