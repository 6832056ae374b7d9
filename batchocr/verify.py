"""Whether tables hold what they should: every page of the input once, read from the file as it is now."""

from __future__ import annotations

import glob
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from batchocr.data import Document, ErrorKind, PageResult, Status
from batchocr.errors import OutputError, OutputMismatchError, PageError
from batchocr.input.page_spec import PageSpec
from batchocr.input.render import fingerprint
from batchocr.input.sources import find_documents
from batchocr.output.schema import RunFacts, storable_text
from batchocr.output.table import table_for

Problem = Literal["missing", "stale", "duplicate", "failed", "surplus", "settings"]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it should be. page_index: None where it is about a whole document or table."""

    problem: Problem
    where: str
    page_index: int | None
    message: str

    def __str__(self) -> str:
        page = "" if self.page_index is None else f" page {self.page_index + 1}"
        return f"{self.problem:9} {self.where}{page}: {self.message}"


@dataclass(slots=True)
class _Rows:
    """What the tables say of one document. statuses: by page index, None for the document as a whole."""

    doc_id: str | None = None
    page_count: int | None = None
    statuses: dict[int | None, tuple[Status, ErrorKind | None]] = field(default_factory=dict)


class Verifier:
    """Compares tables with inputs. num_items: rows that there should be, once all findings were taken."""

    def __init__(self, outs: Sequence[Path], spec: PageSpec | None) -> None:
        self.num_items = 0
        self._spec = spec
        self._outs = outs
        self._rows: dict[str, _Rows] = {}

    def findings(self, inputs: Sequence[str], model_fingerprint: str | None) -> Iterator[Finding]:
        """Yield what is wrong, table by table, then document by document. model_fingerprint: of the model there should
        be. Reads every document to its end, for its hash. Raises OutputError, OutputMismatchError, NoInputError."""
        yield from self._check_settings(model_fingerprint)
        for out in self._outs:
            for row in table_for(out).read_rows(out):
                yield from self._take(row)
        for document in find_documents(inputs):
            source = storable_text(document.source)
            rows = self._rows.pop(source, None)
            yield from self._check_document(document, source, rows or _Rows())
        for source in self._rows:
            yield Finding("surplus", source, None, "is in the table but not in the input")

    def _check_settings(self, model_fingerprint: str | None) -> Iterator[Finding]:
        first = read_facts(self._outs[0])
        for out in self._outs:
            facts = read_facts(out)
            if facts.settings_fingerprint != first.settings_fingerprint:
                yield Finding("settings", str(out), None, f"was made with other settings than {self._outs[0]}")
            if model_fingerprint not in (None, facts.model_fingerprint):
                yield Finding(
                    "stale", str(out), None, f"was made with another model ({facts.model}, or its weights then)"
                )

    def _take(self, row: PageResult) -> Iterator[Finding]:
        rows = self._rows.setdefault(row.source, _Rows(row.doc_id, row.page_count))
        if row.page_index in rows.statuses:
            yield Finding("duplicate", row.source, row.page_index, "has more than one row")
        rows.statuses[row.page_index] = row.status, row.error_kind

    def _check_document(self, document: Document, source: str, rows: _Rows) -> Iterator[Finding]:
        if not rows.statuses:
            if self._spec and not self._spec.pages(1):
                return  # of a short document these pages do not exist, and how short it is no row says
            self.num_items += 1
            yield Finding("missing", source, None, "has no row")
            return
        yield from self._check_file(document, source, rows)
        wanted = self._wanted(rows)
        self.num_items += len(wanted)
        for page_index in wanted:
            status, error_kind = rows.statuses.get(page_index, (None, None))
            if status is None:
                yield Finding("missing", source, page_index, "has no row")
            elif status == "failed":
                yield Finding("failed", source, page_index, error_kind or "unknown")

    def _check_file(self, document: Document, source: str, rows: _Rows) -> Iterator[Finding]:
        if rows.doc_id is None:
            return  # it could not be read, and its row says so
        if document.error_kind is not None:
            yield Finding("stale", source, None, f"cannot be read any more: {document.error_message}")
            return
        try:
            doc_id = fingerprint(document.path)[0]
        except PageError as error:
            yield Finding("stale", source, None, f"cannot be read any more: {error}")
            return
        if doc_id != rows.doc_id:
            yield Finding("stale", source, None, "has changed since it was read")

    def _wanted(self, rows: _Rows) -> Sequence[int | None]:
        if None in rows.statuses or rows.page_count is None:
            return [None]
        return self._spec.pages(rows.page_count) if self._spec else range(rows.page_count)


def find_tables(pattern: str) -> list[Path]:
    """The tables that a path or glob names, in order. Raises OutputError where there is none."""
    paths = [Path(pattern)] if Path(pattern).exists() else [Path(name) for name in sorted(glob.glob(pattern))]
    if not paths:
        raise OutputError(f"there is no table {pattern}: was the run finished? `batchocr run` builds it at its end")
    return paths


def read_facts(out: Path) -> RunFacts:
    """The facts of the run that wrote a table. Raises OutputMismatchError where it is not one of ours."""
    facts = table_for(out).read_facts(out)
    if facts is None:
        raise OutputMismatchError(f"{out} is not a table that batchocr wrote")
    return facts


def summary(counts: Counter[Problem], num_items: int) -> str:
    """One line: how many rows there should be, and what was found."""
    found = ", ".join(f"{count:,} {problem}" for problem, count in counts.items()) or "nothing wrong"
    return f"{num_items:,} rows expected: {found}"
