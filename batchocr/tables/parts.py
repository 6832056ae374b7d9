"""The table as a folder of Parquet files, for what one file should not hold: a run replaces the parts that change.

A document is in one part, whole, and stays there; new ones fill the last part, then new ones. The record in the hidden
folder names the parts. Each is a table of its own for every other program, and is replaced in its place, so that nobody
sees an old and a new one beside each other. A part that has lost all its rows stays, without any.
"""

from __future__ import annotations

import logging
import os
import secrets
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import cached_property
from itertools import accumulate, chain, count, groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa

from batchocr.data import PageResult
from batchocr.errors import OutputError, OutputMismatchError
from batchocr.machine import allow_open_files
from batchocr.tables import parquet
from batchocr.tables.atomic import reading
from batchocr.tables.files import (
    EARLIER_JOURNAL,
    EARLIER_NAMES,
    OWN_FOLDER,
    final_name,
    how_to_restore,
    is_part_name,
)
from batchocr.tables.known import Kept, KnownRows, Row
from batchocr.tables.layout import Layout, open_recorded, read_record
from batchocr.tables.record import MAX_RECORD_BYTES, Part, Record, digest_of, parse_record
from batchocr.tables.schema import RunMetadata

logger = logging.getLogger(__name__)

_MOST_HELD = 4096
"""The most parts that stay open, so that what is read is what was there first, whatever takes their places."""
_OTHER_FILES = 256
"""How many files are open at most beside the parts."""


_Numbered = tuple[int, Row]
"""A row, or several that are kept, and their place among all."""


def divided(rows: Iterable[Row], earlier: Any, rows_per_part: int) -> Iterator[tuple[str, Iterable[Row]]]:
    """Yield the parts of a new table: the name of each, and its rows, to be taken before the next one. earlier: the
    table of which rows are kept. rows_per_part: the most; a part has more only if its one document has."""
    filled = (of_part for _, of_part in _filled(enumerate(rows), earlier, rows_per_part, rows_per_part))
    return zip(_new_names([]), map(_without_places, chain([next(filled, ())], filled)), strict=False)


def changed(rows: Iterable[Row], earlier: PartsTable, rows_per_part: int) -> Iterator[tuple[str, Iterable[Row]]]:
    """Yield the name of each part of a table that changes, with its rows in the order of all; none if it goes. If one
    part changes, all do that lack columns of this version."""
    names = [*earlier.parts]
    parts: list[list[_Numbered]] = [[] for _ in names]
    new: list[_Numbered] = []
    for place, row in enumerate(rows):
        for part, piece in earlier.homes(row):
            (new if part is None else parts[part]).append((place, piece))
    room = rows_per_part - sum(_num_rows(row) for _, row in parts[-1])
    filled = _filled(new, earlier, rows_per_part, room)
    following = next(filled, None)
    if following is not None and following[0] == 0:
        parts[-1] += following[1]
        following = next(filled, None)
    for part, name in enumerate(names):
        of_part = [*_without_places(sorted(parts[part], key=itemgetter(0)))]
        if not earlier.is_part(part, of_part) or not earlier.has_all_columns(part):
            yield name, of_part
    behind = chain([] if following is None else [following], filled)
    yield from zip(_new_names(names), (_without_places(of_part) for _, of_part in behind), strict=False)


def _without_places(rows: Iterable[_Numbered]) -> Iterator[Row]:
    return map(itemgetter(1), rows)


def _num_rows(row: Row) -> int:
    return row.stop - row.start if isinstance(row, Kept) else 1


def _filled(
    rows: Iterable[_Numbered], earlier: Any, rows_per_part: int, room: int
) -> Iterator[tuple[int, Iterator[_Numbered]]]:
    """Yield the rows by parts, of which each has its number. room: for how many rows there is some in part 0, which is
    left out if its first document does not fit."""
    numbered = _in_parts(_documents(rows, earlier), rows_per_part, room)
    for part, of_part in groupby(numbered, key=itemgetter(0)):
        yield part, (row for _, of_document in of_part for row in of_document)


def _in_parts(
    documents: Iterable[Sequence[_Numbered]], rows_per_part: int, room: int
) -> Iterator[tuple[int, Sequence[_Numbered]]]:
    """Yield the rows of each document with the number of its part."""
    part, left = 0, room
    for document in documents:
        num_rows = sum(_num_rows(row) for _, row in document)
        if num_rows > left and left < rows_per_part:
            part, left = part + 1, rows_per_part
        left -= num_rows
        yield part, document


