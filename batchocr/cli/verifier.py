"""Whether tables hold what they should: every page of the input once, read from the file as it is now."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

from batchocr.config import Config
from batchocr.data import Document, PageResult, Status, valid_text
from batchocr.errors import OutputError, UsageError
from batchocr.job.stats.report import Items
from batchocr.option_values import parse_page_spec
from batchocr.pages.kinds import kind_of
from batchocr.processes.messages import Failed, Setup
from batchocr.processes.pool import WorkerPool
from batchocr.processes.worker import Loss
from batchocr.storage.members import file_of
from batchocr.tables.files import TABLE_SUFFIXES, among, files_of, final_name, is_folder, is_part_name, report_path
from batchocr.tables.known import KnownRow, version_of
from batchocr.tables.opened import read_metadata
from batchocr.tables.page_quality import Trait, traits_of
from batchocr.tables.schema import RunMetadata
from batchocr.tables.selection import as_flags, selection_of
from batchocr.tables.table import table_for

logger = logging.getLogger(__name__)

_WORKER_BYTES = 2 * 2**30


def tables_among(tables: Sequence[Path], inputs: Sequence[str]) -> tuple[list[Path], list[str]]:
    """All tables, and the INPUTs that are no tables: a glob that is not quoted puts all but its first match among them.

    Raises UsageError if no INPUT is left.
    """
    found = {os.path.realpath(table): table for table in tables}
    more = {os.path.realpath(text): Path(text) for text in inputs if _is_table(Path(text))}
    all_tables = list((found | more).values())
    outputs = {os.path.realpath(file) for out in all_tables for file in files_of(out, report_path(out))}
    documents = [text for text in inputs if os.path.realpath(final_name(text)) not in outputs | more.keys()]
    if not documents:
        raise UsageError(
            f"no INPUT is left to compare with: {', '.join(map(str, all_tables))} are tables. Name the documents after "
            "them: batchocr verify 'part-*.parquet' FOLDER"
        )
    if added := [str(table) for real, table in more.items() if real not in found]:
        logger.info("taken for tables and not for INPUTs, as batchocr wrote them: %s", ", ".join(added))
    return all_tables, documents


def _is_table(path: Path) -> bool:
    """Whether batchocr wrote the file as a table; also true of one that is damaged or cannot be read, as reading it
    will say."""
    if not is_folder(path) and not (path.suffix.lower() in TABLE_SUFFIXES and path.is_file()):
        return False
    try:
        return table_for(path).read_metadata(path) is not None
    except OutputError:
        return not path.is_dir()  # which may hold a `table.json` of somebody else


def asked_for(selection: Mapping[str, str], shard: str | None) -> dict[str, Any]:
    """What of the input tables with this selection are compared with, as options. No table can tell which shards there
    should be; and a limit or a sample is one of its own shard. shard: as it was given, if it was."""
    numbers = ("limit", "sample_documents") if selection.get("shard") == shard else ()
    told = {name: selection[name] for name in ("pages", "only") if name in selection}
    return told | {name: int(selection[name]) for name in numbers if name in selection}


@dataclass(frozen=True, slots=True)
class DocumentNow:
    """A document as it is now."""

    doc_id: str | None = None
    """SHA-256 of the file, hex; None if it could not be hashed."""
    page_count: int | None = None
    """The pages of the document; None if the file could not be opened."""
    problem: str = ""
    """Why the file could not be hashed or opened."""
    is_known: bool = True
    """Whether anything is known of the document: not if the worker that opened it was lost."""


def look_at(pool: WorkerPool, timeout_s: float, document: Document) -> DocumentNow:
    """The document as it is now, as a worker finds it: hashing or opening it may hang, or end the process.
    Raises BatchOcrError if no worker can be started."""
    if document.problem is not None:
        return DocumentNow(problem=document.problem.message)
    found = pool.open_alone(document.path, timeout_s)
    if isinstance(found, Loss):
        return DocumentNow(problem=found.failure.message, is_known=False)
    if isinstance(found, Failed):
        return DocumentNow(found.doc_id, problem=found.failure.message)
    return DocumentNow(found.doc_id, found.page_count)


Problem = Literal["missing", "stale", "duplicate", "failed", "surplus", "gone", "unchecked", "settings"]


@dataclass(frozen=True, slots=True)
class VerifyFinding:
    """Something that is not as it should be."""

    problem: Problem
    where: str
    page_index: int | None
    """The page that the finding is about; None if it is about a whole document or table."""
    message: str

    def __str__(self) -> str:
        page = "" if self.page_index is None else f" page {self.page_index + 1}"
        return f"{self.problem:9} {self.where}{page}: {self.message}"


@dataclass(slots=True)
class _Rows:
    """What the tables say about one document, which may have changed between the reading of two rows."""

    by_page: dict[int | None, KnownRow] = field(default_factory=dict)
    """The rows by page; under None the row of the document as a whole."""
    traits: dict[int | None, Set[Trait]] = field(default_factory=dict)
    """The traits of the rows by page, as far as there are any."""

    @property
    def versions(self) -> set[str]:
        """The hashes of the files that the rows were read from."""
        return {row.doc_id for row in self.by_page.values() if row.doc_id is not None}

    def page_count(self, now: DocumentNow) -> int | None:
        """How many pages the rows should be of: as many as the document has now, if they are of this version; else as
        many as the rows say; None if no row says."""
        if now.page_count is not None and (now.doc_id in self.versions or not self.versions):
            return now.page_count
        counts = [(row.doc_id == now.doc_id, row.page_count) for row in self.by_page.values() if row.page_count]
        return max(counts)[1] if counts else None

    def by_time(self, document: Document) -> DocumentNow | None:
        """The document as its rows say it, if all are of one file that has its size and time; else None."""
        version = version_of(document) if document.problem is None else (None, None)
        [(doc_id, read), *others] = {(row.doc_id, row.version) for row in self.by_page.values()}
        if others or read != version or None in version:
            return None
        return DocumentNow(doc_id, self.page_count(DocumentNow(doc_id)))

    @property
    def is_one_failure(self) -> bool:
        """Whether the only row is a failure that says why the document could not be opened."""
        return self.by_page.keys() == {None} and self.by_page[None].status == "failed"


class Verifier:
    """Compares tables with inputs. What it counts is known once all findings have been taken."""

    def __init__(self, outs: Sequence[Path], config: Config, *, by_time: bool = False) -> None:
        """by_time: whether a document that has the size and time that its rows say is taken for the same, and not
        opened."""
        self.num_rows = 0
        """How many rows there should be."""
        self.by_status: Counter[Status] = Counter()
        """How many rows there are of each status."""
        self.traits: Counter[Trait] = Counter()
        """How many rows have each trait."""
        self.num_empty = 0
        """How many `ok` rows have no text but that of page headers and the like."""
        self.in_empty: Counter[str] = Counter()
        """How many of the empty rows have blocks of each type, or none at all."""
        self.num_uncounted = 0
        """How many documents there are whose pages could not be counted, because they cannot be opened."""
        self.num_by_time = 0
        """How many documents were taken for the same and not opened."""
        self.checked = selection_of(config)
        """What of the input is checked, as in RunMetadata."""
        self._by_time = by_time
        self._config = config
        self._spec = parse_page_spec(config.pages)
        self._outs = outs
        self._rows: dict[str, _Rows] = {}

    def findings(self, documents: Iterable[Document], fingerprints: Sequence[str]) -> Iterator[VerifyFinding]:
        """Yield what is wrong, table by table, then document by document. fingerprints: of the expected model, in all
        forms; none if any will do. Reads documents in full, to hash them, unless they are taken by time. Raises
        OutputError, OutputMismatchError, and BatchOcrError if no worker can be started."""
        yield from self._check_settings(fingerprints)
        is_output = among([file for out in self._outs for file in files_of(out, report_path(out))])
        # No page is read, and a worker starts sooner without the protocol. It starts while the tables are read.
        setup = Setup.of(self._config, _WORKER_BYTES)
        with WorkerPool(1, setup) as pool:
            now = partial(look_at, pool, self._config.page_timeout)
            for out in self._outs:
                for row in table_for(out).read_rows(out):
                    yield from self._take(row)
            for document in documents:
                if is_output(file_of(document.path)):
                    continue
                source = valid_text(document.source)
                rows = self._rows.pop(source, None)
                if self._config.limit is not None and self.num_rows >= self._config.limit:
                    continue
                if rows is None:
                    yield from self._check_absent(document, source, now)
                elif self._by_time and (unchanged := rows.by_time(document)):
                    self.num_by_time += 1
                    yield from self._check_document(document, source, rows, unchanged)
                else:
                    yield from self._check_document(document, source, rows, now(document))
        for source in self._rows:
            yield VerifyFinding("gone", source, None, "is in the table but not in the input")

    def exceeded(self) -> list[str]:
        """A sentence for each share of rows that is larger than the options allow."""
        config, items = self._config, Items.of(self.by_status, found=self.num_rows)
        rates = config.max_page_error_rate, config.max_degraded_rate, config.max_doubtful_rate
        return items.exceeded(*rates, doubtful=self.traits["doubtful"])

    def _check_settings(self, fingerprints: Sequence[str]) -> Iterator[VerifyFinding]:
        first = read_metadata(self._outs[0])
        for out in self._outs:
            metadata = read_metadata(out)
            if metadata.settings_fingerprint != first.settings_fingerprint:
                yield VerifyFinding("settings", str(out), None, f"was made with other settings than {self._outs[0]}")
            asked, asked_first = _asked_of_shard(metadata), _asked_of_shard(first)
            # Of the parts in a folder, a run replaces only those that change.
            if asked != asked_first and not is_part_name(out.name):
                said = f"was asked for {asked}, and {self._outs[0]} for {asked_first}"
                yield VerifyFinding("settings", str(out), None, said)
            if fingerprints and metadata.model_fingerprint not in fingerprints:
                yield VerifyFinding(
                    "stale", str(out), None, f"was made with another model ({metadata.model}, or its weights then)"
                )

    def _take(self, row: PageResult) -> Iterator[VerifyFinding]:
        rows = self._rows.setdefault(row.source, _Rows())
        if row.page_index in rows.by_page:
            yield VerifyFinding("duplicate", row.source, row.page_index, "has more than one row")
        of_file = row.doc_id, row.page_count, row.attempts, 0, row.file_bytes, row.file_mtime_ns
        rows.by_page[row.page_index] = KnownRow(row.page_index, row.status, *of_file, row.error_kind)
        if traits := traits_of(row):
            rows.traits[row.page_index] = traits
        texts = [block.content for block in row.blocks if kind_of(block.type).role != "furniture"] or [row.markdown]
        if row.status == "ok" and not any(text and text.strip() for text in texts):
            self.num_empty += 1
            self.in_empty.update({block.type for block in row.blocks} or {"no block (blank, or not read)"})

    def _check_absent(
        self, document: Document, source: str, now: Callable[[Document], DocumentNow]
    ) -> Iterator[VerifyFinding]:
        """Check a document without rows: that is right only if it has none of the pages asked for."""
        if (self._config.pages or document.pages) and document.problem is None:
            page_count = now(document).page_count
            if page_count and not self._asked_for(document, page_count):
                return
        self.num_rows += 1
        yield VerifyFinding("missing", source, None, "has no row")

    def _check_document(
        self, document: Document, source: str, rows: _Rows, now: DocumentNow
    ) -> Iterator[VerifyFinding]:
        yield from _stale(source, rows, now)
        if now.is_known and now.doc_id and now.page_count is None and not rows.is_one_failure:
            self.num_uncounted += 1
        wanted = self._wanted(document, rows, now)
        page_count = (rows.page_count(now) or 0) if wanted != [None] else 0
        if self._config.limit is not None:
            wanted = wanted[: self._config.limit - self.num_rows]
        self.num_rows += len(wanted)
        for page_index in wanted:
            row = rows.by_page.pop(page_index, None)
            if row is None:
                yield VerifyFinding("missing", source, page_index, "has no row")
                continue
            self.by_status[row.status] += 1
            self.traits.update(rows.traits.get(page_index, ()))
            if row.status == "failed":
                yield VerifyFinding("failed", source, page_index, row.error_kind or "unknown")
        for page_index in rows.by_page:
            if page_index is not None and page_index < page_count:
                continue  # it was not asked for
            yield VerifyFinding("surplus", source, page_index, "has a row that should not be there")

    def _wanted(self, document: Document, rows: _Rows, now: DocumentNow) -> Sequence[int | None]:
        """The rows there should be: one per page, or one for a document that has none or could not be opened."""
        page_count = rows.page_count(now)
        if not page_count or rows.is_one_failure:
            return [None]
        return self._asked_for(document, page_count)

    def _asked_for(self, document: Document, page_count: int) -> Sequence[int]:
        """The pages of the document, of so many, that the run was to read."""
        return document.chosen(self._spec.pages(page_count))


def _asked_of_shard(metadata: RunMetadata) -> str:
    """What a run was to read of its shard, as flags; `all` also where that is not known, as verify then asks for
    all."""
    return as_flags({name: value for name, value in (metadata.selection or {}).items() if name != "shard"}) or "all"


def _stale(source: str, rows: _Rows, now: DocumentNow) -> Iterator[VerifyFinding]:
    """What was not read from the file as it is now: one finding for the document, or one for each of some pages. A
    failed row without a doc_id already says that the file could not be read."""
    known = [page_index for page_index, row in rows.by_page.items() if row.doc_id is not None]
    stale = [page_index for page_index in known if rows.by_page[page_index].doc_id != now.doc_id]
    if stale and not now.is_known:
        yield VerifyFinding("unchecked", source, None, f"cannot be compared with its rows: {now.problem}")
    elif stale and now.doc_id is None:
        yield VerifyFinding("stale", source, None, f"cannot be read any more: {now.problem}")
    elif stale and len(stale) == len(known):
        yield VerifyFinding("stale", source, None, "has changed since it was read")
    else:
        for page_index in stale:
            yield VerifyFinding("stale", source, page_index, "was read before the file changed")
