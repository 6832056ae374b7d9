"""Parts of a table, such as the tables of shards, as one table in input order."""

from __future__ import annotations

import heapq
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from batchocr.data import PageResult, counted
from batchocr.errors import OutputError, OutputMismatchError
from batchocr.machine import allow_open_files
from batchocr.option_values import parse_page_spec
from batchocr.pages.input.globs import PathKey, path_key
from batchocr.storage.uris import is_uri
from batchocr.tables.atomic import reading
from batchocr.tables.earlier import require_ours
from batchocr.tables.files import journal_path, table_file
from batchocr.tables.index import page_rank
from batchocr.tables.opened import TablePart, find_tables
from batchocr.tables.schema import (
    SCHEMA_VERSION,
    RunMetadata,
    different_settings,
    fingerprint_of_settings,
    sample_of,
)
from batchocr.tables.selection import selection_together
from batchocr.tables.table import table_for

logger = logging.getLogger(__name__)

_OTHER_FILES = 64
"""More than what is open beside the parts."""

_Key = tuple[int, PathKey, str, int]
"""Of a row: the place of its document in the input, its path, and the page; -1 for the document as a whole."""


@dataclass(frozen=True, slots=True)
class _Placed:
    """A row with where it belongs, and the part that it comes from."""

    key: _Key
    part: int
    row: PageResult


def require_free(out: Path, parts: Sequence[TablePart], *, overwrite: bool) -> None:
    """Raise OutputError if a merged table may not take this place, UsageError if no table can have this name.
    overwrite: it may take that of a table, but of no other file."""
    table_for(out)
    if any(os.path.realpath(out) == os.path.realpath(part.path) for part in parts):
        raise OutputError(f"{out} is one of the parts: choose another --out")
    if journal_path(out).exists():
        raise OutputError(f"{journal_path(out)} is of a run that is unfinished: finish it, or choose another --out")
    if table_file(out).exists() and not overwrite:
        raise OutputError(f"{out} exists already: choose another --out, or replace it with --overwrite")
    require_ours(out)


def require_finished(tables: Sequence[str]) -> None:
    """Raise OutputMismatchError if a part has only its journal, which a folder or a glob would leave out unseen. A
    journal beside its table, of a later run that has not ended, is logged. Stores hold finished tables only. Raises
    OutputError."""
    here = [name for name in tables if not is_uri(name)]
    for path in (path for name in here for path in find_tables(name, partial=True)):
        if not path.exists():
            raise OutputMismatchError(f"the run into {path} is unfinished: finish it before it is merged")
        journal = journal_path(path)
        with reading(path):
            if journal.exists() and journal.stat().st_mtime_ns > path.stat().st_mtime_ns:
                logger.warning(
                    "%s is newer than its table: what an unfinished run has read since is left out; finish it and "
                    "merge again to have it",
                    journal,
                )


def merged_metadata(parts: Sequence[TablePart], preferred: Sequence[TablePart] = ()) -> RunMetadata:
    """What the merged rows depend on, in the columns of this version. With preferred rows of other settings, these are
    said, too, and the table fits no run."""
    first = parts[0].metadata
    roots = dict.fromkeys(root for part in [*parts, *preferred] for root in part.metadata.input_roots)
    newest = sample_of(sorted({source for part in parts for source in part.metadata.newest}))
    made = replace(first, schema_version=SCHEMA_VERSION, input_roots=tuple(roots), containers={}, newest=newest)
    made = replace(made, selection=selection_together([part.metadata.selection for part in parts]))
    if all(part.metadata.settings_fingerprint == first.settings_fingerprint for part in preferred):
        return made
    differing = different_settings(first, preferred[0].metadata)
    settings = {**first.settings, "preferred": ", ".join(f"{name} {new}" for name, (_, new) in differing.items())}
    return replace(made, settings=settings, settings_fingerprint=fingerprint_of_settings(settings))


