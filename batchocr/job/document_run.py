"""What is known of a document of the input; and while it is being read, which of its rows is next, how often each was
tried, and what it has cost.

When to give up: how often a row may be begun, and what a document may cost beyond what sound ones do. Costs are in
units of --page-timeout: that is what a page that hangs costs, and what a lost worker counts as.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from batchocr.data import ErrorKind, Failure
from batchocr.processes.worker import Worker

MAX_FAILURES: Final = 2
MAX_LOSSES: Final = 5
"""How often a row may lose its worker if the row is not known to be the cause, as when somebody kills the worker."""

STEP_ALLOWANCE: Final = 1 / 20
"""What a step may take at no cost: opening a document, rendering or post-processing a page. A page takes 0.07 s on
average, a twentieth of the default time limit is 3 s. What a step leaves of this makes good for earlier ones, so a long
document may have a few bad pages."""

_SLOWEST_BYTES_PER_S: Final = 250_000
"""The fewest bytes of a file that are decoded in a second: large pages may take longer than others. A large scan in
JPEG 2000 is ten times as fast; what is made to be slow is small."""

_MAX_COST: Final = 6.0
"""The cost above which a document is given up: as much as three pages that hang, which are tried twice each."""

ALONE_FROM: Final = 1.0
"""The cost from which on, as after a lost worker, the pages of a document are read one at a time: each may cost the
other pages in a worker the work done on them."""


Blame = Literal["none", "possible", "certain"]
"""Whether a row is the cause of the loss of its worker."""


class RowKey(NamedTuple):
    """A row of the output: a page of a document, by their indices, or without `page_index` the document as a whole."""

    document: int
    page_index: int | None


@dataclass(slots=True)
class DocumentState:
    """What has been learnt about a document, and which rows it has."""

    page_count: int | None = None
    doc_id: str | None = None
    size: int | None = None
    """The size of the file in bytes when it was opened, or just before that failed."""
    mtime_ns: int | None = None
    problem: Failure | None = None
    """Why the document cannot be opened."""
    rows: Sequence[int | None] | None = None
    """The page indices that get a row, [None] for the document as a whole; None until that is known."""
    done: frozenset[int | None] = frozenset()
    """The rows that an earlier run dealt with."""
    not_read: frozenset[int | None] = frozenset()
    """The rows that need no reading: they are done, or copied."""
    num_before: int = 0
    """How many rows of the output come before the document's rows."""
    ended: int = 0
    """The pages that this run has dealt with, as bits: a set would take more memory than all the rest."""


@dataclass(slots=True)
class Attempts:
    """How often a row was tried that has not ended yet."""

    begun: int = 0
    losses: int = 0
    """Attempts that cost their worker, or were too much for its memory."""
    failures: int = 0
    """Attempts, among the losses, that failed certainly because of the row."""


@dataclass(slots=True, eq=False)
class DocumentRun:
    """A document from when it is opened, or known to have rows to be read, until these have ended."""

    index: int
    state: DocumentState
    page_timeout_s: float
    next: RowKey | None = None
    """The row to be begun next, of those that were never begun."""
    following: Iterator[RowKey] = field(default_factory=lambda: iter(()))
    """The rows after `next`, of those that were never begun."""
    line: list[int] | None = None
    """The scheduler's line in which the document waits."""
    in_flight: dict[int, Worker] = field(default_factory=dict)
    """The pages that are being read, and by which worker."""
    attempts: dict[int | None, Attempts] = field(default_factory=dict)
    """The attempts at the rows that were begun and have not ended; at None, the attempts to open the document."""
    cost: float = 0.0
    given_up: Failure | None = None
    """Why no more of the document's pages are begun."""

    @property
    def is_unread(self) -> bool:
        """Whether the document's rows are ended without being read: it cannot be opened, has no pages, or was given
        up."""
        return self.given_up is not None or not self.state.page_count

    @property
    def is_costly(self) -> bool:
        """Whether other documents have to be read first, because this one has cost something."""
        return self.cost > 0 and not self.is_unread

    def charge_step(self, seconds: float) -> None:
        """Count a step that ended, well or not."""
        bytes_per_page = (self.state.size or 0) / self.state.page_count if self.state.page_count else 0.0
        beyond_s = max(0.0, seconds - bytes_per_page / _SLOWEST_BYTES_PER_S)
        self.charge(beyond_s / self.page_timeout_s - STEP_ALLOWANCE, "timeout")

    def charge(self, timeouts: float, error_kind: ErrorKind) -> None:
        """Count what the document has cost, in units of --page-timeout; a lost worker counts as one, however soon that
        was. error_kind: what its pages fail with if that is too much."""
        self.cost = max(0.0, self.cost + timeouts)
        if self.cost >= _MAX_COST and self.given_up is None:
            seconds = _MAX_COST * self.page_timeout_s
            reason = f"the pages before it crashed, hung or were slow for more than {seconds:g} s in all"
            hint = "each crash counts as --page-timeout, and so does the time of slow steps"
            self.given_up = Failure(error_kind, f"not tried: {reason} ({hint}); see their rows")
