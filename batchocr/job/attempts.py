"""How often a row may be begun: what that has cost so far, and which documents are given up because of it."""

from __future__ import annotations

from collections import Counter
from typing import Final

from batchocr.data import ErrorKind, Failure
from batchocr.job.intake import RowKey

_MAX_FAILURES: Final = 2
_MAX_LOSSES: Final = 5
"""How often a row may lose its worker without being known to be to blame, as when somebody kills the worker."""

_MAX_FATAL_PAGES: Final = 3
"""Pages of one document in a row, each of which cost its workers until it ran out of attempts."""


class Attempts:
    """The attempts so far at the rows that have not ended yet, and what they mean for their documents."""

    def __init__(self) -> None:
        self._begun: Counter[RowKey] = Counter()
        self._failures: Counter[RowKey] = Counter()
        self._losses: Counter[RowKey] = Counter()
        self._fatal_pages: Counter[int] = Counter()
        self._given_up: dict[int, Failure] = {}

    def begin(self, key: RowKey) -> None:
        """Count an attempt at the row, the first or a later one."""
        self._begun[key] += 1

    def add_loss(self, key: RowKey, *, to_blame: bool) -> None:
        """Count an attempt that cost its worker. to_blame: whether the row is to blame beyond doubt."""
        self._losses[key] += 1
        if to_blame:
            self._failures[key] += 1

    def has_cost_a_worker(self, key: RowKey) -> bool:
        """Whether the row is beyond doubt to blame for a lost worker."""
        return self._failures[key] > 0

    def exhausted(self, key: RowKey) -> bool:
        """Whether the row must not be begun again."""
        return self._failures[key] >= _MAX_FAILURES or self._losses[key] >= _MAX_LOSSES

    def must_go_alone(self, document: int) -> bool:
        """Whether a row of the document that has cost a worker is yet to end, or the last one to end failed that way.

        If so, its pages should be begun one at a time: each may cost the others the work done on them.
        """
        return document in self._fatal_pages or any(key.document == document for key in self._failures)

    def given_up(self, document: int) -> Failure | None:
        """Why no more pages of the document are begun; None if it has not been given up."""
        return self._given_up.get(document)

    def end(self, key: RowKey, error_kind: ErrorKind | None) -> int:
        """Record that the row has ended, with this error or none; returns how often it was begun.

        Gives up its document if that makes too many fatal pages in a row: each of the remaining ones would also cost
        the run two workers, and up to two timeouts.
        """
        if error_kind is not None and self.exhausted(key):
            self._fatal_pages[key.document] += 1
            if self._fatal_pages[key.document] == _MAX_FATAL_PAGES:
                reason = f"{_MAX_FATAL_PAGES} pages of this document in a row cost their workers ({error_kind})"
                self._given_up[key.document] = Failure(error_kind, f"not tried: {reason}; see their rows")
        else:
            self._fatal_pages.pop(key.document, None)
        self._failures.pop(key, None)
        self._losses.pop(key, None)
        return self._begun.pop(key, 0)
