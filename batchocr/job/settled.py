"""Which documents of the input are as the table says: they need no look but at their files' size and time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from batchocr.data import Document, ErrorKind, Status, valid_text
from batchocr.option_values import PageSpec
from batchocr.tables.settled import ERROR_KINDS, STATUSES, SettledColumns, version_of


class SettledDocuments:
    """The documents of the input that are in the table, and which of its rows this run asks for.

    read_since: the documents of which a run has read something that is not in the table.
    """

    def __init__(
        self,
        table: SettledColumns,
        documents: Sequence[Document],
        spec: PageSpec | None,
        retry_failed: bool | None,
        read_since: Container[str],
    ) -> None:
        self.table = table
        sources = pa.array([valid_text(document.source) for document in documents], pa.string())
        self.places = pc.index_in(sources, table.sources).fill_null(-1).to_numpy()
        """Of each document of the input, its number in the table; -1 if it is not there."""
        self.is_asked = np.zeros(table.num_rows, np.bool_)
        """The rows that are rows of this run, too."""
        self._documents = documents
        self._read_since = read_since
        self._asked, self._num_asked = table.asked(spec, retry_failed)

    def num_rows(self, index: int) -> int:
        """How many rows a document has that are asked for, if nothing else has to be known of it; else 0."""
        document, place = self._documents[index], self.places[index]
        number = int(self._num_asked[place]) if place >= 0 else 0
        of_file = self.table.file_bytes[place], self.table.file_mtime_ns[place]
        return number if number and self._is_known(document) and version_of(document) == of_file else 0

    def take(self, index: int, num_rows: int) -> None:
        """Take so many rows of a document for rows of this run."""
        begin, end = self.rows_of(index)
        asked = np.flatnonzero(self._asked[begin:end])
        self.is_asked[begin + asked[:num_rows]] = True

    def rows_of(self, index: int) -> tuple[int, int]:
        """The first row of a document in the table, and the one after its last."""
        place = self.places[index]
        return (int(self.table.first[place]), int(self.table.first[place + 1])) if place >= 0 else (0, 0)

    def counts(self) -> tuple[Counter[Status], Counter[ErrorKind]]:
        """How many of the rows of this run have each status, and each error."""
        statuses = np.bincount(self.table.status[self.is_asked], minlength=len(STATUSES)).tolist()
        errors = self.table.error_kind[self.is_asked]
        kinds = np.bincount(errors[errors >= 0], minlength=len(ERROR_KINDS)).tolist()
        return Counter(dict(zip(STATUSES, statuses, strict=True))), +Counter(dict(zip(ERROR_KINDS, kinds, strict=True)))

    def _is_known(self, document: Document) -> bool:
        """Whether the table knows all that there is to know of a document, if it has not changed."""
        is_whole = document.pages is None and document.problem is None
        return is_whole and valid_text(document.source) not in self._read_since
