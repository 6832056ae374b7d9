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
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO, Final, Self

from pydantic_core import from_json
from pydantic_core import to_json as to_json_bytes

from batchocr.data import Document, PageResult, counted, valid_text
from batchocr.errors import OutputError, OutputMismatchError
from batchocr.storage.checksums import checked_line, is_sound
from batchocr.tables import parts
from batchocr.tables.atomic import atomic_file, lies_at, open_locked, reading, sync, writing
from batchocr.tables.earlier import (
    JournalHeader,
    header_of_journal,
    parse_header,
    require_ours,
    table_to_continue,
)
from batchocr.tables.files import is_folder, journal_path
from batchocr.tables.known import KnownRow, KnownRows, Overlay, Version, version_of
from batchocr.tables.layout import items_at, tag_of
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
"""The seconds between two syncs: a power loss costs at most the rows of that time."""
_END_START: Final = b'{"table":'
"""The start of the last line of a run that has read everything. It says `table`, the digest of the table that all rows
before it are in, if the run has lived to put it in its place; and `worsened`, by document, how many pages came out
worse."""

logger = logging.getLogger(__name__)


class Journal:
    """A run's journal, open and locked against a second run, over the table that the run continues. Belongs to one
    thread.

    metadata: of this run together with those whose rows there are. earlier: that table, if there is one.
    """

    def __init__(self, path: Path, file: FileIO, metadata: RunMetadata, documents: Iterable[Document] = ()) -> None:
        self.path = path
        self.metadata = metadata
        self.own = metadata
        """The metadata of this run alone."""
        self.earlier: StoredTable | None = None
        self.worsened: dict[str, int] = {}
        """How many pages came out worse, by document, for the report: also those of a run that made this table and was
        killed before it wrote that."""
        self._file = file
        self._documents, self._continues = documents, ""
        self.num_known = 0
        """The rows of that table, and of the items that were there at first."""
        self._overwrites = ""
        """The tag of the table that is not continued."""
        self._open_earlier: Callable[[RunMetadata, Sequence[str]], StoredTable | None]
        """A function that opens the earlier table, for a run of this metadata, with these items behind it."""
        self.known = Overlay(KnownRows())
        """What is known of the rows, here and in that table."""
        self._is_redundant = False
        """Whether the journal was begun here and says nothing that is not in the table: `close` would delete it."""
        self._synced_s = time.monotonic()

    @classmethod
    def open(
        cls,
        out: Path,
        metadata: RunMetadata,
        *,
        resume: bool,
        overwrite: bool,
        table: Path | None = None,
        there: str = "",
        items: Sequence[str] = (),
        documents: Iterable[Document] = (),
    ) -> Journal:
        """Return the journal of the table at `out`: the unfinished one, or a new one that continues the table.

        overwrite: begin one that continues nothing; a table of ours stays until the new one replaces it. table: where
        the table is that there is, if it is elsewhere; there: its tag; items: what actors have read since, by their
        names there. documents: what is to be read; an unfinished journal may have rows of earlier versions of them
        than the table.
        Raises OutputMismatchError if the journal or the table belongs to other settings or is not ours, or if `resume`
        is False and the journal is unfinished; OutputError if it cannot be written, another run holds it, its first
        line is damaged, or the table is.
        """
        path, table = journal_path(out), table or out
        with writing(out), ExitStack() as undo:
            if is_folder(out):
                path.parent.mkdir(exist_ok=True)
            journal = undo.enter_context(cls(path, open_locked(path), metadata, documents))
            header = None if overwrite else header_of_journal(out)
            if not resume and (header is not None or items):
                raise OutputMismatchError(
                    f"{path} belongs to a run that is unfinished: leave out --no-resume to continue it, or start over "
                    "with --overwrite"
                )
            if overwrite:
                require_ours(out)
                journal._open_earlier = lambda _, items: parts.open_items(table, items)
            elif header is None:
                journal._open_earlier = lambda own, items: table_to_continue(table, own, items)
            else:
                require_same_settings(path, header.metadata, metadata)
                require_same_shard(path, header.metadata, metadata)
                journal.metadata = continued(header.metadata, metadata)
                journal._open_earlier = lambda _, items: _table_continued(table, header, there, items)
            journal.earlier = journal._open_earlier(metadata, () if overwrite else items)
            journal._overwrites = there if overwrite else ""
            if header is None and metadata.settings_fingerprint:
                journal._begin()
            journal._is_redundant &= not items
            journal._load(header.continues if header else journal.earlier.digest if journal.earlier else "")
            journal.num_known = journal.known.table.num_rows
            undo.pop_all()
        return journal

    def begin(self, metadata: RunMetadata) -> None:
        """Write what the rows depend on, if that was not known when the journal was opened. Raises OutputError."""
        if not self.own.settings_fingerprint:
            self.own = replace(metadata, input_roots=self.own.input_roots, selection=self.own.selection)
            self.metadata = self.own
            with writing(self.path):
                self._begin()

    def keep(self) -> None:
        """Have `close` leave the journal, as there are items that belong to it."""
        self._is_redundant = False

    def take_in(self, items: Sequence[str]) -> None:
        """Take what actors have read: the items that were there, and those that have come. Raises OutputError."""
        if self.earlier is not None:
            self.earlier.close()
        self.earlier = self._open_earlier(self.metadata, items)
        self._load(self._continues)
        self.known.put_again(self.num_known)

    @property
    def num_before(self) -> int:
        """How many rows the table has that the run continues, without what actors have read since."""
        earlier = self.earlier
        return earlier.num_rows_in_parts if isinstance(earlier, parts.PartsTable) else self.known.table.num_rows

    def append(self, row: PageResult) -> None:
        """Write the row at once; `tick` has it synced. Raises OutputError; a write that fails leaves the journal as it
        was."""
        line = checked_line(to_json(row))
        with writing(self.path):
            try:
                _write_whole(self._file, line)
            except OSError:
                self._file.truncate(self.known.end)
                raise
            self.known.take(line)
            self._is_redundant = False

    def tick(self) -> None:
        """Sync the rows to disk, if that was some seconds ago: to be called at least that often. Raises OutputError,
        also if the file was removed or replaced."""
        if time.monotonic() - self._synced_s > _SYNC_INTERVAL_S:
            with writing(self.path):
                self._require_in_place()
                self._sync()

    def read(self, source: str, page_index: int | None) -> PageResult:
        """A finished row itself. Raises OutputError if it cannot be read."""
        row = self.known.find(source, page_index)
        assert row is not None
        return _read(row, self.path, self._file, self.earlier)

    def end(self, table: str) -> None:
        """Record, before a table takes its place, that all rows are in it, by its digest: the next run knows it by
        that, should this one be killed before it has deleted the journal. Raises OutputError."""
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
        """Delete the journal's file, unless another one has taken its name."""
        if lies_at(self.path, self._file):
            self.path.unlink(missing_ok=True)

    def _begin(self) -> None:
        """Replace the journal with one that has only its first line, whole or not at all."""
        if self.earlier is not None:
            self.metadata = continued(self.earlier.metadata, self.metadata)
        continues = self.earlier.digest if self.earlier else ""
        with atomic_file(self.path) as fresh:
            fresh.write(JournalHeader(self.metadata, continues, self._overwrites).to_line())
        self._file.close()
        self._file = open_locked(self.path)
        self._is_redundant = True

    def _load(self, continues: str) -> None:
        """Take the lines that are sound, and cut off a torn last one. continues: the digest of the table that the run
        began with."""
        self._continues = continues
        damaged, table = [], self.earlier.digest if self.earlier else ""
        is_known = table in ("", continues)
        self.known = Overlay(self.earlier.columns if self.earlier is not None else KnownRows())
        self._file.seek(0)
        with open(self._file.fileno(), "rb", closefd=False) as lines:
            for number, line in enumerate(lines, start=1):
                if not line.endswith(b"\n"):
                    break
                if self.known.take(line):
                    continue
                if (end := _end_in(line)) is not None:
                    if end["table"] == table:
                        is_known = True
                        self.known.forget()
                        self.worsened.update(end["worsened"])
                elif number > 1:
                    damaged.append(number)
        self._file.truncate(self.known.end)
        if not is_known:  # another run's
            self.known.drop_outdated(_versions_now(self._documents, self.known.sources()).__getitem__)
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
    """Write all of the line in one call, unless the disk fills up: the second call then raises what the first could
    not."""
    remaining = memoryview(line)
    while remaining:
        remaining = remaining[file.write(remaining) :]


