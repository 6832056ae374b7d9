"""Files that hold documents: which of their members are documents, and a copy of one. Runs in a worker.

A member is copied into a file without a name, so that its own name leads nowhere.
"""

from __future__ import annotations

import fcntl
import gzip
import os
import shutil
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final

import pyarrow as pa

from batchocr.config import Config
from batchocr.data import Failure, valid_text
from batchocr.errors import (
    ChangedError,
    DamagedError,
    PageTimeoutError,
    TooLargeError,
    UnreadableError,
    UnsupportedError,
    UsageError,
)
from batchocr.pages.input.archives import Entry, tar_bytes, tar_entries, zip_bytes, zip_entries
from batchocr.pages.input.folders import SUFFIXES, kind_of
from batchocr.pages.input.render import reading, version_of
from batchocr.pages.input.table_rows import TableRows, table_entries
from batchocr.processes.messages import ListMembers, MembersListed, Setup
from batchocr.storage.members import MAX_NAME, Member, MemberAddress, is_compressed
from batchocr.storage.objects import StoredObject, open_object, require_object
from batchocr.storage.unpacked import own_folder, take_over, tar_name
from batchocr.storage.uris import is_uri

_STEP_ENTRIES: Final = 1000
_STEP_S: Final = 0.5
_MAX_ENTRIES: Final = 10_000_000
_UNPACKED_AT_ONCE: Final = 16 << 20
_SYNCED_AT_ONCE: Final = 64
"""How many unpacked pieces are synced to the disk at a time: a GiB."""
_LEAST_FREE_BYTES: Final = 1 << 30
"""How much is left free on the disk on which a compressed tar is unpacked."""

_HEADER_BYTES: Final = 512
"""How much is read for what comes before a member of a zip: its header, name and extra fields, which are rarely
more."""
_LOCK_WAIT_S: Final = 0.1
_CHANGED: Final = "the file that it is in changed: run again to read it as it is now"
_CUT: Final = 255
"""How many letters of a name, from its end, are left where a path is too long."""
_LINK: Final = "links or devices in archives"


class Containers:
    """Lists what is in files that hold documents, and copies these. setup: how they are named, and where compressed
    tars are unpacked."""

    def __init__(self, setup: Setup | None = None) -> None:
        self._setup = setup or Setup.of(Config())
        self._rows = TableRows(_opened)
        self._listing: Iterator[MembersListed] = iter(())

    def list(self, task: ListMembers) -> MembersListed:
        """What is in a container, or what comes after that; it takes some tenths of a second. Raises PageError."""
        if not task.goes_on:
            self._listing = self._steps(task.task_id, task.path)
        return next(self._listing)

    def _steps(self, task_id: int, path: str) -> Iterator[MembersListed]:
        version = _version_of(path)
        for _ in self.unpacking(path, version):
            yield MembersListed(task_id, version, (), {}, is_last=False)
        plain = self._plain(path, version)
        with _opened(plain) as file:
            if path.lower().endswith(".parquet"):
                entries = table_entries(file, version, self._setup.document_column, self._setup.name_column)
            elif plain.lower().endswith(".tar"):
                entries = tar_entries(file, version[1])
            else:
                entries = zip_entries(file, self._setup.zip_encoding)
            is_last = False
            while not is_last:
                members, skipped, problem = list[Member](), Counter[str](), None
                until_s = time.monotonic() + _STEP_S
                try:
                    for _ in range(_STEP_ENTRIES):
                        if time.monotonic() > until_s or (is_last := (entry := next(entries, None)) is None):
                            break
                        _take(entry, members, skipped)
                except (DamagedError, UnsupportedError) as error:
                    problem, is_last = Failure(error.error_kind, str(error)), True
                yield MembersListed(task_id, version, tuple(members), dict(skipped), is_last, problem)

    def copy(self, text: str, file: BinaryIO, *, timeout_s: float) -> StoredObject:
        """Write the document at an address into a file, and return what was written, with its own size and time. A
        compressed tar must have been unpacked.
        Raises ChangedError if the container is of another version, or another PageError; OSError of the file."""
        until_s = time.monotonic() + timeout_s
        address = MemberAddress.parse(text)
        _require_version(address)
        plain = self._plain(address.container, address.version)
        pieces = [self._rows.read(address)] if plain.lower().endswith(".parquet") else _bytes_of(plain, address.member)
        for data in pieces:
            if time.monotonic() > until_s:
                raise PageTimeoutError(f"it could not be unpacked within {timeout_s:g} s, most of --page-timeout")
            file.write(data)
        file.flush()
        _require_version(address)
        return StoredObject(text, address.member.size, address.member.mtime_ns)

    def unpacking(self, path: str, version: tuple[int, int]) -> Iterator[None]:
        """Unpack a container of this version if it is a compressed tar that was not unpacked yet: in short steps, as it
        may take long. Raises ChangedError if it is of another version, or another PageError."""
        plain = self._plain(path, version)
        if plain != path and not os.path.exists(plain):
            yield from _unpack(path, version, Path(plain).parent)

    def _plain(self, path: str, version: tuple[int, int]) -> str:
        """Where a container of this version is read: a compressed tar where it is unpacked. Raises PageError."""
        if not is_compressed(path):
            return path
        with _unpacking_into(self._setup.work_dir or "the usual place"):
            return str(own_folder(self._setup.work_dir, self._setup.folder_name) / tar_name(path, version))


