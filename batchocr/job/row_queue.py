"""The rows that are still to be begun, in input order. `scheduler` picks from them."""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RowKey:
    """A row of the output. document: index into the run's documents. page_index: None for the document as a whole."""

    document: int
    page_index: int | None


@dataclass(slots=True)
class _DocumentRows:
    """The rows of a document. Those from `position` on are still to be handed out, except those that are `skipped`.
    num_before: how many rows of the output come before this document, if that is known."""

    rows: Sequence[int | None]
    skipped: Collection[int | None]
    num_before: int
    position: int = 0

    @property
    def num_left(self) -> int:
        return len(self.rows) - self.position

    @property
    def output_index(self) -> int:
        """The index of the next row in the output."""
        return self.num_before + self.position


class RowQueue:
    """The rows of each document, in input order, and those that were given back. Those of postponed documents are only
    handed out if they are asked for.

    max_unreleased: how many rows of the output, from the first one that is not `released` yet, may be handed out; None
    for no limit. num_rows: those of all documents so far. num_handed_out: those that were skipped count, too.
    """

    def __init__(self, max_unreleased: int | None) -> None:
        self.num_documents = 0
        self.num_rows = 0
        self.num_handed_out = 0
        self._max_unreleased = max_unreleased
        self._num_released = 0
        self._queues: dict[int, _DocumentRows] = {}
        self._documents: list[int] = []  # the keys of `_queues`, sorted
        self._returned: deque[RowKey] = deque()
        self._postponed: set[int] = set()

    @property
    def num_rows_ready(self) -> int:
        """How many rows are still to be handed out for the first time, without those of postponed documents."""
        num_postponed = sum(self._queues[document].num_left for document in self._line(postponed=True))
        return self.num_rows - self.num_handed_out - num_postponed

    @property
    def num_returned(self) -> int:
        """How many rows that were given back are to be handed out again."""
        return len(self._returned)

    @property
    def room_for_more(self) -> bool:
        """Whether rows of another document might be handed out before any is released."""
        return self._is_open(self.num_rows)

    def add(self, document: int, rows: Sequence[int | None], skipped: Collection[int | None]) -> None:
        """Have these rows of a document handed out, except those that are skipped, as they need not be read. With
        max_unreleased, the documents have to come in input order."""
        self._queues[document] = _DocumentRows(rows, skipped, self.num_rows)
        self.num_documents += 1
        self.num_rows += len(rows)
        insort(self._documents, document)
        self._skip(document)

    def candidates(self, among: Collection[int] | None = None, *, postponed: bool = False) -> Iterator[RowKey]:
        """Yield the rows that could be begun now: those that were given back, then the next one of each document.

        among: only of these documents, not counting those given back; None for all. postponed: of the postponed
        documents, instead of the others.
        """
        yield from (key for key in self._returned if (key.document in self._postponed) is postponed)
        for document in self._line(among, postponed=postponed):
            queue = self._queues[document]
            if not self._is_open(queue.output_index):
                return
            yield RowKey(document, queue.rows[queue.position])

    def take(self, key: RowKey) -> None:
        """Hand out one of the candidates."""
        if key in self._returned:
            self._returned.remove(key)
        else:
            self._advance(key.document)
            self._skip(key.document)

    def give_back(self, key: RowKey) -> None:
        """Put a row that was handed out back in front of all others, to be begun again."""
        self._returned.appendleft(key)

    def released(self) -> None:
        """Record that one more of the rows handed out has been passed on in input order."""
        self._num_released += 1

    def postpone(self, document: int, *, on: bool) -> None:
        """Postpone a document, or no longer."""
        (self._postponed.add if on else self._postponed.discard)(document)

    def num_ready(self, *, per_document: int, enough: int) -> int:
        """How many rows can be handed out if no document may have more than `per_document` of them; not
        counted further than `enough`."""
        count = 0
        for document in self._line(postponed=False):
            if count >= enough:
                break
            count += min(per_document, self._queues[document].num_left)
        return count

    def others_wait(self, document: int) -> bool:
        """Whether another document has a row to be handed out; if this one is postponed, another such document."""
        line = self._line(postponed=document in self._postponed)
        other = next((other for other in line if other != document), None)
        return other is not None and self._is_open(self._queues[other].output_index)

    def _line(self, among: Collection[int] | None = None, *, postponed: bool) -> Iterator[int]:
        """The documents with rows to be handed out, in input order: those that are postponed, or those that are not.
        among: only these; None for all."""
        if postponed:
            among = self._postponed if among is None else self._postponed.intersection(among)
        documents = self._documents if among is None else sorted(self._queues.keys() & among)
        return (document for document in documents if (document in self._postponed) is postponed)

    def _skip(self, document: int) -> None:
        """Pass over the next rows of the document that are skipped. If none is left, the document leaves the queue."""
        queue = self._queues[document]
        while queue.num_left:
            if queue.rows[queue.position] not in queue.skipped:
                return
            self._advance(document)
        del self._queues[document]
        self._documents.remove(document)

    def _advance(self, document: int) -> None:
        self._queues[document].position += 1
        self.num_handed_out += 1

    def _is_open(self, output_index: int) -> bool:
        return self._max_unreleased is None or output_index - self._num_released < self._max_unreleased
