"""The table as a folder of Parquet files, for what one file should not hold: a run replaces the parts that change.

A document is in one part, whole, and stays there; new ones fill the last part, then new ones. The record in the hidden
folder names the parts. Each is a table of its own for every other program, and is replaced in its place, so that nobody
sees an old and a new one beside each other.
"""

from __future__ import annotations

import os
import secrets
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import cached_property, partial
from itertools import accumulate, chain, count, groupby
from operator import attrgetter, itemgetter
from pathlib import Path

import pyarrow as pa

from batchocr.data import PageResult
from batchocr.errors import OutputError, OutputMismatchError
from batchocr.machine import allow_open_files
from batchocr.tables import parquet
from batchocr.tables.atomic import reading
from batchocr.tables.files import (
    CLUSTER_PLAN_NAME,
    EARLIER_NAMES,
    OWN_FOLDER,
    final_name,
    how_to_restore,
    is_cluster_part,
)
from batchocr.tables.known import Kept, KnownRows, Row
from batchocr.tables.layout import Layout, open_recorded, read_record
from batchocr.tables.record import MAX_RECORD_BYTES, Part, Record, digest_of, parse_record
from batchocr.tables.schema import RunMetadata

_MOST_HELD = 4096
"""Parts that stay open, so that what is read is what was there first, whatever takes their places."""
_OTHER_FILES = 256
"""More than is open beside them."""


def divided(
    rows: Iterable[Row], earlier: parquet.Earlier | None, rows_per_part: int
) -> Iterator[tuple[str, Iterable[Row]]]:
    """Yield the parts of a new table: the name of each, and its rows, to be taken before the next one. earlier: of what
    they are all kept, if they are. rows_per_part: the most; a part has more only if its one document has."""
    numbered = groupby(_numbered(_documents(rows, earlier), rows_per_part, rows_per_part), key=itemgetter(0))
    filled: Iterator[Iterable[Row]] = (map(itemgetter(1), of_part) for _, of_part in numbered)
    return zip(_names([]), chain([next(filled, ())], filled), strict=False)


def _documents(rows: Iterable[Row], earlier: parquet.Earlier | None = None) -> Iterator[Sequence[Row]]:
    """Yield the rows of each document; with an earlier table, all of them are kept."""
    if earlier is None:
        yield from ([*of_document] for _, of_document in groupby(rows, key=attrgetter("source")))
        return
    for kept in rows:
        assert isinstance(kept, Kept)
        start = kept.start
        while start < kept.stop:
            stop = earlier.columns.begin_of_document(start + 1)
            yield [Kept(start, stop)]
            start = stop


def _numbered(documents: Iterable[Sequence[Row]], rows_per_part: int, room: int) -> Iterator[tuple[int, Row]]:
    """Yield the rows, each with the number of its part. room: for how many rows there is some in part 0, which gets
    none if its first document does not fit."""
    part, left = 0, room
    for document in documents:
        num_rows = sum(row.stop - row.start if isinstance(row, Kept) else 1 for row in document)
        if num_rows > left and left < rows_per_part:
            part, left = part + 1, rows_per_part
        left -= num_rows
        yield from ((part, row) for row in document)


def changed(rows: Iterable[Row], earlier: PartsTable, rows_per_part: int) -> Iterator[tuple[str, Sequence[Row]]]:
    """Yield each part of a table that changes: its name and its rows, in the order of all rows; none if it goes. If one
    changes, all do that lack columns of this version."""
    names = [*earlier.digests]
    parts: defaultdict[int, list[tuple[int, Row]]] = defaultdict(list, {part: [] for part in range(len(names))})
    orders: dict[tuple[str, int | None], int] = {}
    new: list[Row] = []
    for order, row in enumerate(rows):
        if isinstance(row, Kept):
            for part, start, stop in earlier.divided(row.start, row.stop):
                parts[part].append((order, Kept(start, stop)))
        elif (document := earlier.columns.document_of(row.source)) is not None:
            parts[earlier.part_of(int(earlier.columns.first[document]))].append((order, row))
        else:
            orders[row.source, row.page_index] = order
            new.append(row)
    last = max(0, len(names) - 1)
    room = rows_per_part - sum(row.stop - row.start if isinstance(row, Kept) else 1 for _, row in parts[last])
    for part, row in _numbered(_documents(new), rows_per_part, room):
        assert not isinstance(row, Kept)
        parts[last + part].append((orders[row.source, row.page_index], row))
    for (part, numbered), name in zip(sorted(parts.items()), _names(names), strict=False):
        of_part = [row for _, row in sorted(numbered, key=itemgetter(0))]
        if not earlier.is_part(part, of_part) or not earlier.has_all_columns(part):
            yield name, of_part


