"""What two tables of the same pages differ in: totals, how it is spread, and the pages that changed most."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from batchocr.data import Status
from batchocr.tables.match import Pair
from batchocr.tables.page_change import BlockChanges, PageChange, page_change

SHARES = (0.0, 0.001, 0.01, 0.05, 0.2, 0.5, 1.0)
"""Upper ends of the classes in which pages are counted by their share of changed characters."""


@dataclass(slots=True)
class Comparison:
    """Two tables compared, row by row.

    num_top: how many of the most changed pages are kept. rows: in both tables; only_first, only_second: in one, their
    text counting as changed. status_changes: how many rows have one status in the first table and another in the
    second. spread: rows by the lowest of SHARES that their share of changed characters does not exceed.
    """

    num_top: int
    rows: int = 0
    only_first: int = 0
    only_second: int = 0
    differing: int = 0
    characters: int = 0
    characters_changed: int = 0
    blocks: BlockChanges = field(default_factory=BlockChanges)
    status_changes: Counter[tuple[Status, Status]] = field(default_factory=Counter)
    spread: Counter[float] = field(default_factory=Counter)
    _top: list[tuple[_Rank, PageChange]] = field(default_factory=list)

    @property
    def change(self) -> float:
        """The share of all characters that changed, from 0 to 1."""
        return self.characters_changed / self.characters if self.characters else 0.0

    @property
    def most_changed(self) -> list[PageChange]:
        """The pages that changed most, beginning with the most; those with another status only come last."""
        return [page for _, page in sorted(self._top, key=lambda ranked: ranked[0], reverse=True)]

    def take(self, page: PageChange, *, common: bool = False) -> None:
        """Count a page. common: nothing else of one that only one table has."""
        before, after = page.statuses
        self.rows += before is not None and after is not None
        self.only_first += after is None
        self.only_second += before is None
        if common and (before is None or after is None):
            return
        if before is not None and after is not None and before != after:
            self.status_changes[before, after] += 1
        self.differing += page.is_any
        self.characters += page.characters
        self.characters_changed += page.changed
        self.blocks += page.blocks
        self.spread[next(share for share in SHARES if page.share <= share)] += 1
        if page.is_any and self.num_top:
            ranked = _rank(page, self.differing), page
            (heapq.heappush if len(self._top) < self.num_top else heapq.heappushpop)(self._top, ranked)


_Rank = tuple[float, int, bool, int]


def _rank(page: PageChange, number: int) -> _Rank:
    """Pages with a higher one changed more; the last part tells those apart that changed alike: the earlier first."""
    blocks = page.blocks
    return page.share, page.changed + blocks.added + blocks.lost + blocks.changed, len(set(page.statuses)) > 1, -number


def compare(pairs: Iterable[Pair], *, num_top: int, common: bool = False) -> Comparison:
    """Compare all pairs of rows. common: only those that both tables have."""
    comparison = Comparison(num_top)
    for first, second in pairs:
        comparison.take(page_change(first, second), common=common)
    return comparison
