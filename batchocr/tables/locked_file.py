"""A file that only one process at a time may write: locked for as long as a living process has it open."""

from __future__ import annotations

import fcntl
import os
import stat
from contextlib import ExitStack
from io import FileIO
from pathlib import Path

from batchocr.errors import OutputError


def open_locked(path: Path) -> FileIO:
    """The file at `path`, created if needed, for this process alone. Raises OutputError if another run has it."""
    while True:
        with ExitStack() as undo:
            file = undo.enter_context(open(path, "a+b", buffering=0, opener=_open_ordinary))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise OutputError(f"another run is writing {path}: wait for it, or choose another --out") from error
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