def merged_rows(
    parts: Sequence[TablePart], places: Mapping[str, int] | None = None, preferred: Sequence[TablePart] = ()
) -> Iterator[PageResult]:
    """Yield the rows of all parts, in the order that one run would have given them.

    preferred: parts whose rows, if they did not fail, take the place of others' of the same pages. places: of the
    documents in the input, by `source`; those that are not in it come behind. None for the natural order of their
    paths, as in a folder. Where a part is in another order, each part keeps its own.
    Raises OutputMismatchError if two rows are of the same page, OutputError if a part cannot be read.
    """
    finished: set[str] = set()
    before: _Placed | None = None
    in_order = True
    all_parts = [*parts, *preferred]
    allow_open_files(_OTHER_FILES + len(all_parts))  # those of shards are all open at once
    each = (_placed(part, number, places) for number, part in enumerate(all_parts))
    rows = heapq.merge(*each, key=attrgetter("key"))
    for placed in _with_preferred(rows, all_parts, len(parts)) if preferred else rows:
        if before is not None and placed.row.source == before.row.source:
            _require_another_page(before, placed, all_parts)
        elif placed.row.source in finished:
            raise OutputMismatchError(
                f"{placed.row.source} has rows in several places, as the parts are in different orders: name the "
                "INPUTs of the runs with --input, in their order"
            )
        in_order = in_order and (before is None or before.key < placed.key)
        finished.add(placed.row.source)
        before = placed
        yield placed.row
    if not in_order:
        logger.warning(
            "the parts are not in the order of %s, so that a single run might have put documents in another: name the "
            "INPUTs of the runs with --input, in their order",
            "their paths" if places is None else "these INPUTs",
        )


def _key_of(row: PageResult, places: Mapping[str, int] | None) -> _Key:
    place = 0 if places is None else places.get(row.source, len(places))
    return place, path_key(row.source), row.source, page_rank(row.page_index)


def _placed(part: TablePart, number: int, places: Mapping[str, int] | None) -> Iterator[_Placed]:
    """Yield the rows of a part. The first is all there is of it, and the part is closed, until the next is wanted."""
    if (first := next(part.rows(), None)) is not None:
        yield _Placed(_key_of(first, places), number, first)
        rows = part.rows()
        if next(rows, None) != first:  # else all are of the file that is there now
            raise OutputError(f"{part.path} was replaced while it was read: merge again")
        yield from (_Placed(_key_of(row, places), number, row) for row in rows)


def _with_preferred(rows: Iterable[_Placed], parts: Sequence[TablePart], num_others: int) -> Iterator[_Placed]:
    """Yield the rows, without those whose place another takes: one of the parts behind the first `num_others`. The row
    of a document as a whole gives its place to all of the pages, or to none. Raises OutputMismatchError if two are of
    different versions of a file."""
    not_taken: list[str] = []
    for source, of_document in groupby(rows, key=lambda placed: placed.row.source):
        document = [*of_document]
        others = [placed for placed in document if placed.part < num_others]
        again = [placed for placed in document if placed.part >= num_others]
        taken = [placed for placed in again if placed.row.status != "failed"]
        for placed in document if taken else []:
            _require_same_file(placed, taken[0], parts)
        if taken and others and others[0].row.page_index is None:
            if _are_all_pages(again, taken[0].row.page_count, parts[others[0].part]):
                others, taken = [], again  # with those of its pages that failed
            else:
                not_taken.append(source)
                taken = []
        pages = {placed.row.page_index for placed in taken}
        taken += [placed for placed in others if placed.row.page_index not in pages]
        yield from sorted(taken, key=attrgetter("key"))
    if not_taken:
        logger.warning(
            "%s, %r among them, failed as a whole, and not all pages were read again: those that were are left out; "
            "read all pages of these documents again",
            counted(len(not_taken), "document"),
            not_taken[0],
        )


def _are_all_pages(rows: Sequence[_Placed], page_count: int | None, part: TablePart) -> bool:
    """Whether these are rows of all the pages of their document that the run of this part was to read."""
    spec = (part.metadata.selection or {}).get("pages", "1-r1")
    pages = {placed.row.page_index for placed in rows}
    return page_count is not None and pages.issuperset(parse_page_spec(spec).pages(page_count))


def _require_same_file(placed: _Placed, preferred: _Placed, parts: Sequence[TablePart]) -> None:
    if placed.row.doc_id not in (None, preferred.row.doc_id):
        raise OutputMismatchError(
            f"{placed.row.source} has changed between {parts[placed.part].path} and {parts[preferred.part].path}: run "
            "again into the first"
        )


def _require_another_page(before: _Placed, placed: _Placed, parts: Sequence[TablePart]) -> None:
    """Raise OutputMismatchError if both rows, of one document, are of the same page, or one speaks of all pages."""
    if before.row.page_index is not None and before.key < placed.key:
        return
    page = "as a whole" if before.row.page_index is None else f"page {before.row.page_index + 1}"
    where = " and in ".join(dict.fromkeys(str(parts[one.part].path) for one in (before, placed)))
    raise OutputMismatchError(
        f"{placed.row.source}, {page}, has more than one row: it is in {where}. Parts that overlap are not merged"
    )
