"""Files that hold documents: which of their members are documents, and a copy of one. Runs in a worker.

A member is copied into a file without a name, so that its own name leads nowhere.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import BinaryIO, Final

from batchocr.data import Failure
from batchocr.errors import ChangedError, DamagedError, PageTimeoutError, UnsupportedError
from batchocr.pages.input.archives import Entry, tar_bytes, tar_entries, zip_bytes, zip_entries
from batchocr.pages.input.folders import SUFFIXES, kind_of
from batchocr.pages.input.render import reading, version_of
from batchocr.pages.input.table_rows import TableRows, table_entries
from batchocr.processes.messages import ListedMember, ListMembers, MembersListed
from batchocr.storage.members import MAX_NAME, MemberAddress
from batchocr.storage.objects import StoredObject, open_object, require_object
from batchocr.storage.uris import is_uri

_STEP_ENTRIES: Final = 1000
_STEP_S: Final = 0.5
_MAX_ENTRIES: Final = 10_000_000
_LINK: Final = "links or devices in archives"


class Containers:
    """Lists what is in files that hold documents, and copies these. The columns are of tables."""

    def __init__(self, document_column: str | None = None, name_column: str | None = None) -> None:
        self._columns = document_column, name_column
        self._rows = TableRows(_opened)
        self._listing: Iterator[MembersListed] = iter(())

    def list(self, task: ListMembers) -> MembersListed:
        """What is in a container, or what comes after that; it takes some tenths of a second. Raises PageError."""
        if not task.goes_on:
            self._listing = self._steps(task.task_id, task.path)
        return next(self._listing)

    def _steps(self, task_id: int, path: str) -> Iterator[MembersListed]:
        version = _version_of(path)
        with _opened(path) as file:
            if _is_table(path):
                entries = table_entries(file, version, *self._columns)
            else:
                entries = tar_entries(file, version[1]) if _is_tar(path) else zip_entries(file)
            is_last = False
            while not is_last:
                members, skipped, problem = list[ListedMember](), Counter[str](), None
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
        """Write the document at an address into a file, and return what was written, with its own size and time.
        Raises ChangedError if the container is of another version, or another PageError; OSError of the file."""
        until_s = time.monotonic() + timeout_s
        address = MemberAddress.parse(text)
        _require_version(address)
        for data in [self._rows.read(address)] if _is_table(address.container) else _bytes_of(address):
            if time.monotonic() > until_s:
                raise PageTimeoutError(f"it could not be unpacked within {timeout_s:g} s, most of --page-timeout")
            file.write(data)
        file.flush()
        _require_version(address)
        return StoredObject(text, address.member.size, address.member.mtime_ns)


def _take(entry: Entry, members: list[ListedMember], skipped: Counter[str]) -> None:
    """Take a member for a document, or count it if it would be none in a folder. Raises DamagedError."""
    member = entry.member
    if member.ordinal >= _MAX_ENTRIES or len(member.name) > MAX_NAME:
        raise DamagedError(f"it has more than {_MAX_ENTRIES:,} members, or a name of more than {MAX_NAME:,} letters")
    parts = [part for part in member.name.split("/") if part not in ("", ".", "..")] or [str(member.ordinal)]
    is_hidden = any(part.startswith(".") or part == "__MACOSX" for part in parts)
    if entry.kind == "row" or (entry.kind == "file" and not is_hidden and parts[-1].lower().endswith(SUFFIXES)):
        members.append(ListedMember(replace(member, name="/".join(parts)), entry.problem))
    elif not is_hidden:
        skipped[kind_of(parts[-1]) if entry.kind == "file" else _LINK] += 1


def _bytes_of(address: MemberAddress) -> Iterator[bytes]:
    """Yield the bytes of a member of an archive, as many as that says. Raises PageError."""
    left = address.member.size
    with _opened(address.container) as file:
        for data in (tar_bytes if _is_tar(address.container) else zip_bytes)(file, address.member):
            left -= len(data)
            if left < 0:
                break
            yield data
    if left:
        raise DamagedError(f"it has not the {address.member.size:,} bytes that its archive says")


def _opened(path: str) -> AbstractContextManager[BinaryIO]:
    return open_object(path) if is_uri(path) else reading(path)


def _version_of(path: str) -> tuple[int, int]:
    return require_object(path).version if is_uri(path) else version_of(path)


def _require_version(address: MemberAddress) -> None:
    if _version_of(address.container) != address.version:
        raise ChangedError("the file that it is in changed: run again to read it as it is now")


def _is_table(path: str) -> bool:
    return path.lower().endswith(".parquet")


def _is_tar(path: str) -> bool:
    return path.lower().endswith(".tar")
