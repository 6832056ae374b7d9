"""A CRC-32 at the end of a line of JSON: it finds damage by disks, memory and cables, but no forgery.

It finds every burst of up to 32 bits, any three flipped bits in 11 KB, and all but one in four thousand million other
damages, which is enough for a line; tables have a SHA-256.
"""

from __future__ import annotations

import zlib

_CHECKSUM = b',"crc32":"%08x"}\n'
_CHECKSUM_BYTES = len(_CHECKSUM % 0)


def checked_line(json: bytes, *, of: bytes = b"") -> bytes:
    """The JSON object on a line, with one more key at its end: the CRC-32 of all that stands before it.

    of: what the line belongs to and does not say; the checksum is that of both.
    """
    kept = json[:-1]
    return kept + _CHECKSUM % zlib.crc32(kept, zlib.crc32(of))


def is_sound(line: bytes, *, of: bytes = b"") -> bool:
    """Whether the line is as `checked_line` wrote it."""
    return line[-_CHECKSUM_BYTES:] == _CHECKSUM % zlib.crc32(memoryview(line)[:-_CHECKSUM_BYTES], zlib.crc32(of))
