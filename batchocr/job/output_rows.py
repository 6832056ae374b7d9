"""The rows of the table: those of this run, and those that earlier runs read and this run does not replace.

The documents of the input come in its order. One that is not in the input stays directly behind the document that it
followed in the earlier table. In a document, the pages come in order, whichever run has read them; if its content has
changed, it is replaced whole.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from batchocr.data import Document, PageResult, counted, valid_text
from batchocr.job.document_run import DocumentState
from batchocr.job.progress import event
from batchocr.job.row_plan import RowPlan
from batchocr.job.shortfalls import named
from batchocr.job.stats.quality import Quality
from batchocr.pages.input.sources import Found
from batchocr.tables.journal import Journal
from batchocr.tables.page_quality import is_doubtful

logger = logging.getLogger(__name__)

_RowsOf = tuple[str, Sequence[int | None], Sequence[int | None]]
"""A document's `source`, its pages that have a row, and those that this run was to read."""


class OutputRows:
    """The rows, to be taken once; what it counts is complete after that.

    found: what the INPUTs hold. prune: leave rows out that are gone or were not asked for; those from an INPUT that is
    empty now stay all the same, and are not in `gone`, as it may not be mounted.
    """

    def __init__(self, plan: RowPlan, journal: Journal, found: Found, *, prune: bool) -> None:
        self.gone: dict[str, int] = {}
        """How many rows, by `source`, are of documents that are not there any more."""
        self.not_asked: dict[str, int] = {}
        """How many others, by `source`, this run did not ask for."""
        self.quality = Quality()
        """Of all rows."""
        self.num_doubtful = 0
        """Of the rows that this run is about."""
        self._plan = plan
        self._journal = journal
        self._prune = prune
        self._not_drawn = set(map(valid_text, found.not_drawn))
        self._empty = found.empty
        self._rows_of_empty: Counter[str] = Counter()

    def __iter__(self) -> Iterator[PageResult]:
        for source, pages, planned in self._documents():
            for page_index in pages:
                row = self._journal.read(source, page_index)
                self.quality.add(row)
                self.num_doubtful += page_index in planned and is_doubtful(row)
                yield row

    def log(self) -> None:
        """Say which rows were kept, or removed with --prune, and name the inputs without a document of which the table
        has rows."""
        kinds = (self.gone, "documents that are not there"), (self.not_asked, "pages that were not asked for")
        for kept, what in kinds:
            if kept:
                rows = counted(sum(kept.values()), "row")
                verb, hint = ("removed", "") if self._prune else ("stay in the table", "; --prune removes them")
                logger.info("%s of %s %s: %s%s", rows, what, verb, named(kept), hint)
        for name, num_rows in self._rows_of_empty.items():
            said = (
                f"{name} holds no document, and {counted(num_rows, 'row')} of the table came from there: is it mounted?"
            )
            stay = "; they stay, as long as it is an INPUT" if self._prune else ""
            logger.warning("%s%s", said, stay, extra=event("input_empty", input=name, rows=num_rows))

    def _documents(self) -> Iterator[_RowsOf]:
        """The documents in the order of the table."""
        followers = self._followers()
        yield from followers.get(None, ())
        documents = zip(self._plan.documents, self._plan.states, self._plan.planned(), strict=True)
        for document, state, planned in documents:
            yield valid_text(document.source), self._pages(document, state, planned), planned
            yield from followers.get(valid_text(document.source), ())

    def _followers(self) -> Mapping[str | None, list[_RowsOf]]:
        """The documents that are not in the input, by the one that they follow; None for those in front."""
        present = {valid_text(document.source) for document in self._plan.documents}
        followers: defaultdict[str | None, list[_RowsOf]] = defaultdict(list)
        before: str | None = None
        for source in self._journal.sources():
            if source in present:
                before = source
                continue
            rows = self._journal.rows(source)
            pages: list[int | None] = [row.page_index for row in rows if row.page_index is not None]
            if not pages and any(row.doc_id for row in rows):  # else its row says only that there was no file
                pages = [None]
            if not pages:
                continue
            empty_input = next((name for name, begin in self._empty.items() if source.startswith(begin)), None)
            if empty_input is not None:
                self._rows_of_empty[empty_input] += len(pages)
            if empty_input is not None or not self._prune:
                followers[before].append((source, pages, ()))
            if empty_input is None or not self._prune:
                (self.not_asked if source in self._not_drawn else self.gone)[source] = len(pages)
        return followers

    def _pages(self, document: Document, state: DocumentState, planned: Sequence[int | None]) -> Sequence[int | None]:
        """The pages of a document of the input that have a row. planned: those that this run was to read."""
        source = valid_text(document.source)
        rows = self._journal.rows(source)
        read = {row.page_index for row in rows if row.page_index is not None and state.doc_id in (None, row.doc_id)}
        others = read.difference(page for page in planned if page is not None)
        if not others:
            return planned
        if state.problem is not None and state.problem.kind != "not_found":
            logger.warning("%s: %s: its %s stay", source, state.problem.message, counted(len(others), "row"))
            return sorted(others)
        (self.gone if state.problem else self.not_asked)[source] = len(others)
        return planned if self._prune else sorted(others.union(page for page in planned if page is not None))