def _documents(rows: Iterable[_Numbered], earlier: Any) -> Iterator[Sequence[_Numbered]]:
    """Yield the rows of each document. earlier: the table of which rows are kept."""
    for _, pieces in groupby(_pieces(rows, earlier), key=itemgetter(0)):
        yield [numbered for _, numbered in pieces]


def _pieces(rows: Iterable[_Numbered], earlier: Any) -> Iterator[tuple[str | int, _Numbered]]:
    """Yield the rows divided where documents begin, each with what tells its document from others."""
    for place, row in rows:
        if not isinstance(row, Kept):
            yield row.source, (place, row)
            continue
        for document, piece in earlier.columns.documents_in(row):
            yield document, (place, piece)


def part_names(folder: Path) -> list[str]:
    """The parts in a folder, in order."""
    return sorted(name for name in _names_in(folder) if is_part_name(name) and final_name(name) == name)


def _names_in(folder: Path) -> set[str]:
    """The names in a folder that are not hidden. Raises OutputError."""
    with reading(folder):
        return {path.name for path in folder.iterdir() if not path.name.startswith(".")}


def _new_names(before: Sequence[str]) -> Iterator[str]:
    """Yield names of parts behind those that there are."""
    following = int(before[-1][5:].partition("-")[0]) + 1 if before else 0
    return (f"part-{number:06}-{secrets.token_hex(8)}.parquet" for number in count(following))


def has_table(folder: Path) -> bool:
    """Whether there is a table in a folder: its record, what stood for one in the version before, or parts alone."""
    return any((folder / name).exists() for name in (Layout().record, "table.json")) or bool(part_names(folder))


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
    of_parts = (parquet.read_metadata(folder / name) for name in reversed(part_names(folder)))
    metadata = next(filter(None, of_parts), None)
    return Record(replace(metadata, containers={}, newest=())) if metadata else None


def open_table(folder: Path, items: Sequence[str] = ()) -> PartsTable | None:
    """A table of ours; None if there is none. items: as in PartsTable. Raises OutputError if a part is damaged, or is
    not what the record says, or if there is another one."""
    table = open_recorded(folder, lambda record: PartsTable(folder, record, items))
    if table is None and (record := _without_parts(folder)):
        table = PartsTable(folder, record, items)
        if (folder / Layout().record).exists():  # the first commit has come meanwhile
            table.close()
            return open_table(folder, items)
    return table or open_items(folder, items)


def open_items(folder: Path, items: Sequence[str]) -> PartsTable | None:
    """The items alone as a table, whatever table there is; None if no item is sound."""
    metadata = metadata_of_items(folder, items)
    return PartsTable(folder, Record(metadata), items, parts=()) if metadata else None


def metadata_of_items(folder: Path, items: Iterable[str]) -> RunMetadata | None:
    """What the rows of the items depend on; None if no item is sound."""
    for item in items:
        if (found := _open_item(folder / item)) is not None:
            with closing(found):
                return found.metadata
    return None


def _open_item(path: Path) -> parquet.ParquetTable | None:
    """The table that an actor has read, open; None if it is not as it was written."""
    try:
        item = parquet.open_table(path)
        if item is not None and item.digest.startswith(path.name.split(".")[-2]):
            return item
    except OutputError as error:
        logger.warning("%s", error)
    logger.warning("%s is left out: it is damaged, and what is in it is read again", path)
    return None


def read_rows(folder: Path) -> Iterator[PageResult]:
    """Yield all rows, part by part. Raises OutputError."""
    if (table := open_table(folder)) is None:
        raise OutputError(f"{folder} has no record of its parts")
    with closing(table):
        yield from table.rows(0, table.num_rows)


def require_ours(folder: Path, name: str = "") -> None:
    """Raise OutputMismatchError if the folder holds tables that no run into it has put there, as those of shards; or
    any other files, if no run has begun there. name: of what the folder is a copy."""
    files = _names_in(folder)
    ours = {name for name in files if is_part_name(name) or final_name(name) in (*EARLIER_NAMES, EARLIER_JOURNAL)}
    ours -= set() if any(map(is_part_name, files)) else {"run.json"}
    is_begun = has_table(folder) or (folder / OWN_FOLDER).exists()
    others = {name for name in files - ours if not is_begun or name.endswith((".parquet", ".jsonl"))}
    if others:
        raise OutputMismatchError(
            f"{name or folder} holds {min(others)}, which is not of a run into this folder: name another folder as "
            "--out, or a table in it"
        )


