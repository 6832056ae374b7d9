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
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

from PIL import Image

from benchmarks.attack.sound_images import only_strip, png_chunk, tiff

Damage: TypeAlias = Callable[[bytes, random.Random], bytes | None]

_JPEG, _DEFLATE = 7, (8, 32946)
_PACKED = {2: "tiff_ccitt", 3: "group3", 4: "group4", 5: "tiff_lzw", 32773: "packbits", 34925: "lzma", 50000: "zstd"}
"""Values of the tag Compression, and Pillow's names for some."""


# --- A TIFF whose index lies: its strips or tiles are whole, but its directory says less, or other than what is there -

_OFFSETS, _SIZES = (273, 324), (279, 325)


class TiffPage:
    """One directory of a TIFF, to be changed in place. Source: TIFF 6.0, section 2."""

    def __init__(self, data: bytes, dice: random.Random) -> None:
        self.data = bytearray(data)
        self._order = "<" if data.startswith(b"II") else ">"
        big = 43 in data[2:4]
        self._word, self._inline = ("Q", 8) if big else ("L", 4)
        pages = list(self._directories("Q" if big else "H"))
        self._entries: dict[int, tuple[int, int, int]] = dice.choice(pages)

    def _directories(self, count: str) -> Iterator[dict[int, tuple[int, int, int]]]:
        """For each page, by tag: where its entry is, its type, and how many values it has."""
        [at] = self._read(self._word, self._inline, 1)
        while at:
            [num_entries] = self._read(count, at, 1)
            at += struct.calcsize("=" + count)
            size = 4 + 2 * self._inline
            places = range(at, at + num_entries * size, size)
            heads = [(place, *self._read("H", place, 2), *self._read(self._word, place + 4, 1)) for place in places]
            yield {tag: (place, kind, length) for place, tag, kind, length in heads}
            [at] = self._read(self._word, at + num_entries * size, 1)

    def _read(self, letter: str, at: int, length: int) -> tuple[int, ...]:
        return struct.unpack_from(f"{self._order}{length}{letter}", self.data, at)

    def __contains__(self, tag: int) -> bool:
        return tag in self._entries

    def _place(self, tag: int) -> tuple[str, int, int]:
        """The letter of its type, where its values are, and how many there are."""
        entry_at, kind, length = self._entries[tag]
        letter, at = {3: "H", 4: "L", 16: "Q"}[kind], entry_at + 4 + self._inline
        if length * struct.calcsize("=" + letter) > self._inline:
            [at] = self._read(self._word, at, 1)
        return letter, at, length

    def get(self, tag: int, default: int = 0) -> list[int]:
        if tag not in self:
            return [default]
        letter, at, length = self._place(tag)
        return list(self._read(letter, at, length))

    def put(self, tag: int, values: Sequence[int]) -> None:
        """As many values as there were, or fewer."""
        letter, at, _ = self._place(tag)
        packed = struct.pack(f"{self._order}{len(values)}{letter}", *values)
        entry_at, kind, _ = self._entries[tag]
        self._entries[tag] = entry_at, kind, len(values)
        struct.pack_into(self._order + self._word, self.data, entry_at + 4, len(values))
        if len(packed) <= self._inline:
            at = entry_at + 4 + self._inline
        self.data[at : at + len(packed)] = packed

    @property
    def offsets_tag(self) -> int:
        return next(tag for tag in _OFFSETS if tag in self)

    @property
    def sizes_tag(self) -> int:
        return next(tag for tag in _SIZES if tag in self)

    def part(self, index: int) -> tuple[int, int]:
        """Where a strip or tile begins and ends."""
        start = self.get(self.offsets_tag)[index]
        return start, start + self.get(self.sizes_tag)[index]

    def __len__(self) -> int:
        return len(self.get(self.offsets_tag))


def _lie(change: Callable[[TiffPage, random.Random], bool | None]) -> Damage:
    """A copy of a TIFF with the change; None if it is no TIFF, or if there was nothing to change."""

    def lie(data: bytes, dice: random.Random) -> bytes | None:
        if not is_tiff(data):
            return None
        page = TiffPage(data, dice)
        return None if change(page, dice) is False else bytes(page.data)

    return lie


def is_tiff(data: bytes) -> bool:
    return data.startswith((b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"))


def _half_listed(page: TiffPage, _: random.Random) -> bool:
    half = len(page) // 2
    offsets, sizes = page.get(page.offsets_tag)[:half], page.get(page.sizes_tag)[:half]
    if offsets:
        page.put(page.offsets_tag, offsets)
        page.put(page.sizes_tag, sizes)
    return half > 0


def _offset_0(page: TiffPage, dice: random.Random) -> None:
    _set_one(page, page.offsets_tag, 0, dice)


def _size_0(page: TiffPage, dice: random.Random) -> None:
    _set_one(page, page.sizes_tag, 0, dice)


def _set_one(page: TiffPage, tag: int, value: int, dice: random.Random) -> None:
    values = page.get(tag)
    values[dice.randrange(len(values))] = value
    page.put(tag, values)


def _sizes_halved(page: TiffPage, _: random.Random) -> None:
    page.put(page.sizes_tag, [size // 2 for size in page.get(page.sizes_tag)])


def _another_strip(page: TiffPage, dice: random.Random) -> bool:
    if len(page) < 2:
        return False
    one, other = dice.sample(range(len(page)), 2)
    for tag in (page.offsets_tag, page.sizes_tag):
        values = page.get(tag)
        values[one] = values[other]
        page.put(tag, values)
    return True


def _rows_per_strip(page: TiffPage, dice: random.Random) -> bool:
    if 278 not in page:
        return False
    page.put(278, [int(page.get(278)[0] * dice.choice((0.5, 0.75, 1.5, 2)))])
    return True


def _one_level_far_out(page: TiffPage, dice: random.Random) -> bool:
    """A sample of a wide image that is no number, or by far the brightest."""
    wide = page.get(258)[0] > 8 and page.get(259) == [1]
    if wide:
        start, end = page.part(dice.randrange(len(page)))
        width = page.get(258)[0] // 8
        at = dice.randrange(start, end - width, width)
        page.data[at : at + width] = b"\xff" * (width - 1) + b"\x7f"
    return wide


LIES: Mapping[str, Damage] = {
    "half of the strips listed": _lie(_half_listed),
    "a strip at offset 0": _lie(_offset_0),
    "a strip of 0 bytes": _lie(_size_0),
    "strips of half the bytes": _lie(_sizes_halved),
    "a strip is another's": _lie(_another_strip),
    "wrong rows per strip": _lie(_rows_per_strip),
    "one level far out": _lie(_one_level_far_out),
}


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
