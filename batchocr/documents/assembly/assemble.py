"""From the rows of a document to the document, and from a table to its documents."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

from batchocr.config import Config
from batchocr.data import OutlineEntry, PageResult
from batchocr.documents.assembly.document import AssembledDocument, Gap, PageEnd
from batchocr.documents.assembly.headings import set_levels
from batchocr.documents.assembly.joining import Draft, go_on_as_footnote, go_on_as_table, go_on_as_text, go_on_in_page
from batchocr.documents.assembly.pages import page_drafts
from batchocr.documents.assembly.sentences import Words, words_in
from batchocr.pages.kinds import FLOATS
from batchocr.processes.source_files import SourceFile, SourceFiles
from batchocr.tables.known import page_rank
from batchocr.tables.opened import StoredRows, TableNames, open_rows


def assemble(
    source: str, rows: Sequence[PageResult], outline: Sequence[OutlineEntry] = (), *, unfinished: bool = False
) -> AssembledDocument:
    """The document in these rows, which are all of one document.

    outline: of its file, if that is at hand. unfinished: whether a page without a row is still to be read, and gets a
    mark; otherwise nobody asked for it. Whatever the blocks hold, this raises nothing, and takes time in proportion to
    them.
    """
    rows = sorted(rows, key=lambda row: page_rank(row.page_index))
    page_count = next((row.page_count for row in rows if row.page_count is not None), None)
    texts = (block.content for row in rows for block in row.blocks if block.content)
    assembly = _Assembly(cache(lambda: words_in(texts)))
    for row in rows:
        if unfinished and row.page_index is not None:
            assembly.mark_unread(row.page_index)
        assembly.add(row)
    if unfinished and page_count is not None:
        assembly.mark_unread(page_count)
    set_levels(assembly.headings, outline)
    return AssembledDocument(
        source=source,
        doc_id=version_read(rows),
        page_count=page_count,
        rows=tuple(rows),
        parts=tuple(part.piece() if isinstance(part, Draft) else part for part in assembly.parts),
    )


def version_read(rows: Iterable[PageResult]) -> str | None:
    """The `doc_id` of the file that the rows are of; that of most of them, if it changed while it was read."""
    versions = Counter(row.doc_id for row in rows if row.doc_id is not None)
    return max(versions, key=versions.__getitem__, default=None)


class _Assembly:
    """A document to which pages are added, in order."""

    def __init__(self, words: Words) -> None:
        self._words = words
        self.parts: list[Draft | Gap | PageEnd] = []
        self.headings: list[tuple[Draft, PageResult]] = []
        """The headings, each with the row of its page."""
        self._next_page = 0
        self._text: Draft | None = None
        """The last paragraph or list, which may continue after figures and tables."""
        self._table: Draft | None = None
        """The last piece of the document, if that is a table."""
        self._float_is_last = False
        self._footnote: Draft | None = None
        """The last footnote of the page before."""

    def add(self, row: PageResult) -> None:
        """Add the next row."""
        if row.page_index is None or row.page_index != self._next_page:
            self._close()
        if row.status != "ok":
            reason = row.error_message or row.error_kind or "nothing is known of the reason"
            self.parts.append(Gap(row.page_index, row.status, reason))
        if row.page_index is None:
            return
        if row.status in ("ok", "degraded"):
            self._add_page(row, row.page_index)
        else:
            self._close()
        self.parts.append(PageEnd(row.page_index))
        self._next_page = row.page_index + 1

    def mark_unread(self, end: int) -> None:
        """Add a mark for the pages that are missing before page `end` (exclusive), if there are any."""
        first, last = self._next_page + 1, end
        if first <= last:
            pages = f"page {first} has" if first == last else f"pages {first} to {last} have"
            self.parts.append(Gap(self._next_page, "skipped", f"{pages} not been read yet"))

    def _add_page(self, row: PageResult, page_index: int) -> None:
        body, page_footnotes = page_drafts(page_index, row, self._words)
        self.headings += [(draft, row) for draft in body if draft.kind.role == "heading"]
        text, table, footnote = self._text, self._table, self._footnote
        self._footnote = None
        for draft in body:
            is_float, was_table = draft.kind.role in FLOATS, table
            if not draft.kind.of:
                table = None  # only the first piece of a page can be the rest of a table
            if was_table is not None and draft.kind.role == "table" and go_on_as_table(was_table, draft):
                continue
            if is_float or not self._goes_on(text, draft):
                self._append(draft)
            if not is_float:
                self._table = text = None
            self._float_is_last = is_float
        for draft in page_footnotes:
            if footnote is None or not go_on_as_footnote(footnote, draft):
                self.parts.append(draft)
                footnote = draft
            self._footnote, footnote = footnote, None

    def _goes_on(self, before: Draft | None, draft: Draft) -> bool:
        """Join the draft to the text of the page before, or to the text or list before it on its page, if it continues
        one of them; returns whether it does."""
        if before is not None:
            return go_on_as_text(before, draft)
        if self._text is None or (draft.kind.role == "list" and self._float_is_last):
            return False
        return go_on_in_page(self._text, draft)

    def _append(self, draft: Draft) -> None:
        self.parts.append(draft)
        if not draft.kind.of:
            self._table = draft if draft.kind.role == "table" else None
        if draft.kind.role not in FLOATS:
            self._text = draft

    def _close(self) -> None:
        self._text = self._table = self._footnote = None


class OpenedTable(StoredRows):
    """One or several tables, read as one, document by document. Each method begins anew at the first row; at no time
    are all in memory.

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
                file = files.take(files.begin(files.finding(source, version_read(rows))))
                outline = file.outline if isinstance(file, SourceFile) else ()
                yield assemble(source, rows, outline, unfinished=self.is_partial)


def open_table(tables: TableNames, *, partial: bool = False) -> OpenedTable:
    """Open tables that batchocr wrote, to be read as one, or that DuckDB, Polars or pandas made of those.

    partial: where a run is unfinished, take the rows that it has finished so far: those in its journal.
    Raises OutputError if there is no table, one is damaged or lacks a column, OutputMismatchError if one was made with
    other settings than the first.
    """
    return OpenedTable(open_rows(tables, partial=partial).parts)
