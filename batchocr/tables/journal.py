"""The checkpoint of a run: a file next to the output with one line per row that this run has read, in order of
completion. It stands over the table that the run continues, whose rows are not in it.

The first line holds the run's metadata and the digest of that table. A line is written in one call, so a run that is
killed leaves at most a torn last line, which the next run cuts off. A failing disk can do more, hence a checksum in
every line. Any other line that is not as it was written counts as not there: its page is read again, and the line stays
where it is. A first line like that stops the next run, which cannot know what the rows depend on.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from functools import lru_cache
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO, Final, Self

from pydantic_core import from_json
from pydantic_core import to_json as to_json_bytes

from batchocr.data import PageResult, counted, valid_text
from batchocr.errors import OutputError, OutputMismatchError
from batchocr.storage.checksums import checked_line, is_sound
from batchocr.tables import jsonl
from batchocr.tables.atomic import atomic_file, lies_at, open_locked, reading, sync, writing
from batchocr.tables.earlier import JournalHeader, header_of_journal, parse_header, require_ours, table_to_continue
from batchocr.tables.files import journal_path
from batchocr.tables.index import IndexedRow, RowIndex
from batchocr.tables.schema import (
    RunMetadata,
    continued,
    from_row,
    require_same_settings,
    require_same_shard,
    to_json,
)
from batchocr.tables.table import StoredTable

_SYNC_INTERVAL_S: Final = 3.0
"""A power loss costs at most the rows of this many seconds."""

logger = logging.getLogger(__name__)


_END_START: Final = b'{"table":'
"""Of the last line of a run that has read everything. It says `table`, the digest of the table that all rows before it
are in, if the run has lived to put it in its place; and `worsened`, by document, how many pages came out worse."""


class Journal:
    """A run's journal, open and locked against a second run, over the table that the run continues. Belongs to one
    thread.

    metadata: of this run together with those whose rows there are. earlier: that table, if there is one.
    """

    def __init__(self, path: Path, file: FileIO, metadata: RunMetadata) -> None:
        self.path = path
        self.metadata = metadata
        self.earlier: StoredTable | None = None
        self.worsened: dict[str, int] = {}
        """By document, how many pages came out worse, for the report: also those of a run that made this table and was
        killed before it."""
        self._file = file
        self._index = RowIndex(lru_cache(1)(lambda source: self.earlier.columns.rows(source) if self.earlier else ()))
        self._is_redundant = False
        """Whether it was begun here and says nothing that is not in the table: `close` would delete it."""
        self._synced_s = time.monotonic()

    @classmethod
    def open(cls, out: Path, metadata: RunMetadata, *, resume: bool, overwrite: bool) -> Journal:
        """Return the journal of the table at `out`: the unfinished one, or a new one that continues the table.

        overwrite: begin one that continues nothing; a table of ours stays until the new one replaces it.
        Raises OutputMismatchError if the journal or the table belongs to other settings or is not ours, or if `resume`
        is False and the journal is unfinished; OutputError if it cannot be written, another run holds it, its first
        line is damaged, or the table is.
        """
        path = journal_path(out)
        with writing(out), ExitStack() as undo:
            journal = undo.enter_context(cls(path, open_locked(path), metadata))
            if overwrite:
                require_ours(out)
                journal._begin()
            elif (header := header_of_journal(out)) is None:
                journal.earlier = table_to_continue(out, metadata)
                journal._begin()
            elif not resume:
                raise OutputMismatchError(
                    f"{path} belongs to a run that is unfinished: leave out --no-resume to continue it, or start over "
                    "with --overwrite"
                )
            else:
                require_same_settings(path, header.metadata, metadata)
                require_same_shard(path, header.metadata, metadata)
                journal.metadata = continued(header.metadata, metadata)
                if out.suffix.lower() == ".jsonl":
                    jsonl.restore_metadata(out, header.metadata, [header.continues, *_ends(out)])
                journal.earlier = _table_continued(out, header)
            journal._load()
            undo.pop_all()
        return journal

    def append(self, row: PageResult) -> None:
        """Write the row at once; `tick` has it synced. Raises OutputError; a write that fails leaves the journal as it
        was."""
        line = checked_line(to_json(row))
        with writing(self.path):
            try:
                _write_whole(self._file, line)
            except OSError:
                self._file.truncate(self._index.end)
                raise
            self._index.take(line)
            self._is_redundant = False

    def tick(self) -> None:
        """Sync the rows to disk, if that was some seconds ago: to be called at least that often. Raises OutputError,
        also if the file was removed or replaced."""
        if time.monotonic() - self._synced_s > _SYNC_INTERVAL_S:
            with writing(self.path):
                self._require_in_place()
                self._sync()

    def rows(self, source: str) -> Sequence[IndexedRow]:
        """What is known about a document's rows, by page; the document as a whole (page_index None) comes first."""
        return self._index.rows(valid_text(source))

    @property
    def has_rows(self) -> bool:
        """Whether there are any, here or in the table."""
        return bool(self._index.sources() or (self.earlier and self.earlier.columns.num_rows))

    def sources(self) -> Collection[str]:
        """Every document that has rows here, and not only in the table."""
        return self._index.sources()

    def source_of(self, doc_id: str) -> str | None:
        """The first document of the table with this content of which there are pages."""
        return self.earlier.columns.source_of(doc_id) if self.earlier else None

    def find(self, source: str, page_index: int | None) -> IndexedRow | None:
        """What is known about one row; None if it is not finished."""
        return self._index.find(valid_text(source), page_index)

    def worse_pages(self, source: str) -> Collection[int | None]:
        """The pages of a document that had a better row before, of an earlier version of the file."""
        return self._index.worsened(valid_text(source))

    def read(self, source: str, page_index: int | None) -> PageResult:
        """A finished row itself. Raises OutputError if it cannot be read."""
        row = self.find(source, page_index)
        assert row is not None
        if not row.length:
            assert self.earlier is not None
            return next(self.earlier.rows(row.offset, row.offset + 1))
        with reading(self.path):
            result = read_row(self._file, row)
        if result is None:
            raise OutputError(f"{self.path} is damaged at byte {row.offset}: run again to read that page again")
        return result

    def end(self, table: str) -> None:
        """Record, before a table takes its place, that all rows are in it: by its digest, the next run knows it, should
        this one be killed before it has deleted the journal. Raises OutputError."""
        with writing(self.path):
            self._is_redundant = False
            _write_whole(self._file, checked_line(to_json_bytes({"table": table, "worsened": self.worsened})))
            self._sync()

    def remove(self) -> None:
        """Delete the journal: the run is complete, its table in place and its report written."""
        with writing(self.path):
            self._unlink()
            self._file.close()

    def close(self) -> None:
        """Sync every row to disk and release the lock. A journal without any is deleted."""
        if self.earlier is not None:
            self.earlier.close()
        if self._file.closed:
            return
        with writing(self.path), self._file:
            self._sync()
            if self._is_redundant or os.fstat(self._file.fileno()).st_size == 0:
                self._unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _unlink(self) -> None:
        """Delete the file, unless another one has taken its name."""
        if lies_at(self.path, self._file):
            self.path.unlink(missing_ok=True)

    def _begin(self) -> None:
        """Replace the journal with one that has only its first line, whole or not at all."""
        if self.earlier is not None:
            self.metadata = continued(self.earlier.metadata, self.metadata)
        with atomic_file(self.path) as fresh:
            fresh.write(JournalHeader(self.metadata, self.earlier.digest if self.earlier else "").to_line())
        self._file.close()
        self._file = open_locked(self.path)
        self._is_redundant = True

    def _load(self) -> None:
        """Index the lines that are sound, and cut off a torn last one."""
        damaged = []
        self._file.seek(0)
        with open(self._file.fileno(), "rb", closefd=False) as lines:
            for number, line in enumerate(lines, start=1):
                if not line.endswith(b"\n"):
                    break
                if self._index.take(line):
                    continue
                if (end := _end_in(line)) is not None:
                    if self.earlier is not None and self.earlier.digest == end["table"]:
                        self._index.forget()
                        self.worsened.update(end["worsened"])
                elif number > 1:
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
        sync(self._file.fileno())
        self._synced_s = time.monotonic()


