"""What came of a campaign."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

_KEPT_EACH = 3


class Tally:
    """Counts outcomes, and keeps the input of the first few that are faults.

    folder: where to; None keeps none.
    """

    def __init__(self, folder: Path | None) -> None:
        self.outcomes: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self._folder = folder

    def add(self, outcome: str) -> None:
        """Something that may happen."""
        self.outcomes[outcome] += 1

    def fault(self, what: str, data: bytes, suffix: str = "") -> None:
        """Something that must not. suffix: of the file that keeps the data."""
        self.faults[what] += 1
        if self._folder is not None and self.faults[what] <= _KEPT_EACH:
            self._folder.mkdir(parents=True, exist_ok=True)
            name = "".join(letter if letter.isalnum() else "-" for letter in what)
            (self._folder / f"{name}-{self.faults[what]}{suffix}").write_bytes(data)
