"""Damage inside a JPEG. libjpeg notices most of it, draws on, and says so; MuPDF and Pillow drop its words."""

from __future__ import annotations

import re

import simplejpeg

JPEG_SIGNATURE = b"\xff\xd8\xff"

_DAMAGE = re.compile(r"Corrupt JPEG data(?!: bad ICC)|Premature end|Inconsistent progression")
"""What libjpeg says of damage, among its words about formats that it does not read."""

_EDGE_SHARE = 8
"""The image is decoded at an eighth of its size, which leaves little to do but to unpack it."""


def fault_of_jpeg(data: bytes) -> str | None:
    """What libjpeg finds corrupt in an image, in its words; None if that is nothing, or if it cannot decode such."""
    try:
        space = simplejpeg.decode_jpeg_header(data)[2]
        simplejpeg.decode_jpeg(data, "CMYK" if space in ("CMYK", "YCCK") else "GRAY", min_factor=_EDGE_SHARE)
    except ValueError as error:
        return str(error) if _DAMAGE.search(str(error)) else None
    return None