class PartsTable:
    """The parts of a table, as one commit left them, and behind them items that are none of it yet. If there are very
    many, those of the last are opened when they are read; one that was replaced since is refused, by an OutputError
    like one that is damaged."""

    def __init__(
        self, folder: Path, record: Record, items: Sequence[str] = (), parts: Sequence[str] | None = None
    ) -> None:
        """items: what actors have read since, by their names in the folder; damaged ones are left out. parts: which
        count, if not all. Raises OutputError, OutputMismatchError if an item is of other settings."""
        self.metadata = record.metadata
        self._commit = record.commit
        self.is_recorded = bool(record.commit.parts)
        """Whether the table's record names the parts."""
        self._folder = folder
        self.digests: dict[str, str] = {}
        """The digest of each part and item, by its name."""
        self.displaced: list[str] = []
        """The parts that have not taken their own names yet."""
        self._paths: dict[str, Path] = {}
        self._held: dict[str, int] = {}
        """Descriptors of parts, by name."""
        self.parts = dict(record.commit.parts)
        """The parts of the table, recorded or not."""
        self._has_all_columns: list[bool] = []
        self._last: tuple[str, parquet.ParquetTable] | None = None
        self._require_no_others()
        names = [*record.commit.parts] or (part_names(folder) if parts is None else parts)
        num_files = len(names) + len(items)
        most_held = min(_MOST_HELD, allow_open_files(_OTHER_FILES + min(num_files, _MOST_HELD)) - _OTHER_FILES)
        lengths: list[int] = []
        with ExitStack() as undo:
            undo.callback(self.close)
            for name in (*names, *items):
                is_part = len(lengths) < len(names)
                found = self._found(name) if is_part else self._item(name)
                if found is None:
                    continue
                with closing(found) as part:
                    self.digests[name] = part.digest
                    self._has_all_columns.append(part.has_all_columns)
                    lengths.append(part.num_rows)
                    if is_part and name not in self.parts:
                        self.parts[name] = Part(self._paths[name].stat().st_size, part.digest, 0)
                    if len(self._held) < most_held and (held := part.held()) is not None:
                        self._held[name] = held
            undo.pop_all()
        self._starts = [0, *accumulate(lengths)]
        self.num_rows_in_parts = self._starts[len(self.parts)]
        self.digest = digest_of({name: self.digests[name] for name in self.parts}) if self.parts else ""
        """The digest of the parts, without items, by which a run knows the table again."""

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
        return KnownRows(self._looked_at(self.parts), *(self._looked_at([item]) for item in self.items))

    @property
    def items(self) -> Sequence[str]:
        """The items that are behind the parts."""
        return [name for name in self.digests if name not in self.parts]

    def looked_at(self) -> Iterator[pa.Table]:
        """Yield all rows, with the columns that are looked at."""
        return self._looked_at(self.digests)

    def _looked_at(self, names: Iterable[str]) -> Iterator[pa.Table]:
        for name in names:
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

    def homes(self, row: Row) -> Iterator[tuple[int | None, Row]]:
        """In which parts the documents of these rows are, each with its rows; None for those that are in none."""
        if not isinstance(row, Kept):
            document = self.columns.document_of(row.source)
            yield self._home_of(document), row
            return
        for part, start, stop in self.divided(*row):
            if part < len(self.parts):
                yield part, Kept(start, stop)
                continue
            documents = self.columns.documents_in(Kept(start, stop))
            for home, some in groupby(documents, key=lambda each: self._home_of(each[0])):
                pieces = [piece for _, piece in some]
                yield home, Kept(pieces[0].start, pieces[-1].stop)

    def _home_of(self, document: int | None) -> int | None:
        """The part in which a document is."""
        part = len(self.parts) if document is None else self.part_of(int(self.columns.first[document]))
        return part if part < len(self.parts) else None

    def part_of(self, row: int) -> int:
        """The number of the part in which a row is."""
        return bisect_right(self._starts, row) - 1

    def is_part(self, part: int, rows: Sequence[Row]) -> bool:
        """Whether these are all rows of a part, in order."""
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
        """The part of this number, open. It stays open for the next call."""
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
        """The part of this name, open, as the record says, or as it is if the record names no parts. Raises
        OutputError."""
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

    def _item(self, name: str) -> parquet.ParquetTable | None:
        """The item of this name, open; None if it is not sound. Raises OutputMismatchError if it is of other
        settings."""
        item = _open_item(self._folder / name)
        if item is not None and item.metadata.settings_fingerprint != self.metadata.settings_fingerprint:
            item.close()
            raise OutputMismatchError(
                f"{self._folder / name} was read with other settings than the table: run the command that began it "
                "again, or start over with --overwrite"
            )
        self._paths[name] = self._folder / name
        return item

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