def part_names(folder: Path) -> list[str]:
    """The parts in a folder, in order."""
    return sorted(name for name in _names_in(folder) if is_cluster_part(name) and final_name(name) == name)


def _names_in(folder: Path) -> set[str]:
    """What is in a folder and not hidden. Raises OutputError."""
    with reading(folder):
        return {path.name for path in folder.iterdir() if not path.name.startswith(".")}


def _names(before: Sequence[str]) -> Iterator[str]:
    """Yield the names of the parts that there are, then new ones."""
    following = int(before[-1][5:].partition("-")[0]) + 1 if before else 0
    new = (f"part-{number:06}-{secrets.token_hex(8)}.parquet" for number in count(following))
    return chain(before, new)


def has_table(folder: Path) -> bool:
    """Whether there is a table in a folder: its record, what stood for one in the version before, or parts alone."""
    return any((folder / name).exists() for name in (Layout().record, "table.json")) or bool(_unrecorded(folder))


def read_metadata(folder: Path) -> RunMetadata | None:
    """What the rows depend on; None if there is no table of ours. Raises OutputError if its record is damaged."""
    record = read_record(folder) or _without_parts(folder)
    return record.metadata if record else None


def _without_parts(folder: Path) -> Record | None:
    """What there is in place of a record, which names no parts: that of the version before, or what a part says."""
    path = folder / "table.json"
    if path.is_file():
        with reading(path), path.open("rb") as file:
            return parse_record(file.readline(MAX_RECORD_BYTES), path)
    of_parts = (parquet.read_metadata(folder / name) for name in reversed(_unrecorded(folder)))
    metadata = next(filter(None, of_parts), None)
    return Record(replace(metadata, containers={}, newest=())) if metadata else None


def _unrecorded(folder: Path) -> list[str]:
    """The parts in a folder, unless they are those of a run on a cluster, whose plan names them."""
    return [] if (folder / CLUSTER_PLAN_NAME).exists() else part_names(folder)


def open_table(folder: Path) -> PartsTable | None:
    """A table of ours; None if there is none. Raises OutputError if a part is damaged, or is not what the record says,
    or if there is another one."""
    table = open_recorded(folder, partial(PartsTable, folder))
    if table is None and (record := _without_parts(folder)):
        table = PartsTable(folder, record)
        if (folder / Layout().record).exists():  # the first commit has come meanwhile
            table.close()
            return open_table(folder)
    return table


def read_rows(folder: Path) -> Iterator[PageResult]:
    """Yield all rows, part by part. Raises OutputError."""
    if (table := open_table(folder)) is None:
        raise OutputError(f"{folder} has no record of its parts")
    with closing(table):
        yield from table.rows(0, table.num_rows)


def require_ours(folder: Path, name: str = "") -> None:
    """Raise OutputMismatchError if the folder holds tables that no run into it has put there, as those of shards or of
    a cluster; or any other files, if no run has begun there. name: of what the folder is a copy."""
    files = _names_in(folder)
    is_of_cluster = CLUSTER_PLAN_NAME in files
    ours = {
        name for name in files if (is_cluster_part(name) and not is_of_cluster) or final_name(name) in EARLIER_NAMES
    }
    is_begun = (has_table(folder) or (folder / OWN_FOLDER).exists()) and not is_of_cluster
    others = {name for name in files - ours if not is_begun or name.endswith((".parquet", ".jsonl"))}
    if others:
        raise OutputMismatchError(
            f"{name or folder} holds {min(others)}, which is not of a run into this folder: name another folder as "
            "--out, or a table in it"
        )


