"""The checkpoint of a run: a file next to the output with one line per finished row, in order of completion.

The first line holds the run's metadata. A line is written in one call, so a run that is killed leaves at most a torn
last line, which the next run cuts off. A failing disk can do more, hence a checksum in every line. Any other line that
is not as it was written counts as not there: its page is read again, and the line stays where it is. A first line like
that stops the next run, which cannot know what the rows depend on.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Collection, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from io import FileIO
from pathlib import Path
from typing import BinaryIO, Self

from pydantic import TypeAdapter

from batchocr.data import PageResult, counted, valid_text
from batchocr.errors import OutputError, OutputMismatchError
from batchocr.storage.checksums import checked_line, is_sound
from batchocr.tables.atomic import atomic_file, lies_at, open_locked, reading, writing
from batchocr.tables.earlier import metadata_of_journal, metadata_of_table, require_ours
from batchocr.tables.files import journal_path
from batchocr.tables.index import IndexedRow, RowIndex
from batchocr.tables.schema import (
    RunMetadata,
    continued,
    metadata_to_json,
    require_same_settings,
    require_same_shard,
    storable,
)
from batchocr.tables.table import table_for

_SYNC_INTERVAL_S = 3.0
"""A power loss costs at most the rows of this many seconds."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """A finished row and the file it was read from."""

    result: PageResult
    size: int | None
    """Of the file, in bytes; None if unknown."""
    mtime_ns: int | None
    """Of the file; None if unknown."""


_ENTRY = TypeAdapter(JournalEntry)


class Journal:
    """A run's journal, open and locked against a second run. Belongs to one thread."""

    def __init__(self, path: Path, file: FileIO, metadata: RunMetadata) -> None:
        self.path = path
        self.metadata = metadata
        """Of this run together with those whose rows it holds."""
        self._file = file
        self._index = RowIndex()
        self.is_redundant = False
        """Whether it was begun here and nothing was added: its rows are in the table, and `close` would delete it."""
        self._synced_s = time.monotonic()

    @classmethod
    def open(cls, out: Path, metadata: RunMetadata, *, resume: bool, overwrite: bool) -> Journal:
        """Return the journal of the table at `out`: the unfinished one, or a new one holding that table's rows.

        overwrite: begin with an empty one; a table of ours stays until the new one replaces it.
        Raises OutputMismatchError if the journal or the table belongs to other settings or is not ours, or if `resume`
        is False and the journal is unfinished; OutputError if it cannot be written, another run holds it, or its first
        line is damaged.
        A journal that is continued vouches for its run: of what lies at `out` it is then only asked if it is ours.
        """
        path = journal_path(out)
        with writing(out), ExitStack() as undo:
            journal = undo.enter_context(cls(path, open_locked(path), metadata))
            if overwrite:
                require_ours(out)
                journal._begin(())
            elif (found := metadata_of_journal(out)) is None:
                before = metadata_of_table(out, metadata)
                if before is not None:
                    journal.metadata = continued(before, metadata)
                journal._begin(() if before is None else table_for(out).read_rows(out))
            elif not resume:
                raise OutputMismatchError(
                    f"{path} belongs to a run that is unfinished or left failed pages: leave out --no-resume to "
                    "continue it, or start over with --overwrite"
                )
            else:
                require_ours(out)
                require_same_settings(path, found, metadata)
                require_same_shard(path, found, metadata)
                journal.metadata = continued(found, metadata)
            journal._load()
            undo.pop_all()
        return journal

    def append(self, entry: JournalEntry) -> None:
        """Write the row at once. Raises OutputError, also some seconds after the file was removed or replaced; a write
        that fails leaves the journal as it was."""
        line = _to_line(entry)
        with writing(self.path):
            try:
                _write_whole(self._file, line)
            except OSError:
                self._file.truncate(self._index.end)
                raise
            self._index.take(line)
            self.is_redundant = False
            if time.monotonic() - self._synced_s > _SYNC_INTERVAL_S:
                self._require_in_place()
                self._sync()

    def rows(self, source: str) -> tuple[IndexedRow, ...]:
        """What is known about a document's rows, by page; the document as a whole (page_index None) comes first."""
        return self._index.rows(valid_text(source))

    def sources(self) -> Collection[str]:
        """Every document that has rows."""
        return self._index.sources()

    def find(self, source: str, page_index: int | None) -> IndexedRow | None:
        """What is known about one row; None if it is not finished."""
        return self._index.find(valid_text(source), page_index)

    def worsened(self, source: str) -> Collection[int | None]:
        """The pages of a document that had a better row before, of an earlier version of the file."""
        return self._index.worsened(valid_text(source))

    def read(self, source: str, page_index: int | None) -> PageResult:
        """A finished row itself. Raises OutputError if its line cannot be read."""
        row = self.find(source, page_index)
        assert row is not None
        with reading(self.path):
            result = read_row(self._file, row)
        if result is None:
            raise OutputError(f"{self.path} is damaged at byte {row.offset}: run again to read that page again")
        return result

    def keep(self) -> None:
        """Do not delete the file on closing: the table is about to be replaced, perhaps by one with fewer rows."""
        self.is_redundant = False

    def remove(self) -> None:
        """Delete the journal: the run is complete and its table in place."""
        with writing(self.path):
            self._unlink()
            self._file.close()

    def close(self) -> None:
        """Sync every row to disk and release the lock. A journal begun here to which nothing was added is deleted: its
        rows are in the table."""
        if self._file.closed:
            return
        with writing(self.path), self._file:
            self._sync()
            if self.is_redundant or os.fstat(self._file.fileno()).st_size == 0:
                self._unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _unlink(self) -> None:
        """Delete the file, unless another one has taken its name."""
        if lies_at(self.path, self._file):
            self.path.unlink(missing_ok=True)

    def _begin(self, rows: Iterable[PageResult]) -> None:
        """Replace the journal with one that holds these rows, whole or not at all."""
        with atomic_file(self.path) as fresh:
            fresh.write(checked_line(metadata_to_json(self.metadata)))
            fresh.writelines(_to_line(JournalEntry(result, size=None, mtime_ns=None)) for result in rows)
        self._file.close()
        self._file = open_locked(self.path)
        self.is_redundant = True

    def _load(self) -> None:
        """Index the lines that are sound, and cut off a torn last one."""
        damaged = []
        self._file.seek(0)
        with open(self._file.fileno(), "rb", closefd=False) as lines:
            for number, line in enumerate(lines, start=1):
                if not line.endswith(b"\n"):
                    break
                if not self._index.take(line) and number > 1:
                    damaged.append(number)
        self._file.truncate(self._index.end)
        if damaged:
            logger.warning(
                "%s is damaged in %s, first in line %d: what is there is read again; check the disk",
                self.path,
                counted(len(damaged), "line"),
                damaged[0],
            )

    def _require_in_place(self) -> None:
        """Raise OutputError if the file is no longer at its path, where it would be found."""
        if not lies_at(self.path, self._file):
            raise OutputError(
                f"{self.path} was removed or replaced while the run was writing it; run again to start over"
            )

    def _sync(self) -> None:
        os.fdatasync(self._file.fileno())
        self._synced_s = time.monotonic()


def _write_whole(file: FileIO, line: bytes) -> None:
    """Write all of it in one call, unless the disk fills up: the second call then raises what the first could not."""
    remaining = memoryview(line)
    while remaining:
        remaining = remaining[file.write(remaining) :]


def _to_line(entry: JournalEntry) -> bytes:
    return checked_line(_ENTRY.dump_json(replace(entry, result=storable(entry.result))))


def read_row(file: FileIO | BinaryIO, row: IndexedRow) -> PageResult | None:
    """The row itself; None if its line is damaged. Raises OSError."""
    line = os.pread(file.fileno(), row.length, row.offset)
    return _ENTRY.validate_json(line).result if is_sound(line) else None
