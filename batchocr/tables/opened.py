"""Tables opened for reading: one, or the parts of one, finished or not."""

from __future__ import annotations

import glob
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, islice
from operator import attrgetter
from pathlib import Path

import pyarrow as pa

from batchocr.data import PageResult
from batchocr.errors import OutputError, OutputMismatchError
from batchocr.pages.input.globs import natural_key
from batchocr.storage.uris import is_uri
from batchocr.tables import derived, jsonl, parts
from batchocr.tables.earlier import has_table, header_of_journal
from batchocr.tables.files import (
    how_to_restore,
    is_beside_a_table,
    is_folder,
    journal_path,
    record_path,
    table_of_journal,
)
from batchocr.tables.journal import unfinished_rows
from batchocr.tables.known import page_rank
from batchocr.tables.layout import read_record
from batchocr.tables.remote_output import fetch_tables
from batchocr.tables.schema import PAGE_SCHEMA, RunMetadata, require_readable, to_row
from batchocr.tables.table import could_be_table, table_for

TableNames = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
"""A table, a folder of tables, a glob, or several of these; or any of these in an object store."""

_BATCH_ROWS = 256

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TablePart:
    """A table that was opened."""

    path: Path
    metadata: RunMetadata
    is_partial: bool
    """Whether the part's rows are those of the journal beside it and of the table below, because there is a journal."""
    is_derived: bool = False
    """Whether another program made the part of a table of ours."""

    def rows(self) -> Iterator[PageResult]:
        """Yield the rows in the table's order. Raises OutputError."""
        if self.is_derived:
            return derived.read_rows(self.path)
        return unfinished_rows(self.path) if self.is_partial else table_for(self.path).read_rows(self.path)


class StoredRows:
    """One or several tables, read as one. Each method begins anew at the first row; at no time are all in memory."""

    def __init__(self, parts: Sequence[TablePart]) -> None:
        self.parts = tuple(parts)
        """The parts, in natural order of their names."""
        self.metadata = parts[0].metadata
        """What the rows depend on, which is the same in all parts."""

    @property
    def is_partial(self) -> bool:
        """Whether there may be more to come, as the rows of a part are those of a run that is unfinished."""
        return any(part.is_partial for part in self.parts)

    @property
    def input_roots(self) -> list[str]:
        """Where the runs of all parts looked for documents, each once."""
        return list(dict.fromkeys(root for part in self.parts for root in part.metadata.input_roots))

    def rows(self) -> Iterator[PageResult]:
        """Yield the rows, in the tables' order. Raises OutputError if one cannot be read or is damaged."""
        return chain.from_iterable(part.rows() for part in self.parts)

    def by_document(self) -> Iterator[tuple[str, list[PageResult]]]:
        """Yield each document's `source` and its rows. One that is in two tables comes twice: the pages of a
        document are in order. Raises OutputError."""
        for source, rows in groupby(self.rows(), key=attrgetter("source")):
            pages: list[PageResult] = []
            for row in rows:
                if pages and page_rank(row.page_index) <= page_rank(pages[-1].page_index):
                    yield source, pages
                    pages = []
                pages.append(row)
            yield source, pages

    def to_arrow(self) -> pa.Table:
        """All rows in memory, with the columns of this version. Raises OutputError."""
        return self.to_batches().read_all()

    def to_batches(self) -> pa.RecordBatchReader:
        """The rows as record batches with the columns of this version. Reading raises OutputError."""
        return pa.RecordBatchReader.from_batches(PAGE_SCHEMA, self._batches())

    def _batches(self) -> Iterator[pa.RecordBatch]:
        rows = map(to_row, self.rows())
        while group := list(islice(rows, _BATCH_ROWS)):
            yield pa.RecordBatch.from_pylist(group, schema=PAGE_SCHEMA)


