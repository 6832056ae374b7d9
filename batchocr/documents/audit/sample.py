"""Which pages of a table are audited."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from batchocr.data import PageResult
from batchocr.documents.review.choose import ChosenRow, key_of, lot_of, worst_first
from batchocr.errors import UsageError

_DEFAULT_SAMPLE = 200

How = Literal["sample", "all", "worst"]


@dataclass(frozen=True, slots=True)
class Choice:
    """How pages are chosen: `number` of them at random, by a seed; all; or the `number` that seem worst."""

    how: How
    number: int = 0
    seed: int = 0


def choice_of(sample: int | None, worst: int | None, seed: int, *, whole: bool) -> Choice:
    """How pages are chosen; by default so many at random. Raises UsageError if several ways are given."""
    given = {"--sample": sample is not None, "--worst": worst is not None, "--all": whole}
    if len(names := [name for name, is_given in given.items() if is_given]) > 1:
        raise UsageError(f"{' and '.join(names)} choose pages each in a way of their own: give one of them")
    if whole:
        return Choice("all")
    return Choice("worst", worst) if worst is not None else Choice("sample", sample or _DEFAULT_SAMPLE, seed)


@dataclass(frozen=True, slots=True)
class Drawn:
    """The pages that were chosen."""

    positions: tuple[int, ...]
    """The places of the chosen pages' rows in the table, in order."""
    num_readable: int
    """The number of pages among which the pages were chosen: all that were read."""
    fingerprint: str
    """The fingerprint of what the whole table says."""


def draw(rows: Iterable[PageResult], choice: Choice) -> Drawn:
    """Choose pages among those that were read, in one pass that keeps no row.

    A random page is one whose name, hashed with the seed, comes early: it is chosen whatever the order of the table is.
    """
    num_readable = 0
    text = hashlib.blake2b(digest_size=16)

    def readable() -> Iterator[tuple[tuple[object, ...], int]]:
        nonlocal num_readable
        for position, row in enumerate(rows):
            text.update(repr((*key_of(row), row.doc_id)).encode())
            if is_readable(row):
                num_readable += 1
                yield _rank(row, position, choice), position

    drawn = readable() if choice.how == "all" else heapq.nsmallest(choice.number, readable())
    positions = sorted(position for _, position in drawn)
    return Drawn(tuple(positions), num_readable, text.hexdigest())


def is_readable(row: PageResult) -> bool:
    """Whether the row is of a page that was read."""
    return row.status in ("ok", "degraded") and row.page_index is not None and bool(row.width and row.height)


def _rank(row: PageResult, position: int, choice: Choice) -> tuple[object, ...]:
    if choice.how == "worst":
        return worst_first(ChosenRow(row, position))
    return (lot_of(row, choice.seed),)