def _take(entry: Entry, members: list[Member], skipped: Counter[str]) -> None:
    """Take a member for a document, or count it if it would be no document in a folder. If the member's path is longer
    than a path may be, its number stands for the folders. Raises DamagedError."""
    name, ordinal = valid_text(entry.member.name), entry.member.ordinal
    if ordinal >= _MAX_ENTRIES:
        raise DamagedError(f"it has more than {_MAX_ENTRIES:,} members")
    parts = [part for part in name.split("/") if part not in ("", ".", "..")] or [str(ordinal)]
    is_hidden = any(part.startswith(".") or part == "__MACOSX" for part in parts)
    if entry.kind == "row" or (entry.kind == "file" and not is_hidden and parts[-1].lower().endswith(SUFFIXES)):
        path = "/".join(parts)
        members.append(replace(entry.member, name=path if len(path) <= MAX_NAME else f"{ordinal}/{parts[-1][-_CUT:]}"))
    elif not is_hidden:
        skipped[kind_of(parts[-1]) if entry.kind == "file" else _LINK] += 1


def _unpack(path: str, version: tuple[int, int], folder: Path) -> Iterator[None]:
    """Unpack a compressed tar of this version into the folder, in short steps, unless it is there. Raises PageError."""
    name = tar_name(path, version)
    with _opened(path) as packed, _unpacking_into(str(folder)), (folder / f"{name}.part").open("ab") as file:
        while True:
            with suppress(BlockingIOError):  # another worker unpacks it
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            yield
            time.sleep(_LOCK_WAIT_S)
        take_over(folder)
        if (folder / name).exists():
            return
        if _version_of(path) != version:
            raise ChangedError(_CHANGED)
        file.truncate(0)
        is_zstd = path.lower().endswith("zst")
        # Behind a gzip there may be zeros, with which backups fill a block: Arrow calls that damaged.
        with pa.CompressedInputStream(packed, "zstd") if is_zstd else gzip.GzipFile(fileobj=packed) as stream:
            for number, data in enumerate(iter(partial(stream.read, _UNPACKED_AT_ONCE), b""), 1):
                if shutil.disk_usage(folder).free < _LEAST_FREE_BYTES + len(data):
                    raise TooLargeError(f"there is no room to unpack it in {folder}: --work-dir names another place")
                file.write(data)
                if number % _SYNCED_AT_ONCE == 0:
                    os.fsync(file.fileno())  # all at the end might take longer than a step may
                yield
        file.flush()
        os.fsync(file.fileno())  # or after a power loss the next run would take over a part of it
        os.rename(file.name, folder / name)


@contextmanager
def _unpacking_into(place: str) -> Iterator[None]:
    """Turn errors of a disk, and what is said of a damaged stream, into a PageError."""
    try:
        yield
    except (EOFError, zlib.error) as error:
        raise DamagedError(f"it cannot be unpacked: {error}") from error
    except OSError as error:
        if error.errno is None:  # of the stream
            raise DamagedError(f"it cannot be unpacked: {error}") from error
        said = f"it cannot be unpacked into {place} ({error.strerror})"
        raise UnreadableError(f"{said}: --work-dir names another place") from error
    except UsageError as error:
        raise UnreadableError(str(error)) from error


def _bytes_of(plain: str, member: Member) -> Iterator[bytes]:
    """Yield the bytes of a member of an archive, as many as that says. Raises PageError."""
    left = member.size
    with _opened(plain, member.length + _HEADER_BYTES) as file:
        for data in (tar_bytes if plain.lower().endswith(".tar") else zip_bytes)(file, member):
            left -= len(data)
            if left < 0:
                break
            yield data
    if left:
        raise DamagedError(f"it has not the {member.size:,} bytes that its archive says")


def _opened(path: str, ahead_bytes: int | None = None) -> AbstractContextManager[BinaryIO]:
    return open_object(path, ahead_bytes) if is_uri(path) else reading(path)


def _version_of(path: str) -> tuple[int, int]:
    return require_object(path).version if is_uri(path) else version_of(path)


def _require_version(address: MemberAddress) -> None:
    if _version_of(address.container) != address.version:
        raise ChangedError(_CHANGED)
