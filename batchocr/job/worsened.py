"""Pages that were read better before: their files have been damaged, shortened or taken away since."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from batchocr.job.intake import DocumentState, Intake
from batchocr.output.index import IndexedRow
from batchocr.output.journal import Journal

_MAX_NAMED = 5

logger = logging.getLogger(__name__)


def count_worsened(intake: Intake, journal: Journal) -> dict[str, int]:
    """How many pages of which documents now have a worse row than an earlier run gave them, or none any more.

    Pages that this run does not ask for, or has not reached, do not count.
    """
    worsened = {}
    for document, state in zip(intake.documents, intake.states, strict=True):
        if state.rows is None:
            continue
        rows = journal.rows(document.source)
        lost = sum(_is_lost(row, state) for row in rows)
        worse = sum(row.doc_id == state.doc_id and journal.was_better(document.source, row.page_index) for row in rows)
        if lost + worse:
            worsened[document.source] = lost + worse
    return worsened


def warn_of_worsened(worsened: Mapping[str, int]) -> None:
    """Name the documents, and count their pages."""
    if worsened:
        named = ", ".join(f"{source} ({_pages(count)})" for source, count in list(worsened.items())[:_MAX_NAMED])
        logger.warning(
            "%s of %s came out worse than in an earlier run, or are gone, as the files are not what they were: %s%s; "
            "restore what was damaged, and run again",
            _pages(sum(worsened.values())),
            f"{len(worsened):,} document{'s' * (len(worsened) != 1)}",
            named,
            ", …" * (len(worsened) > _MAX_NAMED),
        )


def _is_lost(row: IndexedRow, state: DocumentState) -> bool:
    """Whether it is the row of a page that was read, and that the document does not have any more."""
    was_read = row.page_index is not None and row.status in ("ok", "degraded")
    return was_read and row.page_index not in range(state.page_count or 0)


def _pages(count: int) -> str:
    return f"{count:,} page{'s' * (count != 1)}"
