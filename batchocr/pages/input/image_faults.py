"""Damage to the data of an image that Pillow does not report. None from a function here: no damage is known."""

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
_OF_A_DECODER: Final = re.compile(r"^(\w+Decode\w*|TIFFFill\w+): .*|\w+ compression support is not configured", re.M)
_UNNEEDED: Final = 8
"""Bytes cut from a picture's end: a sound one cannot be decoded then, as encoders leave at most two unused."""

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
    """What libjpeg reports as corrupt in a JPEG; it draws on, and MuPDF and Pillow drop its messages."""
    try:
        space = simplejpeg.decode_jpeg_header(data)[2]
        simplejpeg.decode_jpeg(data, "CMYK" if space in ("CMYK", "YCCK") else "GRAY", min_factor=_JPEG_SHARE)
    except ValueError as error:
        return str(error) if _CORRUPT_JPEG.search(str(error)) else None
    return None


def fault_found_by_mupdf(data: bytes) -> str | None:
    """What MuPDF reports about a PNG or GIF, or about the PNGs in an ICNS file. Pillow draws missing rows black, and
    checks no checksum behind the last row."""
    icons = [PNG_SIGNATURE + icon for icon in data.split(PNG_SIGNATURE)[1:]]
    images = icons if data.startswith(b"icns") else [data]
    return next(filter(None, map(_said_by_mupdf, images)), None)


def fault_of_webp(chunk: bytes) -> str | None:
    """Whether a picture can be decoded without the last bytes of its chunk, which a sound one cannot: libwebp reports
    no wrong bits, but rarely reads as many as there are if some are wrong."""
    kind, body = chunk[:4], chunk[8:-_UNNEEDED]
    shorter = b"WEBP" + kind + len(body).to_bytes(4, "little") + body + bytes(len(body) & 1)
    try:
        Image.open(io.BytesIO(b"RIFF" + len(shorter).to_bytes(4, "little") + shorter), formats=("WEBP",)).load()
    except OSError:
        return None
    return _OTHER_LENGTH


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
