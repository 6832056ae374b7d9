"""Damage to image files: each function takes a file and returns a damaged copy; None where it has nothing to damage.

Blind damage knows nothing of the format. The rest leaves a file in good order that says too little: a compressed stream
that ends early, with whatever checksum it has set right, or an index that lies.
"""

from __future__ import annotations

import random
import re
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from benchmarks.attack.sound_images import png_chunk
from benchmarks.attack.tiff_lies import LIES, TiffPage, is_tiff

Damage: TypeAlias = Callable[[bytes, random.Random], bytes | None]

_GROUP_3, _GROUP_4, _LZW, _DEFLATE, _JPEG = 3, 4, 5, (8, 32946), 7
"""Values of the tag Compression."""

_EOL = "000000000001"


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


# --- The height in the header -------------------------------------------------------------------------------------


def height_halved(data: bytes, dice: random.Random) -> bytes | None:
    """A header, right in every other way, that names half of the rows."""
    if is_tiff(data):
        page = TiffPage(data, dice)
        page.put(257, [page.get(257)[0] // 2])
        return bytes(page.data)
    if data.startswith(b"\x89PNG"):
        head = data[16:20] + struct.pack(">L", struct.unpack(">L", data[20:24])[0] // 2) + data[24:29]
        return data[:8] + png_chunk(b"IHDR", head) + data[33:]
    if data.startswith(b"P"):
        kind, width, height, rest = re.split(rb"\s", data, maxsplit=3)
        return b"%s\n%s %d\n%s" % (kind, width, int(height) // 2, rest)
    for mark, behind, number in _HEIGHTS:
        if found := mark.search(data):
            [height] = struct.unpack_from(number, data, found.end() + behind)
            return _overwritten(data, found.end() + behind, struct.pack(number, height // 2))
    return None


_HEIGHTS = (
    (re.compile(rb"\ABM", re.DOTALL), 20, "<l"),
    (re.compile(rb"\AGIF8[79]a.*?,\0\0\0\0", re.DOTALL), 2, "<H"),
    (re.compile(rb"\A\xff\xd8.*?\xff[\xc0-\xc2]", re.DOTALL), 3, ">H"),
    (re.compile(rb"\ARIFF.{4}WEBPVP8 .{7}\x9d\x01\x2a", re.DOTALL), 2, "<H"),
    (re.compile(rb"\xff\x4f\xff\x51", re.DOTALL), 8, ">L"),
)
"""What stands before a height, how many bytes are between them, and its type: BMP, GIF, JPEG, WebP, JPEG 2000."""


# --- Streams that end early ---------------------------------------------------------------------------------------


def stream_ends_early(data: bytes, dice: random.Random) -> bytes | None:
    """The mark of its end somewhere within a compressed stream; the rest of it stays, but of deflate, where the
    checksum is right."""
    if is_tiff(data):
        page = TiffPage(data, dice)
        return bytes(page.data) if _tiff_part_ends_early(page, dice) else None
    if data.startswith(b"\x89PNG"):
        return _png_ends_early(data, dice)
    if data.startswith(b"GIF8"):
        return _gif_ends_early(data, dice)
    if data.startswith(b"\xff\xd8"):
        return _marked(data, data.index(b"\xff\xda") + 14, len(data), b"\xff\xd9", dice)
    if b"\xff\x4f\xff\x51" in data[:256]:
        return _marked(data, data.index(b"\xff\x93") + 2, len(data), b"\xff\xd9", dice)
    if data.startswith(b"RIFF") and data[12:16] in (b"VP8 ", b"VP8L"):
        size = int(len(data[20:]) * dice.uniform(0.1, 0.9)) & ~1
        head = b"RIFF" + struct.pack("<L", size + 12) + b"WEBP" + data[12:16] + struct.pack("<L", size)
        return head + data[20 : 20 + size]
    if data.startswith(b"BM") and data[30] == 1:  # runs: two bytes each
        return _marked(data, int.from_bytes(data[10:14], "little"), len(data), b"\0\1", dice, step=2)
    return None


def _marked(data: bytes, start: int, end: int, mark: bytes, dice: random.Random, *, step: int = 1) -> bytes:
    """The data with a mark at one of the places from 10 to 90 % of a range."""
    tenth = (end - start) // 10
    return _overwritten(data, start + dice.randrange(tenth, 9 * tenth) // step * step, mark)


def _tiff_part_ends_early(page: TiffPage, dice: random.Random) -> bool:
    index = dice.randrange(len(page))
    start, end = page.part(index)
    part = bytes(page.data[start:end])
    [compression] = page.get(259)
    if compression == _GROUP_4:
        part = _with_bits(part, dice.randrange(len(part) * 8), _EOL * 2)
    elif compression == _GROUP_3:
        tag = "1" if page.get(292)[0] & 1 else ""
        part = _with_bits(part, dice.randrange(len(part) * 8), (_EOL + tag) * 6)
    elif compression == _LZW:
        at, width = dice.choice(list(_codes(part, 8, early=1, lsb_first=False))[1:])
        part = _with_bits(part, at, f"{257:0{width}b}")
    elif compression in _DEFLATE:
        rows = zlib.decompress(part)
        part = zlib.compress(rows[: int(len(rows) * dice.uniform(0.1, 0.9))])[: len(part)]
        sizes = page.get(page.sizes_tag)
        sizes[index] = len(part)
        page.put(page.sizes_tag, sizes)
    elif compression == _JPEG:
        part = _marked(part, part.index(b"\xff\xda") + 8, len(part), b"\xff\xd9", dice)
    else:
        return False
    page.data[start : start + len(part)] = part
    return True


def _png_ends_early(data: bytes, dice: random.Random) -> bytes:
    chunks, at = [], 8
    while at < len(data):
        [size] = struct.unpack_from(">L", data, at)
        chunks.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + size]))
        at += size + 12
    rows = zlib.decompress(b"".join(body for kind, body in chunks if kind == b"IDAT"))
    less = png_chunk(b"IDAT", zlib.compress(rows[: int(len(rows) * dice.uniform(0.1, 0.9))]))
    first = next(index for index, (kind, _) in enumerate(chunks) if kind == b"IDAT")
    parts = [png_chunk(*chunk) for chunk in chunks if chunk[0] != b"IDAT"]
    return data[:8] + b"".join(parts[:first]) + less + b"".join(parts[first:])


def _gif_ends_early(data: bytes, dice: random.Random) -> bytes:
    """A code for the end in one of the frames, or a block of no bytes, which ends it, too."""
    frame = dice.choice(list(_gif_frames(data)))
    if dice.random() < 0.5:
        return _overwritten(data, dice.choice([block.start - 1 for block in frame[1:]] or [frame[0].start - 1]), b"\0")
    min_bits = data[frame[0].start - 2]
    stream = b"".join(data[block.start : block.stop] for block in frame)
    at, width = dice.choice(list(_codes(stream, min_bits, early=0, lsb_first=True))[1:])
    mirrored = _with_bits(_mirrored(stream), at, f"{(1 << min_bits) + 1:0{width}b}"[::-1])
    places = [place for block in frame for place in block]
    changed = bytearray(data)
    for place, byte in zip(places, _mirrored(mirrored), strict=True):
        changed[place] = byte
    return bytes(changed)


def _gif_frames(data: bytes) -> Iterator[list[range]]:
    """For each frame, where the blocks of its stream are. Source: GIF89a, appendix B."""
    at = 13 + _palette_bytes(data[10])
    while data[at] != 0x3B:
        image = data[at] == 0x2C
        at += 11 + _palette_bytes(data[at + 9]) if image else 2
        blocks = []
        while data[at]:
            blocks.append(range(at + 1, at + 1 + data[at]))
            at += 1 + data[at]
        at += 1
        if image:
            yield blocks


def _palette_bytes(flags: int) -> int:
    return 3 << ((flags & 7) + 1) if flags & 128 else 0


def _codes(stream: bytes, min_bits: int, *, early: int, lsb_first: bool) -> Iterator[tuple[int, int]]:
    """Where each code of an LZW stream begins, in bits, and its width, up to the code for the end.

    early: by how many codes the width grows before it has to, 1 in a TIFF (TIFF 6.0, section 13).
    """
    bits = "".join(f"{byte:08b}"[:: -1 if lsb_first else 1] for byte in stream)
    clear, at, width, known = 1 << min_bits, 0, min_bits + 1, -1
    while at + width <= len(bits):
        code = int(bits[at : at + width][:: -1 if lsb_first else 1], 2)
        if code == clear + 1:
            return
        yield at, width
        at += width
        if code == clear:
            width, known = min_bits + 1, clear + 1
        elif known <= clear + 1:
            known = clear + 2
        elif known < 4096:
            known += 1
        if known >= (1 << width) - early and width < 12:
            width += 1


def _mirrored(stream: bytes) -> bytes:
    return bytes(int(f"{byte:08b}"[::-1], 2) for byte in stream)


def _with_bits(stream: bytes, at: int, bits: str) -> bytes:
    """The stream with these bits in place of those from bit `at` on; the first bit of a byte is its highest."""
    bits = bits[: len(stream) * 8 - at]
    shift = len(stream) * 8 - at - len(bits)
    number = int.from_bytes(stream, "big")
    number ^= ((number >> shift) & ((1 << len(bits)) - 1)) << shift
    return (number | int(bits, 2) << shift).to_bytes(len(stream), "big")


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
