"""What an earlier run left at the place of an output, and whether a new run can continue it."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import cast, get_args

from pydantic_core import from_json, to_json

from batchocr.config import DType
from batchocr.errors import BatchOcrError, OutputError, OutputMismatchError, UsageError
from batchocr.storage.checksums import checked_line, is_sound
from batchocr.tables import jsonl, parts
from batchocr.tables.atomic import reading
from batchocr.tables.files import is_folder, journal_path, record_path
from batchocr.tables.schema import (
    MAX_METADATA_BYTES,
    RunMetadata,
    metadata_from_json,
    metadata_to_json,
    require_same_settings,
    require_same_shard,
)
from batchocr.tables.table import StoredTable, could_be_table, table_for

logger = logging.getLogger(__name__)

_TAIL_BYTES = 1 << 20
"""How much of the end of a Parquet file has its metadata, but for a file with thousands of row groups."""
_HEADER_START = b'{"batchocr_version":'


@dataclass(frozen=True, slots=True)
class JournalHeader:
    """The first line of a journal."""

    metadata: RunMetadata
    continues: str
    """The digest of the table that the run continues; empty if there is none, or its rows do not count."""
    overwrites: str | None = None
    """The tag of what was there then, if its rows do not count; None if the version before this one began the run."""

    def to_line(self) -> bytes:
        """The line."""
        said = to_json({"continues": self.continues, "overwrites": self.overwrites})
        return checked_line(metadata_to_json(self.metadata)[:-1] + b"," + said[1:])


def parse_header(path: Path, line: bytes) -> JournalHeader | None:
    """The first line of the journal at `path`; None if it is empty or was torn before that line was whole.

    Raises OutputMismatchError if it is no journal of batchocr, OutputError if the line is damaged.
    """
    metadata = metadata_from_json(line)
    if metadata is not None and is_sound(line):
        said = from_json(line)
        return JournalHeader(metadata, str(said.get("continues", "")), said.get("overwrites"))
    is_torn = not line.endswith(b"\n") and len(line) < MAX_METADATA_BYTES
    if is_torn and line[: len(_HEADER_START)] == _HEADER_START[: len(line)]:
        return None
    if line.startswith(_HEADER_START):
        raise OutputError(
            f"{path} is damaged in its first line, which says what its rows depend on: restore it from a copy, or "
            "start over with --overwrite"
        )
    raise OutputMismatchError(f"{path} is not a journal of batchocr: choose another --out")


def header_of_journal(out: Path) -> JournalHeader | None:
    """The first line of the journal of the table at `out`; None if it is still empty. Raises OutputError,
    OutputMismatchError if it is none of ours."""
    journal = journal_path(out)
    with reading(journal), journal.open("rb") as lines:
        return parse_header(journal, lines.readline(MAX_METADATA_BYTES))


def require_ours(out: Path) -> None:
    """Raise OutputMismatchError if there is a file at `out`, or in the place of its journal or metadata, that no
    version of batchocr wrote, unless it is empty."""
    paths = [out, journal_path(out)]
    if is_folder(out):
        parts.require_ours(out)
        paths.append(out / "table.json")
    elif out.suffix.lower() == ".jsonl":
        paths.append(record_path(out))
    for path in paths:
        if path.is_file() and path.stat().st_size and not _looks_like_ours(path):
            raise OutputMismatchError(
                f"{path} was not written by batchocr: it is left as it is; choose another --out, or delete it"
            )


def _looks_like_ours(path: Path) -> bool:
    """Whether a file is a table, journal or file of metadata of any version of batchocr, even if it is damaged, or a
    table that has lost its metadata."""
    if path.suffix.lower() == ".jsonl":
        return could_be_table(path)
    with path.open("rb") as file:
        if path.suffix in (".journal", ".json") or path.name == "journal":
            return _HEADER_START.startswith(file.read(len(_HEADER_START)))
        file.seek(-min(_TAIL_BYTES, path.stat().st_size), os.SEEK_END)
        return b"batchocr.settings" in file.read()


def table_to_continue(out: Path, metadata: RunMetadata, items: Sequence[str] = ()) -> StoredTable | None:
    """The table that an earlier run of these settings left at `out`, open, with items behind it; None if there is no
    file.

    Raises OutputMismatchError if the table is of other settings, another shard or not ours, OutputError if it is
    damaged.
    """
    found = parts.open_table(out, items) if items else table_for(out).open_table(out) if has_table(out) else None
    if found is None:
        require_ours(out)
        if not has_table(out):
            return None
        raise OutputMismatchError(
            f"{out} was not written by this version of batchocr, or is damaged: choose another --out, or replace it "
            "with --overwrite"
        )
    try:
        require_same_settings(out, found.metadata, metadata)
        require_same_shard(out, found.metadata, metadata)
        documents = found.columns.sources  # the columns may be damaged
        if isinstance(found, parts.PartsTable) and not found.is_recorded and not found.items:
            for document in (each["values"] for each in documents.value_counts() if each["counts"].as_py() > 1):
                raise OutputError(
                    f"{out} has no record of its parts, and {document} is in two of them, as copies and killed merges "
                    "leave it: remove what does not belong to the table, or start over with --overwrite"
                )
    except BatchOcrError:
        found.close()
        raise
    return found


def has_table(out: Path) -> bool:
    """Whether there is a table at `out`, of whatever state."""
    if is_folder(out):
        return parts.has_table(out)
    return jsonl.has_table(out) if out.suffix.lower() == ".jsonl" else out.exists()


def metadata_of_rows(out: Path, table: Path | None = None, items: Sequence[str] = ()) -> RunMetadata | None:
    """What the rows at `out` depend on. None if there are none, or none that a run can continue: opening the output
    says why. table: where the table is that a run there continues, if it is elsewhere; items: those that are there."""
    table = table or out
    with suppress(OutputError, UsageError, OSError):
        if journal_path(out).is_file() and (header := header_of_journal(out)):
            return header.metadata
        if has_table(table):
            return table_for(table).read_metadata(table)
        return parts.metadata_of_items(table, items)
    return None


def dtype_of(metadata: RunMetadata | None) -> DType | None:
    """The data type in which rows of this metadata were read; None if it is not one that can be asked for."""
    dtype = metadata.settings.get("dtype") if metadata else None
    return cast(DType, dtype) if dtype in get_args(DType) else None
