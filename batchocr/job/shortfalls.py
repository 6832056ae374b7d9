"""Warnings of documents that gave less than was asked for, or less than in an earlier run."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from itertools import islice

from batchocr.config import Config
from batchocr.data import counted
from batchocr.errors import NoInputError
from batchocr.job.document_run import DocumentState
from batchocr.job.row_plan import RowPlan
from batchocr.tables.journal import Journal

_MAX_NAMED = 5

logger = logging.getLogger(__name__)


def count_worsened(plan: RowPlan, journal: Journal) -> dict[str, int]:
    """How many pages of which documents now have a worse row than an earlier run gave them, or none any more.

    Their files, still asked for, have been damaged or shortened since. Pages that this run does not ask for, or has not
    reached, do not count; nor do those of a file that is not there, whose rows stay.
    """
    known = ((plan.documents[index].source, state) for index, state in plan.all_given())
    return {
        source: count
        for source, state in known
        if state.doc_id is not None
        and (count := _num_lost(source, state, journal) + _num_worse(source, state, journal))
    }


def warn_of_worsened(worsened: Mapping[str, int]) -> None:
    """Warn of documents that came out worse: name them, and count their pages."""
    if worsened:
        logger.warning(
            "%s of %s came out worse than in an earlier run, or not at all, as the files are not what they were: %s; "
            "restore what was damaged, and run again",
            counted(sum(worsened.values()), "page"),
            counted(len(worsened), "document"),
            named(worsened),
        )


def pages_asked_for(config: Config) -> str:
    """The flags that say which pages of a document are read."""
    asked = {"--pages": config.pages, "--only": config.only}
    return " and ".join(f"{flag} {value}" for flag, value in asked.items() if value)


def documents_without_rows(plan: RowPlan) -> dict[str, int]:
    """The documents known to have none of the pages asked for, with the number of pages that each has."""
    return {plan.documents[index].source: state.page_count or 0 for index, state in plan.all_given() if not state.rows}


def warn_of_documents_without_rows(plan: RowPlan, config: Config) -> None:
    """Log how many documents have none of the pages asked for, if there are any."""
    if short := documents_without_rows(plan):
        logger.warning(
            "%s: %s documents have none of these pages, and no row: %s",
            pages_asked_for(config),
            f"{len(short):,} of {len(plan.documents):,}",
            named(short),
        )


def require_rows(plan: RowPlan, config: Config) -> None:
    """Refuse to write a table without a row. A share of the documents may have none by chance. Raises NoInputError."""
    if plan.num_planned == 0 and config.shard == (1, 1):
        longest = max(documents_without_rows(plan).values(), default=0)
        raise NoInputError(
            f"no document has any of the pages {pages_asked_for(config)} asks for, so that no table was written"
            + (f": the longest has {counted(longest, 'page')}" if longest else "")
        )


def named(num_pages: Mapping[str, int]) -> str:
    """The first few documents, each with its number of pages, if that is known."""
    first = islice(num_pages.items(), _MAX_NAMED)
    named = [f"{source} ({counted(count, 'page')})" if count else source for source, count in first]
    return ", ".join(named) + ", …" * (len(num_pages) > _MAX_NAMED)


def _num_lost(source: str, state: DocumentState, journal: Journal) -> int:
    """How many pages were read earlier and are no longer in the document."""
    pages = range(state.page_count or 0)
    rows = (row for row in journal.known.rows(source) if row.place < journal.num_before)
    before = (row for row in rows if row.doc_id != state.doc_id)
    return sum(row.status in ("ok", "degraded") and row.page_index not in pages for row in before)


def _num_worse(source: str, state: DocumentState, journal: Journal) -> int:
    """How many pages of the current version of the document were read better before."""
    rows = (journal.known.find(source, page_index) for page_index in journal.known.worse_pages(source))
    return sum(row is not None and row.doc_id == state.doc_id for row in rows)
