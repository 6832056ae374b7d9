"""Whether tables hold what they should: every page of the input once, read from the file as it is now."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from batchocr.cli.console import print_out, printable
from batchocr.config import Config
from batchocr.data import Document, ErrorKind, PageResult, Status
from batchocr.errors import ExitCode, OutputMismatchError, PageError
from batchocr.input.render import fingerprint
from batchocr.output.files import files_of, report_path, without_files
from batchocr.output.schema import RunFacts, storable_text
from batchocr.output.table import table_for
from batchocr.page_spec import parse_page_spec
from batchocr.pool.pool import WorkerPool
from batchocr.stats.report import is_too_many
from batchocr.wire.messages import Opened, Setup

Problem = Literal["missing", "stale", "duplicate", "failed", "surplus", "settings"]
Form = Literal["text", "json", "quiet"]

_WORKER_BYTES = 2 * 2**30


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it should be. page_index: None if it is about a whole document or table."""

    problem: Problem
    where: str
    page_index: int | None
    message: str

    def __str__(self) -> str:
        page = "" if self.page_index is None else f" page {self.page_index + 1}"
        return f"{self.problem:9} {self.where}{page}: {self.message}"


@dataclass(frozen=True, slots=True)
class _Row:
    """What a table says about a page, or about a document as a whole."""

    status: Status
    error_kind: ErrorKind | None
    doc_id: str | None


@dataclass(slots=True)
class _Rows:
    """What the tables say about one document, which may have changed between the reading of two rows.

    by_page: None is the document as a whole. page_counts: by doc_id.
    """

    by_page: dict[int | None, _Row] = field(default_factory=dict)
    page_counts: dict[str | None, int] = field(default_factory=dict)

    def page_count(self, doc_id: str | None) -> int | None:
        """How many pages the file with this hash has; if no row has the hash, another version; None if no row says."""
        return self.page_counts.get(doc_id, max(self.page_counts.values(), default=None))


class Verifier:
    """Compares tables with inputs. num_items: how many rows there should be, once all findings have been taken."""

    def __init__(self, outs: Sequence[Path], config: Config) -> None:
        self.num_items = 0
        self._config = config
        self._spec = parse_page_spec(config.pages) if config.pages else None
        self._outs = outs
        self._rows: dict[str, _Rows] = {}

    def findings(self, documents: Iterable[Document], model_fingerprint: str | None) -> Iterator[Finding]:
        """Yield what is wrong, table by table, then document by document. model_fingerprint: that of the expected
        model. Reads documents in full, to hash them. Raises OutputError, OutputMismatchError."""
        yield from self._check_settings(model_fingerprint)
        for out in self._outs:
            for row in table_for(out).read_rows(out):
                yield from self._take(row)
        outputs = [file for out in self._outs for file in files_of(out, report_path(out))]
        with closing(_PageCounter(self._config)) as counter:
            for document in without_files(documents, outputs):
                source = storable_text(document.source)
                rows = self._rows.pop(source, None)
                if rows is None:
                    yield from self._check_absent(document, source, counter)
                else:
                    yield from self._check_document(document, source, rows)
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
        rows = self._rows.setdefault(row.source, _Rows())
        if row.page_index in rows.by_page:
            yield Finding("duplicate", row.source, row.page_index, "has more than one row")
        rows.by_page[row.page_index] = _Row(row.status, row.error_kind, row.doc_id)
        if row.page_count is not None:
            rows.page_counts[row.doc_id] = row.page_count

    def _check_absent(self, document: Document, source: str, counter: _PageCounter) -> Iterator[Finding]:
        """Check a document without rows: that is right only if it has none of the pages asked for."""
        message = "has no row"
        if self._spec and document.problem is None:
            page_count = counter.count(document.path)
            if page_count and not self._spec.pages(page_count):
                return
            if page_count is None:
                message = "has no row, or is shorter than --pages"
        self.num_items += 1
        yield Finding("missing", source, None, message)

    def _check_document(self, document: Document, source: str, rows: _Rows) -> Iterator[Finding]:
        doc_id, problem = _current_doc_id(document)
        yield from _stale(source, rows, doc_id, problem)
        wanted = self._wanted(rows, doc_id)
        self.num_items += len(wanted)
        for page_index in wanted:
            row = rows.by_page.pop(page_index, None)
            if row is None:
                yield Finding("missing", source, page_index, "has no row")
            elif row.status == "failed":
                yield Finding("failed", source, page_index, row.error_kind or "unknown")
        for page_index in rows.by_page:
            yield Finding("surplus", source, page_index, "has a row that should not be there")

    def _wanted(self, rows: _Rows, doc_id: str | None) -> Sequence[int | None]:
        """The rows there should be: one per page, or one for a document whose page count is in no row."""
        page_count = rows.page_count(doc_id)
        if not page_count:
            return [None]
        return self._spec.pages(page_count) if self._spec else range(page_count)


