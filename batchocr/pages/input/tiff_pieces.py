"""Damaged or missing strips or tiles of a TIFF, which Pillow and libtiff often do not report.

libtiff draws the missing end of a fax white, and checks no checksum behind the last row. So each piece is unpacked once
more: JPEGs by libjpeg, others by MuPDF, which knows the same encodings as filters of PDF streams.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, Final

from PIL import TiffImagePlugin as tiff

from batchocr.pages.input.image_faults import fault_of_jpeg
from batchocr.pages.input.pdf_objects import unpacked

_RAW, _RLE, _FAX_3, _FAX_4, _LZW, _OLD_JPEG, _JPEG = 1, 2, 3, 4, 5, 6, 7
_DEFLATE, _ADOBE_DEFLATE, _PACK_BITS = 32946, 8, 32773
"""Values of the tag Compression. Source: TIFF 6.0, its technical note 2, and libtiff."""

_FILTERS: Final = {
    **dict.fromkeys((_RLE, _FAX_3, _FAX_4), "CCITTFaxDecode"),
    **dict.fromkeys((_DEFLATE, _ADOBE_DEFLATE), "FlateDecode"),
    _LZW: "LZWDecode",
    _PACK_BITS: "RunLengthDecode",
}

_FAX_OPTIONS: Final = 292
_TO_THE_END: Final = -1
_HEADER_BYTES: Final = 8
_YCBCR: Final = 6
"""The number of the colour space YCbCr, whose colours may be stored for each second pixel only, so that rows are
shorter."""

_REVERSED: Final = bytes(int(f"{value:08b}"[::-1], 2) for value in range(256))


@dataclass(frozen=True, slots=True)
class _Pieces:
    """The strips or tiles of an image."""

    name: str
    """What the pieces are called: `strips` or `tiles`."""
    a_plane: int
    """How many pieces cover the image once."""
    needed: int
    """How many pieces there should be, for all planes."""
    offsets: Sequence[int]
    """Where each listed strip or tile begins in the file, in bytes."""
    lengths: Sequence[int]
    """How long each listed strip or tile is in the file, in bytes."""
    width: int
    """The width of a strip or tile, in px."""
    rows: int
    """The height of a strip or tile, in px."""
    last_rows: int
    """The height of the last strip of a plane, in px."""


def fault_of_tiff(image: tiff.TiffImageFile, path: str) -> str | None:
    """How many of the image's strips or tiles are missing or damaged, in words; None if none are known to be."""
    tags: Any = image.tag_v2
    compression = tags.get(tiff.COMPRESSION, _RAW)
    if compression == _OLD_JPEG:  # its strips are often not listed as they should be
        return None
    pieces = _pieces(tags)
    if len(pieces.offsets) > pieces.needed:
        return f"the file lists {len(pieces.offsets)} {pieces.name}, but {pieces.needed} cover the image"
    places = dict(zip(pieces.offsets, pieces.lengths, strict=False))  # two in one place are one
    row_bytes, num_whole = _row_bytes(tags, pieces.width), 0
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        for number, (offset, length) in enumerate(places.items(), 1):
            rows = pieces.rows if number % pieces.a_plane else pieces.last_rows
            if compression == _RAW and not rows * row_bytes <= length <= size - offset:
                length = rows * row_bytes  # as libtiff does
            file.seek(offset)
            data = file.read(length)
            if offset >= _HEADER_BYTES and data and _is_whole(data, tags, pieces, rows):
                num_whole += 1
    num_lost = pieces.needed - num_whole
    return f"{num_lost} of its {pieces.needed} {pieces.name} are missing, corrupt, or end early" if num_lost else None


def _pieces(tags: Any) -> _Pieces:
    width, height = tags[tiff.IMAGEWIDTH], tags[tiff.IMAGELENGTH]
    planes = tags.get(tiff.SAMPLESPERPIXEL, 1) if tags.get(tiff.PLANAR_CONFIGURATION) == 2 else 1
    if tiff.TILEOFFSETS in tags:
        across, rows = tags[tiff.TILEWIDTH], tags[tiff.TILELENGTH]
        a_plane = ceil(width / across) * ceil(height / rows)
        offsets, lengths = tags[tiff.TILEOFFSETS], tags[tiff.TILEBYTECOUNTS]
        return _Pieces("tiles", a_plane, a_plane * planes, offsets, lengths, across, rows, rows)
    rows = min(height, tags.get(tiff.ROWSPERSTRIP, height))
    a_plane = ceil(height / rows)
    last_rows = height - (a_plane - 1) * rows
    offsets = tags[tiff.STRIPOFFSETS]
    lengths = tags.get(tiff.STRIPBYTECOUNTS, [_TO_THE_END] * len(offsets))
    return _Pieces("strips", a_plane, a_plane * planes, offsets, lengths, width, rows, last_rows)


def _is_whole(data: bytes, tags: Any, pieces: _Pieces, rows: int) -> bool:
    """Whether a piece holds these rows, and no error that can be found."""
    compression = tags.get(tiff.COMPRESSION, _RAW)
    if compression == _JPEG:
        tables = tags.get(tiff.JPEGTABLES, b"")
        return fault_of_jpeg(tables[:-2] + data[2:] if tables else data) is None
    is_of_tiff_5 = compression == _LZW and data[:1] == b"\0"  # its order of bits is one that MuPDF does not know
    if compression not in (_RAW, *_FILTERS) or is_of_tiff_5:
        return True
    plain = _plain(data, compression, tags, pieces.width, rows)
    if plain is None or tags.get(tiff.PHOTOMETRIC_INTERPRETATION) == _YCBCR:
        return plain is not None
    row_bytes = _row_bytes(tags, pieces.width)
    surplus = len(plain) - row_bytes * rows
    is_padded = rows < pieces.rows and surplus == row_bytes * (pieces.rows - rows)
    return surplus == 0 or is_padded or (compression == _RAW and 0 < surplus < row_bytes)


def _plain(data: bytes, compression: int, tags: Any, width: int, rows: int) -> bytes | None:
    """Packed data unpacked; None if MuPDF finds an error in it. width, rows: in px, of a fax."""
    if compression == _RAW:
        return data
    if tags.get(tiff.FILLORDER) == 2:
        data = data.translate(_REVERSED)
    two_dimensional = compression == _FAX_3 and tags.get(_FAX_OPTIONS, 0) & 1
    k = -1 if compression == _FAX_4 else int(two_dimensional)
    aligned = "true" if compression == _RLE else "false"
    parameters = f"<</K {k}/Columns {width}/Rows {rows}/EncodedByteAlign {aligned}>>"
    return unpacked(data, f"/{_FILTERS[compression]}", parameters)


def _row_bytes(tags: Any, width: int) -> int:
    bits = tags.get(tiff.BITSPERSAMPLE, (1,))
    samples = 1 if tags.get(tiff.PLANAR_CONFIGURATION) == 2 else tags.get(tiff.SAMPLESPERPIXEL, 1)
    return ceil(width * int(bits[0]) * int(samples) / 8)
