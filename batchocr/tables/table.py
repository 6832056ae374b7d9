"""The format of a table, which its name decides."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol, TypeAlias

from batchocr.data import PageResult
from batchocr.errors import UsageError
from batchocr.tables import jsonl, parquet, parts
from batchocr.tables.files import TABLE_SUFFIXES, is_folder
from batchocr.tables.schema import RunMetadata

StoredTable: TypeAlias = parquet.ParquetTable | jsonl.JsonLinesTable | parts.PartsTable
"""A table that is open; what is read is of this file, whatever takes its place."""


class TableFormat(Protocol):
    """What each format's module offers; see the modules for what they raise."""

    def open_table(self, path: Path) -> StoredTable | None: ...

    def read_metadata(self, path: Path) -> RunMetadata | None: ...

    def read_rows(self, path: Path) -> Iterator[PageResult]: ...


def table_for(path: Path) -> TableFormat:
    """The format of the table at `path`: parts in a folder, else by its suffix. Raises UsageError for another one."""
    if is_folder(path):
        return parts
    match path.suffix.lower():
        case ".parquet":
            return parquet
        case ".jsonl":
            return jsonl
        case _:
            raise UsageError(f"the table {path} must end in .parquet or .jsonl, or in / for a folder of parts")


def could_be_table(path: Path) -> bool:
    """Whether a file may be a table of ours: by its suffix and, as others write JSON Lines too, by how it begins.
    Raises OutputError if it cannot be read."""
    suffix = path.suffix.lower()
    return suffix in TABLE_SUFFIXES and (suffix != ".jsonl" or jsonl.could_be_table(path))
