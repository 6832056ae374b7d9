"""Files that exist whole or not at all, files that one process alone may write, and what to say when one cannot be
written or read."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import stat
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from io import FileIO
from pathlib import Path
from typing import BinaryIO

from batchocr.errors import OutputError
from batchocr.tables.files import how_to_restore, leftovers_of, temporary_path

_FULL = "the disk is full; free some space and run again to continue"
_WITH_ADVICE = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.ENOENT: "No such file or directory: create its folder first, or choose another",
    errno.EFBIG: "files may not grow any larger here; raise the limit (ulimit -f) and run again to continue",
}
"""Why a file cannot be written, where the system's own words do not say what to do."""

_LACKING = (errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOLCK, errno.EINVAL, errno.EPERM, errno.EBADF, 524)
"""What file systems say that have no locks, or cannot sync; 524 is the kernel's own, which some let through."""

logger = logging.getLogger(__name__)


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """Yield a new file next to `path`, for writing and reading, that replaces it, durably on disk, when the block
    succeeds. It may be read and written by those who may do so with the one that it replaces, where modes can be set.

    A run that is killed leaves it behind, for `remove_leftovers`.
    Raises OutputError; whatever is raised, the file at `path` stays as it was.
    """
    temporary = temporary_path(path)
    with writing(path):
        try:
            with open(temporary, "x+b") as file:  # never one that exists, nor through a link
                with suppress(OSError):
                    os.fchmod(file.fileno(), stat.S_IMODE(os.stat(path).st_mode))
                yield file
                file.flush()
                sync(file.fileno())
            os.replace(temporary, path)
            sync_folder(path.parent)
        finally:
            temporary.unlink(missing_ok=True)


def remove_leftovers(files: Iterable[Path]) -> None:
    """Delete the temporary files that killed runs left beside these files, as far as possible. Only for the one run
    that may write these files."""
    with suppress(OSError):
        for file in leftovers_of(files):
            file.unlink()


def open_locked(path: Path) -> FileIO:
    """The file at `path`, created if needed, for this process alone: locked as long as a living process has it open, if
    there are locks. Raises OutputError if another run has it."""
    while True:
        with ExitStack() as undo:
            file = undo.enter_context(open(path, "a+b", buffering=0, opener=_open_ordinary))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise OutputError(f"another run is writing {path}: wait for it, or choose another --out") from error
            except OSError as error:
                if error.errno not in _LACKING:
                    raise
                _warn_once("%s has no locks (%s): two runs into one output go unseen", path.parent, error.strerror)
            if lies_at(path, file):
                undo.pop_all()
                return file
        # The run that held the lock has just replaced or removed the file: the one opened here is no longer at `path`.


def _open_ordinary(path: str, flags: int) -> int:
    """Open an ordinary file: not through a link, which leads to what is not ours, nor a pipe or a device."""
    if os.path.islink(path):
        raise OutputError(f"cannot write {path}: it is a link; remove it, or choose another --out")
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OutputError(f"cannot write {path}: it is not an ordinary file; remove it, or choose another --out")
    return descriptor


def lies_at(path: Path, file: FileIO) -> bool:
    """Whether the open file is still the one at `path`."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except FileNotFoundError:
        return False


def require_writable(path: Path) -> None:
    """Check before hours of work that a file can be put there, in place of an ordinary one at most.

    Raises OutputError.
    """
    if "\0" in str(path):
        raise OutputError(f"cannot write {str(path)!r}: no name can hold a NUL character; choose another")
    if os.path.exists(path) and not os.path.isdir(path) and not os.path.isfile(path):
        raise OutputError(f"cannot write {path}: it is not an ordinary file; choose another place")
    with writing(path):
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        with tempfile.TemporaryFile(dir=path.parent), suppress(FileNotFoundError):
            os.lstat(temporary_path(path))  # raises if the name is too long


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an OSError inside the block into an OutputError that says why `path` cannot be written."""
    try:
        yield
    except OSError as error:
        reason = _WITH_ADVICE.get(error.errno or 0) or error.strerror or error
        raise OutputError(f"cannot write {path}: {reason}") from error


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn an OSError inside the block into an OutputError that says why `path` cannot be read, as that it is a pipe or
    a device; and a ValueError, which says what is wrong with what is in it."""
    try:
        require_ordinary(path)
        yield
    except OSError as error:
        raise OutputError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise OutputError(f"cannot read {path}: {error}; it is damaged: {how_to_restore(path)}") from error


def require_ordinary(path: Path) -> None:
    """Raise OSError if the file is a pipe or a device: opening it might wait for its other end."""
    mode = stat.S_IFREG
    with suppress(OSError, ValueError):
        mode = os.stat(path).st_mode  # once: it may be moved meanwhile
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise OSError(errno.EINVAL, "it is not an ordinary file")


def sync(descriptor: int) -> None:
    """Sync a file or folder to disk, unless its file system has no sync. Raises OSError."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _LACKING:
            raise


def sync_folder(folder: Path) -> None:
    """Sync the folder's list of names to disk: without this, a power loss may bring the replaced file back. A disk that
    fails here is a warning, as the file itself is on it."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            sync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        _warn_once("cannot sync the folder %s (%s): a power loss may bring replaced files back", folder, error.strerror)


@cache
def _warn_once(message: str, *said: object) -> None:
    logger.warning(message, *said)
