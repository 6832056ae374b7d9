"""The exit codes of the command that no error in `errors.py` owns."""

from __future__ import annotations

EXIT_BUG = 1
EXIT_USAGE = 2
EXIT_TOO_MANY_FAILURES = 3
EXIT_STOPPED = 75
EXIT_INTERRUPTED = 130


def too_many_failed(failed: int, total: int, max_rate: float) -> bool:
    """Whether the share of failed rows is above what is allowed. max_rate: from 0 to 1."""
    return total > 0 and failed / total > max_rate
