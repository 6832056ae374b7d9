"""Where the files of a table are, on a disk; for those in a store see `tables/store_place`."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
from pathlib import Path
from typing import Protocol

from batchocr.errors import StaleError
from batchocr.tables.atomic import atomic_file, reading, sync_folder, writing
from batchocr.tables.files import OWN_FOLDER, temporary_path
from batchocr.tables.record import MAX_RECORD_BYTES


class Place(Protocol):
    """A folder, or a prefix in a store; names are relative to it, with slashes. All methods raise OutputError."""

    def get(self, name: str) -> tuple[bytes, str] | None:
        """A small file, whole, with the tag of its version; None if it is not there."""

    def swap(self, name: str, content: bytes, tag: str | None) -> str:
        """Put a small file in place of the version with this tag, or where there is none; returns the new tag. Raises
        StaleError if another version is there."""

    def put(self, file: Path, name: str) -> None:
        """Put a file that is on a disk, whole, in place of what has this name."""

    def copy(self, name: str, to: str) -> None:
        """Give a file another name, too, whole, in place of what has that."""

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""

    def names(self, folder: str) -> list[str]:
        """The files directly in a folder below; none if it is not there."""


class DiskPlace:
    """A folder. A lock on the journal keeps other runs out of it meanwhile."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __str__(self) -> str:
        return str(self._folder)

    def get(self, name: str) -> tuple[bytes, str] | None:
        path = self._folder / name
        with reading(path):
            require_own(self._folder)
            try:
                no_link = os.O_NOFOLLOW if name.startswith(OWN_FOLDER) else 0
                descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | no_link)
            except FileNotFoundError:
                return None
            with open(descriptor, "rb") as file:
                content = file.read(MAX_RECORD_BYTES)
        return content, hashlib.sha256(content).hexdigest()

    def swap(self, name: str, content: bytes, tag: str | None) -> str:
        there = self.get(name)
        if (there[1] if there else None) != tag:
            raise StaleError(replaced_meanwhile(self._folder / name))
        self._make_folder_of(name)
        with atomic_file(self._folder / name) as file:
            file.write(content)
        return hashlib.sha256(content).hexdigest()

    def put(self, file: Path, name: str) -> None:
        self._make_folder_of(name)
        path = self._folder / name
        with writing(path):
            try:
                os.replace(file, path)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                with file.open("rb") as source, atomic_file(path) as target:
                    shutil.copyfileobj(source, target)
            sync_folder(path.parent)

    def copy(self, name: str, to: str) -> None:
        path, target = self._folder / name, self._folder / to
        temporary = temporary_path(path)  # beside the parts, other programs would take it for one
        with writing(target):
            try:
                try:
                    os.link(path, temporary)
                except OSError:  # a disk without hard links
                    shutil.copyfile(path, temporary)
                    with open(temporary, "rb") as file:
                        os.fsync(file.fileno())
                os.replace(temporary, target)
            finally:
                temporary.unlink(missing_ok=True)
            sync_folder(target.parent)

    def remove(self, name: str) -> None:
        with writing(self._folder / name):
            (self._folder / name).unlink(missing_ok=True)

    def names(self, folder: str) -> list[str]:
        with reading(self._folder / folder):
            try:
                return [f"{folder}/{name}" if folder else name for name in os.listdir(self._folder / folder)]
            except FileNotFoundError:
                return []

    def _make_folder_of(self, name: str) -> None:
        with writing(self._folder / name):
            (self._folder / name).parent.mkdir(parents=True, exist_ok=True)


def require_own(folder: Path) -> None:
    """Raise OSError if what is hidden in a folder of parts may be of somebody else: it is a link, or open to more users
    than the folder itself."""
    for own in (folder / OWN_FOLDER, folder / OWN_FOLDER / "new"):
        if not os.path.lexists(own):
            return
        here, above = os.lstat(own), os.stat(folder)
        if not stat.S_ISDIR(here.st_mode):
            raise OSError(errno.ELOOP, f"{own} is not a folder, but a link or a file: remove it")
        if here.st_mode & ~above.st_mode & stat.S_IWOTH or here.st_uid not in (above.st_uid, os.geteuid(), 0):
            raise OSError(errno.EPERM, f"{own} is another user's, or open to all: remove it, or make it yours alone")


def replaced_meanwhile(name: object) -> str:
    """What to say if another run has replaced a table since this one began."""
    return (
        f"{name} was replaced by another run meanwhile: what this one has read is kept, and the same command goes on "
        "from the newer table"
    )
