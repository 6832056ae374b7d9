"""The rows of two tables, matched by document and page, whatever the order of either."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from itertools import zip_longest

from batchocr.data import PageResult
from batchocr.errors import OutputError
from batchocr.tables.schema import from_json, to_json

Pair = tuple[PageResult | None, PageResult | None]
"""The rows of a page in both tables; None in the one that has no row of it."""


def matched(first: Iterable[PageResult], second: Iterable[PageResult]) -> Iterator[Pair]:
    """Yield the rows of each page; those without a match come last.

    Both tables are read once, side by side. A row whose match has not come yet waits in a temporary file: none does
    while the orders agree, all do where they are opposed. Raises OutputError if there is no room for that.
    """
    with _no_room(), closing(_Waiting()) as in_first, closing(_Waiting()) as in_second:
        for one, other in zip_longest(first, second):
            if one is not None and other is not None and _key(one) == _key(other):
                yield one, other
                continue
            if one is not None:
                match = in_second.take(one)
                if match is None:
                    in_first.put(one)
                else:
                    yield one, match
            if other is not None:
                match = in_first.take(other)
                if match is None:
                    in_second.put(other)
                else:
                    yield match, other
        yield from ((row, None) for row in in_first.all())
        yield from ((None, row) for row in in_second.all())


class _Waiting:
    """Rows of one table that wait for their match, in a file without a name, which is gone when this is closed."""

    def __init__(self) -> None:
        self._database = sqlite3.connect("", isolation_level=None)
        self._database.execute("PRAGMA journal_mode = OFF")
        self._database.execute("CREATE TABLE rows (source TEXT, page INTEGER, row BLOB)")
        self._database.execute("CREATE INDEX by_page ON rows (source, page)")

    def put(self, row: PageResult) -> None:
        self._database.execute("INSERT INTO rows VALUES (?, ?, ?)", (*_key(row), to_json(row)))

    def take(self, like: PageResult) -> PageResult | None:
        """The row of the same page, which waits no longer; None if there is none."""
        query = "SELECT rowid, row FROM rows WHERE source = ? AND page = ? ORDER BY rowid LIMIT 1"
        found = self._database.execute(query, _key(like)).fetchone()
        if found is None:
            return None
        self._database.execute("DELETE FROM rows WHERE rowid = ?", found[:1])
        return from_json(found[1])

    def all(self) -> Iterator[PageResult]:
        """The rows that still wait, as they came."""
        for (row,) in self._database.execute("SELECT row FROM rows ORDER BY rowid"):
            yield from_json(row)

    def close(self) -> None:
        self._database.close()


def _key(row: PageResult) -> tuple[str, int]:
    return row.source, -1 if row.page_index is None else row.page_index


@contextmanager
def _no_room() -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        raise OutputError(
            f"there is no room for the rows that are in another order in the other table: {error}; TMPDIR may name a "
            "folder with more"
        ) from error
