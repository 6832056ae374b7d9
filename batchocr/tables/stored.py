"""Copies of what a store has in the place of an output, for a run that continues it. They are as long as the objects;
of a Parquet table they have the footer and the columns that a run looks at, and the rest once rows are copied.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import product
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from batchocr.errors import PageError, of_store
from batchocr.storage.objects import StoredObject, fetch, fetch_pieces
from batchocr.tables.files import is_folder
from batchocr.tables.settled import LEAVES

FETCH_S = 3600.0
"""For one object."""
_TAIL_BYTES = 1 << 16
_ADDRESSES: Final[dict[Path, str]] = {}
"""The folders of copies that this process has made, each with how the URIs of the objects begin; the name of a copy is
the rest. What lies in any other folder is nobody's copy."""
_GAP_BYTES = 1 << 14
"""Up to so much is fetched with the pieces that it lies between, as a request takes longer."""


def stored_copy(file: Path) -> Path:
    """Where the copy is of what a store has in the place of this file."""
    return file.parent / ".stored" / file.name


def make_copies_folder(copies: Path, address: str) -> None:
    """Make the folder of the copies of objects, whose URIs begin so. Raises OSError."""
    copies.mkdir()
    _ADDRESSES[copies] = address


def present(file: Path) -> Path:
    """The file; or the copy of it that was fetched from a store, if only that is there."""
    copy = stored_copy(file)
    return copy if copy.parent in _ADDRESSES and copy.exists() and not file.exists() else file


def with_copies(folder: Path) -> dict[str, Path]:
    """The files in a folder, by name, with the copies of those that a store has in its place. Raises OSError."""
    copies = stored_copy(folder / "any").parent
    places = [*([copies] if copies in _ADDRESSES and copies.is_dir() else []), folder]
    return {file.name: file for place in places for file in place.iterdir() if not file.name.startswith(".")}


def table_bytes(out: Path) -> int:
    """Of the table, or of all parts of one in a folder, also where a store has them and the run leaves them there."""
    if not is_folder(out):
        return present(out).stat().st_size
    return sum(file.stat().st_size for file in with_copies(out).values() if file.suffix == ".parquet")


@contextmanager
def fetching(uri: str) -> Iterator[None]:
    """Turn a PageError of this object into an OutputError."""
    try:
        yield
    except PageError as error:
        raise of_store(error, f"{uri} cannot be fetched: {error}") from error


def fetch_looked_at(stored: StoredObject, copy: Path) -> None:
    """Make the copy of a Parquet table, without the columns that a run may not need. Raises OutputError, OSError."""
    with fetching(stored.uri), copy.open("w+b", buffering=0) as file:
        file.truncate(stored.size)
        tail = max(0, stored.size - _TAIL_BYTES)
        fetch_pieces(stored, file, [(tail, stored.size)])
        footer_bytes = int.from_bytes(os.pread(file.fileno(), 4, max(0, stored.size - 8)), "little")
        if footer_bytes > _TAIL_BYTES - 8:
            fetch_pieces(stored, file, [(max(0, stored.size - 8 - footer_bytes), tail)])
        with suppress(pa.ArrowException):  # whoever opens it says that it is no table
            fetch_pieces(stored, file, _pieces(pq.read_metadata(copy)))


def complete(copy: Path) -> None:
    """Fetch all of it, if the file is such a copy. Raises OutputError."""
    if (address := _ADDRESSES.get(copy.parent)) is not None:
        uri = address + copy.name
        with fetching(uri), copy.open("r+b") as file:
            fetch(uri, file, timeout_s=FETCH_S)


def _pieces(table: pq.FileMetaData) -> Iterable[tuple[int, int]]:
    """Where in the file the columns are that are looked at; those as one piece between which there is little."""
    places = product(range(table.num_row_groups), range(table.num_columns))
    chunks = [table.row_group(group).column(column) for group, column in places]
    chunks = [chunk for chunk in chunks if chunk.path_in_schema in LEAVES]
    starts = np.array([chunk.dictionary_page_offset or chunk.data_page_offset for chunk in chunks], np.int64)
    stops = starts + np.array([chunk.total_compressed_size for chunk in chunks], np.int64)
    is_apart = starts[1:] - stops[:-1] > _GAP_BYTES
    begins, ends = np.insert(is_apart, 0, True), np.append(is_apart, True)
    return zip(starts[begins].tolist(), stops[ends].tolist(), strict=True) if chunks else ()
