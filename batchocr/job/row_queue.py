"""The rows that are still to be begun, in input order. `scheduler` picks from them."""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class RowKey:
    """A row of the output. document: index into the run's documents. page_index: None for the document as a whole."""

    document: int
    page_index: int | None


@dataclass(slots=True)
class _DocumentRows:
    """The rows of a document. Those from `position` on are still to be handed out, except those in `done` or `copied`.
    num_before: how many rows of the output come before this document, if that is known."""

    rows: Sequence[int | None]
    done: Collection[int | None]
    copied: Collection[int | None]
    num_before: int
    position: int = 0

    @property
    def num_left(self) -> int:
        return len(self.rows) - self.position

    @property
    def output_index(self) -> int:
        """The index of the next row in the output."""
        return self.num_before + self.position


@dataclass(slots=True)
class _Line:
    """Documents with rows to be handed out, in input order, and rows that were given back. num_rows: how many rows of
    these documents are still to be handed out for the first time."""

    documents: list[int] = field(default_factory=list)
    returned: deque[RowKey] = field(default_factory=deque)
    num_rows: int = 0


class RowQueue:
    """The rows of each document, in input order, and those that were given back. Postponed documents have a line of
    their own.

    max_unreleased: how many rows of the output, from the first one that is not `released` yet, may be handed out; None
    for no limit. num_rows: those of all documents so far. num_passed_over: those that were done already.
    """

    def __init__(self, max_unreleased: int | None) -> None:
        self.num_documents = 0
        self.num_rows = 0
        self.num_handed_out = 0
        self.num_passed_over = 0
        self._max_unreleased = max_unreleased
        self._num_released = 0
        self._queues: dict[int, _DocumentRows] = {}
        self._postponed: set[int] = set()
        self._ready, self._later = _Line(), _Line()

    @property
    def num_rows_ready(self) -> int:
        """How many rows are still to be handed out for the first time, without those of postponed documents."""
        return self._ready.num_rows

    @property
    def num_returned(self) -> int:
        """How many rows that were given back are to be handed out again."""
        return len(self._ready.returned) + len(self._later.returned)

    @property
    def room_for_more(self) -> bool:
        """Whether rows of another document might be handed out before any is released."""
        return self._is_open(self.num_rows)

    def add(
        self,
        document: int,
        rows: Sequence[int | None],
        done: Collection[int | None],
        copied: Collection[int | None] = (),
    ) -> None:
        """Have these rows of a document handed out, except those that are done. With max_unreleased, the documents have
        to come in input order. copied: those that need not be read; they count as handed out."""
        queue = _DocumentRows(rows, done, copied, self.num_rows)
        self.num_documents += 1
        self.num_rows += len(rows)
        line = self._line_of(document)
        line.num_rows += len(rows)
        self._queues[document] = queue
        insort(line.documents, document)
        self._pass_over_done(document)

    def candidates(self, among: Collection[int] | None = None, *, postponed: bool = False) -> Iterator[RowKey]:
        """Yield the rows that could be begun now: those that were given back, then the next one of each document.

        among: only of these documents, not counting those given back; None for all. postponed: of the postponed
        documents, instead of the others.
        """
        line = self._later if postponed else self._ready
        yield from line.returned
        for document in line.documents if among is None else self._in_line(line, among):
            queue = self._queues[document]
            if not self._is_open(queue.output_index):
                return
            yield RowKey(document, queue.rows[queue.position])

    def take(self, key: RowKey) -> None:
        """Hand out one of the candidates."""
        line = self._line_of(key.document)
        if key in line.returned:
            line.returned.remove(key)
        else:
            self._advance(key.document)
            self._pass_over_done(key.document)

    def give_back(self, key: RowKey) -> None:
        """Put a row that was handed out back in front of all others, to be begun again."""
        self._line_of(key.document).returned.appendleft(key)

    def released(self) -> None:
        """Record that one more of the rows handed out has been passed on in input order."""
        self._num_released += 1

    def postpone(self, document: int, *, on: bool) -> None:
        """Move a document to the line of the postponed ones, or back."""
        source = self._line_of(document)
        (self._postponed.add if on else self._postponed.discard)(document)
        target = self._line_of(document)
        if source is target:
            return
        if (queue := self._queues.get(document)) is not None:
            source.documents.remove(document)
            insort(target.documents, document)
            source.num_rows -= queue.num_left
            target.num_rows += queue.num_left
        for key in [key for key in source.returned if key.document == document]:
            source.returned.remove(key)
            target.returned.append(key)

    def num_ready(self, *, per_document: int, enough: int) -> int:
        """How many rows can be handed out if no document may have more than `per_document` of them; not
        counted further than `enough`."""
        count = 0
        for document in self._ready.documents:
            if count >= enough:
                break
            count += min(per_document, self._queues[document].num_left)
        return count

    def others_wait(self, document: int) -> bool:
        """Whether another document in the same line has a row to be handed out."""
        first_two = self._line_of(document).documents[:2]
        return any(other != document and self._is_open(self._queues[other].output_index) for other in first_two)

    def _in_line(self, line: _Line, among: Collection[int]) -> list[int]:
        return sorted(document for document in among if document in self._queues and self._line_of(document) is line)

    def _pass_over_done(self, document: int) -> None:
        """Skip the next rows of the document that are done or copied. If none is left, the document leaves its line."""
        queue = self._queues[document]
        while queue.num_left:
            is_done = queue.rows[queue.position] in queue.done
            if not is_done and queue.rows[queue.position] not in queue.copied:
                return
            self._advance(document)
            self.num_passed_over += is_done
        del self._queues[document]
        self._line_of(document).documents.remove(document)

    def _advance(self, document: int) -> None:
        self._queues[document].position += 1
        self._line_of(document).num_rows -= 1
        self.num_handed_out += 1

    def _line_of(self, document: int) -> _Line:
        return self._later if document in self._postponed else self._ready

    def _is_open(self, output_index: int) -> bool:
        return self._max_unreleased is None or output_index - self._num_released < self._max_unreleased
