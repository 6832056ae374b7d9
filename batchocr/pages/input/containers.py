"""Files that hold documents: which of their members are documents, and a copy of one. Runs in a worker.

A member is copied into a file without a name, so that its own name leads nowhere.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from io import BufferedReader
from typing import BinaryIO, Final

from batchocr.data import Failure
from batchocr.errors import ChangedError, DamagedError, PageTimeoutError
from batchocr.pages.input.archives import Entry, tar_bytes, tar_entries, zip_bytes, zip_entries
from batchocr.pages.input.folders import SUFFIXES, kind_of
from batchocr.pages.input.render import reading
from batchocr.processes.messages import ListedMember, MembersListed
from batchocr.storage.members import MAX_NAME, MemberAddress
from batchocr.storage.objects import StoredObject

_STEP_ENTRIES: Final = 1000
_STEP_S: Final = 0.5
_MAX_ENTRIES: Final = 10_000_000
_LINK: Final = "links or devices in archives"


def list_members(task_id: int, path: str) -> Iterator[MembersListed]:
    """Yield what is in a container, in steps that take some tenths of a second. Raises PageError."""
    with reading(path) as file:
        version = _version(file)
        entries = zip_entries(file) if _is_zip(path) else tar_entries(file, version[1])
        is_last = False
        while not is_last:
            members, skipped, problem = list[ListedMember](), Counter[str](), None
            until_s = time.monotonic() + _STEP_S
            try:
                for _ in range(_STEP_ENTRIES):
                    if time.monotonic() > until_s or (is_last := (entry := next(entries, None)) is None):
                        break
                    _take(entry, members, skipped)
            except DamagedError as error:
                problem, is_last = Failure(error.error_kind, str(error)), True
            yield MembersListed(task_id, version, tuple(members), dict(skipped), is_last, problem)


def _take(entry: Entry, members: list[ListedMember], skipped: Counter[str]) -> None:
    """Take a member for a document, or count it if it would be none in a folder. Raises DamagedError."""
    member = entry.member
    if member.ordinal >= _MAX_ENTRIES or len(member.name) > MAX_NAME:
        raise DamagedError(f"it has more than {_MAX_ENTRIES:,} members, or a name of more than {MAX_NAME:,} letters")
    parts = [part for part in member.name.split("/") if part not in ("", ".", "..")] or [""]
    if any(part.startswith(".") or part == "__MACOSX" for part in parts):
        return
    if entry.is_file and parts[-1].lower().endswith(SUFFIXES):
        members.append(ListedMember(replace(member, name="/".join(parts)), entry.problem))
    else:
        skipped[kind_of(parts[-1]) if entry.is_file else _LINK] += 1


def copy_member(address: str, file: BinaryIO, *, timeout_s: float) -> StoredObject:
    """Write a document within a file into another file, and return what was written, with its own time. Raises
    PageError; OSError of the file written."""
    until_s = time.monotonic() + timeout_s
    member = MemberAddress.parse(address).member
    num_bytes = 0
    for data in _bytes_of(address):
        num_bytes += len(data)
        if num_bytes > member.size:
            raise DamagedError(f"it is longer than the {member.size:,} bytes that its archive says")
        if time.monotonic() > until_s:
            raise PageTimeoutError(f"it could not be unpacked within {timeout_s:g} s, most of --page-timeout")
        file.write(data)
    if num_bytes < member.size:
        raise DamagedError(f"it has {num_bytes:,} of the {member.size:,} bytes that its archive says")
    file.flush()
    return StoredObject(address, member.size, member.mtime_ns)


def _bytes_of(address: str) -> Iterator[bytes]:
    """Yield the bytes of a document within a file. Raises ChangedError if this is of another version."""
    found = MemberAddress.parse(address)
    with reading(found.container) as file:
        if _version(file) == found.version:
            yield from (zip_bytes if _is_zip(found.container) else tar_bytes)(file, found.member)
        if _version(file) != found.version:
            raise ChangedError("the archive that it is in changed: run again to read it as it is now")


def _version(file: BufferedReader) -> tuple[int, int]:
    status = os.fstat(file.fileno())
    return status.st_size, status.st_mtime_ns


def _is_zip(path: str) -> bool:
    return not path.lower().endswith(".tar")
