"""What makes the exit code of a finished run, or of a table, 3: the same in `run` and `verify`.

A run on a cluster has the first two.
"""

from __future__ import annotations

from dataclasses import dataclass

from batchocr.data import counted


@dataclass(slots=True)
class GateCounts:
    """rows: that there should be; failed: of them. pages: those read; degraded, doubtful: of them."""

    rows: int = 0
    failed: int = 0
    pages: int = 0
    degraded: int = 0
    doubtful: int = 0

    def exceeded(self, max_page_error_rate: float, max_degraded_rate: float, max_doubtful_rate: float) -> list[str]:
        """A sentence for each share that is larger than it may be; failures do not hide degraded or doubtful pages."""
        gates = (
            (self.failed, self.rows, "row", "failed", "--max-page-error-rate", max_page_error_rate),
            (self.degraded, self.pages, "page", "came out incomplete", "--max-degraded-rate", max_degraded_rate),
            (self.doubtful, self.pages, "page", "are doubtful", "--max-doubtful-rate", max_doubtful_rate),
        )
        return [
            f"{count:,} of {counted(total, noun)} {what}, more than {option} {allowed:g} allows"
            for count, total, noun, what, option, allowed in gates
            if total and count / total > allowed
        ]
