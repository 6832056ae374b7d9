"""TIFFs whose index lies: the strips or tiles are whole, and their directory says less, or other than what is there."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

Lie: TypeAlias = Callable[[bytes, random.Random], bytes | None]

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


def _lie(change: Callable[[TiffPage, random.Random], bool | None]) -> Lie:
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


LIES: Mapping[str, Lie] = {
    "half of the strips listed": _lie(_half_listed),
    "a strip at offset 0": _lie(_offset_0),
    "a strip of 0 bytes": _lie(_size_0),
    "strips of half the bytes": _lie(_sizes_halved),
    "a strip is another's": _lie(_another_strip),
    "wrong rows per strip": _lie(_rows_per_strip),
    "one level far out": _lie(_one_level_far_out),
}
