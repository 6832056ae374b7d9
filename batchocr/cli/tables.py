"""Which of the arguments of `batchocr verify` are tables."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from batchocr.errors import OutputError, UsageError
from batchocr.tables.files import files_of, final_name, report_path
from batchocr.tables.opened import read_metadata
from batchocr.tables.schema import selection_together
from batchocr.tables.table import TABLE_SUFFIXES, table_for

logger = logging.getLogger(__name__)

_MAX_NAMED = 10


def tables_among(tables: Sequence[Path], inputs: Sequence[str]) -> tuple[list[Path], list[str]]:
    """All tables, and the INPUTs that are none: a glob that is not quoted puts all but its first match among them.

    Raises UsageError if no INPUT is left.
    """
    found = {os.path.realpath(table): table for table in tables}
    more = {os.path.realpath(text): Path(text) for text in inputs if _is_table(Path(text))}
    outputs = {os.path.realpath(file) for out in (found | more).values() for file in files_of(out, report_path(out))}
    documents = [text for text in inputs if os.path.realpath(final_name(text)) not in outputs]
    if not documents:
        raise UsageError(
            f"no INPUT is left to compare with: {_listed(map(str, (found | more).values()))} are tables. Name the "
            "documents after them: batchocr verify 'part-*.parquet' FOLDER"
        )
    if added := [str(table) for real, table in more.items() if real not in found]:
        logger.info("taken for tables and not for INPUTs, as batchocr wrote them: %s", _listed(added))
    return list((found | more).values()), documents


def asked_for(tables: Sequence[Path]) -> dict[str, Any]:
    """What the runs of the tables were asked to read, as options; empty if the runs together have no such options.
    Raises OutputError,
    OutputMismatchError."""
    selection = selection_together([read_metadata(table) for table in tables]) or {}
    return {name: int(value) if name in ("limit", "sample_documents") else value for name, value in selection.items()}


def _is_table(path: Path) -> bool:
    """Whether batchocr wrote it as a table; also one that is damaged or cannot be read, as reading it will say."""
    if path.suffix.lower() not in TABLE_SUFFIXES or not path.is_file():
        return False
    try:
        return table_for(path).read_metadata(path) is not None
    except OutputError:
        return True


def _listed(names: Iterable[str]) -> str:
    shown = list(names)
    rest = len(shown) - _MAX_NAMED
    return ", ".join(shown[:_MAX_NAMED]) + (f" and {rest:,} more" if rest > 0 else "")
