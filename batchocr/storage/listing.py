"""The documents of an input as columns: as objects, a million of them take half a gigabyte."""

from __future__ import annotations

import copy
import os
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from batchocr.data import Document, valid_text
from batchocr.storage.uris import is_uri

_AT_ONCE: Final = 4096
"""How many Documents there are at a time while columns are filled, or read from the first to the last."""

_COLUMNS: Final = pa.schema(
    {"path": pa.binary(), "source": pa.string(), "size": pa.int64(), "mtime_ns": pa.int64(), "rare": pa.int32()}
)
"""The columns of a Document, whose path need not be text; `rare` is the number of one that has more than these."""


class Documents(Sequence[Document]):
    """Documents, in order. Each is made when it is asked for; its `source` is valid text."""

    def __init__(self, documents: Iterable[Document] = ()) -> None:
        self._columns: list[pa.ChunkedArray] = _COLUMNS.empty_table().columns
        self._rare: list[Document] = []
        self._folder = ""
        """The folder that stands before each relative path."""
        self.extend(documents)

    def extend(self, documents: Iterable[Document]) -> None:
        """Add documents behind those that are there."""
        remaining = iter(documents)
        batches = iter(lambda: list(islice(remaining, _AT_ONCE)), [])
        more = pa.Table.from_batches(map(self._batch, batches), _COLUMNS)
        self._columns = pa.concat_tables([pa.table(self._columns, _COLUMNS), more]).columns

    def _batch(self, documents: Sequence[Document]) -> pa.RecordBatch:
        columns = zip(*map(self._row, documents), strict=True)
        pool = pa.system_memory_pool()  # Arrow's own holds twice as much for arrays that grow as they are filled
        arrays = [
            pa.array(values, kind, memory_pool=pool) for values, kind in zip(columns, _COLUMNS.types, strict=True)
        ]
        return pa.record_batch(arrays, schema=_COLUMNS)

    def _row(self, document: Document) -> tuple[bytes, str, int | None, int | None, int | None]:
        rare = None
        if document.problem is not None or document.held is not None or document.pages is not None:
            rare = len(self._rare)
            self._rare.append(document)
        path = document.path.encode("utf-8", "surrogatepass")
        return path, valid_text(document.source), document.size, document.mtime_ns, rare

    def __len__(self) -> int:
        return len(self._columns[0])

    def __iter__(self) -> Iterator[Document]:
        for batch in pa.table(self._columns, _COLUMNS).to_batches(max_chunksize=_AT_ONCE):
            yield from map(self._document, *(column.to_pylist() for column in batch.columns))

    def __getitem__(self, index: int) -> Document:  # type: ignore[override]  # nobody needs slices
        return self._document(*(column[index].as_py() for column in self._columns))

    def _document(self, path: bytes, source: str, size: int | None, mtime_ns: int | None, rare: int | None) -> Document:
        if rare is None:
            return Document(self._path(path), source, size=size, mtime_ns=mtime_ns)
        return replace(self._rare[rare], path=self._path(path), source=source)

    def _path(self, path: bytes) -> str:
        text = path.decode("utf-8", "surrogatepass")
        return text if not self._folder or text.startswith("/") or is_uri(text) else self._folder + text

    @property
    def sources(self) -> pa.ChunkedArray:
        """The `source` of each, as Arrow strings."""
        return self._columns[1]

    def names(self) -> Iterator[str]:
        """Yield the `source` of each document."""
        return _values(self.sources)

    def paths(self) -> Iterator[str]:
        """Yield the `path` of each document."""
        return map(self._path, _values(self._columns[0]))

    def versions(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Size and time of each file, as it was listed or is now; -1 if the file cannot be looked at."""
        sizes, times = (np.require(column.fill_null(-1).to_numpy(), requirements="W") for column in self._columns[2:4])
        unknown = np.flatnonzero(times < 0)
        for index, path in zip(unknown.tolist(), self.where(times < 0).paths(), strict=True):
            with suppress(OSError, ValueError):
                file = os.stat(path)
                sizes[index], times[index] = file.st_size, file.st_mtime_ns
        return sizes, times

    @property
    def are_rare(self) -> NDArray[np.bool_]:
        """The documents that have more than a path, a `source`, a size and a time."""
        are: NDArray[np.bool_] = self._columns[4].is_valid().to_numpy()
        return are

    def end_in(self, *suffixes: str) -> NDArray[np.bool_]:
        """The documents whose path ends in one of these, in whatever case."""
        ends = [pc.ends_with(self._columns[0], suffix, ignore_case=True).to_numpy() for suffix in suffixes]
        some_do: NDArray[np.bool_] = np.logical_or.reduce(ends)
        return some_do

    def where(self, are: Iterable[bool]) -> Self:
        """The documents for which `are` says so. are: for each document, in order."""
        some, mask = copy.copy(self), pa.array(are, pa.bool_())
        some._columns = [column.filter(mask) for column in self._columns]
        return some

    def slice(self, start: int, stop: int) -> Self:
        """The documents from one index up to another."""
        some = copy.copy(self)
        some._columns = [column.slice(start, stop - start) for column in self._columns]
        return some

    def below(self, folder: str) -> Self:
        """These documents, with relative paths taken from the folder. folder: ends in a slash."""
        same = copy.copy(self)
        same._folder = folder
        return same


def _values(column: pa.ChunkedArray) -> Iterator[Any]:
    return (value for chunk in column.iterchunks() for value in chunk.to_pylist())


def repeated(values: Iterable[int | str]) -> list[int]:
    """The indices of values that occur more than once, and by chance of a few others: only their hashes are kept."""
    hashes = np.frombuffer(array("q", map(hash, values)), np.int64)
    ordered = np.sort(hashes)
    again = ordered[1:][ordered[1:] == ordered[:-1]]
    return np.flatnonzero(np.isin(hashes, again)).tolist() if len(again) else []
