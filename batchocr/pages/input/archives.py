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
from collections.abc import Iterator
from lzma import LZMAError
from typing import BinaryIO, Final, Literal, NamedTuple

from batchocr.errors import DamagedError, EncryptedError, TooLargeError, UnsupportedError
from batchocr.storage.members import Member

_NS: Final = 10**9
_PIECE_BYTES, _MOST_BYTES = 1 << 20, 1 << 62
_FIRST_TIME_S, _LAST_TIME_S = 315_532_800, 1 << 33
"""From 1980 to 2242: another time is none. Tools that make equal archives of equal files set it to 1970, or to this."""

_MAX_RATIO: Final = 100
_ALWAYS_ALLOWED_BYTES: Final = 1 << 30
"""A member may be so large, however few bytes it takes in its archive."""

_END_BYTES: Final = 22
"""Of a zip's last record, without its comment."""
_LOCAL_HEADER: Final = struct.Struct("<4s2xHH16xHH")
"""Of a zip's member: magic, flags, method, and the lengths of two fields behind it. Source: APPNOTE.TXT, 4.3.7."""


class Entry(NamedTuple):
    """What a container says of a member that is no folder."""

    member: Member
    kind: Literal["file", "link", "row"]
    """Of a device, `link`; a `row` is a document whatever it is called."""


def zip_entries(file: BinaryIO) -> Iterator[Entry]:
    """Yield the members in the order of the zip's directory. Raises DamagedError, also after some."""
    left = file.seek(0, os.SEEK_END)
    try:
        archive = zipfile.ZipFile(file)
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OverflowError, struct.error) as error:
        raise DamagedError(f"the zip is damaged, or is none: {error}") from error
    members = archive.infolist()
    if not members and left > _END_BYTES + len(archive.comment):
        raise DamagedError("the zip's directory is empty, and the zip is not")
    for ordinal, info in enumerate(members):
        left -= info.compress_size
        if left < 0 or not 0 <= info.header_offset <= _MOST_BYTES or info.file_size > _MOST_BYTES:
            raise DamagedError("the zip's members overlap, begin before it, or are longer than any file")
        year, month, *rest = info.date_time
        # The time as if it were UTC: the same on every machine.
        time_s = calendar.timegm((year, min(max(1, month), 12), *rest))
        place = ordinal, info.header_offset, info.compress_size, info.file_size
        is_file = stat.S_IFMT(info.external_attr >> 16) in (0, stat.S_IFREG)
        if not info.is_dir():
            member = Member(*place, time_s * _NS + info.CRC % _NS, info.filename)
            yield Entry(member, "file" if is_file else "link")


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
    if block:
        raise DamagedError(f"the tar is damaged at byte {end:,}, or another follows, and not read from there on")


def tar_bytes(file: BinaryIO, member: Member) -> Iterator[bytes]:
    """Yield the bytes of a member, fewer if the tar is cut. Raises UnsupportedError."""
    if member.length != member.size:
        raise UnsupportedError("the tar has left out its empty parts (sparse): unpack it first")
    file.seek(member.offset)
    for start in range(0, member.size, _PIECE_BYTES):
        yield file.read(min(member.size - start, _PIECE_BYTES))
