"""Damage to the data of an image that Pillow does not report. None from a function here: no damage is known."""

from __future__ import annotations

import io
import os
import re
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import pymupdf
import simplejpeg
from PIL import Image

from batchocr.pages.input.mupdf_warnings import REFUSALS, all_warnings, forget_warnings, lost_content, reason_of

_MAX_READ: Final = 1 << 16
_MAX_SAID: Final = 200
_OF_A_DECODER: Final = re.compile(r"^(\w+Decode\w*|TIFFFill\w+): .*|\w+ compression support is not configured", re.M)
_UNNEEDED: Final = 8
"""How many bytes are cut from a picture's end: a sound picture cannot be decoded then, as encoders leave at most two
unused."""

_OTHER_LENGTH: Final = "its picture ends elsewhere than its data"
PNG_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
_ANIMATION: Final = (b"acTL", b"fcTL", b"fdAT")
_PNG_CHUNK_BYTES: Final = 12
"""The bytes of a chunk's length, name and checksum."""

JPEG_SIGNATURE: Final = b"\xff\xd8\xff"
END_OF_JPEG: Final = b"\xff\xd9"
"""The mark at the end of a JPEG, ignored where there is one before."""

_PROGRESSIVE: Final = b"\xff\xc2"
_FRAMES: Final = (b"\xff\xc0", b"\xff\xc1", b"\xff\xc2", b"\xff\xc3")
"""Markers of the header that has the size. Source: ITU-T T.81, table B.1."""
_BLOCK_ENDED_TWICE: Final = "unsupported block indicator 00 in gif image"
"""What Pillow says of a GIF whose block ends twice, as some programs write it."""

_CORRUPT_JPEG: Final = re.compile(r"Corrupt JPEG data(?!: bad ICC)|Premature end|Inconsistent progression")
"""What libjpeg says of damage, among its words about formats that it does not read."""

_JPEG_SHARE: Final = 8
"""The factor by which a JPEG is made smaller when it is decoded, which leaves little to do but to unpack it."""


def fault_of_jpeg(data: bytes, size: tuple[int, int] | None = None) -> str | None:
    """What libjpeg reports as corrupt in a JPEG; it draws on, and MuPDF and Pillow drop its messages. That it lacks
    only the mark of its end is no fault, unless it may lack scans too. size: width and height with which it is drawn,
    whatever its own."""
    try:
        drawn = data if size is None else _resized(data, *size)
        space = "CMYK" if simplejpeg.decode_jpeg_header(drawn)[2] in ("CMYK", "YCCK") else "GRAY"
        simplejpeg.decode_jpeg(drawn if _PROGRESSIVE in data else drawn + END_OF_JPEG, space, min_factor=_JPEG_SHARE)
    except ValueError as error:
        return str(error) if _CORRUPT_JPEG.search(str(error)) else None
    return None


def _resized(jpeg: bytes, width: int, height: int) -> bytes:
    """A JPEG with another size in its header."""
    place = 2
    while jpeg[place : place + 2] not in _FRAMES and place < len(jpeg):
        place += 2 + int.from_bytes(jpeg[place + 2 : place + 4])
    return jpeg[: place + 5] + struct.pack(">HH", height & 0xFFFF, width & 0xFFFF) + jpeg[place + 9 :]


def fault_found_by_mupdf(data: bytes) -> str | None:
    """What MuPDF reports about a PNG or GIF, or about the PNGs in an ICNS file. Pillow draws missing rows black, and
    checks no checksum behind the last row."""
    icons = [PNG_SIGNATURE + icon for icon in data.split(PNG_SIGNATURE)[1:]]
    images = icons if data.startswith(b"icns") else [data]
    return next(filter(None, map(_said_by_mupdf, images)), None)


def fault_of_webp(chunk: bytes) -> str | None:
    """What is wrong with the picture in a chunk of a WebP: it can be decoded without the last bytes of the chunk, which
    a sound one cannot. None if it cannot: libwebp reports no wrong bits, but rarely reads as many as there are if some
    are wrong."""
    kind, body = chunk[:4], chunk[8:-_UNNEEDED]
    shorter = b"WEBP" + kind + len(body).to_bytes(4, "little") + body + bytes(len(body) & 1)
    try:
        Image.open(io.BytesIO(b"RIFF" + len(shorter).to_bytes(4, "little") + shorter), formats=("WEBP",)).load()
    except OSError:
        return None
    return _OTHER_LENGTH


def still_png(data: bytes) -> bytes:
    """A PNG without the chunks of an animation, which are no pages: in a whole picture they may be amiss."""
    kept, position = [data[: len(PNG_SIGNATURE)]], len(PNG_SIGNATURE)
    while position < len(data):
        end = position + _PNG_CHUNK_BYTES + int.from_bytes(data[position : position + 4])
        if data[position + 4 : position + 8] not in _ANIMATION:
            kept.append(data[position:end])
        position = end
    return b"".join(kept)


@contextmanager
def words_of_libtiff() -> Iterator[Callable[[], str | None]]:
    """Yield a function that returns the first error a decoder of libtiff has written to standard error meanwhile."""
    descriptor, kept = os.memfd_create("words"), os.dup(2)
    os.dup2(descriptor, 2)
    try:
        yield lambda: _decoder_error(os.pread(descriptor, _MAX_READ, 0).decode("utf-8", "backslashreplace"))
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(descriptor)


def _decoder_error(messages: str) -> str | None:
    """The first error of a decoder; messages of other parts of libtiff can be about the next page."""
    found = _OF_A_DECODER.search(messages)
    return found[0][:_MAX_SAID] if found else None


def _said_by_mupdf(data: bytes) -> str | None:
    """What MuPDF says of an image that it also decodes."""
    forget_warnings()
    try:
        pymupdf.Pixmap(data)
    except REFUSALS as error:
        reason = reason_of(error)
        if "malloc" in reason:
            raise MemoryError from error
        if reason == _BLOCK_ENDED_TWICE:
            return None
        return f"MuPDF says: {reason[:_MAX_SAID]}"
    return lost_content(all_warnings())