def _write_whole(file: FileIO, line: bytes) -> None:
    """Write all of it in one call, unless the disk fills up: the second call then raises what the first could not."""
    remaining = memoryview(line)
    while remaining:
        remaining = remaining[file.write(remaining) :]


def read_row(file: FileIO | BinaryIO, row: IndexedRow) -> PageResult | None:
    """The row itself; None if its line is damaged. Raises OSError."""
    line = os.pread(file.fileno(), row.length, row.offset)
    return from_row(from_json(line)) if is_sound(line) else None


def _end_in(line: bytes) -> dict[str, Any] | None:
    """What a line says of the table that was made of those before it; None if it is another line, or damaged."""
    return from_json(line) if line.startswith(_END_START) and is_sound(line) else None


def _ends(out: Path) -> list[str]:
    """The digests of the tables that were made of an unfinished journal; mostly none."""
    with journal_path(out).open("rb") as lines:
        return [end["table"] for line in lines if (end := _end_in(line))]


def unfinished_rows(out: Path) -> Iterator[PageResult]:
    """Yield the rows that are finished: those of the table that the run continues, in its order, with what the run has
    read in their place, then its other documents in the order in which they came first, each in page order.

    The journal may be that of a run at work, which is not held up: what counts is what was in it at first. What is
    damaged or torn is left out, as its page will be read again. Raises OutputError, OutputMismatchError.
    """
    journal = journal_path(out)
    with reading(journal), ExitStack() as closing:
        lines = closing.enter_context(journal.open("rb"))
        header = parse_header(journal, lines.readline())
        earlier = _table_continued(out, header) if header is not None else None
        if earlier is not None:
            closing.callback(earlier.close)
        index = RowIndex(earlier.columns.rows if earlier else lambda source: ())
        index.end = lines.tell()
        for line in lines:
            end = None if index.take(line) else _end_in(line)
            if end and earlier and end["table"] == earlier.digest:
                index.forget()
        in_table = earlier.columns.sources.to_pylist() if earlier else []
        for source in dict.fromkeys([*in_table, *index.sources()]):
            for row in index.rows(source):
                if earlier is not None and not row.length:
                    yield from earlier.rows(row.offset, row.offset + 1)
                elif (result := read_row(lines, row)) is not None:
                    yield result
                else:
                    raise OutputError(f"{journal} was damaged or replaced while it was read: run the command again")


def _table_continued(out: Path, header: JournalHeader) -> StoredTable | None:
    """The table at `out`, if the unfinished run continues one: that one, the one that it has made of it, or one that
    took its place. Raises OutputError, OutputMismatchError."""
    if not header.continues:  # all rows are in the journal, even if they have become a table
        require_ours(out)
        return None
    table = table_to_continue(out, header.metadata)
    if table is None or table.digest not in (header.continues, *_ends(out)):
        logger.warning(
            "%s is not the table that the unfinished run continued, which was %s: what only that one had is read again",
            out,
            "deleted" if table is None else "replaced",
        )
    return table
