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
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import accumulate
from lzma import LZMAError
from typing import BinaryIO, Final, Literal, NamedTuple

from batchocr.errors import DamagedError, EncryptedError, TooLargeError, UnsupportedError
from batchocr.storage.members import Member

_NS: Final = 10**9
_PIECE_BYTES, _MOST_BYTES = 1 << 20, 1 << 62
_FIRST_TIME_S, _LAST_TIME_S = 315_532_800, 1 << 33
"""The bounds between which a member's time is taken for one: 1980 and 2242. Tools that make equal archives of equal
files set it to 1970, or to the first bound."""

_MAX_RATIO: Final = 100
_ALWAYS_ALLOWED_BYTES: Final = 1 << 30
"""The size that a member may always have, however few bytes it takes in its archive."""

_END_BYTES, _LONG_END_BYTES = 22, 76
"""The length of a zip's last record, without its comment, and of the two records before it if there are long numbers.
Source: APPNOTE.TXT, 4.3.14 to 4.3.16."""
_DIRECTORY_HEADER: Final = struct.Struct("<5xB6x2H3L3H4x2L")
"""The entry of a zip's member in the directory: the system that made it, time, date, checksum, packed size, size, the
lengths of name, extra fields and comment, mode, offset. Source: APPNOTE.TXT, 4.3.12."""
_LOCAL_HEADER: Final = struct.Struct("<4s2xHH16xHH")
"""The header before a zip's member: magic, flags, method, and the lengths of two fields behind it. Source: APPNOTE.TXT,
4.3.7."""
_LONG_NUMBERS, _UNICODE_PATH, _IS_LONG = 0x0001, 0x7075, 0xFFFFFFFF
"""Two numbers of extra fields, and what stands in place of a number that is in the first of these fields. Source:
APPNOTE.TXT, 4.5.3 and 4.6.9."""
_WITH_BACKSLASHES: Final = {0, 10, 11, 14}
"""The systems whose names have backslashes: MS-DOS, and the file systems of Windows as APPNOTE.TXT, 4.4.2, numbers
them, and Info-ZIP."""


class Entry(NamedTuple):
    """What a container says of a member that is no folder."""

    member: Member
    kind: Literal["file", "link", "row"]
    """What the member is: a device counts as `link`; a `row` is a document whatever it is called."""


def zip_entries(file: BinaryIO, encoding: str) -> Iterator[Entry]:
    """Yield the members in the order of the zip's directory. encoding: of names that do not say theirs. Raises
    DamagedError, also after some.

    The digits of a member's time below a second are from its checksum: two that differ seldom have one size and time.
    """
    left = file.seek(0, os.SEEK_END)
    directory, before = _zip_directory(file)
    ordinal = place = 0
    while place < len(directory):
        if not directory.startswith(b"PK\1\2", place) or place + _DIRECTORY_HEADER.size > len(directory):
            raise DamagedError(f"the zip's directory is damaged at its byte {place:,}, and not read from there on")
        system, clock, date, crc, length, size, *lengths, mode, offset = _DIRECTORY_HEADER.unpack_from(directory, place)
        begin, end, end_of_extra, place = accumulate(lengths, initial=place + _DIRECTORY_HEADER.size)
        fields = _extra_fields(directory[end:end_of_extra])
        long = fields[_LONG_NUMBERS]
        longs = iter(struct.unpack_from(f"<{len(long) // 8}Q", long))
        size, length, offset = (next(longs, each) if each == _IS_LONG else each for each in (size, length, offset))
        left -= length
        if left < 0 or offset > _MOST_BYTES or size > _MOST_BYTES:
            raise DamagedError("the zip's members overlap, or are longer than any file")
        year, month = 1980 + (date >> 9), min(max(1, date >> 5 & 15), 12)
        # The time as if it were UTC: the same on every machine.
        time_s = calendar.timegm((year, month, date & 31, clock >> 11, clock >> 5 & 63, (clock & 31) * 2))
        name = _zip_name(directory[begin:end], fields[_UNICODE_PATH], encoding)
        name = name.replace("\\", "/") if system in _WITH_BACKSLASHES else name
        if not name.endswith("/"):
            member = Member(ordinal, before + offset, length, size, time_s * _NS + crc % _NS, name)
            yield Entry(member, "file" if stat.S_IFMT(mode >> 16) in (0, stat.S_IFREG) else "link")
        ordinal += 1


def _zip_directory(file: BinaryIO) -> tuple[bytes, int]:
    """The directory of a zip, and how many bytes are before the zip in its file. Raises DamagedError."""
    most = _LONG_END_BYTES + _END_BYTES + 0xFFFF
    begin = file.seek(max(0, file.seek(0, os.SEEK_END) - most))
    tail = file.read(most)
    end = tail.rfind(b"PK\5\6")
    if end < 0 or end + _END_BYTES > len(tail):
        raise DamagedError("the zip is damaged, or is none: it does not end as a zip does")
    size, offset = struct.unpack_from("<2L", tail, end + 12)
    if end >= _LONG_END_BYTES and tail.startswith(b"PK\6\6", end - _LONG_END_BYTES):
        end -= _LONG_END_BYTES
        size, offset = struct.unpack_from("<2Q", tail, end + 40)
    start = begin + end - size
    if start < offset or (not size and start):
        raise DamagedError("the zip is damaged: its directory is empty, and the zip is not, or begins before it")
    file.seek(start)
    return file.read(size), start - offset