class PartsTable:
    """The parts of a table, as one commit left them. If there are very many, those of the last are opened when they are
    read; one that was replaced since is refused, by an OutputError like one that is damaged."""

    def __init__(self, folder: Path, record: Record) -> None:
        """Raises OutputError."""
        self.metadata = record.metadata
        self._commit = record.commit
        self.is_recorded = bool(record.commit.parts)
        """Whether its record names the parts."""
        self._folder = folder
        self.digests: dict[str, str] = {}
        """Of each part, by its name."""
        self.displaced: list[str] = []
        """The parts that have not taken their own names yet."""
        self._paths: dict[str, Path] = {}
        self._held: dict[str, int] = {}
        """Descriptors of parts, by name."""
        self.parts = dict(record.commit.parts)
        """Recorded or not."""
        self._has_all_columns: list[bool] = []
        self._last: tuple[str, parquet.ParquetTable] | None = None
        self._require_no_others()
        names = [*record.commit.parts] or part_names(folder)
        most_held = min(_MOST_HELD, allow_open_files(_OTHER_FILES + min(len(names), _MOST_HELD)) - _OTHER_FILES)
        lengths = []
        with ExitStack() as undo:
            undo.callback(self.close)
            for name in names:
                with closing(self._found(name)) as part:
                    self.digests[name] = part.digest
                    self._has_all_columns.append(part.has_all_columns)
                    lengths.append(part.num_rows)
                    if name not in self.parts:
                        self.parts[name] = Part(self._paths[name].stat().st_size, part.digest, 0)
                    if len(self._held) < most_held and (held := part.held()) is not None:
                        self._held[name] = held
            undo.pop_all()
        self._starts = [0, *accumulate(lengths)]
        self.digest = digest_of(self.digests)
        """By which a run knows the table again."""

    def close(self) -> None:
        """Close the parts."""
        if self._last is not None:
            self._last[1].close()
        while self._held:
            os.close(self._held.popitem()[1])

    @property
    def num_rows(self) -> int:
        """How many rows the table has."""
        return self._starts[-1]

    @cached_property
    def columns(self) -> KnownRows:
        """The rows without their text."""
        return KnownRows(self.looked_at())

    def looked_at(self) -> Iterator[pa.Table]:
        """Yield all rows, with the columns that are looked at."""
        for name in self.digests:
            with closing(self._opened(name)) as part:
                yield from part.looked_at()

    def rows(self, start: int, stop: int) -> Iterator[PageResult]:
        """Yield these rows, in order."""
        for part, begin, end in self._within(start, stop):
            yield from part.rows(begin, end)

    def kept(self, rows: Kept) -> pa.Table:
        """These rows, with the columns of this version."""
        within = self._within(rows.start, rows.stop)
        return pa.concat_tables(part.kept(Kept(begin, end)) for part, begin, end in within)

    def divided(self, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
        """The rows by parts: the number of each part, its first row of these, and the one after its last."""
        while start < stop:
            part = self.part_of(start)
            end = min(stop, self._starts[part + 1])
            yield part, start, end
            start = end

    def part_of(self, row: int) -> int:
        """The number of the part in which a row is."""
        return bisect_right(self._starts, row) - 1

    def is_part(self, part: int, rows: Sequence[Row]) -> bool:
        """Whether these are all rows of a part, in order."""
        if part >= len(self.digests):
            return False
        kept = [row for row in rows if isinstance(row, Kept)]
        begins, ends = [row.start for row in kept], [row.stop for row in kept]
        return len(kept) == len(rows) and [self._starts[part], *ends] == [*begins, self._starts[part + 1]]

    def has_all_columns(self, part: int) -> bool:
        """Whether a part has the columns of this version."""
        return self._has_all_columns[part]

    def _within(self, start: int, stop: int) -> Iterator[tuple[parquet.ParquetTable, int, int]]:
        """The rows by parts: each part, open, and where in it they begin and end."""
        for part, begin, end in self.divided(start, stop):
            yield self._part(part), begin - self._starts[part], end - self._starts[part]

    def _part(self, number: int) -> parquet.ParquetTable:
        """A part, open. The last one stays so for the next call."""
        name = [*self.digests][number]
        if self._last is None or self._last[0] != name:
            if self._last is not None:
                self._last[1].close()
            self._last = name, self._opened(name)
        return self._last[1]

    def _opened(self, name: str) -> parquet.ParquetTable:
        part = parquet.open_table(self._paths[name], held=self._held.get(name))
        if part is None or part.digest != self.digests[name]:
            raise OutputError(f"{self._paths[name]} was replaced while the table was read: run the command again")
        return part

    def _found(self, name: str) -> parquet.ParquetTable:
        """A part, open, as the record says, or as it is if that names none. Raises OutputError."""
        recorded = self._commit.parts.get(name)
        places = Layout().places(name, self._commit) if recorded else (name,)
        for place in places:
            path = self._folder / place
            part = parquet.open_table(path) if path.is_file() else None
            if part is not None and recorded is not None and part.digest != recorded.sha256:
                part.close()
            elif part is not None:
                self._paths[name] = path
                self.displaced += [name] if place != name else []
                return part
        path = self._folder / name
        what = "is not the part that the table's record names" if path.exists() else "is not there any more"
        raise OutputError(f"{path} {what}: {how_to_restore(path)}")

    def _require_no_others(self) -> None:
        """Raise OutputError if the folder holds tables of which the record does not know."""
        if not self.is_recorded:
            return
        tables = {name for name in _names_in(self._folder) if name.endswith((".parquet", ".jsonl"))}
        if others := tables - self._commit.parts.keys() - set(self._commit.removed):
            raise OutputError(
                f"{self._folder / min(others)} is no part of the table in this folder, and other programs would take "
                "it for one: move it elsewhere"
            )
