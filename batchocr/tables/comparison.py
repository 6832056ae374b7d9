"""What two tables of the same pages differ in: their rows matched, totals, and the pages that changed most."""

from __future__ import annotations

import sqlite3
from bisect import insort
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import zip_longest

from batchocr.data import PageResult, Status
from batchocr.errors import OutputError
from batchocr.tables.known import page_rank
from batchocr.tables.page_change import BlockChanges, PageChange, page_change
from batchocr.tables.schema import from_json, to_json

SHARES = (0.0, 0.001, 0.01, 0.05, 0.2, 0.5, 1.0)
"""Upper ends of the classes in which pages are counted by their share of changed characters."""


@dataclass(slots=True)
class Comparison:
    """Two tables compared, row by row."""

    num_top: int
    """How many of the most changed pages are kept."""
    rows: int = 0
    """How many are in both tables."""
    only_first: int = 0
    """How many rows are in the first table alone; their text counts as changed."""
    only_second: int = 0
    """How many rows are in the second table alone; their text counts as changed."""
    differing: int = 0
    characters: int = 0
    characters_changed: int = 0
    blocks: BlockChanges = field(default_factory=BlockChanges)
    status_changes: Counter[tuple[Status, Status]] = field(default_factory=Counter)
    """How many rows have one status in the first table and another in the second."""
    spread: Counter[float] = field(default_factory=lambda: Counter(dict.fromkeys(SHARES, 0)))
    """How many rows there are, by the lowest of SHARES that their share of changed characters does not exceed."""
    most_changed: list[PageChange] = field(default_factory=list)
    """The pages that changed most, beginning with the most."""

    @property
    def change(self) -> float:
        """The share of all characters that changed, from 0 to 1."""
        return self.characters_changed / self.characters if self.characters else 0.0

    def take(self, page: PageChange, *, common: bool = False) -> None:
        """Count a page. common: count nothing but its presence if only one table has it."""
        before, after = page.statuses
        if before is None:
            self.only_second += 1
        elif after is None:
            self.only_first += 1
        else:
            self.rows += 1
            if before != after:
                self.status_changes[before, after] += 1
        if common and None in page.statuses:
            return
        self.characters += page.characters
        self.characters_changed += page.characters_changed
        self.blocks += page.blocks
        self.spread[next(share for share in SHARES if page.share <= share)] += 1
        if page.is_any:
            self.differing += 1
            insort(self.most_changed, page, key=_rank)
            del self.most_changed[self.num_top :]


def _rank(page: PageChange) -> tuple[float, int, bool]:
    """A key that sorts pages from the most changed on; those with another status only come last."""
    blocks = page.blocks
    num_changes = page.characters_changed + blocks.added + blocks.lost + blocks.changed
    return -page.share, -num_changes, len(set(page.statuses)) == 1


def compare(pairs: Iterable[Pair], *, num_top: int, common: bool = False) -> Comparison:
    """Compare all pairs of rows. common: compare only rows that both tables have."""
    comparison = Comparison(num_top)
    for first, second in pairs:
        comparison.take(page_change(first, second), common=common)
    return comparison


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
            for row, own, theirs in ((one, in_first, in_second), (other, in_second, in_first)):
                if row is not None and (match := theirs.take(row)) is not None:
                    yield (row, match) if own is in_first else (match, row)
                elif row is not None:
                    own.put(row)
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
    return row.source, page_rank(row.page_index)


@contextmanager
def _no_room() -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        raise OutputError(
            f"there is no room for the rows that are in another order in the other table: {error}; TMPDIR may name a "
            "folder with more"
        ) from error
