"""Blocks of a PDF that were never written: zeros between its objects, where MuPDF takes them for white space."""

from __future__ import annotations

import mmap
import os

_HOLE = bytes(128)
"""More than the zeros behind the keys of an encrypted PDF, which are 79."""

_STREAM, _END = b"stream", b"end"


def has_hole(path: str) -> bool:
    """Whether there are zeros outside of a PDF's streams, which may hold any bytes. Those behind its end do not count.

    Raises OSError.
    """
    if not os.path.getsize(path):
        return False
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        end = data.rfind(b"%%EOF")
        position = data.find(_HOLE, 0, end)
        while position >= 0:
            keyword = data.rfind(_STREAM, 0, position)
            if keyword < 0 or data[max(0, keyword - len(_END)) : keyword] == _END:
                return True
            following = data.find(_END + _STREAM, position)
            if following < 0:
                return False
            position = data.find(_HOLE, following, end)
    return False
