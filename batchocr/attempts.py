"""How often a row may be begun: what that has cost so far, and which documents are given up for it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from batchocr.data import ErrorKind
from batchocr.intake import RowKey

_MAX_FAILURES: Final = 2
_MAX_LOSSES: Final = 5
"""So often may a row lose its worker though it is not known to be to blame, as when somebody kills the worker."""

_MAX_FATAL_PAGES: Final = 3
"""Pages of one document that cost their workers until they were begun no more, and none between them that did not."""


@dataclass(frozen=True, slots=True)
class GivenUp:
    """Why the rest of a document's pages is not tried."""

    error_kind: ErrorKind
    error_message: str


class Attempts:
    """What has been tried with the rows that have not ended yet, and with their documents."""

    def __init__(self) -> None:
        self._begun: Counter[RowKey] = Counter()
        self._failures: Counter[RowKey] = Counter()
        self._losses: Counter[RowKey] = Counter()
        self._fatal_pages: Counter[int] = Counter()
        self._given_up: dict[int, GivenUp] = {}

    def begin(self, key: RowKey) -> None:
        """The row is begun, for the first time or once more."""
        self._begun[key] += 1

    def add_loss(self, key: RowKey, *, to_blame: bool) -> None:
        """The attempt has cost the worker; to_blame: beyond doubt."""
        self._losses[key] += 1
        if to_blame:
            self._failures[key] += 1

    def is_suspect(self, key: RowKey) -> bool:
        """Whether an attempt at the row has cost a worker beyond doubt."""
        return self._failures[key] > 0

    def exhausted(self, key: RowKey) -> bool:
        """Whether the row is not to be begun again."""
        return self._failures[key] >= _MAX_FAILURES or self._losses[key] >= _MAX_LOSSES

    def is_suspected(self, document: int) -> bool:
        """Whether a row of the document that has cost a worker is still to end, or the last that ended did so by that.

        Its pages should be begun one at a time then: each may cost the others what was done for them.
        """
        return document in self._fatal_pages or any(key.document == document for key in self._failures)

    def given_up(self, document: int) -> GivenUp | None:
        """Why no further page of the document is to be begun; None where they are."""
        return self._given_up.get(document)

    def end(self, key: RowKey, error_kind: ErrorKind | None) -> int:
        """The row has ended, with this error or none; returns how often it was begun.

        Gives its document up where that makes too many fatal pages in a row: each of the others would cost the run two
        workers as well, and up to two timeouts.
        """
        if error_kind is not None and self.exhausted(key):
            self._fatal_pages[key.document] += 1
            if self._fatal_pages[key.document] == _MAX_FATAL_PAGES:
                self._give_up(key.document, error_kind)
        else:
            self._fatal_pages.pop(key.document, None)
        self._failures.pop(key, None)
        self._losses.pop(key, None)
        return self._begun.pop(key, 0)

    def _give_up(self, document: int, error_kind: ErrorKind) -> None:
        reason = f"{_MAX_FATAL_PAGES} pages of this document in a row cost their workers ({error_kind})"
        self._given_up[document] = GivenUp(error_kind, f"not tried: {reason}; see their rows")