class _PageCounter:
    """Counts the pages of documents whose page count is in no row: in a worker process, as opening a document may crash
    or hang. The worker starts when it is first needed."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._pool: WorkerPool | None = None

    def count(self, path: str) -> int | None:
        """How many pages a document claims to have; None if it cannot be opened. Raises BatchOcrError."""
        if self._pool is None:
            self._pool = WorkerPool(1, Setup.of(self._config, _WORKER_BYTES))
        found = self._pool.open_alone(path, self._config.page_timeout)
        return found.page_count if isinstance(found, Opened) else None

    def close(self) -> None:
        """End the worker."""
        if self._pool is not None:
            self._pool.close()


def _current_doc_id(document: Document) -> tuple[str | None, str | None]:
    """The hash of the file as it is now; or None, and why the file cannot be read."""
    if document.problem is not None:
        return None, document.problem.message
    try:
        return fingerprint(document.path)[0], None
    except PageError as error:
        return None, str(error)


def _stale(source: str, rows: _Rows, doc_id: str | None, problem: str | None) -> Iterator[Finding]:
    """What was not read from the file as it is now: one finding for the document, or one for each of some pages. A row
    without a doc_id already says that the file could not be read."""
    known = [page_index for page_index, row in rows.by_page.items() if row.doc_id is not None]
    stale = [page_index for page_index in known if rows.by_page[page_index].doc_id != doc_id]
    if stale and problem is not None:
        yield Finding("stale", source, None, f"cannot be read any more: {problem}")
    elif stale and len(stale) == len(known):
        yield Finding("stale", source, None, "has changed since it was read")
    else:
        for page_index in stale:
            yield Finding("stale", source, page_index, "was read before the file changed")


def read_facts(out: Path) -> RunFacts:
    """The facts of the run that wrote a table. Raises OutputMismatchError if it is not one of ours."""
    facts = table_for(out).read_facts(out)
    if facts is None:
        raise OutputMismatchError(
            f"{out} is not a table of this version of batchocr; if a run was killed as it wrote it, run that again"
        )
    return facts


class Verdict:
    """Counts findings as they are printed, and decides the exit code. max_failed_rate: of rows, without an error."""

    def __init__(self, verifier: Verifier, *, max_failed_rate: float) -> None:
        self.counts: Counter[Problem] = Counter()
        self._verifier = verifier
        self._max_failed_rate = max_failed_rate

    def print(self, findings: Iterable[Finding], form: Form) -> None:
        """Print each finding as it is made, and what there is in all; as JSON, one object with a finding a line."""
        if form == "json":
            print_out('{"findings": [', end="")
        for number, finding in enumerate(findings):
            self.counts[finding.problem] += 1
            if form == "json":
                print_out(("," if number else "") + f"\n{json.dumps(asdict(finding))}", end="")
            elif form == "text":
                print_out(printable(str(finding)))
        if form == "json":
            rest = {"rows_expected": self._verifier.num_items, "counts": self.counts, "exit_code": self.exit_code}
            print_out(f"\n], {json.dumps(rest)[1:]}")
        elif form == "text":
            print_out(self.summary())

    @property
    def exit_code(self) -> ExitCode:
        """3 if there is anything but the failed rows that are allowed."""
        failed = self.counts["failed"]
        wrong = self.counts.total() - failed
        too_many = is_too_many(failed, self._verifier.num_items, self._max_failed_rate)
        return ExitCode.TOO_MANY_FAILURES if wrong or too_many else ExitCode.DONE

    def summary(self) -> str:
        """One line: how many rows there should be, and what was found."""
        found = ", ".join(f"{count:,} {problem}" for problem, count in self.counts.items()) or "nothing wrong"
        expected = self._verifier.num_items
        return f"{expected:,} row{'s' * (expected != 1)} expected: {found}"
