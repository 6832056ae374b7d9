"""Where the frames of a TIFF or GIF and the pictures of a WebP are: one pass over the file that decodes nothing.

Pillow would set up each frame on its way, so that in a long file every page would pay for all before it.
"""

from __future__ import annotations

import io
import os
import struct
from dataclasses import dataclass
from typing import Any

_GIF_SCREEN_BYTES = 13
_GIF_FRAME_BYTES = 9
_RIFF_BYTES = 12
_WEBP_FRAME_BYTES = 24
_CHUNK = struct.Struct("<4sL")

_NO_PAGES = {(254, 1), (254, 3), (254, 4), (254, 5), (254, 6), (254, 7), (255, 2)}
"""Tags and values of a smaller copy of a page, or of a mask that says which parts of it are opaque. Source: TIFF 6.0,
NewSubfileType and SubfileType."""


@dataclass(frozen=True, slots=True)
class _Layout:
    """How the numbers of a TIFF are written."""

    start: bytes
    """The first bytes of the file, up to the offset of its first directory."""
    offset: struct.Struct
    num_entries: struct.Struct
    entry_bytes: int


def _layout(header: bytes) -> _Layout:
    """How the numbers of the TIFF with this header are written.

    Source: TIFF 6.0, section 2. BigTIFF has 43 in place of 42, and wider numbers.
    """
    order = "<" if header.startswith(b"II") else ">"
    if 43 in header[2:4]:
        return _Layout(header[:8], struct.Struct(order + "Q"), struct.Struct(order + "Q"), 20)
    return _Layout(header[:4], struct.Struct(order + "L"), struct.Struct(order + "H"), 12)


class TiffFile(io.FileIO):
    """A TIFF as if the directory at `offset` were its first one, so that a page is reached without those before it."""

    def __init__(self, path: str, offset: int) -> None:
        with open(path, "rb") as file:
            layout = _layout(file.read(8))
        self._header = layout.start + layout.offset.pack(offset)
        super().__init__(path)

    def readinto(self, buffer: Any, /) -> int:
        position = self.tell()
        num_bytes = super().readinto(buffer) or 0
        header = self._header[position : position + num_bytes]
        memoryview(buffer)[: len(header)] = header
        return num_bytes


def tiff_directories(path: str) -> tuple[list[int], bool]:
    """Return the offset of each directory that is a page, and whether their chain is whole: it ends with 0, or where it
    leads back. If none says that it is a page, all are."""
    offsets: dict[int, bool] = {}
    is_whole = False
    with open(path, "rb") as file:
        end = os.fstat(file.fileno()).st_size
        layout = _layout(file.read(8))
        file.seek(len(layout.start))
        following = file.read(layout.offset.size)
        while len(following) == layout.offset.size:
            [offset] = layout.offset.unpack(following)
            if offset == 0 or offset in offsets:
                is_whole = True
                break
            file.seek(min(offset, end))
            counted = file.read(layout.num_entries.size)
            if len(counted) < layout.num_entries.size:
                break
            [num_entries] = layout.num_entries.unpack(counted)
            entries = file.tell()
            offsets[offset] = _is_page(file.read(layout.entry_bytes), layout)
            file.seek(min(entries + num_entries * layout.entry_bytes, end))
            following = file.read(layout.offset.size)
    return [offset for offset, is_page in offsets.items() if is_page] or list(offsets), is_whole


def _is_page(first: bytes, layout: _Layout) -> bool:
    """Whether a directory with this first entry shows a page. Entries are in the order of their tags."""
    entry = struct.Struct(f"{layout.offset.format[0]}H{layout.entry_bytes - layout.offset.size - 2}xHH")
    tag, one_half, other = entry.unpack_from(first.ljust(layout.entry_bytes, b"\0"))
    return (tag, one_half | other) not in _NO_PAGES  # a half is 0, as values are small or short


def gif_frames(path: str) -> tuple[int, bool]:
    """Return how many frames begin, and whether the chain of blocks is whole, down to the mark of its end.

    Source: GIF89a, appendix B. Bytes that mean nothing are skipped, as Pillow does, but some of a frame may be in them.
    """
    count, whole = 0, True
    with open(path, "rb") as file:
        _skip_palette(file, file.read(_GIF_SCREEN_BYTES)[10:11])
        while (mark := file.read(1)) not in (b"", b";"):
            if mark == b"!":
                file.seek(1, io.SEEK_CUR)
                _skip_blocks(file)
            elif mark == b",":
                frame = file.read(_GIF_FRAME_BYTES)
                if len(frame) == _GIF_FRAME_BYTES:
                    count += 1
                _skip_palette(file, frame[8:9])
                file.seek(1, io.SEEK_CUR)
                _skip_blocks(file)
            elif mark != b"\0":  # some programs end a block twice
                whole = False
    return count, whole and mark == b";"


def webp_picture(path: str, frame: int) -> bytes:
    """Return the chunk of a frame's picture; nothing if there is none.

    Source: WebP container specification.
    """
    with open(path, "rb") as file:
        position = _RIFF_BYTES
        while len(head := _at(file, position, _CHUNK.size)) == _CHUNK.size:
            kind, size = _CHUNK.unpack(head)
            if kind in (b"VP8 ", b"VP8L"):
                if frame == 0:
                    return _at(file, position, _CHUNK.size + size)
                frame -= 1
            position += _WEBP_FRAME_BYTES if kind == b"ANMF" else _CHUNK.size + size + size % 2  # its chunks follow
    return b""


def _at(file: io.BufferedReader, position: int, num_bytes: int) -> bytes:
    file.seek(position)
    return file.read(num_bytes)


def _skip_palette(file: io.BufferedReader, flags: bytes) -> None:
    if flags and flags[0] & 128:
        file.seek(3 << ((flags[0] & 7) + 1), io.SEEK_CUR)


def _skip_blocks(file: io.BufferedReader) -> None:
    while (size := file.read(1)) not in (b"", b"\0"):
        file.seek(size[0], io.SEEK_CUR)
