"""The newest documents: those that are new or have changed since the table's last version. In a large table, a night on
which all of them fail is a small share of all rows."""

from __future__ import annotations

from collections import Counter

from batchocr.data import Status, valid_text
from batchocr.job.row_plan import RowPlan
from batchocr.job.stats.report import ENOUGH_ROWS, Items
from batchocr.tables.journal import Journal


def find_newest(plan: RowPlan, journal: Journal, *, prune: bool) -> tuple[list[str], Items] | None:
    """The newest documents, by `source`, and what became of their rows, but for those that were skipped. If these are
    too few to be judged, those that the table remembers are among them, whether or not this run looks at them. prune:
    whether rows of documents that are gone go. None if the run continues no table, as all are new then."""
    if journal.earlier is None or not journal.known.table.num_rows:
        return None
    known = journal.known
    newest = dict[str, list[Status]]()
    for index, state in plan.all_given():
        source = valid_text(plan.documents[index].source)
        if all(row.doc_id != state.doc_id for row in known.table.rows(source)):
            rows = (row for row in known.rows(source) if row.doc_id == state.doc_id)
            newest[source] = [row.status for row in rows if row.page_index in (state.rows or ())]
    newest = {source: rows for source, rows in newest.items() if {*rows} - {"skipped"}}
    if sum(map(len, newest.values())) < ENOUGH_ROWS:
        remembered = {*journal.earlier.metadata.newest}
        if prune:
            remembered = plan.among_documents(remembered)
        newest = {source: [row.status for row in known.rows(source)] for source in remembered} | newest
    statuses = Counter(status for rows in newest.values() for status in rows)
    return sorted(source for source, rows in newest.items() if rows), Items.of(statuses, found=statuses.total())
