"""The newest documents: those that are new or have changed since the table's last version. In a large table, a night on
which all of them fail is a small share of all rows."""

from __future__ import annotations

from collections import Counter

from batchocr.data import Status, valid_text
from batchocr.job.row_plan import RowPlan
from batchocr.job.stats.report import ENOUGH_ROWS, Items
from batchocr.tables.journal import Journal


def find_newest(plan: RowPlan, journal: Journal) -> tuple[list[str], Items] | None:
    """The newest documents, by `source`, and what became of their rows. If these are too few to be judged, those that
    the table remembers are among them. None if the run continues no table, as all are new then."""
    if plan.settled is None or journal.earlier is None:
        return None
    table, remembered = plan.settled.table, {*journal.earlier.metadata.newest}
    new, others = dict[str, list[Status]](), dict[str, list[Status]]()
    for index in range(len(plan.documents)) if remembered else plan.states:
        source, state = valid_text(plan.documents[index].source), plan.given(index)
        is_new = state is not None and all(row.doc_id != state.doc_id for row in table.rows(source))
        if is_new or source in remembered:
            (new if is_new else others)[source] = [
                row.status
                for row in journal.rows(source)
                if state is None or (row.doc_id == state.doc_id and row.page_index in (state.rows or ()))
            ]
    newest = new if sum(map(len, new.values())) >= ENOUGH_ROWS else new | others
    statuses = Counter(status for rows in newest.values() for status in rows)
    return sorted(newest), Items.of(statuses, found=statuses.total())
