"""What is to be read of an output whose documents others read, and what they have read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from batchocr.config import Config
from batchocr.data import Document, Failure, valid_text
from batchocr.job.document_run import RowKey
from batchocr.job.row_plan import RowPlan
from batchocr.job.survey.look import open_documents
from batchocr.machine import usable_cores
from batchocr.storage.listing import Documents
from batchocr.tables.journal import Journal
from batchocr.tables.known import KnownRow


def find_unread(plan: RowPlan, config: Config) -> tuple[Documents, NDArray[np.int64], list[Document]]:
    """The documents of which nothing is known, with the sizes of their files; and of all other documents those of which
    something is to be read, with the pages if these are not all. Files that are as long as they were are opened to find
    out whether they have changed. Raises BatchOcrError if no worker can be started."""
    documents = plan.documents
    sizes, times = documents.versions()
    rest = ~plan.take(sizes, times)
    are_known = (plan.places >= 0) | documents.are_rare | plan.are_in_journal
    known = np.flatnonzero(rest & are_known).tolist()
    changed = [index for index in known if not plan.look_at(index, documents[index])]
    touched = [index for index in changed if _has_rows_of(sizes[index], plan.known.rows(documents[index].source))]
    if touched:
        asked = [documents[index] for index in touched]
        for number, file in open_documents(asked, config, workers=config.workers or usable_cores()):
            plan.opened(touched[number], file)
    some: list[Document] = []
    for index in known:
        state = plan.states[index]
        pages = frozenset(page for page in state.rows or () if page is not None and page not in state.done)
        if pages and state.done:
            some.append(replace(documents[index], pages=pages))
        elif state.rows is None or not state.done.issuperset(state.rows):
            some.append(documents[index])
    are_new = rest & ~are_known
    return documents.where(are_new), sizes[are_new], some


def _has_rows_of(size: int, rows: Iterable[KnownRow]) -> bool:
    return any(row.file_bytes == size for row in rows)


def older_versions(plan: RowPlan, journal: Journal) -> dict[int, tuple[Document, KnownRow]]:
    """The documents that were replaced while they were read, by their index, with the pages of which no row is of the
    newest version; and a row of that version."""
    found = {}
    for index in np.flatnonzero(plan.are_in_journal).tolist():
        document = plan.documents[index]
        rows = journal.known.rows(document.source)
        read = [row for row in rows if row.place >= journal.num_before and row.page_count]
        if read:
            newest = max(read, key=lambda row: row.place)
            of_newest = [row for row in rows if row.doc_id == newest.doc_id]
            wanted = document.chosen(plan.spec.pages(newest.page_count or 0))
            if missing := frozenset(wanted) - {row.page_index for row in of_newest}:
                found[index] = replace(document, pages=missing), newest
    return found


def take_as_read(plan: RowPlan, journal: Journal) -> None:
    """Have a plan take all documents as their rows say, whatever their files are now."""
    table, places = journal.known.table, np.maximum(plan.places, 0)
    of_table = [numbers[places] if len(numbers) else np.empty(0, np.int64) for numbers in table.versions()]
    for index in np.flatnonzero(~plan.take(*of_table)).tolist():
        source = valid_text(plan.documents[index].source)
        rows = journal.known.rows(source)
        if not rows:
            plan.has_none(index)
            continue
        newest = max(rows, key=lambda row: (row.place >= journal.num_before, row.place < 0, row.place))
        state = plan.states[index]
        state.size, state.mtime_ns = newest.version
        if newest.status == "failed" and newest.page_index is None:
            read = journal.read(source, None)
            plan.cannot_open(index, Failure(read.error_kind or "unreadable", read.error_message or ""), newest.doc_id)
            if newest.doc_id is None:
                plan.ended(RowKey(index, None))
        else:
            plan.has_rows(index, newest)
