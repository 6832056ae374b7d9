"""The rows of a run that is still going, or was killed: its journal, read without holding it up.

The journal may grow meanwhile; what counts is what was in it at first.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from batchocr.data import PageResult
from batchocr.errors import OutputError
from batchocr.tables.atomic import reading
from batchocr.tables.earlier import metadata_of_header
from batchocr.tables.files import journal_path
from batchocr.tables.index import RowIndex
from batchocr.tables.journal import indexed, parse_row, parse_state
from batchocr.tables.schema import MAX_METADATA_BYTES, RunMetadata


def read_metadata(out: Path) -> RunMetadata | None:
    """The metadata of the run that is writing the table at `out`; None if its journal is still empty. Raises
    OutputError, OutputMismatchError if it is none of ours."""
    journal = journal_path(out)
    with reading(journal), journal.open("rb") as lines:
        return metadata_of_header(journal, lines.readline(MAX_METADATA_BYTES))


def read_rows(out: Path) -> Iterator[PageResult]:
    """Yield the rows that are finished: the documents in the order in which they came first, each in page order.

    What is damaged or torn is left out, as its page will be read again. Raises OutputError.
    """
    journal = journal_path(out)
    with reading(journal), journal.open("rb") as lines:
        index = _index_of(lines)
        for source in index.sources():
            for row in index.rows(source):
                result = parse_row(os.pread(lines.fileno(), row.length, row.offset))
                if result is None:
                    raise OutputError(f"{journal} was damaged or replaced while it was read: run the command again")
                yield result


def _index_of(lines: Iterator[bytes]) -> RowIndex:
    index = RowIndex()
    offset = 0
    for number, line in enumerate(lines):
        if number and (entry := parse_state(line)) is not None:
            index.put(entry.result.source, indexed(entry, offset, len(line)))
        offset += len(line)
    return index
