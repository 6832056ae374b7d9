"""Parts of a table, such as the tables of shards, as one table in input order."""

from __future__ import annotations

import heapq
import logging
import os
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from batchocr.data import counted
from batchocr.errors import OutputError, OutputMismatchError
from batchocr.option_values import parse_page_spec
from batchocr.pages.input.globs import PathKey, path_key
from batchocr.storage.uris import is_uri
from batchocr.tables.atomic import reading
from batchocr.tables.earlier import has_table, require_ours
from batchocr.tables.files import journal_path
from batchocr.tables.opened import TablePart, find_tables
from batchocr.tables.output import Output
from batchocr.tables.schema import (
    SCHEMA_VERSION,
    RunMetadata,
    different_settings,
    fingerprint_of_settings,
    sample_of,
)
from batchocr.tables.selection import selection_together
from batchocr.tables.table import table_for
from batchocr.tables.together import InOrder, RowNumbers, Together

logger = logging.getLogger(__name__)

_Key = tuple[int, PathKey, str]
"""The sort key of a document: its place in the input, its path by parts, and as it is."""


def require_free(output: Output, parts: Sequence[TablePart], *, overwrite: bool) -> None:
    """Raise OutputError if a merged table may not take this place. overwrite: it may take that of a table, but of no
    other file."""
    out = output.path
    if any(os.path.realpath(out) == os.path.realpath(part.path) for part in parts):
        raise OutputError(f"{out} is one of the parts: choose another --out")
    journal = journal_path(out)
    if journal.exists() and journal.stat().st_size:
        raise OutputError(f"{journal} is of a run that is unfinished: finish it, or choose another --out")
    if output.items:
        raise OutputError(
            f"{output.name} has what actors of an unfinished run have read: finish it with `batchocr ray` or `batchocr "
            "run`, or choose another --out"
        )
    if has_table(output.table) and not overwrite:
        with suppress(OutputError), ExitStack() as closing_after:
            if table := table_for(output.table).open_table(output.table):
                closing_after.callback(table.close)
                output.settle(table)  # it may be what the same command has left, and was killed
        raise OutputError(f"{output.name} exists already: choose another --out, or replace it with --overwrite")
    require_ours(output.table)


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


@contextmanager
def merged(
    out: Path,
    parts: Sequence[TablePart],
    places: Mapping[str, int] | None = None,
    preferred: Sequence[TablePart] = (),
) -> Iterator[InOrder]:
    """The rows of all parts in the order that one run would have given them, as a writer of the table at `out` takes
    those of an earlier one.

    preferred: parts whose rows, if they did not fail, take the place of others' of the same pages. places: of the
    documents in the input, by `source`; those that are not in it come behind. None for the natural order of their
    paths, as in a folder. Where a part is in another order, each part keeps its own.
    Raises OutputMismatchError if two rows are of the same page, OutputError if a part cannot be read.
    """
    with closing(Together([part.path for part in (*parts, *preferred)])) as tables:
        order, first = _merged_order(tables, [*parts, *preferred], places, len(parts))
        yield InOrder(tables, order, first, as_lines=out.suffix.lower() == ".jsonl")


def _merged_order(
    tables: Together, parts: Sequence[TablePart], places: Mapping[str, int] | None, num_others: int
) -> tuple[RowNumbers, RowNumbers]:
    """The numbers of the rows of all parts in their order, and in that where each document begins, and the last one
    ends. The parts behind the first `num_others` are preferred."""
    order, begins, hashes = array("i"), array("i", [0]), array("q")
    before: _Key | None = None
    in_order = True
    not_taken: list[str] = []
    first_preferred = int(tables.starts[num_others])
    keyed = heapq.merge(*(_keyed(tables.documents(part), places) for part in range(len(parts))), key=itemgetter(0))
    for key, pieces in groupby(keyed, key=itemgetter(0)):
        rows = [number for _, piece in pieces for number in piece]
        rows.sort(key=tables.page_index.__getitem__)
        if max(rows) >= first_preferred:
            rows = _chosen(tables, parts, first_preferred, rows, not_taken)
        order.extend(rows)
        if rows:
            begins.append(len(order))
            hashes.append(hash(key[-1]))
        in_order = in_order and (before is None or before < key)
        before = key
    merged, first = np.frombuffer(order, np.int32), np.frombuffer(begins, np.int32)
    if not in_order:
        _require_together(tables, merged[first[:-1]], np.frombuffer(hashes, np.int64))
        logger.warning(
            "the parts are not in the order of %s, so that a single run might have put documents in another: name the "
            "INPUTs of the runs with --input, in their order",
            "their paths" if places is None else "these INPUTs",
        )
    _require_other_pages(tables, merged, first, parts)
    if not_taken:
        logger.warning(
            "%s, %r among them, failed as a whole, and not all pages were read again: those that were are left out; "
            "read all pages of these documents again",
            counted(len(not_taken), "document"),
            not_taken[0],
        )
    return merged, first


