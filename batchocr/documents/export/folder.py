"""The folder of an export: files written whole, and a record of which are ours, so that no other is touched."""

from __future__ import annotations

import errno
import hashlib
import os
import sqlite3
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from batchocr.documents.export.formats import File
from batchocr.errors import OutputError
from batchocr.pages.input.folders import EXPORT_RECORD
from batchocr.storage.sqlite_file import SqliteFile
from batchocr.tables.atomic import atomic_file, writing
from batchocr.tables.files import final_name

_TABLES: Final = (
    "create table if not exists documents "
    "(source text, format text, version text, run integer, primary key (source, format)) without rowid",
    "create table if not exists files "
    "(path text primary key, source text, format text, size integer, mtime_ns integer, sha256 blob) without rowid",
    "create index if not exists files_by_document on files (source, format)",
    "create table if not exists coming (path text primary key, source text, format text, sha256 blob) without rowid",
    "create index if not exists coming_by_document on coming (source, format)",
    "create table if not exists pictures (path text primary key, shows text) without rowid",
    "create index if not exists pictures_by_shows on pictures (shows)",
    "create table if not exists runs (run integer primary key, finished integer)",
)

_SETTINGS: Final = ("locking_mode = exclusive", "journal_mode = wal", "synchronous = normal")
"""Only one process may write; recording a file is fast, and survives a kill."""

_NO_ROOM: Final = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO}
"""What ends an export; all else concerns one document."""


class FileRefusedError(Exception):
    """A file of a document cannot be put where it belongs; its message names the place."""


