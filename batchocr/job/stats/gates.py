"""What makes the exit code of a finished run, or of a table, 3: the same in `run` and `verify`.

A run on a cluster has the first two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from batchocr.data import PageResult, counted
from batchocr.documents.review.choose import quality

DOUBTFUL: Final = 0.5
"""Pages whose quality, as `view` sorts by it, is below this are doubtful."""


class Rates(Protocol):
    """Shares from 0 to 1; a Config, a Report or a ClusterReport."""

    @property
    def max_page_error_rate(self) -> float: ...

    @property
    def max_degraded_rate(self) -> float: ...

    @property
    def max_doubtful_rate(self) -> float: ...


@dataclass(slots=True)
class GateCounts:
    """rows: that there should be; failed: of them. pages: those read; degraded, doubtful: of them."""

    rows: int = 0
    failed: int = 0
    pages: int = 0
    degraded: int = 0
    doubtful: int = 0

    def exceeded(self, rates: Rates) -> list[str]:
        """A sentence for each share that is larger than it may be; failures do not hide degraded or doubtful pages."""
        gates = (
            (self.failed, self.rows, "row", "failed", "--max-page-error-rate", rates.max_page_error_rate),
            (self.degraded, self.pages, "page", "came out incomplete", "--max-degraded-rate", rates.max_degraded_rate),
            (self.doubtful, self.pages, "page", "are doubtful", "--max-doubtful-rate", rates.max_doubtful_rate),
        )
        return [
            f"{count:,} of {counted(total, noun)} {what}, more than {option} {allowed:g} allows"
            for count, total, noun, what, option, allowed in gates
            if total and count / total > allowed
        ]


def is_doubtful(row: PageResult) -> bool:
    """Whether a page was read, and a person should look at it."""
    return row.status in ("ok", "degraded") and quality(row) < DOUBTFUL
