"""Where a run or a merge puts its table: the one writer of tables.

A table is replaced in three steps. The parts that change are put under staged names, at which nobody looks. Then the
record takes the place of the one that was there when the run began: from now on, and for everybody at once, the table
is the new one. At last the parts get their own names, for other programs. Whoever is killed before the second step has
changed nothing; what is left to be done after it, the next command does. A file of Parquet on a disk, which has its
record in itself, needs one step.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from batchocr.errors import OutputError, StaleError
from batchocr.tables import jsonl, parquet, parts
from batchocr.tables.atomic import (
    atomic_file,
    lies_at,
    open_locked,
    remove_leftovers,
    require_writable,
    sync,
    writing,
)
from batchocr.tables.files import (
    EARLIER_NAMES,
    OWN_FOLDER,
    files_of,
    is_folder,
    journal_path,
    report_path,
    temporary_path,
)
from batchocr.tables.known import Row
from batchocr.tables.layout import layout_of, tag_of
from batchocr.tables.parts import part_names
from batchocr.tables.place import DiskPlace, Place, replaced_meanwhile, require_own
from batchocr.tables.record import Commit, Part, Record, parse_record
from batchocr.tables.schema import RunMetadata
from batchocr.tables.table import StoredTable, table_for


class Output:
    """The place of a table on a disk: a file, or a folder of parts."""

    def __init__(self, path: Path, name: str | None = None, place: Place | None = None) -> None:
        """name: what users call the table, and place: where it is, if it is not at `path`. Raises UsageError."""
        table_for(path)
        self._folder, self._layout = layout_of(path)
        self.path = path
        """Where the journal and the report are made: beside the table, unless that is in a store."""
        self.name = name or str(path)
        self.run = secrets.token_hex(8)
        """The name by which this run knows the table that it has made."""
        self.table = path
        """Where the table is that a run continues: copies, if it is in a store."""
        self._place: Place = place or DiskPlace(self._folder)
        self._is_own_record = not is_folder(path) and place is None and path.suffix.lower() == ".parquet"
        self._keeps_staged = place is not None
        """Whether what is staged stays until the next commit: another run, which nothing keeps out, may still give an
        older file its name, before this one has ended."""
        self._work_folder = self._folder / OWN_FOLDER if is_folder(path) else self._folder
        """Where parts are made."""
        self.tag = ""
        """The tag of the version of the record that is to be replaced, or of the file that has a record in itself;
        empty if there is none."""
        self._there = Commit()
        """The commit that brought the table that is there, with its parts."""
        self._is_announced = False
        self.items: Sequence[str] = ()
        """What actors have read for a run that was killed, by its names where the table is; known once the output is
        prepared."""

    def prepare(self, *, overwrite: bool = False) -> None:
        """Find out what there is, to be continued, or overwritten; `close` it after this. Raises OutputError."""
        if is_folder(self.path):
            parts.require_ours(self.path)
            with writing(self.path):
                require_own(self.path)
                (self.path / OWN_FOLDER).mkdir(exist_ok=True)
        else:
            require_writable(self.path)
            if not self._is_own_record:
                require_writable(self._folder / self._layout.staged("", Part(0, "0" * 16, 0)))
        self.tag, self._there = self._seen()
        self.take_in([] if overwrite else self._items_there())

    def _items_there(self) -> Sequence[str]:
        """The items that no commit has taken in, or might have."""
        names = self._layout.items(self._place.names(self._layout.staging)) if not self._layout.table else []
        return [name for name in names if self._layout.generation_of(name) > self._there.generation]

    def take_in(self, items: Sequence[str]) -> None:
        """Take in what actors have read, by its names where the table is. Raises OutputError."""
        self.items = [*self.items, *items]

    @property
    def next_generation(self) -> int:
        """The generation of the table that this run makes."""
        return self._there.generation + 1

    def begin(self) -> None:
        """Take note of the table that is there, which alone will be replaced, once other runs are locked out. Raises
        OutputError."""
        self._clear()
        self.tag, self._there = self._seen()

    def start_over(self) -> None:
        """Remove what actors have read for earlier runs, as this one overwrites the table. Raises OutputError."""
        for item in self._items_there():
            self._place.remove(item)

    def announce(self) -> None:
        """Say that the table is made here, by which other machines know the place until it is closed. Raises
        OutputError."""
        there = self._place.get(self._layout.writer)
        self._place.swap(self._layout.writer, b"", there[1] if there else None)
        self._is_announced = True

    def unreported(self, of_journal: Mapping[str, int]) -> Mapping[str, int]:
        """What no run has reported yet of the table that is there (see `Commit.worse`). of_journal: what this run's
        journal says of it, which is all that is known on a disk. Raises OutputError."""
        return of_journal

    def _clear(self) -> None:
        """Remove what killed runs were making, in a folder that is for this output alone."""
        if self._work_folder != self._folder:
            for file in self._work_folder.rglob("*.tmp"):
                file.unlink(missing_ok=True)

    def put_report(self, report: Path | None) -> None:
        """Put the report where the table is; None if there is none, and that of an earlier run goes. Raises
        OutputError."""
        if report is None:
            with writing(report_path(self.path)):
                report_path(self.path).unlink(missing_ok=True)

    def close(self) -> None:
        """Say that this run has ended."""
        with suppress(OutputError):
            if self._is_announced:
                self._place.remove(self._layout.writer)

    def own(self) -> Container[str]:
        """The URIs of what an earlier run has put; known once the output is prepared."""
        return ()

    @property
    def lacks_record(self) -> bool:
        """Whether the table is a folder whose parts are not recorded, as earlier versions left it."""
        return not self._layout.table and not self.tag

    def num_bytes(self) -> int:
        """The size in bytes of the table that is there."""
        return (
            self.path.stat().st_size if self._is_own_record else sum(each.bytes for each in self._there.parts.values())
        )

    def _seen(self) -> tuple[str, Commit]:
        """The tag of what is there, and what brought it."""
        if self._is_own_record or (found := self._place.get(self._layout.record)) is None:
            return tag_of(self.path) if self._is_own_record else "", Commit()
        with suppress(OutputError):  # a damaged one is replaced, too, if that is asked for
            if (record := parse_record(found[0], self.path, self._layout.table)) is not None:
                return found[1], record.commit
        return found[1], Commit()

    def settle(self, table: StoredTable | None) -> None:
        """Finish what a run that was killed after its commit has left. table: the one that is there. Raises
        OutputError."""
        if isinstance(table, parts.PartsTable | jsonl.JsonLinesTable):
            self._finish(table.displaced)

    def commit(
        self,
        rows: Iterable[Row],
        metadata: RunMetadata,
        *,
        rows_per_part: int,
        earlier: parquet.Earlier | None = None,
        worse: Mapping[str, int] | None = None,
        written: Callable[[str], None] = lambda digest: None,
    ) -> None:
        """Put the table of these rows in place of the one that was there. earlier: the table of which rows are kept.
        worse: as in Commit. written: called with the digest of the table just before it takes its place. Raises
        StaleError if another one is there now, OutputError."""
        commit = Commit(
            generation=self.next_generation, run=self.run, worse=worse if worse and self._keeps_staged else {}
        )
        if self._is_own_record:
            with atomic_file(self.path) as file:
                written(parquet.write_into(file, rows, metadata, earlier))
                if self._seen()[0] != self.tag:
                    raise StaleError(replaced_meanwhile(self.name))
            return
        made = {
            name: self._stage(name, of_part, metadata, earlier, commit)
            for name, of_part in self._changed(rows, earlier, rows_per_part)
        }
        kept = earlier.parts if isinstance(earlier, parts.PartsTable) else {}
        after = dict(sorted({**kept, **made}.items()))
        removed = tuple(name for name in self._parts_there() if name not in after)
        before, commit = self._there, replace(commit, parts=after, removed=removed)
        record = Record(metadata, commit)
        written(record.digest)
        self._swap(record)
        self._finish(made, before)
        for item in earlier.items if isinstance(earlier, parts.PartsTable) else ():
            self._place.remove(item)

    def _changed(self, rows: Iterable[Row], earlier: Any, rows_per_part: int) -> Iterable[tuple[str, Iterable[Row]]]:
        """The files that are written, each with its rows, to be taken before the next one."""
        if self._layout.table:
            return [(self._layout.table, rows)]
        if isinstance(earlier, parts.PartsTable) and earlier.parts:
            return parts.changed(rows, earlier, rows_per_part)
        return parts.divided(rows, earlier, rows_per_part)

    def _parts_there(self) -> Iterable[str]:
        """The parts of the table that is there, recorded or not, and of the table before it."""
        return part_names(self.path) if is_folder(self.path) else ()

    def _stage(self, name: str, rows: Iterable[Row], metadata: RunMetadata, earlier: Any, commit: Commit) -> Part:
        """Put a part under its staged name."""
        temporary = temporary_path(self._work_folder / name)
        with writing(self.path):
            try:
                with open(temporary, "x+b") as file:
                    with suppress(OSError):  # who may read the part that it replaces may read this one
                        os.fchmod(file.fileno(), stat.S_IMODE(os.stat(self._folder / name).st_mode))
                    if name.lower().endswith(".jsonl"):
                        digest = jsonl.write_into(file, rows, earlier)
                    else:
                        digest = parquet.write_into(file, rows, metadata, earlier)
                    file.flush()
                    sync(file.fileno())
                    part = Part(os.fstat(file.fileno()).st_size, digest, commit.generation)
                self._place.put(temporary, self._layout.staged(name, part))
            finally:
                temporary.unlink(missing_ok=True)
        return part

    def _swap(self, record: Record) -> None:
        """Replace the record. If another one is there, it may be this one, as the answer of a store can be lost."""
        try:
            self.tag = self._place.swap(self._layout.record, record.to_line(), self.tag or None)
        except StaleError:
            self.tag, there = self._seen()
            if there.run != record.commit.run:
                raise
        self._there = record.commit

    def _finish(self, staged: Iterable[str], before: Commit | None = None) -> None:
        """Do what is left to be done after the commit: give these parts their own names, and remove what is none of the
        table. before: the commit before that one."""
        commit, layout = self._there, self._layout
        for name in commit.removed:
            self._place.remove(name)
        try:
            for name in staged:
                self._place.copy(layout.staged(name, commit.parts[name]), name)
        except OutputError:
            if self._seen()[1] == commit:
                raise
            return  # another run has replaced the table since, and done what was left
        done = commit.generation - self._keeps_staged
        if layout.table and self._keeps_staged:
            of_both = [*(before.parts.items() if before else ()), *commit.parts.items()]
            old = [layout.staged(name, part) for name, part in of_both if part.made <= done]
        else:
            old = [name for name in self._place.names(layout.staging) if 0 < layout.generation_of(name) <= done]
            if before is not None and not before.generation:
                is_adopted = any((self.table / name).exists() for name in ("table.json", "run.json"))
                old += EARLIER_NAMES if is_adopted else ()
        for name in old:
            self._place.remove(name)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep runs out of the output, which has no journal of one. Raises OutputError if one is at work."""
        journal = journal_path(self.path)
        with writing(journal), open_locked(journal) as file:
            self.begin()
            remove_leftovers(files_of(self.path, report_path(self.path)))
            try:
                yield
            finally:
                if lies_at(journal, file) and not os.fstat(file.fileno()).st_size:
                    journal.unlink()
