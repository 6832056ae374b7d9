"""Which pages of a table a person should look at."""

from __future__ import annotations

import hashlib
import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from batchocr.data import PageResult, Status
from batchocr.option_values import PageSpec
from batchocr.tables.page_quality import quality

Sort = Literal["worst", "order", "random", "audit"]
"""The order of the rows; `audit`: by the weight of what an audit found."""

PageKey = tuple[str, int | None, str]
"""The `source` and the `page_index` of a row, and the hash of its text."""

MAX_PAGES = 200
"""The most pages that a review shows. With more, the file is no longer one to mail or to load at once."""

_FAILED_SHARE = 5
"""The number of pages of which at most one is a failed one, if there are others: a failed page shows nothing but the
reason."""

_RANKS: Mapping[Status, int] = {"failed": 0, "degraded": 1, "ok": 2, "skipped": 3}
_LAST = 4


@dataclass(frozen=True, slots=True)
class ChosenRow:
    """A row that was chosen."""

    row: PageResult
    position: int
    """The position of the row in the table."""


@dataclass(frozen=True, slots=True)
class ChosenPage:
    """The rows to be looked at."""

    rows: tuple[ChosenRow, ...]
    """The rows, in the order in which they are shown."""
    sort: Sort
    statuses: Mapping[Status, int]
    """How many rows the table has of each status."""
    num_wanted: int
    """How many rows there were to choose from."""


def text_hash(row: PageResult) -> str:
    """A hash of the page's text, which tells whether the page was read again with another result."""
    return hashlib.blake2b((row.markdown or "").encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def key_of(row: PageResult) -> PageKey:
    """The key under which an audit has the row."""
    return row.source, row.page_index, text_hash(row)


def worst_first(chosen: ChosenRow) -> tuple[float, ...]:
    """A key that sorts rows from the worst to the best: failed before degraded before all other rows, then by
    quality."""
    return _RANKS[chosen.row.status], quality(chosen.row), chosen.position


def choose(
    rows: Iterable[PageResult],
    sort: Sort,
    limit: int,
    pages: PageSpec | None = None,
    *,
    weights: Mapping[PageKey, float] | None = None,
) -> ChosenPage:
    """The first `limit` rows in the order of `sort`, in one pass that keeps no others. pages: the pages of each
    document; a document that could not be opened has none. weights: of the pages that were audited; no other rows are
    taken then, and none whose text has changed since.

    "random" is the same choice each time, as marks would be of little use otherwise. With "worst", rows that failed do
    not crowd out what can be looked at.
    """
    statuses: Counter[Status] = Counter()
    num_wanted = 0

    def wanted() -> Iterator[ChosenRow]:
        nonlocal num_wanted
        for position, row in enumerate(rows):
            statuses[row.status] += 1
            if weights is not None and key_of(row) not in weights:
                continue
            if pages is None or _is_among(pages, row):
                num_wanted += 1
                yield ChosenRow(row, position)

    keys: dict[Sort, Callable[[ChosenRow], Any]] = {
        "worst": _WorstOf(limit),
        "order": lambda chosen: chosen.position,
        "random": lambda chosen: lot_of(chosen.row),
        "audit": lambda chosen: (-(weights or {})[key_of(chosen.row)], chosen.position),
    }
    found = heapq.nsmallest(limit, wanted(), key=keys[sort])
    if sort == "worst":
        found.sort(key=worst_first)
    return ChosenPage(tuple(found), sort, statuses, num_wanted)


class _WorstOf:
    """The key of `worst_first`, but with failed rows behind all others once there are enough of them."""

    def __init__(self, limit: int) -> None:
        self._failed_left = max(1, limit // _FAILED_SHARE)

    def __call__(self, chosen: ChosenRow) -> tuple[float, ...]:
        if chosen.row.status == "failed":
            self._failed_left -= 1
            if self._failed_left < 0:
                return (_LAST, 0.0, chosen.position)
        return worst_first(chosen)


def lot_of(row: PageResult, *seed: int) -> bytes:
    """The lot that decides whether a page is drawn: it depends on its name, and on no other page."""
    name = "\n".join(map(str, (*seed, row.source, row.page_index)))
    return hashlib.blake2b(name.encode("utf-8", "backslashreplace"), digest_size=16).digest()


def _is_among(pages: PageSpec, row: PageResult) -> bool:
    if row.page_index is None or row.page_count is None:
        return False
    return row.page_index in _indices(pages, row.page_count)


@lru_cache(maxsize=16)
def _indices(pages: PageSpec, page_count: int) -> frozenset[int]:
    return frozenset(pages.pages(page_count))
