"""The rows that a scheduler gives out, without workers that read them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from batchocr.data import ErrorKind
from batchocr.job.document_run import RowKey
from batchocr.job.row_plan import RowPlan
from batchocr.job.scheduler import PageScheduler


def known_rows(plan: RowPlan) -> Iterator[RowKey]:
    """The rows of the output, as far as they are known and no table has them."""
    return (RowKey(index, page) for index, state in plan.all_given() for page in state.rows or ())


class Idle:
    """A worker with nothing to do, in a pool of its own."""

    backlog = num_pages = 0

    @property
    def workers(self) -> list[Idle]:
        return [self]


class GivenRows(PageScheduler):
    """Gives out rows, all at once if asked, and opens no document."""

    def __init__(self, plan: RowPlan) -> None:
        self.worker: Any = Idle()
        super().__init__(plan, self.worker, 60.0)
        self.pages_in_flight = 1000

    def _next_to_open(self) -> None:
        return None

    def next(self) -> RowKey | None:
        key = self.next_for(self.worker)
        if key is not None:
            self.begin(key, self.worker)
        return key

    def remaining(self) -> list[tuple[int, int | None]]:
        """All that can be begun now."""
        return [(key.document, key.page_index) for key in iter(self.next, None)]

    def lose(self, key: RowKey, cost: ErrorKind | None = None) -> bool:
        """Have the worker lost that reads the row, which may have a part in it if that costs something."""
        self.release(key)
        return self.lost(key, "none" if cost is None else "possible", cost)

    def end_all(self) -> list[tuple[int, int | None]]:
        """The same, all of which end."""
        remaining = self.remaining()
        for row in remaining:
            self._plan.ended(RowKey(*row))
        return remaining
