"""Tables that other programs made of ours: rows filtered, columns added or dropped, in another order.

They carry no proof that they are whole, so a run does not continue them and `verify` and `merge` refuse them; whoever
only reads rows takes them. Of the columns, the first five are needed; what else is missing counts as not known.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from batchocr.data import MAX_PAGES, Block, PageResult
from batchocr.errors import OutputError
from batchocr.tables.atomic import reading
from batchocr.tables.schema import PAGE_SCHEMA, RunMetadata, decode_metadata, from_row, storable

_NEEDED: Final = ("source", "page_index", "status", "markdown", "blocks")
_BLOCK_FIELDS: Final = frozenset(field.name for field in fields(Block))
_MAGIC: Final = b"PAR1"
_ROWS_AT_ONCE: Final = 64


def read_metadata(path: Path) -> RunMetadata:
    """What is left of the metadata of the run; empty if nothing is. Raises OutputError if a column is missing, or the
    file cannot be read."""
    nothing = RunMetadata("", "", "", "", {})
    if path.suffix.lower() == ".jsonl":
        if (first := next(json_lines(path), None)) is not None:
            _require_columns(path, first)
        return nothing
    with reading(path):
        schema = pq.read_schema(path)
    _require_columns(path, schema.names)
    return decode_metadata(schema.metadata) or nothing


def read_rows(path: Path) -> Iterator[PageResult]:
    """Yield the rows, in the table's order. Raises OutputError if an object is no row."""
    for number, row in enumerate(file_rows(path, PAGE_SCHEMA.names), start=1):
        try:
            yield _measured(storable(from_row(_of_ours(row))))
        except ValueError as error:
            raise OutputError(f"{path}, row {number}, is no row of a table of batchocr: {error}") from error


def _require_columns(path: Path, names: Collection[str]) -> None:
    if missing := [name for name in _NEEDED if name not in names]:
        raise OutputError(f"{path} lacks {', '.join(missing)}: a table needs the columns {', '.join(_NEEDED)}")


def file_rows(path: Path, columns: Sequence[str]) -> Iterator[Mapping[str, Any]]:
    """Yield the objects of a file of JSON Lines, or of any other file, which should be Parquet, those of these columns
    that it has. Raises OutputError."""
    if path.suffix.lower() == ".jsonl":
        yield from json_lines(path)
        return
    with reading(path):
        try:
            with pq.ParquetFile(path) as table:
                present = [name for name in columns if name in table.schema_arrow.names]
                for batch in table.iter_batches(_ROWS_AT_ONCE, columns=present):
                    yield from batch.to_pylist()
        except pa.ArrowException as error:
            with open(path, "rb") as file:
                is_parquet = file.read(len(_MAGIC)) == _MAGIC
            reason = error if is_parquet else "it is no Parquet file, and JSON Lines have a name in .jsonl"
            raise OutputError(f"cannot read {path}: {reason}") from error


def json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file of JSON Lines. Raises OutputError."""
    with reading(path), open(path, encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                row = None
            if not isinstance(row, dict):
                raise OutputError(f"{path}, line {number} is no JSON object")
            yield row


def _of_ours(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row of another program as we would have written it: pandas has NaN for null, and whole numbers as floats."""
    known = _known(row, PAGE_SCHEMA.names)
    if "page_index" in row:
        known["page_index"] = page_index_of(row)
    if isinstance(blocks := known.setdefault("blocks", []), list):
        known["blocks"] = [_block_of_ours(block) if isinstance(block, dict) else block for block in blocks]
    return known


def _block_of_ours(block: Mapping[str, Any]) -> dict[str, Any]:
    return {"angle": None, "content": None} | _known(block, _BLOCK_FIELDS)


def _measured(row: PageResult) -> PageResult:
    """The row, which says what no page can measure in nothing. Raises ValueError."""
    for column, value in (("width", row.width), ("height", row.height), ("dpi", row.dpi)):
        if value is not None and not 1e-3 <= value <= 1 << 20:
            raise ValueError(f"{column}: no page has {value:g}")
    return row


def page_index_of(row: Mapping[str, Any]) -> int | None:
    """The page that the row is of; None if it is of a whole document. Raises ValueError."""
    value = row.get("page_index")
    if value is None or value != value:  # pandas has NaN for null
        return None
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float | Decimal)
        or not 0 <= value <= MAX_PAGES
        or value % 1
    ):
        raise ValueError(f"page_index: {str(value)[:40]!r} is no page, which is a whole number from 0")
    return int(value)


def _known(values: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """The values of these names that are there, and are neither null nor a number that is not finite."""
    known = {name: values[name] for name in names if values.get(name) is not None}
    return {name: value for name, value in known.items() if not isinstance(value, float) or math.isfinite(value)}
