"""Damage to image files: each function takes a file and returns a damaged copy; None where it has nothing to damage.

Blind damage knows nothing of the format. The rest leaves a file in good order that says too little: a stream with fewer
rows than its header names, a header with fewer than its stream, or an index that lies.
"""

from __future__ import annotations

import io
import random
import re
import struct
import zlib
from collections.abc import Callable, Mapping
from typing import TypeAlias

from PIL import Image

from benchmarks.attack.sound_images import only_strip, png_chunk, tiff
from benchmarks.attack.tiff_lies import LIES, TiffPage, is_tiff

Damage: TypeAlias = Callable[[bytes, random.Random], bytes | None]

_JPEG, _DEFLATE = 7, (8, 32946)
_PACKED = {2: "tiff_ccitt", 3: "group3", 4: "group4", 5: "tiff_lzw", 32773: "packbits", 34925: "lzma", 50000: "zstd"}
"""Values of the tag Compression, and Pillow's names for some."""


# --- Blind --------------------------------------------------------------------------------------------------------


def cut(data: bytes, dice: random.Random) -> bytes:
    """The first 2 to 98 % of the file."""
    return data[: int(len(data) * dice.uniform(0.02, 0.98))]


def bit(data: bytes, dice: random.Random) -> bytes:
    at = dice.randrange(len(data))
    return _overwritten(data, at, bytes([data[at] ^ 1 << dice.randrange(8)]))


def noise(data: bytes, dice: random.Random) -> bytes:
    """2 to 64 bytes at random."""
    return _overwritten(data, dice.randrange(len(data)), dice.randbytes(dice.randint(2, 64)))


def zeros(data: bytes, dice: random.Random) -> bytes:
    """16 bytes to 4 KiB, zeroed."""
    return _overwritten(data, dice.randrange(len(data)), bytes(dice.randint(16, 4096)))


def sector_zeroed(data: bytes, dice: random.Random) -> bytes:
    """One of the sectors of 512 bytes, zeroed."""
    return _overwritten(data, 512 * dice.randrange(len(data) // 512 + 1), bytes(512))


def second_half_zeroed(data: bytes, _: random.Random) -> bytes:
    return _overwritten(data, len(data) // 2, bytes(len(data)))


def _overwritten(data: bytes, at: int, by: bytes) -> bytes:
    return data[:at] + by[: len(data) - at] + data[at + len(by) :]


# --- A height in the header that is not that of the data ----------------------------------------------------------

_HEIGHTS = (
    (re.compile(rb"\ABM", re.DOTALL), 20, "<l"),
    (re.compile(rb"\AGIF8[79]a.*?,\0\0\0\0", re.DOTALL), 2, "<H"),
    (re.compile(rb"\A\xff\xd8.*?\xff[\xc0-\xc2]", re.DOTALL), 3, ">H"),
    (re.compile(rb"\ARIFF.{4}WEBPVP8 .{7}\x9d\x01\x2a", re.DOTALL), 2, "<H"),
    (re.compile(rb"\xff\x4f\xff\x51", re.DOTALL), 8, ">L"),
)
"""What stands before a height, how many bytes are between them, and its type: BMP, GIF, JPEG, WebP, JPEG 2000."""


def height_halved(data: bytes, dice: random.Random) -> bytes | None:
    """A header, right in every other way, that names half of the rows."""
    if is_tiff(data):
        page = TiffPage(data, dice)
        page.put(257, [page.get(257)[0] // 2])
        return bytes(page.data)
    with Image.open(io.BytesIO(data)) as image:
        return _with_height(data, image.height // 2)


def stream_ends_early(data: bytes, dice: random.Random) -> bytes | None:
    """The first 10 to 90 % of the rows, in good order, under a header that names all of them."""
    share = dice.uniform(0.1, 0.9)
    if is_tiff(data):
        page = TiffPage(data, dice)
        return bytes(page.data) if _tiff_part_ends_early(page, share, dice) else None
    if data.startswith(b"RIFF") and data[12:16] in (b"VP8 ", b"VP8L"):
        size = int(len(data[20:]) * share) & ~1
        return (
            b"RIFF" + struct.pack("<L", size + 12) + b"WEBP" + data[12:16] + struct.pack("<L", size) + data[20:][:size]
        )
    with Image.open(io.BytesIO(data)) as image:
        if image.format == "ICNS" or getattr(image, "n_frames", 1) > 1:
            return None
        file = io.BytesIO()
        image.crop((0, 0, image.width, int(image.height * share))).save(file, image.format)
        early = file.getvalue()
        if image.format == "GIF":
            early = _overwritten(early, 8, struct.pack("<H", image.height))  # of the screen
        return _with_height(early, image.height)


def _with_height(data: bytes, height: int) -> bytes | None:
    """The file with another height in its header; None if it is not known where that is."""
    if data.startswith(b"\x89PNG"):
        head = data[16:20] + struct.pack(">L", height) + data[24:29]
        return data[:8] + png_chunk(b"IHDR", head) + data[33:]
    if data.startswith(b"P"):
        kind, width, _, rest = re.split(rb"\s", data, maxsplit=3)
        return b"%s\n%s %d\n%s" % (kind, width, height, rest)
    for mark, behind, number in _HEIGHTS:
        if found := mark.search(data):
            return _overwritten(data, found.end() + behind, struct.pack(number, height))
    return None


def _tiff_part_ends_early(page: TiffPage, share: float, dice: random.Random) -> bool:
    """Put into a strip or tile fewer rows than it should have. Returns False if it is not known how to pack them."""
    index, [compression] = dice.randrange(len(page)), page.get(259)
    start, end = page.part(index)
    part = bytes(page.data[start:end])
    if compression in _DEFLATE:
        rows = zlib.decompress(part)
        less = zlib.compress(rows[: int(len(rows) * share)])
    elif compression == _JPEG:
        less = part[: int(len(part) * share)] + b"\xff\xd9"
    elif compression in _PACKED and 322 not in page:
        less = _fewer_rows(page, index, part, share)
    else:
        return False
    sizes = page.get(page.sizes_tag)
    sizes[index] = min(len(less), len(part))
    page.put(page.sizes_tag, sizes)
    page.data[start : start + sizes[index]] = less[: sizes[index]]
    return True


def _fewer_rows(page: TiffPage, index: int, part: bytes, share: float) -> bytes:
    """The first rows of a strip, as libtiff packs them."""
    [height] = page.get(257)
    rows = min(page.get(278, height)[0], height - index * page.get(278, height)[0])
    tags = {tag: page.get(tag) for tag in (256, 258, 259, 262, 266, 277, 292, 317) if tag in page}
    with Image.open(io.BytesIO(tiff({**tags, 257: [rows], 278: [rows]}, [part]))) as strip:
        some = strip.crop((0, 0, strip.width, max(1, int(rows * share))))
        more = {tag: tags[tag][0] for tag in (266, 292, 317) if tag in tags}
        return only_strip(some, _PACKED[page.get(259)[0]], more)


DAMAGE: Mapping[str, Damage] = {
    "cut": cut,
    "bit": bit,
    "noise": noise,
    "zeros": zeros,
    "sector zeroed": sector_zeroed,
    "second half zeroed": second_half_zeroed,
    "stream ends early": stream_ends_early,
    "height halved": height_halved,
    **LIES,
}
