"""What is in zip and tar archives: their members one by one, and the bytes of one. Runs in a worker.

An index is as hostile as a page: it may say anything of where members are and how large they are. Nothing that it says
makes this read, or keep, more than there is in the file; what a member becomes is bounded by those who write it.
"""

from __future__ import annotations

import calendar
import os
import stat
import struct
import tarfile
import zlib
from collections.abc import Iterator
from typing import BinaryIO, Final, NamedTuple

from batchocr.data import Failure
from batchocr.errors import DamagedError, UnsupportedError
from batchocr.storage.members import Member

_NS: Final = 10**9
_PIECE_BYTES: Final = 1 << 20
_FIRST_TIME_S: Final = 315_532_800
"""1980: an older time is none. Tools that make equal archives of equal files set it to 1970, or to this."""

_MAX_RATIO: Final = 100
_ALWAYS_ALLOWED_BYTES: Final = 1 << 30
"""A member may be so large, however few bytes it takes in its archive."""

# Source: APPNOTE.TXT 6.3.10, sections 4.3.7, 4.3.12, 4.3.14 and 4.3.16.
_LOCAL: Final = struct.Struct("<4s5H3L2H")
_ENTRY: Final = struct.Struct("<4s6H3L5H2L")
_END: Final = struct.Struct("<4s4H2LH")
_LOCATOR_64: Final = struct.Struct("<4sLQL")
_END_64: Final = struct.Struct("<4sQ2H2L4Q")
_MAX_COMMENT: Final = 0xFFFF
_STORED, _DEFLATED = 0, 8


class Entry(NamedTuple):
    """What an archive says of a member that is no folder."""

    member: Member
    is_file: bool = True
    """Whether it is neither a link nor a device."""
    problem: Failure | None = None
    """Why it cannot be read."""


def zip_entries(file: BinaryIO) -> Iterator[Entry]:
    """Yield the members in the order of the zip's directory. Raises DamagedError, also after some."""
    start, end, shift, count = _directory(file)
    file.seek(start)
    ordinal, position, rest = 0, start, end
    while position < end:
        fields = _ENTRY.unpack(_exactly(file, _ENTRY.size))
        magic, made_by, _, flags, method, time, date, crc = fields[:8]
        lengths, attributes = fields[10:13], fields[15]
        if magic != b"PK\1\2":
            raise DamagedError(f"the zip's directory is damaged at member {ordinal + 1:,}")
        name, extra, _ = (_exactly(file, length) for length in lengths)
        length, size, offset = _long_numbers((fields[8], fields[9], fields[16]), extra)
        position += _ENTRY.size + sum(lengths)
        rest -= length
        if rest < 0:
            raise DamagedError("the zip's members overlap, or are longer than the file")
        text = name.decode("utf-8" if flags & 0x800 else "cp437", "surrogateescape").partition("\0")[0]
        if not text.endswith("/"):
            is_file = made_by >> 8 != 3 or stat.S_IFMT(attributes >> 16) in (0, stat.S_IFREG)
            mtime_ns = _time_s(date, time) * _NS + crc % _NS
            problem = _too_large(size, length)
            if method not in (_STORED, _DEFLATED):
                problem = Failure("unsupported", f"the zip has packed it by a method ({method}) other than deflate")
            if flags & 1:
                problem = Failure("encrypted", "the zip has encrypted it: unpack it first")
            yield Entry(Member(ordinal, offset + shift, length, size, mtime_ns, text), is_file, problem)
        ordinal += 1
    if ordinal & 0xFFFF != count & 0xFFFF:
        raise DamagedError(f"the zip's directory has {ordinal:,} members, and says that there are {count:,}")


def _directory(file: BinaryIO) -> tuple[int, int, int, int]:
    """Where the directory begins and ends, what to add to its offsets, as something may stand before the zip, and how
    many members it says that there are. Raises DamagedError."""
    file_size = file.seek(0, os.SEEK_END)
    file.seek(tail_at := max(0, file_size - _END.size - _MAX_COMMENT - _LOCATOR_64.size - _END_64.size))
    tail = file.read(file_size - tail_at)
    at = tail.rfind(b"PK\5\6", 0, len(tail) - _END.size + 4)
    if at < 0:
        raise DamagedError("the file is no zip, or its end is missing")
    _, disk, _, _, count, size, offset, _ = _END.unpack_from(tail, at)
    before = at - _LOCATOR_64.size - _END_64.size
    if before >= 0 and tail.startswith(b"PK\6\7", at - _LOCATOR_64.size) and tail.startswith(b"PK\6\6", before):
        _, _, _, _, disk, _, _, count, size, offset = _END_64.unpack_from(tail, before)
        at = before
    end = tail_at + at
    if disk not in (0, 0xFFFF) or size + offset > end:
        raise DamagedError("the zip's directory is not where its end says, or is in another part of it")
    return end - size, end, end - size - offset, count


