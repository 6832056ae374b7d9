"""What is wrong with the strips or tiles of a TIFF, of which Pillow and libtiff say little.

libtiff takes a fax that ends early for a white page, and looks at no checksum behind the last row. So each piece is
unpacked once more, by MuPDF, which knows the same encodings as filters of PDF streams, and tells how much there is in
it; JPEGs by libjpeg.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, Final

from PIL import TiffImagePlugin as tiff

from batchocr.input.jpeg import fault_of_jpeg
from batchocr.input.pdf_objects import unpacked

_RAW, _RLE, _FAX_3, _FAX_4, _LZW, _OLD_JPEG, _JPEG = 1, 2, 3, 4, 5, 6, 7
_DEFLATE, _ADOBE_DEFLATE, _PACK_BITS = 32946, 8, 32773
"""Values of the tag Compression. Source: TIFF 6.0, its technical note 2, and libtiff."""

_FILTERS: Final = {
    _RAW: "",
    **dict.fromkeys((_RLE, _FAX_3, _FAX_4), "CCITTFaxDecode"),
    **dict.fromkeys((_DEFLATE, _ADOBE_DEFLATE), "FlateDecode"),
    _LZW: "LZWDecode",
    _PACK_BITS: "RunLengthDecode",
}

_FAX_OPTIONS: Final = 292
_HEADER_BYTES: Final = 8
_YCBCR: Final = 6
"""Its colours may be stored for each second pixel only, so that rows are shorter."""

_REVERSED: Final = bytes(int(f"{value:08b}"[::-1], 2) for value in range(256))


@dataclass(frozen=True, slots=True)
class _Pieces:
    """The strips or tiles of an image. a_plane: how many cover it once. needed: for all planes. offsets, lengths: of
    those that are listed, in bytes. width, rows: in px. last_rows: of the last strip of a plane."""

    name: str
    a_plane: int
    needed: int
    offsets: Sequence[int]
    lengths: Sequence[int]
    width: int
    rows: int
    last_rows: int


def fault_of_tiff(image: tiff.TiffImageFile, path: str) -> str | None:
    """What of the image's strips or tiles is missing or damaged, in words; None if all of it is there, as far as can be
    told. path: of the file."""
    tags: Any = image.tag_v2
    compression = tags.get(tiff.COMPRESSION, 1)
    if compression == _OLD_JPEG:  # its strips are often not listed as they should be
        return None
    pieces = _pieces(tags)
    lengths = dict(zip(pieces.offsets, pieces.lengths, strict=False))
    places = [(offset, length) for offset, length in lengths.items() if offset >= _HEADER_BYTES and length]
    if len(places) != pieces.needed:
        return f"the file lists {len(places)} of its {pieces.needed} {pieces.name}"
    if compression not in (_JPEG, *_FILTERS):
        return None
    num_damaged = 0
    with open(path, "rb") as file:
        for number, (offset, length) in enumerate(places, 1):
            file.seek(offset)
            data = file.read(length)
            if compression == _JPEG:
                tables = tags.get(tiff.JPEGTABLES, b"")
                num_damaged += fault_of_jpeg(tables[:-2] + data[2:] if tables else data) is not None
            else:
                rows = pieces.rows if number % pieces.a_plane else pieces.last_rows
                num_damaged += not _is_whole(data, tags, pieces, rows)
    return f"{num_damaged} of its {pieces.needed} {pieces.name} are corrupt, or end early" if num_damaged else None


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
    offsets, lengths = tags[tiff.STRIPOFFSETS], tags[tiff.STRIPBYTECOUNTS]
    return _Pieces("strips", a_plane, a_plane * planes, offsets, lengths, width, rows, last_rows)


def _is_whole(data: bytes, tags: Any, pieces: _Pieces, rows: int) -> bool:
    """Whether packed data holds these rows, and no error that MuPDF finds."""
    if tags.get(tiff.FILLORDER) == 2:
        data = data.translate(_REVERSED)
    compression = tags.get(tiff.COMPRESSION)
    if compression == _LZW and data[:1] == b"\0":  # the order of bits that only TIFF 5 had
        return True
    packed = compression != _RAW
    plain = unpacked(data, f"/{_FILTERS[compression]}", _fax_parameters(tags, pieces.width, rows)) if packed else data
    if plain is None or tags.get(tiff.PHOTOMETRIC_INTERPRETATION) == _YCBCR:
        return plain is not None
    row_bytes = _row_bytes(tags, pieces.width)
    is_padded = len(plain) == row_bytes * pieces.rows and rows < pieces.rows
    return len(plain) == row_bytes * rows or is_padded


def _fax_parameters(tags: Any, width: int, rows: int) -> str:
    compression = tags.get(tiff.COMPRESSION)
    two_dimensional = compression == _FAX_3 and tags.get(_FAX_OPTIONS, 0) & 1
    k = -1 if compression == _FAX_4 else two_dimensional
    aligned = "true" if compression == _RLE else "false"
    return f"<</K {int(k)}/Columns {width}/Rows {rows}/EncodedByteAlign {aligned}>>"


def _row_bytes(tags: Any, width: int) -> int:
    bits = tags.get(tiff.BITSPERSAMPLE, (1,))
    samples = 1 if tags.get(tiff.PLANAR_CONFIGURATION) == 2 else tags.get(tiff.SAMPLESPERPIXEL, 1)
    return ceil(width * int(bits[0]) * int(samples) / 8)
