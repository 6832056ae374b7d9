"""The newest documents: those that are new or have changed since the table's last version. In a large table, a night on
which all of them fail is a small share of all rows."""

from __future__ import annotations

from collections import Counter

import numpy as np

from batchocr.data import Status, valid_text
from batchocr.job.row_plan import RowPlan
from batchocr.job.stats.report import ENOUGH_ROWS, Items
from batchocr.tables.journal import Journal


def find_newest(plan: RowPlan, journal: Journal, *, prune: bool) -> tuple[list[str], Items] | None:
    """The newest documents, by `source`, and what became of their rows, but for those that were skipped. If these are
    too few to be judged, those that the table remembers are among them, whether or not this run looks at them. prune:
    whether rows of documents that are gone go. None if the run continues no table, as all are new then."""
    known, table = journal.known, journal.known.table
    if not journal.num_before:
        return None
    newest = dict[str, list[Status]]()
    for index, state in plan.all_given():
        source = valid_text(plan.documents[index].source)
        before = (row for row in table.rows(source) if row.place < journal.num_before)
        if all(row.doc_id != state.doc_id for row in before):
            rows = (row for row in known.rows(source) if row.doc_id == state.doc_id)
            newest[source] = [row.status for row in rows if row.page_index in (state.rows or ())]
    newest = {source: rows for source, rows in newest.items() if {*rows} - {"skipped"}}
    is_new = (np.arange(table.num_rows) >= journal.num_before) & plan.is_asked  # of documents that actors have read
    statuses, _ = table.counts(is_new)
    sources = {*newest, *table.sources_of(is_new)}
    if sum(map(len, newest.values())) + statuses.total() < ENOUGH_ROWS and journal.earlier is not None:
        remembered = {*journal.earlier.metadata.newest}
        if prune:
            remembered = plan.among_documents(remembered)
        newest = {source: [row.status for row in known.rows(source)] for source in remembered - sources} | newest
    statuses += Counter(status for rows in newest.values() for status in rows)
    sources |= {source for source, rows in newest.items() if rows}
    return sorted(sources), Items.of(statuses, found=statuses.total())
