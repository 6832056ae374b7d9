"""What a run has to tell at its end, as it becomes known: what became of each item, and how the run went."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from batchocr.config import Config
from batchocr.data import ErrorKind, PageResult, Status
from batchocr.job.stats.quality import Quality
from batchocr.processes.counts import Counts

ExitReason = Literal["finished", "stopped", "interrupted", "failed"]


@dataclass(slots=True)
class Ledger:
    """What a run has to tell; the report is made from it, and from what its engines have counted."""

    documents: int = 0
    skipped_files: Mapping[str, int] = field(default_factory=dict)
    """Files in folders that are no documents, by suffix."""
    documents_not_opened: int = 0
    """Documents for which a run that ended early cannot say how many items they hold."""
    found: int = 0
    """Items, as far as documents have been opened."""
    already_done: int = 0
    """Items that earlier runs dealt with."""
    by_status: Counter[Status] = field(default_factory=Counter)
    errors: Counter[ErrorKind] = field(default_factory=Counter)
    pages_read: int = 0
    pages_copied: int = 0
    """Pages that were not read, as their rows were made from those of others."""
    documents_copied: int = 0
    pages_of_unknown_orientation: int = 0
    """Pages read of which it is not known how they stand."""
    image_tokens: int = 0
    """Image tokens of the pages read, whoever asked for their answers first."""
    output_tokens: int = 0
    quality: Quality = field(default_factory=Quality)
    """The measures of the pages read or copied; once the table is written, of all its rows."""
    counts: Counts = field(default_factory=Counts)
    """The work of the run's own process and of its workers."""
    exit_reason: ExitReason = "finished"
    start_up_s: float = 0.0
    work_s: float = 0.0
    table_s: float = 0.0
    """How long building the table took."""
    workers: int = 1
    rates: Config = field(default_factory=Config)
    """The Config, which has the shares of failed items, and of degraded and doubtful pages, that are allowed."""
    peak_main_bytes: int | None = None
    peak_worker_bytes: int | None = None

    def add_result(self, result: PageResult) -> None:
        """Count an item that this run has dealt with."""
        self._count(result.status, result.error_kind)
        if result.status in ("ok", "degraded"):
            self.quality.add(result)
            if result.attempts == 0:
                self.pages_copied += 1
                return
            self.pages_read += 1
            self.pages_of_unknown_orientation += result.orientation is None
            self.image_tokens += result.image_tokens
            self.output_tokens += result.output_tokens

    def add_done(self, status: Status, error_kind: ErrorKind | None = None) -> None:
        """Count an item that an earlier run has dealt with for good."""
        self._count(status, error_kind)
        self.already_done += 1

    def add_earlier(self, statuses: Counter[Status], errors: Counter[ErrorKind]) -> None:
        """Count many items that earlier runs have dealt with for good."""
        self.found += statuses.total()
        self.already_done += statuses.total()
        self.by_status += statuses
        self.errors += errors

    def _count(self, status: Status, error_kind: ErrorKind | None) -> None:
        self.by_status[status] += 1
        if error_kind is not None:
            self.errors[error_kind] += 1
