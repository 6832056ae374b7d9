"""The rows of the output: of which documents and pages, what earlier runs have settled, and what became of each."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from math import inf
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from batchocr.data import Document, Failure
from batchocr.job.copies import Copies
from batchocr.job.document_run import DocumentState, RowKey
from batchocr.option_values import parse_page_spec
from batchocr.processes.messages import Opened
from batchocr.storage.listing import Documents
from batchocr.tables.journal import Journal
from batchocr.tables.known import Flags, KnownRow, KnownRows, Numbers, Overlay, settled, version_of

_LOOKED_AT_ONCE: Final = 100
"""How many files are looked at between two checks for messages: a million may be unchanged in a row."""


class RowPlan:
    """Which rows there are to be, as far as is known.

    A document's rows are known once it has been opened, or need not be. Then it is `ready` for the scheduler, whatever
    comes before it; but with a limit, which has to mean the same rows in every run, or with max_unreleased, only when
    the rows of all documents before it are known, too.

    Of documents with the same bytes, one is read, and the others get copies of its rows. A document in `finished`
    serves too, even if its file is gone. Without `finished`, or with `reads_all`, every document is read.

    pages: as the option. retry_failed: begin rows again that failed in an earlier run; None for those that may succeed
    now. max_unreleased: how many rows may be begun before `end_of_window` is moved on; None for all.
    """

    def __init__(
        self,
        documents: Documents,
        pages: str | None,
        finished: Journal | None,
        *,
        limit: int | None,
        retry_failed: bool | None = None,
        max_unreleased: int | None = None,
        reads_all: bool = False,
    ) -> None:
        self.documents = documents
        self.states: defaultdict[int, DocumentState] = defaultdict(DocumentState)
        """What is known of each document that was looked at, without those that are as the table says."""
        self.ready: deque[int] = deque()
        """The documents whose rows may be begun from now on."""
        self.num_known = 0
        """How many documents have been opened, or need not be."""
        self.num_ended = 0
        """How many rows this run or an earlier one has dealt with."""
        self.end_of_window = inf if max_unreleased is None else max_unreleased
        """The index in the output of the first row that may not be begun yet."""
        self.copies = Copies(documents, self.states, None if reads_all else finished, retry_failed)
        self.sources = documents.sources
        self.known = finished.known if finished is not None else Overlay(KnownRows())
        self._table = self.known.table
        self.places = self._table.numbers_of(self.sources)
        """The number of each document in the table; -1 if it is not there."""
        self.is_asked = np.zeros(self._table.num_rows, np.bool_)
        """The rows of the table that are rows of this run, too."""
        self.spec = parse_page_spec(pages)
        """The pages of a document that are rows."""
        self._is_of_spec, self._num_settled = self._table.asked(self.spec, retry_failed)
        self._limit = limit
        self._retry_failed = retry_failed
        self._in_order = limit is not None or max_unreleased is not None
        self._ahead = enumerate(documents)
        """The documents that were not looked at yet."""
        self._num_looked_at = self._num_given = 0
        self._not_given: dict[int, int] = {}
        """How many rows each document has that waits for one before it."""
        self._num_rows_known = self._num_rows_given = 0

    @property
    def is_complete(self) -> bool:
        """Whether every row is there."""
        return self.all_planned and self.num_ended == self.num_planned

    @property
    def all_planned(self) -> bool:
        """Whether `num_planned` is final."""
        return self.num_known == len(self.documents) or self._num_rows_given == self._limit

    @property
    def more_to_come(self) -> bool:
        """Whether documents that are not known yet may add rows that could be begun."""
        return not self.all_planned and self._num_rows_given < self.end_of_window

    @property
    def num_planned(self) -> int:
        """How many rows there are, as far as is known."""
        return self._num_rows_known if self._limit is None else min(self._num_rows_known, self._limit)

    @property
    def num_ahead(self) -> int:
        """How many documents are being opened, or wait for an earlier one that is being opened."""
        return self._num_looked_at - self._num_given

    @property
    def num_left(self) -> int:
        """How many rows are known and have not ended."""
        return self._num_rows_known - self.num_ended

    def is_in_window(self, key: RowKey) -> bool:
        """Whether the row may be begun, of which the document was in `ready`."""
        return self.end_of_window == inf or self.output_index(key) < self.end_of_window

    def output_index(self, key: RowKey) -> int:
        """The index of a row in the output."""
        state = self.states[key.document]
        return state.num_before + (state.rows or ()).index(key.page_index)

    def to_be_read(self, index: int) -> Iterator[RowKey]:
        """The rows of a document in `ready` that have to be read."""
        state = self.states[index]
        return (RowKey(index, page) for page in state.rows or () if page not in state.not_read)

    def given(self, index: int) -> DocumentState | None:
        """What is known of a document that is not as the table says, and of which this run is to read rows, or has
        found them done.

        With a limit, only before the first document that is not opened yet: later ones may be beyond the limit.
        """
        state = self.states.get(index)
        return state if state is not None and state.rows is not None and index not in self._not_given else None

    def all_given(self) -> Iterator[tuple[int, DocumentState]]:
        """The documents of which the rows are known, with their index."""
        return ((index, state) for index in self.states if (state := self.given(index)) is not None)

    def next_document(self) -> int | None:
        """The next document that has to be opened to learn its pages; None if none is left, or after a look at many
        that need not be."""
        if self._num_rows_given == self._limit:
            return None
        for index, document in islice(self._ahead, _LOOKED_AT_ONCE):
            self._num_looked_at += 1
            if not self.look_at(index, document):
                return index
            if self._num_rows_given == self._limit:
                return None
        return None

    def look_at(self, index: int, document: Document) -> bool:
        """Plan the rows of a document, unless it has to be opened to learn its pages; returns whether that was done."""
        if document.problem is not None:
            self.cannot_open(index, document.problem)
            return True
        return self._is_unchanged(index, document)

    def take(self, sizes: Numbers, times: Numbers) -> Flags:
        """Take note at once of all documents of which there is nothing to be read. sizes, times: of their files.
        Returns which they are. Only before any other, and without a limit."""
        are: Flags = self.places >= 0
        if len(self._table.sources):
            places, versions = np.maximum(self.places, 0), self._table.versions()
            are &= (self._num_settled[places] > 0) & ~self.documents.are_rare
            are &= (versions[0][places] == sizes) & (versions[1][places] == times)
            are &= ~self.are_in_journal
        taken = self.places[are]
        is_taken = np.zeros(len(self._table.sources), np.bool_)
        is_taken[taken] = True
        self.is_asked |= np.repeat(is_taken, np.diff(self._table.first)) & self._is_of_spec
        num_rows = int(self._num_settled[taken].sum())
        self.num_known, self.num_ended = self.num_known + len(taken), self.num_ended + num_rows
        self._num_rows_known, self._num_rows_given = self._num_rows_known + num_rows, self._num_rows_given + num_rows
        return are

    def among_documents(self, sources: Collection[str]) -> set[str]:
        """The sources, among these, that are of documents of the input."""
        given = pa.array(sources, pa.string())
        return {*given.filter(pc.is_in(given, self.sources)).to_pylist()}

    @property
    def are_in_journal(self) -> Flags:
        """Which documents have rows in the journal, or in several tables."""
        are: Flags = pc.is_in(self.sources, pa.array(self.known.sources(), pa.string())).to_numpy()
        return are

    def rows_in_table(self, index: int) -> tuple[int, int]:
        """The first row of a document in the table, and the one after its last."""
        place = self.places[index]
        return (int(self._table.first[place]), int(self._table.first[place + 1])) if place >= 0 else (0, 0)

    def opened(self, index: int, file: Opened) -> None:
        """Record that a document was opened. One without pages gets a row for the whole."""
        state = self.states[index]
        state.size, state.mtime_ns = file.size, file.mtime_ns
        self._plan_rows(index, file.page_count, file.doc_id, self._settled(self.documents[index].source))

    def cannot_open(self, index: int, problem: Failure, doc_id: str | None = None) -> None:
        """Record that a document cannot be opened: it gets one failed row for the whole."""
        self.states[index].problem = problem
        self._plan_rows(index, None, doc_id, self._settled(self.documents[index].source) if doc_id is not None else [])

    def has_rows(self, index: int, row: KnownRow) -> None:
        """Record that a document is the one of which this row was read."""
        self._plan_rows(index, row.page_count, row.doc_id, self._settled(self.documents[index].source))

    def has_none(self, index: int) -> None:
        """Record that a document has none of the pages."""
        self.states[index].rows = ()
        self._know(index, 0)

    def ended(self, key: RowKey) -> None:
        """Record that a row is finished, or about to be."""
        self.num_ended += 1
        if key.page_index is not None:
            self.states[key.document].ended |= 1 << key.page_index
            self.copies.ended(key)

    def _is_unchanged(self, index: int, document: Document) -> bool:
        """Whether an earlier run has learnt what there is to learn about a document, and its file has not been touched
        since. Its rows are planned then."""
        version, place = version_of(document), self.places[index]
        num_settled = int(self._num_settled[place]) if place >= 0 and document.pages is None else 0
        is_in_journal = document.source in self.known.sources()
        if num_settled and version == self._table.version(place) and not is_in_journal:
            self._know(index, num_settled)
            return True
        state, settled = self.states[index], self._settled(document.source)
        state.size, state.mtime_ns = version
        of_this_file = [row for row in settled if row.is_of(version)]
        if not of_this_file:
            return False
        # A document that could be opened once has pages, whatever happened in a later run.
        row = min(of_this_file, key=lambda row: (row.status == "failed", row.page_index is None))
        self._plan_rows(index, row.page_count, row.doc_id, settled)
        return True

    def _plan_rows(self, index: int, page_count: int | None, doc_id: str | None, settled: Sequence[KnownRow]) -> None:
        """Plan the rows of a document. page_count: None if it cannot be opened."""
        state = self.states[index]
        state.page_count, state.doc_id = page_count, doc_id
        state.rows = self.documents[index].chosen(self.spec.pages(page_count)) if page_count else [None]
        state.done = frozenset(row.page_index for row in settled if row.doc_id == doc_id)
        self._know(index, len(state.rows))

    def _know(self, index: int, num_rows: int) -> None:
        """Take note that a document has so many rows, and have begun those rows whose turn it is."""
        self._num_rows_known += num_rows
        self.num_known += 1
        self._not_given[index] = num_rows
        if not self._in_order:
            self._give(index)
        while self._num_given in self._not_given and self._num_rows_given != self._limit:
            self._give(self._num_given)

    def _give(self, index: int) -> None:
        """Have the rows of a document begun. Those behind the limit are no rows of the output."""
        num_rows = self._not_given.pop(index)
        if self._limit is not None:
            num_rows = min(num_rows, self._limit - self._num_rows_given)
        state = self.states.get(index)
        if state is None:
            begin, end = self.rows_in_table(index)
            are_asked = self._is_of_spec[begin:end]
            if self._limit is not None:
                are_asked = are_asked & (np.cumsum(are_asked) <= num_rows)
            self.is_asked[begin:end] |= are_asked
            self.num_ended += num_rows
        else:
            assert state.rows is not None
            state.rows = state.rows[:num_rows]
            state.done = state.done.intersection(state.rows)
            copied = self.copies.add(index)
            state.not_read = state.done | copied if copied else state.done
            state.num_before = self._num_rows_given
            self.num_ended += len(state.done)
            self.ready.append(index)
        self._num_given += 1
        self._num_rows_given += num_rows

    def _settled(self, source: str) -> list[KnownRow]:
        """The rows of a document that need no further attempt."""
        return settled(self.known.rows(source), self._retry_failed)