def _long_numbers(numbers: tuple[int, int, int], extra: bytes) -> tuple[int, int, int]:
    """Length, size and offset of a member; those that do not fit in 32 bits are in the extra field. Raises
    DamagedError."""
    if 0xFFFFFFFF not in numbers:
        return numbers
    length, size, offset = numbers
    while len(extra) >= 4:
        kind, num_bytes = struct.unpack_from("<2H", extra)
        if kind == 1:
            wide = iter(struct.unpack_from(f"<{min(num_bytes, len(extra) - 4) // 8}Q", extra, 4))
            size, length, offset = (
                next(wide, value) if value == 0xFFFFFFFF else value for value in (size, length, offset)
            )
            break
        extra = extra[4 + num_bytes :]
    if max(length, size, offset) >= 1 << 63:
        raise DamagedError("the zip's directory has an impossible number")
    return length, size, offset


def _time_s(date: int, time: int) -> int:
    """MS-DOS's date and time in seconds since 1970, as if they were UTC: the same on every machine."""
    month = min(max(1, date >> 5 & 15), 12)
    return calendar.timegm((1980 + (date >> 9), month, date & 31, time >> 11, time >> 5 & 63, (time & 31) * 2))


def _too_large(size: int, length: int) -> Failure | None:
    if size <= max(_ALWAYS_ALLOWED_BYTES, length * _MAX_RATIO):
        return None
    return Failure("too_large", f"it would be {size:,} bytes, and takes {length:,} in its archive: unpack it first")


def zip_bytes(file: BinaryIO, member: Member) -> Iterator[bytes]:
    """Yield the bytes of a member. Raises DamagedError, UnsupportedError."""
    file.seek(member.offset)
    magic, _, flags, method, *_, name_length, extra_length = _LOCAL.unpack(_exactly(file, _LOCAL.size))
    if magic != b"PK\3\4":
        raise DamagedError("there is no member of the zip where its directory says")
    if method not in (_STORED, _DEFLATED) or flags & 1:
        raise UnsupportedError("the zip's directory says otherwise how it is packed")
    file.seek(name_length + extra_length, os.SEEK_CUR)
    pieces = _pieces(file, member.length)
    crc = 0
    for data in pieces if method == _STORED else _inflated(pieces):
        crc = zlib.crc32(data, crc)
        yield data
    if crc % _NS != member.mtime_ns % _NS:
        raise DamagedError("it is not what the checksum in its zip says")


def _inflated(pieces: Iterator[bytes]) -> Iterator[bytes]:
    inflate = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        for data in pieces:
            while data:
                yield inflate.decompress(data, _PIECE_BYTES)
                data = inflate.unconsumed_tail
        yield inflate.flush()
    except zlib.error as error:
        raise DamagedError(f"the zip is damaged in it: {error}") from error


def tar_entries(file: BinaryIO, container_mtime_ns: int) -> Iterator[Entry]:
    """Yield the members in the order of the tar. Raises DamagedError, also after some."""
    ordinal, end = 0, 0
    try:
        with tarfile.open(fileobj=file, mode="r:") as tar:
            while (info := tar.next()) is not None:
                tar.members = []  # type: ignore[attr-defined] # or it keeps them all
                if tar.offset <= end:
                    raise DamagedError(f"the tar leads back at byte {end:,}")
                end = tar.offset
                if not info.isdir():
                    problem = Failure("unsupported", "the tar has left out its empty parts (sparse): unpack it first")
                    mtime_ns = _whole_ns(info.mtime) or container_mtime_ns
                    member = Member(ordinal, info.offset_data, info.size, info.size, mtime_ns, info.name)
                    yield Entry(member, info.isreg(), problem if info.issparse() else None)
                ordinal += 1
            end = tar.offset
    except (tarfile.TarError, ValueError, OverflowError, RecursionError) as error:
        raise DamagedError(f"the tar is damaged at byte {end:,}, and not read from there on: {error}") from error
    file.seek(end)
    while (block := file.read(_PIECE_BYTES)) and not block.strip(b"\0"):
        end += len(block)
    if block:
        raise DamagedError(f"the tar is damaged at byte {end:,}, or another follows, and not read from there on")


def _whole_ns(mtime_s: float) -> int:
    """The time in ns; 0 for one that is none."""
    return int(mtime_s) * _NS if _FIRST_TIME_S < mtime_s < 1 << 33 else 0


def tar_bytes(file: BinaryIO, member: Member) -> Iterator[bytes]:
    """Yield the bytes of a member. Raises DamagedError."""
    file.seek(member.offset)
    return _pieces(file, member.length)


def _pieces(file: BinaryIO, num_bytes: int) -> Iterator[bytes]:
    while num_bytes:
        data = file.read(min(num_bytes, _PIECE_BYTES))
        if not data:
            raise DamagedError("its archive ends within it")
        num_bytes -= len(data)
        yield data


def _exactly(file: BinaryIO, num_bytes: int) -> bytes:
    data = file.read(num_bytes)
    if len(data) < num_bytes:
        raise DamagedError("the archive ends too early")
    return data
