"""The folder of an export: files written whole, and a record of which are ours, so that no other is touched."""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import sqlite3
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from batchocr.documents.export.figures import File
from batchocr.documents.export.refusal import FileRefusedError
from batchocr.errors import OutputError
from batchocr.pages.input.folders import EXPORT_RECORD
from batchocr.storage.sqlite_file import SqliteFile
from batchocr.tables.atomic import atomic_file, writing
from batchocr.tables.files import final_name

_TABLES: Final = (
    "create table if not exists documents "
    "(source text, format text, version text, run text, primary key (source, format)) without rowid",
    "create table if not exists files "
    "(path text, sha256 blob, source text, format text, shows text, primary key (path, sha256)) without rowid",
    "create index if not exists files_by_document on files (source, format)",
    "create index if not exists files_by_shows on files (shows)",
)
"""The tables of the record. A file is ours if it has one of the contents recorded for its path: the one written last
and, while another content is about to take its place, that one too. `run` is of the export that has last seen the
document."""

_SETTINGS: Final = ("locking_mode = exclusive", "journal_mode = wal", "synchronous = normal")
"""The settings of the record: only one process may write; recording a file is fast, and survives a kill."""

_NO_ROOM: Final = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO}
"""The errors that end an export; all other errors concern one document."""


class ExportFolder:
    """The folder that `--to` names, which only one export may have open."""

    def __init__(self, path: Path) -> None:
        """Open the folder, or make it. Raises OutputError."""
        self._path = path
        with writing(path):
            path.mkdir(parents=True, exist_ok=True)
            self._real_path = path.resolve()
        if os.path.lexists(path / EXPORT_RECORD) and not stat.S_ISREG(os.lstat(path / EXPORT_RECORD).st_mode):
            raise OutputError(f"{path / EXPORT_RECORD} is not an ordinary file: move it away, or choose another --to")
        was_killed = os.path.lexists(path / f"{EXPORT_RECORD}-wal")  # SQLite removes it with the last connection
        with self._recording():
            self._record = SqliteFile(path / EXPORT_RECORD, wait_s=0)
            self._record.require_only(*_TABLES)
            for setting in _SETTINGS:
                self._record.execute(f"pragma {setting}")
            self._record.execute("begin immediate")
            for statement in _TABLES:
                self._record.execute(statement)
            self._commit()
        self._run = secrets.token_hex(8)
        self._leftovers = dict(_leftovers_in(path)) if was_killed else {}

    def __enter__(self) -> ExportFolder:
        return self

    def __exit__(self, *_: object) -> None:
        with self._recording():
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
        """Write the files of a document, and remove those that it had before and has no more; returns whether there was
        anything to do. The document counts as `complete` once that is recorded.

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
        found = self._execute("select path, sha256 from files where shows = ?", shows)
        for path, digest in [(self._in_folder(path), digest) for path, digest in found]:
            if self._digest_at(path) == digest:
                return (self._path / path).read_bytes()
        return None

    def num_vanished(self, formats: Sequence[str]) -> int:
        """How many documents that are no longer in the table still have files in these formats."""
        marks = ", ".join("?" * len(formats))
        counting = f"select count(distinct source) from documents where run <> ? and format in ({marks})"
        [(number,)] = self._execute(counting, self._run, *formats)
        return int(number)

    def _set_version(self, source: str, format: str, version: str) -> None:
        self._execute("update documents set version = ? where source = ? and format = ?", version, source, format)

    def _put(self, file: File, source: str, format: str) -> bool:
        """Write a file, unless it is there already; returns whether it was written.

        Raises OutputError, FileRefusedError.
        """
        path = self._path / file.path
        digest = hashlib.sha256(file.data).digest()
        if (leftover := self._leftovers.pop(file.path, None)) is not None:
            with suppress(OSError):
                leftover.unlink()
        with _refusing(path):
            self._make_folder(path.parent)
            self._require_free(file.path, source, format)
            is_new = self._digest_at(file.path) != digest
            if is_new and os.path.lexists(path) and not self._is_ours(file.path):
                raise FileRefusedError(
                    f"{path} was not written by an export to this folder, or was changed since: move it away, or "
                    "choose another --to"
                )
            # The document that had this file is no longer up to date, if it was another.
            owner = "select source, format from files where path = ?"
            self._execute(f"update documents set version = '' where (source, format) in ({owner})", file.path)
            known = (file.path, digest, source, format, file.shows)
            self._execute("insert or replace into files values (?, ?, ?, ?, ?)", *known)
            if is_new:
                self._commit()  # so that the file counts as ours even if we are killed right after it is in its place
                with atomic_file(path) as new:
                    new.write(file.data)
        self._execute("delete from files where path = ? and sha256 <> ?", file.path, digest)
        return is_new

    def _make_folder(self, folder: Path) -> None:
        if self._leads_out(folder):
            raise FileRefusedError(f"{folder} is, or is in, a link that leads out of {self._path}: remove it")
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise FileRefusedError(f"{folder} is not a folder, or not in one: move away what is there") from error

    def _leads_out(self, folder: Path) -> bool:
        return not Path(os.path.realpath(folder)).is_relative_to(self._real_path)

    def _require_free(self, path: str, source: str, format: str) -> None:
        """Raise FileRefusedError if the file is already that of another document of this run."""
        owners = "select source, format from files join documents using (source, format) where path = ? and run = ?"
        for owner in self._execute(owners, path, self._run):
            if owner != (source, format):
                raise FileRefusedError(
                    f"{self._path / path} is already a file of {owner[0]}: choose another --to for one of them"
                )

    def _is_ours(self, path: str) -> bool:
        """Whether there is a file at the path as an export has left it."""
        return bool(self._execute("select 1 from files where path = ? and sha256 = ?", path, self._digest_at(path)))

    def _digest_at(self, path: str) -> bytes | None:
        """The SHA-256 of an ordinary file in this folder; None if there is none."""
        place = self._path / path
        with suppress(OSError):
            if stat.S_ISREG(os.lstat(place).st_mode) and not self._leads_out(place.parent):
                with open(place, "rb") as file:
                    return hashlib.file_digest(file, "sha256").digest()
        return None

    def _remove(self, path: str) -> None:
        """Remove a file of ours that its document has no more, and the folder that it leaves empty."""
        if self._is_ours(path):
            with suppress(OSError):
                (self._path / path).unlink()
                (self._path / path).parent.rmdir()
        self._execute("delete from files where path = ?", path)

    def _files_of(self, source: str, format: str) -> list[str]:
        found = self._execute("select distinct path from files where source = ? and format = ?", source, format)
        return [self._in_folder(path) for (path,) in found]

    def _in_folder(self, path: object) -> str:
        """A path in the record. Raises OutputError if what is recorded is no path, or leads out of the folder."""
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