def open_rows(tables: TableNames, *, partial: bool = False, ours: bool = False) -> StoredRows:
    """Open tables that batchocr wrote, to be read as one, or that other programs made of those.

    partial: where a run is unfinished, take the rows that it has finished so far: those in its journal.
    ours: refuse tables that other programs wrote. Raises OutputError if there is no table, one is damaged or lacks a
    column, OutputMismatchError if one was made with other settings than the first.
    """
    names = [tables] if isinstance(tables, str | os.PathLike) else tables
    paths = list(dict.fromkeys(path for name in names for path in find_tables(os.fspath(name), partial=partial)))
    if not paths:
        raise OutputError("no table is named")
    opened = [_open_part(path, partial=partial, ours=ours) for path in paths]
    for part in opened:
        if part.metadata.settings_fingerprint != opened[0].metadata.settings_fingerprint:
            raise OutputMismatchError(
                f"{part.path} was made with other settings than {opened[0].path}: they cannot be read as one table"
            )
    return StoredRows(opened)


def find_tables(name: str, *, partial: bool = False) -> list[Path]:
    """The tables that a path, a folder or a glob names, in natural order; what a run leaves beside them is left out, as
    are other files in a folder. Of those in an object store, copies.

    partial: also those of which there is only the journal. Raises OutputError if there is none.
    """
    if is_uri(name):
        return fetch_tables(name)
    if is_folder(path := Path(name)) and (parts.has_table(path) or (partial and journal_path(path).exists())):
        return [path]
    if os.path.isdir(name):
        matches = [os.path.join(name, entry) for entry in os.listdir(name) if not entry.startswith(".")]
        matches = [match for match in matches if could_be_table(Path(table_of_journal(match)))]
    elif has_table(path):
        matches = [name]
    else:
        matches = [*glob.glob(name), *(glob.glob(f"{name}.journal") if partial else [])]
    tables = {table_of_journal(match) if partial else match for match in matches}
    found = [Path(table) for table in sorted(tables, key=natural_key) if not is_beside_a_table(table)]
    if not found:
        raise OutputError(_why_none(name, partial=partial))
    return found


def read_metadata(path: Path) -> RunMetadata:
    """The metadata of the run that wrote a table. Raises OutputMismatchError if it is not one of ours, or of a version
    that is not read."""
    metadata = table_for(path).read_metadata(path)
    if metadata is None:
        raise OutputMismatchError(_why_not_ours(path))
    require_readable(path, metadata)
    return metadata


def _open_part(path: Path, *, partial: bool, ours: bool) -> TablePart:
    if partial and journal_path(path).is_file() and (journal_path(path).stat().st_size or not has_table(path)):
        header = header_of_journal(path)
        if header is None:
            raise OutputError(f"{journal_path(path)} is still empty: the run has not begun to read")
        require_readable(path, header.metadata)
        return TablePart(path, header.metadata, is_partial=True)
    if is_folder(path) and read_record(path) is None:
        logger.warning(
            "%s has no record of its parts (%s), as of earlier versions: whether all of them are there, and belong "
            "together, was not checked",
            path,
            record_path(path).relative_to(path),
        )
    metadata = table_for(path).read_metadata(path)
    if not ours and (metadata is None or (table_for(path) is jsonl and jsonl.is_derived(path))):
        if metadata is not None:
            logger.warning(
                "%s is not as %s says: taken for what another program made of a table, so it is not checked whether "
                "all of it is there",
                path,
                record_path(path).name,
            )
        return TablePart(path, derived.read_metadata(path), is_partial=False, is_derived=True)
    return TablePart(path, read_metadata(path), is_partial=False)


def _why_none(name: str, *, partial: bool) -> str:
    if os.path.isfile(name):
        return f"{name} is not a table, but a file that a run leaves beside one: name the table"
    if os.path.isdir(name):
        return f"there is no table in the folder {name}"
    if partial:
        return f"there is no table {name}, nor the journal of one"
    if os.path.isfile(journal_path(Path(name))):
        told = f"there is no table {name} yet: its run is unfinished"
        return f"{told}; view, export, audit and compare take what it has read so far with --partial"
    return f"there is no table {name}: was the run finished? `batchocr run` builds it at its end"


def _why_not_ours(path: Path) -> str:
    """Why a table is refused that has no metadata of a run, by which it is known to be whole."""
    if table_for(path) is jsonl and not record_path(path).exists():
        reason = f"has no {record_path(path).name} beside it"
        advice = "put that back, or run again if a run was killed as it wrote them"
    else:
        reason = "lacks the metadata that this version of batchocr writes"
        advice = how_to_restore(path)
    made_by_others = "what another program made of a table, only view, export, compare and open_table take"
    return f"{path} {reason}: {advice}; {made_by_others}"