class ExportFolder:
    """The folder that `--to` names. Only one export may have it open."""

    def __init__(self, path: Path) -> None:
        """Raises OutputError."""
        self._path = path
        with writing(path):
            path.mkdir(parents=True, exist_ok=True)
            self._real_path = path.resolve()
        if os.path.lexists(path / EXPORT_RECORD) and not stat.S_ISREG(os.lstat(path / EXPORT_RECORD).st_mode):
            raise OutputError(f"{path / EXPORT_RECORD} is not an ordinary file: move it away, or choose another --to")
        with self._recording():
            self._record = SqliteFile(path / EXPORT_RECORD, wait_s=0)
            self._record.require_only(*_TABLES)
            for setting in _SETTINGS:
                self._record.execute(f"pragma {setting}")
            self._record.execute("begin immediate")
            for statement in _TABLES:
                self._record.execute(statement)
            was_killed = self._record.execute("select count(*) from runs where not finished").fetchone() != (0,)
            [(self._run,)] = self._record.execute("insert into runs (finished) values (0) returning run").fetchall()
            self._record.execute("delete from runs where run < ?", (self._run,))
            self._commit()
        self._leftovers = dict(_leftovers_in(path)) if was_killed else {}

    def __enter__(self) -> ExportFolder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with self._recording():
            self._record.execute("update runs set finished = 1")
            if self._record.in_transaction:  # Ctrl-C may come between the end of one and the beginning of the next
                self._record.execute("commit")
            self._record.close()

    def begin(self, source: str, format: str) -> bool:
        """Record that the document is in the table; returns False if this run has seen it before."""
        found = self._execute("select run from documents where source = ? and format = ?", source, format)
        if found == [(self._run,)]:
            return False
        upsert = "insert into documents values (?, ?, '', ?) on conflict do update set run = excluded.run"
        self._execute(upsert, source, format, self._run)
        return True

    def is_up_to_date(self, source: str, format: str, version: str) -> bool:
        """Whether the document was written in this version, and all its files are still there. A file that a user has
        changed since counts as there, and is left alone."""
        known = self._execute("select version from documents where source = ? and format = ?", source, format)
        return known == [(version,)] and all(
            os.path.lexists(self._path / path) for path in self._files_of(source, format)
        )

    def write(self, source: str, format: str, files: Iterable[File]) -> bool:
        """Write the files of a document, and remove those that it had before and has no more; returns whether there
        was anything to do. The document is `complete` only when that is said.

        Raises OutputError if nothing more can be written here, FileRefusedError if one of its files cannot be put in
        its place.
        """
        self._set_version(source, format, "")
        before = self._files_of(source, format)
        written: set[str] = set()
        is_new = False
        for file in files:
            is_new |= self._put(file, source, format)
            written.add(file.path)
        for path in before:
            if path not in written:
                self._remove(path)
        return is_new or not written.issuperset(before)

    def complete(self, source: str, format: str, version: str) -> None:
        """Record which version of the document has been written."""
        self._set_version(source, format, version)
        self._commit()

    def picture(self, shows: str) -> bytes | None:
        """The content of a picture that an export has written, if its file is still there as it was written."""
        found = self._execute("select path, sha256 from pictures join files using (path) where shows = ?", shows)
        for path, digest in [(self._in_folder(path), digest) for path, digest in found]:
            with suppress(OSError):
                data: bytes = (self._path / path).read_bytes() if self._is_unchanged(path) else b""
                if _digest(data) == digest:
                    return data
        return None

    def num_vanished(self, formats: Sequence[str]) -> int:
        """Of how many documents that are no longer in the table there are files in these formats."""
        marks = ", ".join("?" * len(formats))
        counting = f"select count(distinct source) from documents where run <> ? and format in ({marks})"
        [(number,)] = self._execute(counting, self._run, *formats)
        return int(number)

    def _set_version(self, source: str, format: str, version: str) -> None:
        self._execute("update documents set version = ? where source = ? and format = ?", version, source, format)

    def _put(self, file: File, source: str, format: str) -> bool:
        """Write a file, unless it is there already; returns whether it was not.

        Raises OutputError, FileRefusedError.
        """
        path = self._path / file.path
        digest = _digest(file.data)
        if (leftover := self._leftovers.pop(file.path, None)) is not None:
            with suppress(OSError):
                leftover.unlink()
        with _refusing(path):
            self._make_folder(path.parent)
            self._require_free(file.path, source, format)
            is_new = not self._has_already(path, file)
            if is_new:
                self._require_ours(path, file)
            self._take_over(file.path)
            if is_new:
                self._announce(file, source, format, digest)
                with atomic_file(path) as new:
                    new.write(file.data)
            status = os.stat(path)
        known = (file.path, source, format, status.st_size, status.st_mtime_ns, digest)
        self._execute("insert or replace into files values (?, ?, ?, ?, ?, ?)", *known)
        if file.shows:
            self._execute("insert or replace into pictures values (?, ?)", file.path, file.shows)
        self._execute("delete from coming where path = ?", file.path)
        return is_new

    def _take_over(self, path: str) -> None:
        """Record that the document that had this file, if any, is no longer up to date: the file is another document's
        now."""
        of_file = "select source, format from files where path = ?"
        self._execute(f"update documents set version = '' where (source, format) in ({of_file})", path)

    def _announce(self, file: File, source: str, format: str, digest: bytes) -> None:
        """Record what is about to be written, so that the file counts as ours even if we are killed right after. What
        is there now stays recorded until then."""
        self._execute("insert or replace into coming values (?, ?, ?, ?)", file.path, source, format, digest)
        self._commit()

    def _make_folder(self, folder: Path) -> None:
        if self._leads_out(folder):
            raise FileRefusedError(f"{folder} is, or is in, a link that leads out of {self._path}: remove it")
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise FileRefusedError(f"{folder} is not a folder, or not in one: move away what is there") from error

    def _leads_out(self, folder: Path) -> bool:
        return not Path(os.path.realpath(folder)).is_relative_to(self._real_path)

    def _has_already(self, path: Path, file: File) -> bool:
        """Whether there is an ordinary file with just this content: as one that was killed may have left it."""
        with suppress(FileNotFoundError):
            status = os.lstat(path)
            if stat.S_ISREG(status.st_mode) and status.st_size == len(file.data):
                with open(path, "rb") as there:
                    return hashlib.file_digest(there, "sha256").digest() == _digest(file.data)
        return False

    def _require_ours(self, path: Path, file: File) -> None:
        """Raise FileRefusedError if there is something that this folder's exports did not write, or not like that."""
        if os.path.lexists(path) and not self._is_unchanged(file.path):
            raise FileRefusedError(
                f"{path} was not written by an export to this folder, or was changed since: move it away, or choose "
                "another --to"
            )

    def _require_free(self, path: str, source: str, format: str) -> None:
        """Raise FileRefusedError if the file is already that of another document of this run."""
        owners = "select source, format from files join documents using (source, format) where path = ? and run = ?"
        for owner in self._execute(owners, path, self._run):
            if owner != (source, format):
                raise FileRefusedError(
                    f"{self._path / path} is already a file of {owner[0]}: choose another --to for one of them"
                )

    def _is_unchanged(self, path: str) -> bool:
        """Whether there is an ordinary file as an export has left it."""
        found = self._execute("select size, mtime_ns, sha256 from files where path = ?", path)
        coming = self._execute("select sha256 from coming where path = ?", path)
        digests = [known[-1] for known in (*found, *coming)]
        with suppress(OSError):
            status = os.lstat(self._path / path)
            if not digests or not stat.S_ISREG(status.st_mode) or self._leads_out((self._path / path).parent):
                return False
            if any(known[:2] == (status.st_size, status.st_mtime_ns) for known in found):
                return True
            return _digest((self._path / path).read_bytes()) in digests
        return False

    def _remove(self, path: str) -> None:
        """Remove a file of ours that its document has no more, and the folder that it leaves empty."""
        if self._is_unchanged(path):
            with suppress(OSError):
                (self._path / path).unlink()
                (self._path / path).parent.rmdir()
        for table in ("files", "pictures", "coming"):
            self._execute(f"delete from {table} where path = ?", path)

    def _files_of(self, source: str, format: str) -> list[str]:
        of_document = "where source = ?1 and format = ?2"
        both = f"select path from files {of_document} union select path from coming {of_document}"
        return [self._in_folder(path) for (path,) in self._execute(both, source, format)]

    def _in_folder(self, path: object) -> str:
        """A path in the record. Raises OutputError if it is none, or leads out of the folder."""
        if not isinstance(path, str) or "\0" in path or path.startswith("/") or ".." in path.split("/"):
            raise self._damaged()
        return path

    def _commit(self) -> None:
        self._execute("commit")
        self._execute("begin immediate")

    def _execute(self, statement: str, *values: object) -> list[Any]:
        """The rows that a statement gives."""
        with self._recording():
            return self._record.execute(statement, values).fetchall()

    @contextmanager
    def _recording(self) -> Iterator[None]:
        """Turn what SQLite raises into an OutputError."""
        path = self._path / EXPORT_RECORD
        try:
            yield
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                raise OutputError(
                    f"another export is writing to {self._path}: wait for it, or choose another --to"
                ) from error
            raise OutputError(f"cannot keep the record {path} of what was exported: {error}") from error
        except sqlite3.DatabaseError as error:
            raise self._damaged() from error

    def _damaged(self) -> OutputError:
        record = self._path / EXPORT_RECORD
        return OutputError(f"{record} is damaged or not ours: move it away, or choose another --to")


def _digest(data: bytes | memoryview) -> bytes:
    return hashlib.sha256(data).digest()


@contextmanager
def _refusing(path: Path) -> Iterator[None]:
    """Turn what prevents one file into a FileRefusedError; OutputError is for what prevents all others too."""
    try:
        with writing(path):
            yield
    except OutputError as error:
        if isinstance(error.__cause__, OSError) and error.__cause__.errno in _NO_ROOM:
            raise
        raise FileRefusedError(str(error)) from error


def _leftovers_in(folder: Path) -> Iterator[tuple[str, Path]]:
    """Files that look as if an export was killed while it wrote them, by the path that they were to take."""
    for parent, _, names in os.walk(folder):
        for name in names:
            if (final := final_name(name)) != name:
                yield os.path.relpath(os.path.join(parent, final), folder), Path(parent, name)
