"""The rows of the table: those of this run, and those that earlier runs read and this run does not replace.

The documents of the input come in its order. One that is not in the input stays directly behind the document that it
followed in the earlier table. In a document, the pages come in order, whichever run has read them; if its content has
changed, it is replaced whole.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from batchocr.data import Document, PageResult, counted, valid_text
from batchocr.job.document_run import DocumentState
from batchocr.job.progress import event
from batchocr.job.row_plan import RowPlan
from batchocr.job.shortfalls import named
from batchocr.job.stats.quality import Quality
from batchocr.pages.input.sources import Found
from batchocr.tables.journal import Journal
from batchocr.tables.known import Kept, KnownRow, Unread, Version
from batchocr.tables.page_quality import TRAITS, Trait, traits_of

logger = logging.getLogger(__name__)


class OutputRows:
    """The rows that the table is to have, once everything is read; to be taken once. What it counts is complete then.

    found: what the INPUTs hold. prune: leave rows out that are gone or were not asked for; those from an INPUT that is
    empty now stay all the same, and are not in `gone`, as it may not be mounted.
    """

    def __init__(self, plan: RowPlan, journal: Journal, found: Found, *, prune: bool) -> None:
        self.gone: dict[str, int] = {}
        """How many rows, by `source`, are of documents that are not there any more."""
        self.not_asked: dict[str, int] = {}
        """How many rows, by `source`, this run did not ask for, of documents that are there."""
        self.quality = Quality()
        """The measures of all rows of the table."""
        self.traits: Counter[Trait] = Counter()
        """How many of the rows that this run is about have each trait."""
        self._num_read = 0
        self._plan = plan
        self._known, self._table = journal.known, journal.known.table
        self._journal = journal
        self._num_in_table = journal.num_before
        self._read_of_input = plan.among_documents(self._known.sources())
        """The documents of the input of which the journal has rows."""
        self._prune = prune
        self._not_drawn = set(map(valid_text, found.not_drawn))
        self._found = found
        self._rows_of_empty: Counter[str] = Counter()
        self._is_kept = np.zeros(self._table.num_rows, np.bool_)
        """The rows of the earlier table that stay."""
        self._is_asked = plan.is_asked.copy()
        """Which rows of the earlier table this run is about."""
        self._rows: Iterable[Kept | Unread] = self._joined(self._documents())

    def are_the_table(self, *, in_order: bool) -> bool:
        """Whether these rows are the rows of the table that is there, as nothing was read, left out or put elsewhere.
        in_order: their order matters."""
        if self._known.sources() or len(self._is_kept) > self._num_in_table:
            return False
        self._rows = [*self._rows]
        kept = [row if isinstance(row, Kept) else Kept(row.place, row.place + 1) for row in self._rows]
        kept = kept if in_order else sorted(kept)
        begins, ends = [row.start for row in kept], [row.stop for row in kept]
        return [0, *ends] == [*begins, len(self._is_kept)]

    def __iter__(self) -> Iterator[Kept | Unread]:
        """Yield the rows, in order."""
        return iter(self._rows)

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return int(np.count_nonzero(self._is_kept)) + self._num_read

    def _load(self, row: Unread) -> PageResult:
        result = self._journal.read(row.source, row.page_index)
        if row.version is not None:
            result = replace(result, file_bytes=row.version[0], file_mtime_ns=row.version[1])
        if row.place < 0:
            self._num_read += 1
            self.quality.add(result)
            self.traits.update(traits_of(result) if row.is_asked else ())
        return result

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
            rows = counted(num_rows, "row")
            said = f"{name} holds no document, or is cut, and {rows} of the table came from there: is it mounted?"
            stay = "; they stay, as long as it is an INPUT" if self._prune else ""
            logger.warning("%s%s", said, stay, extra=event("input_empty", input=name, rows=num_rows))

    def _documents(self) -> Iterator[Kept | Unread]:
        """The documents in the order of the table."""
        followers, done = self._followers(), 0
        yield from self._gone(followers[None])
        for index in self._looked_at(followers):
            yield from self._as_they_are(done, index)
            document, state, done = self._plan.documents[index], self._plan.given(index), index + 1
            source = valid_text(document.source)
            if state is not None:
                yield from self._read(document, state)
            elif source in self._known.sources():
                yield from self._not_asked(source)
            else:
                yield from self._asked_in_part(source, *self._plan.rows_in_table(index))
            yield from self._gone(followers.get(source, ()))
        yield from self._as_they_are(done, len(self._plan.documents))
        pages = self._table.pages
        self.quality.add_all(pages["ink_outside"][self._is_kept], pages["text_layer_agreement"][self._is_kept])
        traits = pages["traits"][self._is_kept & self._is_asked]
        self.traits.update({trait: int(np.count_nonzero(traits & 1 << bit)) for bit, trait in enumerate(TRAITS)})

    def _looked_at(self, followers: Mapping[str | None, list[str]]) -> list[int]:
        """The documents of the input that are not to stay just as the table has them, and those with followers."""
        named = pa.array([*self._known.sources(), *filter(None, followers)], pa.string())
        is_looked_at = pc.is_in(self._plan.sources, named).to_numpy(zero_copy_only=False)
        is_looked_at[[*self._plan.states]] = True
        has_others = np.append(np.logical_or.reduceat(~self._is_asked, self._table.first[:-1]), False)
        looked_at: list[int] = np.flatnonzero(is_looked_at | has_others[self._plan.places]).tolist()
        return looked_at

    def _as_they_are(self, begin: int, end: int) -> Iterator[Kept]:
        """The rows of these documents of the input, which stay as the table has them; documents that follow each other
        there are one piece."""
        places = self._plan.places[begin:end]
        places = places[places >= 0]
        firsts, lasts = places[np.diff(places, prepend=-2) != 1], places[np.diff(places, append=-2) != 1]
        rows = self._table.first
        yield from map(Kept, rows[firsts].tolist(), rows[lasts + 1].tolist())

    def _joined(self, rows: Iterable[Kept | Unread]) -> Iterator[Kept | Unread]:
        """The rows, with those joined to one piece that follow each other in the earlier table."""
        last: Kept | Unread | None = None
        for row in rows:
            if isinstance(row, Kept):
                self._is_kept[row.start : row.stop] = True
                if isinstance(last, Kept) and last.stop == row.start:
                    last = Kept(last.start, row.stop)
                    continue
            if last is not None:
                yield last
            last = row
        if last is not None:
            yield last

    def _followers(self) -> Mapping[str | None, list[str]]:
        """The documents that are not in the input, by the one that they follow in the earlier table; those that are not
        there either, by the one that an unfinished run has read before them. None for those in front."""
        followers: defaultdict[str | None, list[str]] = defaultdict(list)
        numbers, sources = np.arange(len(self._table.sources)), self._table.sources
        is_present = np.isin(numbers, self._plan.places)
        before = np.maximum.accumulate(np.where(is_present, numbers, -1))
        is_present[self._table.again] = True

        def name_of(number: int) -> str | None:
            return sources[number].as_py() if number >= 0 else None

        for number in np.flatnonzero(~is_present).tolist():
            followers[name_of(before[number])].append(sources[number].as_py())
        after = name_of(self._plan.places.max(initial=-1))
        for source in self._known.sources():
            if source in self._read_of_input:
                after = source
            elif self._table.document_of(source) is None:
                followers[after].append(source)
        return followers

    def _gone(self, sources: Iterable[str]) -> Iterator[Kept | Unread]:
        """The rows of documents that are not in the input, unless these rows are to be removed."""
        for source in sources:
            rows = self._known.rows(source)
            pages = [row for row in rows if row.page_index is not None]
            pages = pages or [row for row in rows if row.doc_id]  # else its row says only that there was no file
            if (container := self._found.container_of(source)) is not None:
                pages = [row for row in pages if (container, row.doc_id, row.page_index) not in self._under_new_names]
            if not pages:
                continue
            empty_input = next((name for name, begin in self._found.empty.items() if source.startswith(begin)), None)
            if empty_input is not None:
                self._rows_of_empty[empty_input] += len(pages)
            if empty_input is not None or not self._prune:
                yield from (self._row(source, row) for row in pages)
            if empty_input is None or not self._prune:
                (self.not_asked if source in self._not_drawn else self.gone)[source] = len(pages)

    @cached_property
    def _under_new_names(self) -> set[tuple[str | None, str | None, int | None]]:
        """The archive, `doc_id` and page of each row that the earlier table has not. If it has that row of a document
        that is not in this archive any more, that is what the same document was called before."""
        return {
            (self._found.container_of(source), row.doc_id, row.page_index)
            for source in self._read_of_input
            for row in self._known.rows(source)
            if row.place < 0
        }

    def _asked_in_part(self, source: str, first: int, end: int) -> Iterator[Kept]:
        """The rows in the table of a document of which nothing else is known; only the rows asked for, if all others
        are to be removed. first, end: the rows, of which there may be none."""
        is_asked = self._is_asked[first:end]
        if others := end - first - int(np.count_nonzero(is_asked)):
            self.not_asked[source] = others
        if others and self._prune:
            yield from (Kept(row, row + 1) for row in (first + np.flatnonzero(is_asked)).tolist())
        elif end > first:
            yield Kept(first, end)

    def _not_asked(self, source: str) -> Iterator[Kept | Unread]:
        """The rows of a document that an unfinished run has read, and this run does not ask for."""
        rows = self._known.rows(source)
        rows = [row for row in rows if row.page_index is not None] or rows
        self.not_asked[source] = len(rows)
        yield from (self._row(source, row) for row in rows if not self._prune)

    def _read(self, document: Document, state: DocumentState) -> Iterator[Kept | Unread]:
        """The pages of a document at which this run has looked."""
        source, planned = valid_text(document.source), state.rows or ()
        rows = {row.page_index: row for row in self._known.rows(source)}
        others = {
            page
            for page, row in rows.items()
            if page is not None and page not in planned and state.doc_id in (None, row.doc_id)
        }
        pages: Sequence[int | None] = planned
        if others and state.problem is not None and state.problem.kind != "not_found":
            logger.warning("%s: %s: its %s stay", source, state.problem.message, counted(len(others), "row"))
            pages = sorted(others)
        elif others:
            (self.gone if state.problem else self.not_asked)[source] = len(others)
            if not self._prune:
                pages = sorted(others.union(page for page in planned if page is not None))
        version = (state.size, state.mtime_ns) if state.size is not None and not document.held else None
        for page in pages:
            is_touched = state.doc_id is not None and rows[page].doc_id == state.doc_id
            yield self._row(source, rows[page], version if is_touched else None, is_asked=page in planned)

    def _row(
        self, source: str, row: KnownRow, version: Version | None = None, *, is_asked: bool = False
    ) -> Kept | Unread:
        """One row, wherever it is. version: of its file as it is now."""
        touched = version if version != row.version else None
        if row.place >= 0:
            self._is_asked[row.place], self._is_kept[row.place] = is_asked, True
            if touched is None:
                return Kept(row.place, row.place + 1)
        return Unread(source, row.page_index, is_asked, touched, row.place, self._load)