def _keyed(documents: Iterable[tuple[str, range]], places: Mapping[str, int] | None) -> Iterator[tuple[_Key, range]]:
    for source, rows in documents:
        place = 0 if places is None else places.get(source, len(places))
        yield (place, path_key(source), source), rows


def _chosen(
    tables: Together, parts: Sequence[TablePart], begin: int, numbers: list[int], not_taken: list[str]
) -> list[int]:
    """The numbers of a document's rows that count. Rows from `begin` on are preferred. The row of the document as a
    whole gives its place to all of the pages, or to none: then its `source` is added to `not_taken`. Raises
    OutputMismatchError if two rows are of different versions of the file."""
    read = tables.rows(numbers)
    rows = {number: replace(row, markdown=None, blocks=()) for number, row in zip(numbers, read, strict=True)}
    others = [number for number in numbers if number < begin]
    taken = [number for number in numbers if number >= begin and rows[number].status != "failed"]
    if not taken:
        return others
    first = rows[taken[0]]
    for number in numbers:
        if rows[number].doc_id not in (None, first.doc_id):
            before, after = (parts[tables.table_of(each)].path for each in (number, taken[0]))
            said = f"{first.source} has changed between {before} and {after}: run again into the first"
            raise OutputMismatchError(said)
    if others and rows[others[0]].page_index is None:
        again = [number for number in numbers if number >= begin]
        asked = (parts[tables.table_of(others[0])].metadata.selection or {}).get("pages", "1-r1")
        pages = {rows[number].page_index for number in again}
        if first.page_count is not None and pages.issuperset(parse_page_spec(asked).pages(first.page_count)):
            return again  # with those of its pages that failed
        not_taken.append(first.source)
        return others
    pages = {rows[number].page_index for number in taken}
    taken += [number for number in others if rows[number].page_index not in pages]
    return sorted(taken, key=tables.page_index.__getitem__)


def _require_together(tables: Together, rows: RowNumbers, hashes: NDArray[np.int64]) -> None:
    """Raise OutputMismatchError if a document stands in several places. Of each: its first row, and the hash of its
    `source`."""
    by_hash = np.argsort(hashes, kind="stable")
    for number in rows[by_hash][1:][np.diff(hashes[by_hash]) == 0][:1]:
        [row] = tables.rows([number])
        raise OutputMismatchError(
            f"{row.source} has rows in several places, as the parts are in different orders: name the INPUTs of the "
            "runs with --input, in their order"
        )


def _require_other_pages(tables: Together, order: RowNumbers, first: RowNumbers, parts: Sequence[TablePart]) -> None:
    """Raise OutputMismatchError if two rows of a document are of the same page, or one of several is of all pages."""
    pages = tables.page_index[order]
    is_fault = (pages[1:] <= pages[:-1]) | (pages[:-1] < 0)
    is_fault[first[1:-1] - 1] = False  # there the next document begins
    for place in np.flatnonzero(is_fault)[:1]:
        [row, _] = tables.rows(both := order[place : place + 2])
        page = "as a whole" if row.page_index is None else f"page {row.page_index + 1}"
        where = dict.fromkeys(str(parts[tables.table_of(number)].path) for number in both)
        raise OutputMismatchError(
            f"{row.source}, {page}, has more than one row: it is in {' and in '.join(where)}. Parts that overlap are "
            "not merged"
        )
