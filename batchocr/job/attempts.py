"""When to give up: how often a row may be begun, and what a document may cost beyond what sound ones do.

Costs are in units of --page-timeout: that is what a page that hangs costs, and what a lost worker counts as.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from batchocr.data import ErrorKind, Failure
from batchocr.job.row_queue import RowKey

_MAX_FAILURES: Final = 2
_MAX_LOSSES: Final = 5
"""How often a row may lose its worker if it is not known to be the cause, as when somebody kills the worker."""

STEP_ALLOWANCE: Final = 1 / 20
"""What a step may take at no cost: opening a document, rendering or post-processing a page. A page takes 0.07 s on
average, a twentieth of the default time limit is 3 s. What a step leaves of this makes good for earlier ones, so a long
document may have a few bad pages."""

_SLOWEST_BYTES_PER_S: Final = 250_000
"""Large pages may take longer: at least so many of a file's bytes are decoded in a second. A large scan in JPEG 2000 is
ten times as fast; what is made to be slow is small."""

_MAX_COST: Final = 6.0
"""A document that has cost more is given up: as much as three pages that hang, which are tried twice each."""

_ALONE_FROM: Final = 1.0
"""From here on, as after a lost worker, the pages of a document are read one at a time: each may cost the others the
work done on them."""


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
        """Count an attempt that cost its worker. to_blame: whether the row is certainly the cause."""
        self._losses[key] += 1
        if to_blame:
            self._failures[key] += 1

    def has_cost_a_worker(self, key: RowKey) -> bool:
        """Whether the row is certainly the cause of a lost worker."""
        return self._failures[key] > 0

    def exhausted(self, key: RowKey) -> bool:
        """Whether the row must not be begun again."""
        return self._failures[key] >= _MAX_FAILURES or self._losses[key] >= _MAX_LOSSES

    def end(self, key: RowKey) -> int:
        """Record that the row has ended; returns how often it was begun."""
        self._failures.pop(key, None)
        self._losses.pop(key, None)
        return self._begun.pop(key, 0)


class Costs:
    """The documents that have cost more than their steps allow. All others cost nothing, here and in memory."""

    def __init__(self, page_timeout_s: float) -> None:
        self._page_timeout_s = page_timeout_s
        self._costs: dict[int, float] = {}
        self._given_up: dict[int, Failure] = {}

    def add_step(self, document: int, seconds: float, bytes_per_page: float) -> None:
        """Count a step that ended, well or not. bytes_per_page: of the document's file."""
        beyond_s = max(0.0, seconds - bytes_per_page / _SLOWEST_BYTES_PER_S)
        self._add(document, beyond_s / self._page_timeout_s - STEP_ALLOWANCE, "timeout")

    def add_lost_worker(self, document: int, error_kind: ErrorKind) -> None:
        """Count a worker that was lost while it worked on the document, however soon that was."""
        self._add(document, 1.0, error_kind)

    def has_cost(self, document: int) -> bool:
        """Whether other documents have to be read first, because this one has cost something."""
        return document in self._costs and document not in self._given_up

    def must_go_alone(self, document: int) -> bool:
        """Whether no two of the document's pages may be read at once."""
        return self._costs.get(document, 0.0) >= _ALONE_FROM

    def given_up(self, document: int) -> Failure | None:
        """Why no more pages of the document are begun; None if it has not been given up."""
        return self._given_up.get(document)

    def _add(self, document: int, timeouts: float, error_kind: ErrorKind) -> None:
        cost = self._costs.pop(document, 0.0) + timeouts
        if cost > 0:
            self._costs[document] = cost
        if cost >= _MAX_COST and document not in self._given_up:
            seconds = _MAX_COST * self._page_timeout_s
            reason = f"the pages before it crashed, hung or were slow for more than {seconds:g} s in all"
            hint = "each crash counts as --page-timeout, and so does the time of slow steps"
            self._given_up[document] = Failure(error_kind, f"not tried: {reason} ({hint}); see their rows")
