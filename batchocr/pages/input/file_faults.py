"""Damage that shows in the bytes of a PDF file, whatever is in its objects."""

from __future__ import annotations

import mmap
import os
import re

_HOLE = bytes(128)
"""Longer than any run of zeros in a sound file: the keys of an encrypted PDF are followed by 79."""

_STREAM, _END = b"stream", b"end"
_MARK_OF_END = b"%%EOF"
_OBJECT = re.compile(rb"\b\d+ +\d+ +obj\b")
_TRAILER = re.compile(rb"\bstartxref\s+\d+\s*$")


def faults_of_file(path: str) -> list[str]:
    """What is wrong with the file, in words. Raises OSError."""
    if not os.path.getsize(path):
        return []
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        end = data.rfind(_MARK_OF_END)
        faults = ["the file has zeros where some of its objects should be"] if _has_hole(data, end) else []
        if end >= 0 and _OBJECT.search(data, end) and not _TRAILER.search(data, end):
            faults.append("the file ends within its last update: what that changed is not in its pages")
    return faults


def _has_hole(data: mmap.mmap, end: int) -> bool:
    """Whether there are zeros between objects, as of blocks never written, which MuPDF takes for white space. Those
    within streams, and behind the end, do not count."""
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
