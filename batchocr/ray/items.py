"""What is to be read, divided into items: some documents, or some pages of a long one; about a thousand pages each.

How many pages a document has, only who reads it knows. Until then its size says it, and an actor that finds more pages
than an item should have reads as many, and leaves the rest to others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from batchocr.data import Document, Failure, PageResult
from batchocr.storage.listing import Documents
from batchocr.tables.known import KnownRow, version_of

_PAGE_BYTES = 100_000
_OF_MANY_PAGES = (".pdf", ".tif", ".tiff")


@dataclass(frozen=True, slots=True, eq=False)
class Item:
    """What one actor reads at a time."""

    number: int
    documents: Sequence[Document]
    """The documents in the order of the input, with those of which only some pages are to be read."""
    num_pages: int
    """The pages to be read, as far as can be told."""
    row: KnownRow | None = None
    """A row that was read of the item's one document, of which these are other pages."""

    def failed_rows(self, failure: Failure, *, attempts: int) -> Iterator[PageResult]:
        """Yield all rows of the item, failed, but for rows of pages of which an earlier run has rows."""
        for document in self.documents:
            if document.pages is None:
                size, mtime_ns = version_of(document)
                row = _failed(document.source, None, failure, attempts)
                yield replace(row, file_bytes=size, file_mtime_ns=mtime_ns)
            elif self.row is not None:
                rows = (_failed(document.source, page, failure, attempts) for page in sorted(document.pages))
                yield from (_of_version(row, self.row) for row in rows)


def _failed(source: str, page_index: int | None, failure: Failure, attempts: int) -> PageResult:
    kind, message = failure.kind, failure.message
    return PageResult(source, page_index, "failed", error_kind=kind, error_message=message, attempts=attempts)


def _of_version(row: PageResult, read: KnownRow) -> PageResult:
    """The row as a row of the file that was read."""
    size, mtime_ns = read.version
    return replace(row, doc_id=read.doc_id, page_count=read.page_count, file_bytes=size, file_mtime_ns=mtime_ns)


class Items:
    """Makes items out of documents. pages_per_item: about how many pages an item should have."""

    def __init__(self, pages_per_item: int) -> None:
        self._pages_per_item = pages_per_item
        self._number = 0

    def of(self, documents: Documents, sizes: NDArray[np.int64]) -> list[Item]:
        """The items of whole documents, in the documents' order. sizes: of the files, in bytes."""
        pages = np.where(documents.end_in(*_OF_MANY_PAGES), 1 + np.maximum(sizes, 0) // _PAGE_BYTES, 1)
        numbers = (np.cumsum(pages) - pages) // self._pages_per_item
        starts = np.flatnonzero(np.diff(numbers, prepend=-1)).tolist()
        ends = [*starts[1:], len(documents)]
        return [
            self._item(documents.slice(start, end), int(pages[start:end].sum()))
            for start, end in zip(starts, ends, strict=False)
        ]

    def of_some(self, documents: Iterable[Document]) -> Iterator[Item]:
        """Yield the items of documents of which some pages are to be read, or all."""
        group: list[Document] = []
        num_pages = 0
        for piece in chain.from_iterable(map(self._divided, documents)):
            if group and num_pages + _num_pages(piece) > self._pages_per_item:
                yield self._item(group, num_pages)
                group, num_pages = [], 0
            group.append(piece)
            num_pages += _num_pages(piece)
        if group:
            yield self._item(group, num_pages)

    def of_pieces(self, document: Document, row: KnownRow) -> Iterator[Item]:
        """Yield the items of other pages of a document than this row, which was read of it."""
        return (self._item([piece], _num_pages(piece), row) for piece in self._divided(document))

    def of_each(self, documents: Iterable[Document]) -> list[Item]:
        """An item of each document."""
        return [self._item([document], _num_pages(document)) for document in documents]

    def _divided(self, document: Document) -> Iterator[Document]:
        pages = sorted(document.pages or ())
        num_items = max(1, -(-len(pages) // self._pages_per_item))
        for place in range(num_items):
            some = pages[place * len(pages) // num_items : (place + 1) * len(pages) // num_items]
            yield replace(document, pages=frozenset(some)) if pages else document

    def _item(self, documents: Sequence[Document], num_pages: int, row: KnownRow | None = None) -> Item:
        self._number += 1
        return Item(self._number, documents, num_pages, row)


def _num_pages(document: Document) -> int:
    return len(document.pages or "1")


def changed_rows(found: Iterable[tuple[Document, KnownRow]]) -> Iterator[PageResult]:
    """Yield a row for each of these pages that says that the file has changed again."""
    for document, newest in found:
        item = Item(0, [document], 0, newest)
        yield from item.failed_rows(
            Failure("changed", "the file was replaced or removed while it was read"), attempts=1
        )