def _read(row: KnownRow, journal: Path, file: FileIO | BinaryIO, earlier: StoredTable | None) -> PageResult:
    """The row itself, from the table or from the journal, which is open. Raises OutputError if it cannot be read."""
    if earlier is not None and row.place >= 0:
        return next(earlier.rows(row.place, row.place + 1))
    with reading(journal), open(file.fileno(), "rb", closefd=False) as lines:
        lines.seek(-1 - row.place)
        line = lines.readline()
    if not is_sound(line):
        raise OutputError(f"{journal} is damaged at byte {-1 - row.place}: run again to read that page again")
    return from_row(from_json(line))


def _end_in(line: bytes) -> dict[str, Any] | None:
    """What a line says of the table that was made of those before it; None if it is another line, or damaged."""
    return from_json(line) if line.startswith(_END_START) and is_sound(line) else None


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
        earlier = _table_continued(out, header, tag_of(out), items_at(out)) if header is not None else None
        if earlier is not None:
            closing.callback(earlier.close)
        known = Overlay(earlier.columns if earlier else KnownRows(), end=lines.tell())
        for line in lines:
            end = None if known.take(line) else _end_in(line)
            if end and earlier and end["table"] == earlier.digest:
                known.forget()
        if header is not None and earlier is not None and earlier.digest != header.continues:
            known.drop_outdated(lambda source: (None, None))
        for source in dict.fromkeys([*known.table.sources.to_pylist(), *known.sources()]):
            yield from (_read(row, journal, lines, earlier) for row in known.rows(source))


def _table_continued(out: Path, header: JournalHeader, there: str, items: Sequence[str] = ()) -> StoredTable | None:
    """The table at `out`, whose rows count unless they were to be overwritten, with items behind it. there: its tag.
    Raises OutputError, OutputMismatchError."""
    if not header.continues and (header.overwrites is None or header.overwrites == there != ""):
        require_ours(out)
        return parts.open_items(out, items)
    table = table_to_continue(out, header.metadata, items)
    if table is None and header.continues:
        logger.warning("%s was deleted since the unfinished run began: what only that had is read again", out)
    return table


def _versions_now(documents: Iterable[Document], sources: Collection[str]) -> dict[str, Version]:
    """The size and time of the files of these documents, by `source`; None of those that are not there."""
    named = ((valid_text(document.source), document) for document in documents)
    found = {source: version_of(document) for source, document in named if source in sources}
    return dict.fromkeys(sources, (None, None)) | found
