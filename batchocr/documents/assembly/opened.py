"""A table opened for Python callers: its rows, and its documents, put together from them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from batchocr.config import Config
from batchocr.documents.assembly.assemble import assemble, version_read
from batchocr.documents.assembly.document import AssembledDocument
from batchocr.processes.source_files import SourceFile, SourceFiles
from batchocr.tables.opened import StoredRows, TableNames, open_rows


class OpenedTable(StoredRows):
    """One or several tables, read as one. Each method begins anew at the first row; at no time are all in memory.

    parts: in natural order of their names. metadata: what the rows depend on, which is the same in all parts.
    """

    def documents(self, roots: Sequence[str | os.PathLike[str]] | None = None) -> Iterator[AssembledDocument]:
        """Yield each document, put together from its rows.

        roots: folders in which the documents are, for the outlines of PDFs; None for those of the table's run. A
        document that is not there, or no longer the same, goes without. Raises OutputError, and BatchOcrError if the
        worker process that reads outlines cannot be started.
        """
        roots = self.input_roots if roots is None else roots
        with SourceFiles([os.fspath(root) for root in roots], Config()) as files:
            for source, rows in self.by_document():
                file = files.find(source, version_read(rows))
                outline = files.outline(file) if isinstance(file, SourceFile) else []
                yield assemble(source, rows, outline, unfinished=self.is_partial)


def open_table(tables: TableNames, *, partial: bool = False) -> OpenedTable:
    """Open tables that batchocr wrote, to be read as one, or that DuckDB, Polars or pandas made of those.

    partial: where a run is unfinished, take the rows that it has finished so far: those in its journal.
    Raises OutputError if there is no table, one is damaged or lacks a column, OutputMismatchError if one was made with
    other settings than the first.
    """
    return OpenedTable(open_rows(tables, partial=partial).parts)
