"""Several tables as one: rows are copied as they are stored, in any order, and become no Python objects.

A row is known by its number, if the tables stand one behind the other. Of tables whose rows follow each other one is
open at a time; of those whose rows alternate, as many as this process may open.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic_core import to_json

from batchocr.data import PageResult
from batchocr.errors import OutputError
from batchocr.machine import allow_open_files
from batchocr.tables.jsonl import JsonLinesTable
from batchocr.tables.known import Kept, divided
from batchocr.tables.schema import SCHEMA_VERSION
from batchocr.tables.table import StoredTable, table_for

_OTHER_FILES: Final = 64
"""How many files are open at most beside the tables."""
_ROWS_AT_ONCE: Final = 1024

RowNumbers = NDArray[np.int32]


class Together:
    """Tables one behind the other. Its methods raise OutputError, also if another table has taken the place of one."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self._digests: dict[int, str] = {}
        self._open: dict[int, StoredTable] = {}
        self._max_open = max(1, allow_open_files(_OTHER_FILES + len(paths)) - _OTHER_FILES)
        known = [self._known(table) for table in range(len(paths))]
        self.starts = np.cumsum([0, *(len(pages) for _, pages in known)])
        """The first row of each table, and at the end the number of rows."""
        self._sources = [sources for sources, _ in known]
        self.page_index = np.concatenate([pages for _, pages in known])
        """The page of each row; -1 for a document as a whole."""

    def close(self) -> None:
        """Close the tables that are open."""
        while self._open:
            self._open.popitem()[1].close()

    def table_of(self, row: int) -> int:
        """The number of the table in which a row is."""
        return int(np.searchsorted(self.starts, row, "right")) - 1

    def documents(self, table: int) -> Iterator[tuple[str, range]]:
        """Yield the documents of a table, each with its rows; those of one may come in several pieces. They are known
        until all have been asked for."""
        sources, self._sources[table] = self._sources[table], []
        row = int(self.starts[table])
        for some in sources:
            for source, num_rows in zip(some.values, np.diff(some.run_ends, prepend=0).tolist(), strict=True):
                yield source.as_py(), range(row, row + num_rows)
                row += num_rows

    def read(self, rows: Sequence[int] | RowNumbers) -> Iterator[tuple[StoredTable, Kept]]:
        """Yield the tables in which these rows are, open, each with those of its rows that follow each other. Behind
        its last row a table is closed."""
        is_apart = (np.diff(rows) != 1) | np.isin(rows[1:], self.starts)
        for stretch in np.split(rows, np.flatnonzero(is_apart) + 1):
            start, stop = int(stretch[0]), int(stretch[-1]) + 1
            number = self.table_of(start)
            begin, end = self.starts[number : number + 2].tolist()
            yield self._table(number), Kept(start - begin, stop - begin)
            if stop == end:
                self._open.pop(number).close()

    def rows(self, rows: Sequence[int] | RowNumbers) -> Iterator[PageResult]:
        """Yield these rows, in this order."""
        return (row for table, of_table in self.read(rows) for row in table.rows(*of_table))

    def _known(self, number: int) -> tuple[list[pa.RunEndEncodedArray], NDArray[np.int32]]:
        """The `source` of each row of a table, and the page."""
        sources, pages = list[pa.RunEndEncodedArray](), [np.empty(0, np.int32)]
        with closing(self._opened(number)) as table:
            for some in table.looked_at():
                sources.append(pc.run_end_encode(some["source"].combine_chunks()))
                pages.append(some["page_index"].fill_null(-1).to_numpy().astype(np.int32))
        return sources, np.concatenate(pages)

    def _table(self, number: int) -> StoredTable:
        """A table, open. All other tables are closed if as many are open as may be."""
        if number not in self._open:
            if len(self._open) == self._max_open:
                self.close()
            self._open[number] = self._opened(number)
        return self._open[number]

    def _opened(self, number: int) -> StoredTable:
        path = self._paths[number]
        table = table_for(path).open_table(path)
        if table is not None and self._digests.setdefault(number, table.digest) == table.digest:
            return table
        if table is not None:
            table.close()
        raise OutputError(f"{path} was replaced while it was read: merge again")


class InOrder:
    """Rows of tables that stand together, for a writer that takes them as those of an earlier table.

    order: their numbers. first: the first row of each document in that order, and at the end the number of rows.
    as_lines: for a table in JSON Lines.
    """

    def __init__(self, tables: Together, order: RowNumbers, first: RowNumbers, *, as_lines: bool) -> None:
        self.columns = self
        """What says where documents begin."""
        self._tables = tables
        self._order = order
        self._first = first
        self._as_lines = as_lines

    def documents_in(self, rows: Kept) -> Iterator[tuple[int, Kept]]:
        """The documents of these rows by their numbers, each with its rows that are among them."""
        begin, pieces = divided(rows, self._first)
        return enumerate(pieces, start=begin)

    def begin_of_document(self, row: int) -> int:
        """The first row from this one on with which a document begins, or the number of rows."""
        at = bisect_left(self._first, min(row, len(self._order)))  # numpy's would convert all of them, each time
        return int(self._first[at])

    def groups(self) -> list[Kept]:
        """All rows, some whole documents at a time."""
        wanted = np.append(np.arange(0, len(self._order), _ROWS_AT_ONCE), len(self._order))
        ends = np.unique(self._first[np.searchsorted(self._first, wanted)]).tolist()
        return [*map(Kept, ends, ends[1:])]

    def kept(self, rows: Kept) -> Any:
        """These rows as an Arrow table, or their lines. For that table they are read as they stand together, and then
        put in order."""
        wanted = self._order[rows.start : rows.stop]
        if self._as_lines:
            return (line for held in self._tables.read(wanted) for line in _as_lines(*held))
        by_number = np.argsort(wanted)
        read = pa.concat_tables(_as_arrow(*held) for held in self._tables.read(wanted[by_number]))
        return read.take(pa.array(np.argsort(by_number))) if np.any(np.diff(wanted) < 0) else read


def _as_arrow(table: StoredTable, rows: Kept) -> pa.Table:
    return table.arrow(rows) if isinstance(table, JsonLinesTable) else table.kept(rows)


def _as_lines(table: StoredTable, rows: Kept) -> Iterable[bytes]:
    if isinstance(table, JsonLinesTable) and table.metadata.schema_version == SCHEMA_VERSION:
        return table.kept(rows)
    return (to_json(row) + b"\n" for row in _as_arrow(table, rows).to_pylist())