def _extra_fields(data: bytes) -> Mapping[int, bytes]:
    """The extra fields of a member by their numbers; empty for fields that it has not."""
    fields, place = defaultdict[int, bytes](bytes), 0
    while place + 4 <= len(data):
        number, length = struct.unpack_from("<2H", data, place)
        fields[number] = data[place + 4 : place + 4 + length]
        place += 4 + length
    return fields


def _zip_name(raw: bytes, unicode_path: bytes, encoding: str) -> str:
    """The name of a member up to a NUL: the Unicode Path, if it is of this name; else what the name is in UTF-8,
    whatever a flag says of that, or else in the encoding."""
    is_of_name = unicode_path[:5] == struct.pack("<BL", 1, zlib.crc32(raw))
    for text in ((is_of_name and unicode_path[5:]) or raw, raw):
        with suppress(UnicodeDecodeError):
            return text.decode().partition("\0")[0]
    return raw.decode(encoding, "surrogateescape").partition("\0")[0]


def zip_bytes(file: BinaryIO, member: Member) -> Iterator[bytes]:
    """Yield the bytes of a member, no more than the zip says. Raises PageError."""
    if member.size > max(_ALWAYS_ALLOWED_BYTES, member.length * _MAX_RATIO):
        raise TooLargeError(f"it would be {member.size:,} bytes, of {member.length:,} in its zip: unpack it first")
    file.seek(member.offset)
    header = file.read(_LOCAL_HEADER.size)
    if not header.startswith(b"PK\3\4") or len(header) < _LOCAL_HEADER.size:
        raise DamagedError("there is no member of the zip where its directory says")
    _, flags, method, *lengths = _LOCAL_HEADER.unpack(header)
    if flags & 1:
        raise EncryptedError("the zip has encrypted it: unpack it first")
    file.seek(sum(lengths), os.SEEK_CUR)
    info = zipfile.ZipInfo()
    info.compress_type, info.compress_size, info.file_size = method, member.length, member.size
    crc = 0
    try:
        with zipfile.ZipExtFile(file, "r", info) as unpacked:
            while data := unpacked.read(_PIECE_BYTES):
                crc = zlib.crc32(data, crc)
                yield data
    except NotImplementedError as error:
        raise UnsupportedError(f"the zip has packed it by an unknown method ({method})") from error
    except (zipfile.BadZipFile, EOFError, ValueError, zlib.error, LZMAError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # that of bzip2 has none
            raise
        raise DamagedError(f"the zip is damaged in it: {error}") from error
    if crc % _NS != member.mtime_ns % _NS:
        raise DamagedError("it is not what the checksum in its zip says")


def tar_entries(file: BinaryIO, container_mtime_ns: int) -> Iterator[Entry]:
    """Yield the members in the order of the tar. Raises DamagedError, also after some."""
    ordinal, end = 0, 0
    try:
        with tarfile.open(fileobj=file, mode="r:") as tar:
            while (info := tar.next()) is not None:
                tar.members = []  # type: ignore[attr-defined] # or it keeps them all
                if tar.offset <= end or not 0 <= info.size <= _MOST_BYTES:
                    raise DamagedError(f"the tar leads back at byte {end:,}, or beyond any file")
                end = tar.offset
                if not info.isdir():
                    has_time = _FIRST_TIME_S < info.mtime < _LAST_TIME_S
                    mtime_ns = int(info.mtime) * _NS if has_time else container_mtime_ns
                    length = 0 if info.issparse() else info.size
                    member = Member(ordinal, info.offset_data, length, info.size, mtime_ns, info.name)
                    yield Entry(member, "file" if info.isreg() else "link")
                ordinal += 1
            end = tar.offset
    except (tarfile.TarError, ValueError, OverflowError, RecursionError) as error:
        raise DamagedError(f"the tar is damaged at byte {end:,}, and not read from there on: {error}") from error
    file.seek(end)
    while (block := file.read(_PIECE_BYTES)) and not block.strip(b"\0"):
        end += len(block)
    if header := block.lstrip(b"\0"):
        what = "another tar follows" if header[257:262] == b"ustar" else "the tar is damaged"
        raise DamagedError(f"{what} at byte {end + len(block) - len(header):,}, and nothing is read from there on")


def tar_bytes(file: BinaryIO, member: Member) -> Iterator[bytes]:
    """Yield the bytes of a member, fewer if the tar is cut. Raises UnsupportedError."""
    if member.length != member.size:
        raise UnsupportedError("the tar has left out its empty parts (sparse): unpack it first")
    file.seek(member.offset)
    for start in range(0, member.size, _PIECE_BYTES):
        yield file.read(min(member.size - start, _PIECE_BYTES))
