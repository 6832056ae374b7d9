"""Where compressed tars are unpacked: each run into a folder of its own, in which no other user may write.

The processes of a run lock its folder as long as they live. So the next run takes over what a killed one has left, and
nothing of a run that is at work.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import secrets
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

from batchocr.storage.temporary import is_private, work_folder
from batchocr.storage.uris import is_uri

_PREFIX: Final = "unpacked-"
_LOCK: Final = "lock"
_OURS: Final = re.compile("lock|[0-9a-f]{32}[.]tar([.]part)?")
"""The names of files in such a folder."""
_locked: Final[set[Path]] = set()
"""The folders of which this process has the lock."""


@cache
def _folder_name(pid: int) -> str:
    return _PREFIX + secrets.token_hex(8)


def folder_name() -> str:
    """The name of this process's folder, for it and its workers. Nobody else can know it before it is there."""
    return _folder_name(os.getpid())


def own_folder(work_dir: str | None, name: str) -> Path:
    """The run's folder of this name, which this process locks until it ends: in the work folder, or among temporary
    files if a folder there cannot be kept from other users. Raises OSError, UsageError."""
    for parent in (work_folder(work_dir), Path(tempfile.gettempdir())):
        folder = (parent / name).absolute()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if is_private(folder):
            if folder not in _locked:
                _locked.add(folder)
                with suppress(OSError):  # without locks, nobody takes anything over
                    lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
                    fcntl.flock(lock, fcntl.LOCK_SH)
            return folder
        with suppress(OSError):  # another worker has just asked the same
            folder.rmdir()
    raise PermissionError(errno.EPERM, "other users may write there")


def tar_name(container: str, version: tuple[int, int]) -> str:
    """What the plain form of a compressed tar of this version is called."""
    real = container if is_uri(container) else os.path.realpath(container)
    return f"{hashlib.sha256(repr((real, version)).encode()).hexdigest()[:32]}.tar"


def take_over(folder: Path) -> None:
    """Move into the folder what killed runs have unpacked beside it, and delete what else they left."""
    for left in {*folder.parent.glob(f"{_PREFIX}*")} - {folder}:
        with suppress(OSError):  # it is that of a run that is at work or of another user, or has just gone
            files = {file.name: file.is_file(follow_symlinks=False) for file in os.scandir(left)}
            # Else it is not ours, or only just being made.
            if is_private(left) and len(files) > 1 and all(files.values()) and all(map(_OURS.fullmatch, files)):
                with os.fdopen(os.open(left / _LOCK, os.O_RDWR | os.O_NOFOLLOW)) as lock:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    for name in sorted(files):  # the lock is the last of them
                        if name.endswith(".tar"):
                            os.rename(left / name, folder / name)
                        else:
                            os.unlink(left / name)
                    os.rmdir(left)
