"""Where the files of a run on a cluster are: in a folder that all machines see, or below a prefix of an object store.

What is put appears whole. All methods raise OutputError.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from batchocr.errors import NotFoundError, OutputError, PageError, UsageError, of_store
from batchocr.storage.objects import list_below, open_object, remove
from batchocr.storage.uris import is_uri, parse_uri
from batchocr.tables.atomic import atomic_file, reading, writing
from batchocr.tables.remote_output import fetch_file, put_file


class PartsFolder(Protocol):
    """Its `str` is a path, or a URI."""

    def names(self) -> set[str]:
        """Of all files that are there."""

    def open(self, name: str) -> pa.NativeFile:
        """A file of which only some bytes are to be read, which raises OSError."""

    def fetch(self, name: str, to: Path) -> None:
        """Copy a file to a local disk."""

    def put(self, local: Path, name: str) -> None:
        """Put a file of a local disk in its place."""

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""


class Folder:
    """A folder, which is made if need be."""

    def __init__(self, path: str) -> None:
        self._path = Path(os.path.abspath(path))

    def __str__(self) -> str:
        return str(self._path)

    def names(self) -> set[str]:
        if self._path.exists() and not self._path.is_dir():
            raise OutputError(f"--out {self._path} is a file: the parts need a folder of their own")
        with reading(self._path):
            return set(os.listdir(self._path)) if self._path.exists() else set()

    def open(self, name: str) -> pa.NativeFile:
        return pa.OSFile(str(self._path / name))

    def fetch(self, name: str, to: Path) -> None:
        with reading(self._path / name), writing(to):
            shutil.copyfile(self._path / name, to)

    def put(self, local: Path, name: str) -> None:
        with writing(self._path):
            self._path.mkdir(exist_ok=True)
        with open(local, "rb") as source, atomic_file(self._path / name) as target:
            shutil.copyfileobj(source, target)

    def remove(self, name: str) -> None:
        with writing(self._path / name):
            (self._path / name).unlink(missing_ok=True)


class Prefix:
    """What is directly below a prefix."""

    def __init__(self, uri: str) -> None:
        self._uri = str(parse_uri(uri)).rstrip("/")

    def __str__(self) -> str:
        return f"{self._uri}/"

    def names(self) -> set[str]:
        try:
            return {found.uri.rpartition("/")[2] for found in list_below(self._uri, recursive=False)}
        except NotFoundError:  # nor may there be a bucket: putting will say so
            return set()
        except PageError as error:
            raise of_store(error, str(error)) from error

    def open(self, name: str) -> pa.NativeFile:
        return open_object(f"{self}{name}")

    def fetch(self, name: str, to: Path) -> None:
        fetch_file(f"{self}{name}", to)

    def put(self, local: Path, name: str) -> None:
        put_file(local, f"{self}{name}")

    def remove(self, name: str) -> None:
        try:
            remove(f"{self}{name}")
        except PageError as error:
            raise of_store(error, str(error)) from error


def place_of(out: str) -> PartsFolder:
    """The place of this path or URI. Raises UsageError."""
    if not out:
        raise UsageError("--out is empty: say where to write")
    return Prefix(out) if is_uri(out) else Folder(out)
