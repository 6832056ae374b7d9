"""How often a row may be begun, and what that has cost so far."""

from __future__ import annotations

from collections import Counter
from typing import Final

from batchocr.job.row_queue import RowKey

_MAX_FAILURES: Final = 2
_MAX_LOSSES: Final = 5
"""How often a row may lose its worker without being known to be to blame, as when somebody kills the worker."""


class Attempts:
    """The attempts so far at the rows that have not ended yet."""

    def __init__(self) -> None:
        self._begun: Counter[RowKey] = Counter()
        self._failures: Counter[RowKey] = Counter()
        self._losses: Counter[RowKey] = Counter()

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

    def end(self, key: RowKey) -> int:
        """Record that the row has ended; returns how often it was begun."""
        self._failures.pop(key, None)
        self._losses.pop(key, None)
        return self._begun.pop(key, 0)
