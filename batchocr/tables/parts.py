"""The table as a folder of Parquet files, for what one file should not hold: a run replaces the parts that change.

A document is in one part, whole, and stays there; new ones fill the last part, then new ones. What the runs have been
asked for stands once, in `table.json`. Each part is a table of its own for every reader, and is replaced in its place,
so that nobody sees an old and a new one beside each other.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import cached_property
from itertools import accumulate, chain, count, groupby
from operator import attrgetter, itemgetter
from pathlib import Path

import pyarrow as pa

from batchocr.data import PageResult
from batchocr.errors import OutputError, OutputMismatchError
from batchocr.storage.checksums import checked_line, is_sound
from batchocr.tables import parquet
from batchocr.tables.atomic import atomic_file, reading
from batchocr.tables.files import (
    CLUSTER_PLAN_NAME,
    CLUSTER_REPORT_NAME,
    final_name,
    is_cluster_part,
    journal_path,
    metadata_path,
)
from batchocr.tables.schema import RunMetadata, metadata_from_json, metadata_to_json
from batchocr.tables.settled import Kept, Row, SettledColumns
from batchocr.tables.stored import present, with_copies


def write(
    folder: Path,
    rows: Iterable[Row],
    metadata: RunMetadata,
    *,
    earlier: PartsTable | None = None,
    written: Callable[[str], None] = lambda digest: None,
    rows_per_part: int,
) -> None:
    """Write the parts that change, all of them before the first takes its place. Raises OutputError.

    earlier: the table of which rows are kept. written: called with the digest of the whole just before that.
    rows_per_part: the most; a part has more only if its one document has.
    """
    before = part_names(folder)
    digests = dict(earlier.digests) if earlier else {}
    numbered = groupby(_numbered(rows, rows_per_part, rows_per_part), key=itemgetter(0))
    filled = (map(itemgetter(1), of_part) for _, of_part in numbered)
    parts = _changed(rows, earlier, rows_per_part) if earlier else zip(_names(before), filled, strict=False)
    no_longer = ((name, ()) for name in before if name not in digests)  # with --overwrite
    with ExitStack() as replacing:
        for name, of_part in chain(parts, no_longer):
            file = replacing.enter_context(atomic_file(folder / name))
            digests[name] = parquet.write_into(file, of_part, metadata, earlier)
        written(_digest(digests))
        with atomic_file(metadata_path(folder)) as file:
            file.write(checked_line(metadata_to_json(metadata)))


def _numbered(rows: Iterable[Row], rows_per_part: int, room: int) -> Iterator[tuple[int, Row]]:
    """Yield the rows, each with the number of its part. room: for how many rows there is some in part 0, which gets
    none if its first document does not fit."""
    part, left = 0, room
    for _, of_document in groupby(rows, key=attrgetter("source")):
        document = [*of_document]
        if len(document) > left and left < rows_per_part:
            part, left = part + 1, rows_per_part
        left -= len(document)
        yield from ((part, row) for row in document)


def _changed(rows: Iterable[Row], earlier: PartsTable, rows_per_part: int) -> Iterator[tuple[str, Sequence[Row]]]:
    """Yield each part that changes: its name and its rows, in the order of all rows."""
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
    for part, row in _numbered(new, rows_per_part, room):
        assert not isinstance(row, Kept)
        parts[last + part].append((orders[row.source, row.page_index], row))
    for (part, numbered), name in zip(sorted(parts.items()), _names(names), strict=False):
        of_part = [row for _, row in sorted(numbered, key=itemgetter(0))]
        if not earlier.is_part(part, of_part):
            yield name, of_part


def part_names(folder: Path) -> list[str]:
    """The parts in a folder, in order, with those that a store has in its place."""
    return sorted(name for name in _files(folder) if is_cluster_part(name) and final_name(name) == name)


def _files(folder: Path) -> dict[str, Path]:
    """What is in a folder, by name, with the copies of what a store has in its place. Raises OutputError."""
    with reading(folder):
        return with_copies(folder)


def _names(before: Sequence[str]) -> Iterator[str]:
    """Yield the names of the parts that there are, then new ones."""
    following = int(before[-1][5:].partition("-")[0]) + 1 if before else 0
    new = (f"part-{number:06}-{secrets.token_hex(8)}.parquet" for number in count(following))
    return chain(before, new)


def _digest(digests: Mapping[str, str]) -> str:
    """Of the whole: SHA-256 (hex) of those of its parts."""
    return hashlib.sha256(json.dumps(dict(digests), sort_keys=True).encode()).hexdigest()


def read_metadata(folder: Path) -> RunMetadata | None:
    """What stands in `table.json`; None if there is none. Raises OutputError if it is damaged."""
    path = present(metadata_path(folder))
    if not path.is_file():
        return None
    with reading(path):
        line = path.read_bytes()
    if (metadata := metadata_from_json(line)) is None or not is_sound(line):
        raise OutputError(f"{path} is damaged, or was changed: restore it, or start over with --overwrite")
    return metadata


def open_table(folder: Path) -> PartsTable | None:
    """A table of ours; None if there is none. Raises OutputError if it, or a part, is damaged."""
    if (metadata := read_metadata(folder)) is None:
        return None
    return PartsTable(folder, metadata)


def read_rows(folder: Path) -> Iterator[PageResult]:
    """Yield all rows, part by part. Raises OutputError."""
    for name in part_names(folder):
        yield from parquet.read_rows(folder / name)


def require_ours(folder: Path) -> None:
    """Raise OutputMismatchError if the folder holds tables that no run into it has put there, as those of shards or of
    a cluster; or any other files, if no run has begun there."""
    files = _files(folder)
    of_run = {path.name for path in (metadata_path(folder), journal_path(folder))}
    is_begun = CLUSTER_PLAN_NAME not in files and any(files[name].stat().st_size for name in files.keys() & of_run)
    others = {name for name in files.keys() - of_run if not is_begun or name.endswith((".parquet", ".jsonl"))}
    others.discard(CLUSTER_REPORT_NAME)  # of a run that failed before it had a row
    if others := {name for name in others if not (is_begun and is_cluster_part(name))}:
        raise OutputMismatchError(
            f"{folder} holds {min(others)}, which is not of a run into this folder: name another folder as --out, or a "
            "table in it"
        )


class PartsTable:
    """The parts of a table. Each is opened when it is read; one that was replaced since is refused, by an OutputError
    like one that is damaged."""

    def __init__(self, folder: Path, metadata: RunMetadata) -> None:
        self.metadata = metadata
        self._files = _files(folder)
        self.digests: dict[str, str] = {}
        """Of each part, by its name."""
        lengths = []
        for name in part_names(folder):
            with closing(self._opened(name)) as part:
                self.digests[name] = part.digest
                lengths.append(part.num_rows)
        self._starts = [0, *accumulate(lengths)]
        self.digest = _digest(self.digests)
        """By which a run knows the table again."""
        self._last: parquet.ParquetTable | None = None
        self._last_name = ""

    def close(self) -> None:
        """Close the part that is open."""
        if self._last is not None:
            self._last.close()

    @cached_property
    def columns(self) -> SettledColumns:
        """The rows without their text."""
        return SettledColumns(chain.from_iterable(map(self._looked_at, self.digests)), self._settled)

    def rows(self, start: int, stop: int) -> Iterator[PageResult]:
        """Yield these rows, in order."""
        for part, begin, end in self._within(start, stop):
            yield from part.rows(begin, end)

    def kept(self, rows: Kept) -> pa.Table:
        """These rows."""
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

    def _settled(self, start: int, stop: int) -> pa.Table:
        return pa.concat_tables(part.settled(begin, end) for part, begin, end in self._within(start, stop))

    def _within(self, start: int, stop: int) -> Iterator[tuple[parquet.ParquetTable, int, int]]:
        """The rows by parts: each part, open, and where in it they begin and end."""
        for part, begin, end in self.divided(start, stop):
            yield self._part(part), begin - self._starts[part], end - self._starts[part]

    def _looked_at(self, name: str) -> Iterator[pa.Table]:
        with closing(self._opened(name)) as part:
            yield from part.looked_at()

    def _part(self, number: int) -> parquet.ParquetTable:
        """A part, open. The last one stays so for the next call."""
        name = [*self.digests][number]
        if self._last is None or self._last_name != name:
            self.close()
            self._last, self._last_name = self._opened(name), name
        return self._last

    def _opened(self, name: str) -> parquet.ParquetTable:
        part = parquet.open_table(self._files[name])
        if part is None or part.digest != self.digests.get(name, part.digest):
            raise OutputError(f"{self._files[name]} is no part of this table, or was replaced: run again")
        return part
