"""Copies of tables in a store: whole ones for readers, and for a run that continues a table such as are as long as the
objects, but have only the footer and the columns that a run looks at, and the rest once rows are copied.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from itertools import product
from pathlib import Path
from typing import Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from batchocr.errors import DeniedError, NotFoundError, OutputError, PageError, of_store
from batchocr.storage.objects import asked, fetch, fetch_pieces, require_object
from batchocr.tables import parquet
from batchocr.tables.atomic import atomic_file
from batchocr.tables.known import LEAVES
from batchocr.tables.layout import Layout, as_recorded
from batchocr.tables.record import Commit, Record

_Fetched = TypeVar("_Fetched")
_AT_ONCE: Final = 8
"""How many objects are fetched at the same time."""
_FETCH_S = 3600.0
"""How long fetching one object may take."""
_TAIL_BYTES = 1 << 16
_GAP_BYTES = 1 << 14
"""The largest gap between pieces that is fetched with them, as a request takes longer."""


@contextmanager
def fetching(uri: str) -> Iterator[None]:
    """Turn a PageError of this object into an OutputError."""
    try:
        yield
    except PageError as error:
        raise of_store(error, f"{uri} cannot be fetched: {error}") from error


def fetch_file(uri: str, path: Path, *, required: bool = True) -> bool:
    """Fetch an object into a file. Returns whether it was there: one that is not required may be missing, or denied, as
    some stores say of what is missing. Raises OutputError."""
    may_lack = () if required else (NotFoundError, DeniedError)
    with fetching(uri), suppress(*may_lack), atomic_file(path) as file:
        asked(partial(fetch, uri, file, timeout_s=_FETCH_S)).result()
        return True
    return False


def fetch_all(fetch_one: Callable[[str], _Fetched], names: Iterable[str]) -> list[_Fetched]:
    """What `fetch_one` returns for each of the names, some at a time. Raises as it does."""
    pool = ThreadPoolExecutor(_AT_ONCE)
    try:
        return list(pool.map(fetch_one, names))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # whoever interrupts this does not wait for gigabytes


def fetch_recorded(
    get: Callable[[], bytes | None], prefix: str, layout: Layout, folder: Path, *, in_full: bool
) -> tuple[Commit, list[str]] | None:
    """Copy the table that a record names into a folder; None if there is no record. Returns the commit that the record
    tells of, and the parts that have not got their own names in the store yet. get: gets the record.
    in_full: copy all of it, not only what a run looks at. Raises OutputError if it is not as recorded."""

    def fetched(record: Record) -> tuple[Commit, list[str]]:
        def place_of(name: str) -> str:
            return _fetch_part(prefix, layout, folder, record.commit, name, in_full=in_full)

        places = zip(record.commit.parts, fetch_all(place_of, record.commit.parts), strict=True)
        (folder / layout.record).parent.mkdir(exist_ok=True)
        (folder / layout.record).write_bytes(record.to_line())
        return record.commit, [name for name, place in places if place != name]

    return as_recorded(get, prefix + layout.record, layout.table, fetched)


def _fetch_part(prefix: str, layout: Layout, folder: Path, commit: Commit, name: str, *, in_full: bool) -> str:
    """Copy a part of a table; returns the name that it has in the store. Raises OutputError if it is not there."""
    part, copy = commit.parts[name], folder / name
    for place in layout.places(name, commit):
        with fetching(prefix + place), suppress(NotFoundError, DeniedError):
            if require_object(prefix + place).size != part.bytes:
                continue
            fetch_looked_at(prefix + place, copy) if not in_full else fetch_file(prefix + place, copy)
            if _digest_of(copy) == part.sha256:
                return place
    raise OutputError(
        f"{prefix}{name} is not there any more, or is not the one that the table's record names: restore it, or read "
        "the documents again with `batchocr run --overwrite`"
    )


def _digest_of(copy: Path) -> str:
    """The digest of a copy of a part, as a record says it."""
    with copy.open("rb") as file:
        if copy.suffix.lower() == ".jsonl":
            return hashlib.file_digest(file, "sha256").hexdigest()
        return parquet.said_digest(file)


def fetch_looked_at(uri: str, copy: Path) -> None:
    """Make the copy of a Parquet table, without the columns that a run may not need; of one in JSON Lines, the whole.
    Raises PageError, OutputError, OSError."""
    if copy.suffix.lower() == ".jsonl":
        fetch_file(uri, copy)
        return
    stored = require_object(uri)
    with copy.open("w+b", buffering=0) as file:
        file.truncate(stored.size)
        tail = max(0, stored.size - _TAIL_BYTES)
        fetch_pieces(stored, file, [(tail, stored.size)])
        footer_bytes = int.from_bytes(os.pread(file.fileno(), 4, max(0, stored.size - 8)), "little")
        if footer_bytes > _TAIL_BYTES - 8:
            fetch_pieces(stored, file, [(max(0, stored.size - 8 - footer_bytes), tail)])
        with suppress(pa.ArrowException):  # whoever opens it says that it is no table
            fetch_pieces(stored, file, _pieces(pq.read_metadata(copy)))
    parquet.INCOMPLETE[copy] = lambda: _complete(uri, copy)


def _complete(uri: str, copy: Path) -> None:
    """Fetch all of a copy's object. Raises OutputError."""
    with fetching(uri), copy.open("r+b") as file:
        fetch(uri, file, timeout_s=_FETCH_S)


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
