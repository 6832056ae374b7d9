"""What is to be read, divided into items: some small documents, or a part of a large one; about a thousand pages each.

An item is read as a whole, by one actor, into one part of the table. Its part is named after what it holds.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field

from batchocr.config import Config
from batchocr.data import Document, Failure, PageResult
from batchocr.job.survey.look import count_pages
from batchocr.machine import usable_cores
from batchocr.option_values import parse_page_spec
from batchocr.pages.input.sources import Found
from batchocr.storage.members import is_copied
from batchocr.storage.uris import is_uri
from batchocr.tables.schema import RunMetadata


@dataclass(frozen=True, slots=True)
class PlannedDocument:
    """A document as it was when the plan was made."""

    source: str
    size: int
    """In bytes; 0 for a document with a problem, which only becomes a row."""
    mtime_ns: int
    """0 for a document with a problem."""
    page_count: int | None = None
    """None until the pages are counted, and for a document that cannot be opened."""
    problem: Failure | None = None
    path: str = ""
    """Absolute, or a URI; empty in a plan that was stored."""

    def is_same(self, other: PlannedDocument | None) -> bool:
        """Whether the file has not been touched between the two."""
        return other is not None and replace(other, page_count=self.page_count, path=self.path) == self

    @property
    def document(self) -> Document:
        """What an actor reads. What is known of an object, or of a document within a file, need not be asked for
        again."""
        if is_copied(self.path):
            return Document(self.path, self.source, self.problem, size=self.size, mtime_ns=self.mtime_ns)
        return Document(self.path, self.source, self.problem)


@dataclass(frozen=True, slots=True)
class Item:
    """What one actor reads at a time."""

    number: int
    """Its place in the table."""
    pages: str | None
    """Those of each of its documents, as `--pages` says it; None for all."""
    num_rows: int
    """As far as is known: a document that cannot be opened has one."""
    documents: tuple[PlannedDocument, ...]

    @property
    def name(self) -> str:
        """The name of its part. Parts in the order of their names have the rows in the order of the input."""
        held = [(document.source, document.size, document.mtime_ns) for document in self.documents]
        digest = hashlib.sha256(json.dumps([self.pages, held]).encode()).hexdigest()
        return f"part-{self.number:06d}-{digest[:16]}.parquet"

    def is_held_by(self, held: Set[tuple[str, int | None]]) -> bool:
        """Whether a part with these sources and pages may be its own: it has rows of every document, and of no other,
        nor of other pages. One that could not be counted may have any, or none."""
        counts = {each.source: each.page_count for each in self.documents}
        spec = parse_page_spec(self.pages)
        wanted = {source: {None, *spec.pages(count)} for source, count in counts.items() if count}
        sources = {source for source, _ in held}
        is_of_these = all(page_index in wanted.get(source, {page_index}) for source, page_index in held)
        return wanted.keys() <= sources <= counts.keys() and is_of_these

    def failed_rows(self, failure: Failure, *, attempts: int) -> Iterator[PageResult]:
        """Yield all of its rows, failed."""
        for document in self.documents:
            count = document.page_count
            wanted: Sequence[int | None] = parse_page_spec(self.pages).pages(count) if count else [None]
            for page_index in wanted:
                yield PageResult(
                    document.source,
                    page_index,
                    "failed",
                    page_count=document.page_count,
                    error_kind=failure.kind,
                    error_message=failure.message,
                    attempts=attempts,
                )


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """What the parts in a folder are of."""

    run: str
    """The id of the run that wrote it."""
    metadata: Annotated[RunMetadata | None, Field(alias="facts")]
    """What the rows of the parts depend on; None until the model has been loaded."""
    pages: str | None
    """The value of `--pages`."""
    items: tuple[Item, ...]
    newest: frozenset[str] | None = None
    """By `source`, the documents that are new or have changed since the last run that ended well; None if all are."""


def look_at_file(document: Document) -> PlannedDocument:
    """The document with what tells whether it changes."""
    if document.size is not None and document.mtime_ns is not None:
        return PlannedDocument(document.source, document.size, document.mtime_ns, path=document.path)
    path = document.path if is_uri(document.path) else os.path.abspath(document.path)
    if document.problem is None:
        with suppress(OSError, ValueError):  # its row will say so
            file = os.stat(path)
            return PlannedDocument(document.source, file.st_size, file.st_mtime_ns, path=path)
    return PlannedDocument(document.source, 0, 0, problem=document.problem, path=path)


def unchanged_items(items: Sequence[Item], now: Mapping[str, PlannedDocument]) -> list[Item]:
    """The items of which every file is as it was, with where it is now. now: the documents by their source."""
    return [
        replace(item, documents=tuple(replace(each, path=now[each.source].path) for each in item.documents))
        for item in items
        if all(each.is_same(now.get(each.source)) for each in item.documents)
    ]


def divide(documents: Sequence[PlannedDocument], pages: str | None, per_item: int, *, first: int) -> Iterator[Item]:
    """Yield the items that documents make, in their order, numbered from `first`.

    A document with more pages than an item should have is divided evenly into items of its own; the others are grouped
    until there are enough. One with none of the pages is left out.
    """
    group: list[PlannedDocument] = []
    num_rows, number = 0, first
    for document in documents:
        wanted = parse_page_spec(pages).pages(document.page_count) if document.page_count else [0]
        if group and num_rows + len(wanted) > per_item:
            yield Item(number, pages, num_rows, tuple(group))
            group, num_rows, number = [], 0, number + 1
        if len(wanted) > per_item:
            for some in _evenly(wanted, per_item):
                yield Item(number, _as_spec(some), len(some), (document,))
                number += 1
        elif wanted:
            group.append(document)
            num_rows += len(wanted)
    if group:
        yield Item(number, pages, num_rows, tuple(group))


def _evenly(wanted: Sequence[int], most: int) -> Iterator[Sequence[int]]:
    """Divide pages into as few ranges of about the same length as may be."""
    count = -(-len(wanted) // most)
    for place in range(count):
        yield wanted[place * len(wanted) // count : (place + 1) * len(wanted) // count]


def _as_spec(indices: Sequence[int]) -> str:
    """Pages as `--pages` says it: 1-10,15."""
    ranges: list[list[int]] = []
    for page in (index + 1 for index in indices):
        if ranges and page == ranges[-1][1] + 1:
            ranges[-1][1] = page
        else:
            ranges.append([page, page])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def plan_items(found: Found, config: Config, earlier: ClusterPlan | None, pages_per_task: int) -> list[Item]:
    """The items, in the order of the input. Those of the run that this one continues stay as they were if their files
    have not changed; only files that are new or have changed are opened, to count their pages. Raises BatchOcrError."""
    documents = [look_at_file(document) for document in found.documents]
    now = {document.source: document for document in documents}
    kept: list[Item] = []
    counted: dict[str, PlannedDocument] = {}
    if earlier is not None:
        counted = {each.source: each for item in earlier.items for each in item.documents}
        if earlier.pages == config.pages:
            kept = unchanged_items(earlier.items, now)
    covered = {each.source for item in kept for each in item.documents}
    rest = [document for document in documents if document.source not in covered]
    first = 1 + max((item.number for item in earlier.items), default=-1) if earlier is not None else 0
    return [*kept, *divide(_counted(rest, counted, config), config.pages, pages_per_task, first=first)]


def newest_documents(items: Sequence[Item], earlier: ClusterPlan | None) -> frozenset[str] | None:
    """The documents that are new or have changed since the last run that ended well; None if all are new."""
    if earlier is None or earlier.newest is None:
        return None
    before = {each.source: each for item in earlier.items for each in item.documents}
    now = (each for item in items for each in item.documents)
    return earlier.newest | {each.source for each in now if not each.is_same(before.get(each.source))}


def _counted(
    documents: Sequence[PlannedDocument], known: dict[str, PlannedDocument], config: Config
) -> list[PlannedDocument]:
    """The documents with their numbers of pages. known: as they were counted by an earlier run."""
    done: dict[str, int | None] = {
        document.source: before.page_count
        for document in documents
        if (before := known.get(document.source)) is not None and before.is_same(document) and before.page_count
    }
    unknown = [document for document in documents if document.source not in done]
    if unknown:
        asked = [Document(each.path, each.source, each.problem) for each in unknown]
        for index, page_count in count_pages(asked, config, workers=config.workers or usable_cores()):
            done[unknown[index].source] = page_count
    return [replace(document, page_count=done[document.source]) for document in documents]
