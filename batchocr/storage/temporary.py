"""Folders for what is made on the way: one that is deleted when the process ends, and one that is not."""

from __future__ import annotations

import atexit
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final

from batchocr.errors import OutputError, UsageError

_ATTEMPTS = 10
"""How often deleting the folder is tried, while a fetch that was interrupted may still make a file in it."""


_deleted_at_end: Final[set[tuple[int, Path]]] = set()
"""Folders to be deleted, each with the process that deletes it: a fork of that process does not."""


@cache
def _folder_of(pid: int) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="batchocr-"))
    delete_at_end(folder)
    return folder


def new_folder() -> Path:
    """A new empty folder. Raises OutputError."""
    with writing_temporary():
        return Path(tempfile.mkdtemp(dir=_folder_of(os.getpid())))


def work_folder(work_dir: str | os.PathLike[str] | None) -> Path:
    """The folder for what a run leaves for the next one: this, or one below the user's cache. Raises UsageError."""
    try:
        return Path(work_dir or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "batchocr"))
    except RuntimeError as error:
        raise UsageError("this user has no home folder to work in: --work-dir names a place") from error


def is_private(folder: Path, closed_to: int = stat.S_IRWXG | stat.S_IRWXO) -> bool:
    """Whether the path is a folder of this user, not a link, that lacks these modes. Raises OSError."""
    at = os.lstat(folder)
    return stat.S_ISDIR(at.st_mode) and at.st_uid == os.geteuid() and not at.st_mode & closed_to


@contextmanager
def writing_temporary() -> Iterator[None]:
    """Turn what keeps a temporary file from being made or written into an OutputError."""
    try:
        yield
    except OSError as error:
        raise OutputError(f"cannot write a temporary file ({error.strerror}): TMPDIR may name another disk") from error


def delete_at_end(folder: Path) -> None:
    """Have the folder deleted when this process ends."""
    if not _deleted_at_end:
        atexit.register(delete_folders)
    _deleted_at_end.add((os.getpid(), folder))


def delete_folders() -> None:
    """Delete all folders: also called by a process that ends without Python's clearing up."""
    for pid, folder in _deleted_at_end:
        for _ in range(_ATTEMPTS if pid == os.getpid() else 0):
            shutil.rmtree(folder, ignore_errors=True)
