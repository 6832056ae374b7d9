"""What became of each item of a run in progress."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from batchocr.data import ErrorKind, PageResult, Status
from batchocr.job.stats.quality import Quality
from batchocr.processes.counts import AnswerCounts, HostCounts


@dataclass(slots=True)
class Ledger:
    """What became of the items. The first four are counted where the input is walked through, not here.

    skipped_files: files in folders that are no documents, by suffix. documents_not_opened: documents for which a run
    that ended early cannot say how many items they hold. pages_copied: not read, as their rows were made from those of
    others. quality: of the pages read or copied; once the table is written, of all its rows. host: the work of the
    run's own process and of its workers. table_s: how long the table took.
    """

    documents: int = 0
    skipped_files: Mapping[str, int] = field(default_factory=dict)
    documents_not_opened: int = 0
    found: int = 0
    already_done: int = 0
    by_status: Counter[Status] = field(default_factory=Counter)
    errors: Counter[ErrorKind] = field(default_factory=Counter)
    pages_read: int = 0
    pages_copied: int = 0
    documents_copied: int = 0
    answers: AnswerCounts = field(default_factory=AnswerCounts)
    image_tokens: int = 0
    output_tokens: int = 0
    quality: Quality = field(default_factory=Quality)
    host: HostCounts = field(default_factory=HostCounts)
    table_s: float = 0.0

    def add_result(self, result: PageResult) -> None:
        """Count an item that this run has dealt with."""
        self.by_status[result.status] += 1
        if result.error_kind is not None:
            self.errors[result.error_kind] += 1
        if result.status in ("ok", "degraded"):
            self.quality.add(result)
            if result.attempts == 0:
                self.pages_copied += 1
                return
            self.pages_read += 1
            self.image_tokens += result.image_tokens
            self.output_tokens += result.output_tokens

    def add_done(self, status: Status, error_kind: ErrorKind | None = None) -> None:
        """Count an item that an earlier run has dealt with for good."""
        self.by_status[status] += 1
        self.already_done += 1
        if error_kind is not None:
            self.errors[error_kind] += 1
