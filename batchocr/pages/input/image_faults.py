"""What is wrong with the data of an image that Pillow does not say: its decoders overlook it, or keep it to themselves.

Each function returns that in words; None if nothing is known to be wrong.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import pymupdf
import simplejpeg
from PIL import Image

from batchocr.pages.input.mupdf_warnings import REFUSALS, all_warnings, forget_warnings, lost_content, reason_of

_MAX_READ: Final = 1 << 16
_MAX_SAID: Final = 200
_OF_A_DECODER: Final = re.compile(r"^(\w+Decode\w*|TIFFFill\w+): .*", re.MULTILINE)
_UNNEEDED: Final = 8
"""A picture's last bytes, without which a sound one cannot be decoded: encoders leave at most two unused."""

_OTHER_LENGTH: Final = "its picture ends elsewhere than its data"
PNG_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
JPEG_SIGNATURE: Final = b"\xff\xd8\xff"
_BLOCK_ENDED_TWICE: Final = "unsupported block indicator 00 in gif image"
"""Some programs write such GIFs."""

_CORRUPT_JPEG: Final = re.compile(r"Corrupt JPEG data(?!: bad ICC)|Premature end|Inconsistent progression")
"""What libjpeg says of damage, among its words about formats that it does not read."""

_JPEG_SHARE: Final = 8
"""A JPEG is decoded at an eighth of its size, which leaves little to do but to unpack it."""


def fault_of_jpeg(data: bytes) -> str | None:
    """Of a JPEG, in the words of libjpeg, which notices most damage and draws on; MuPDF and Pillow drop its words."""
    try:
        space = simplejpeg.decode_jpeg_header(data)[2]
        simplejpeg.decode_jpeg(data, "CMYK" if space in ("CMYK", "YCCK") else "GRAY", min_factor=_JPEG_SHARE)
    except ValueError as error:
        return str(error) if _CORRUPT_JPEG.search(str(error)) else None
    return None


def fault_found_by_mupdf(data: bytes) -> str | None:
    """Of a PNG or GIF, or of the PNGs in a collection of icons. Pillow takes rows that are not there for black ones,
    and looks at no checksum behind the last row."""
    icons = [PNG_SIGNATURE + icon for icon in data.split(PNG_SIGNATURE)[1:]]
    images = icons if data.startswith(b"icns") else [data]
    return next(filter(None, map(_said_by_mupdf, images)), None)


def fault_of_webp(chunk: bytes) -> str | None:
    """Of one picture, in its chunk. libwebp takes any bits for a picture, but seldom as many as there are if some are
    wrong: then it can do without the last."""
    kind, body = chunk[:4], chunk[8:-_UNNEEDED]
    shorter = b"WEBP" + kind + len(body).to_bytes(4, "little") + body + bytes(len(body) & 1)
    try:
        Image.open(io.BytesIO(b"RIFF" + len(shorter).to_bytes(4, "little") + shorter), formats=("WEBP",)).load()
    except OSError:
        return None
    return _OTHER_LENGTH


@contextmanager
def words_of_libtiff() -> Iterator[Callable[[], str | None]]:
    """Yields what returns the first thing that a decoder of libtiff has found wrong meanwhile: they write to standard
    error."""
    descriptor, kept = os.memfd_create("words"), os.dup(2)
    os.dup2(descriptor, 2)
    try:
        yield lambda: _decoder_says(os.pread(descriptor, _MAX_READ, 0).decode("utf-8", "backslashreplace"))
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(descriptor)


def _decoder_says(words: str) -> str | None:
    """Of the other words, some are about the next page."""
    found = _OF_A_DECODER.search(words)
    return found[0][:_MAX_SAID] if found else None


def _said_by_mupdf(data: bytes) -> str | None:
    """What MuPDF says of an image that it decodes too."""
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
