"""One output from start to finish: its journal, a pass over the documents, the table built from it, the report."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from batchocr.data import Document, PageResult
from batchocr.errors import BatchOcrError, OutputError, OutputMismatchError
from batchocr.events import event
from batchocr.intake import Intake, RowCursor, RowKey
from batchocr.output.journal import Entry, Journal
from batchocr.output.schema import storable_text
from batchocr.output.table import table_for
from batchocr.progress import Progress, log_failure
from batchocr.report import Report, require_writable, write_report
from batchocr.session import Pass, Session
from batchocr.stop import StopSwitch

logger = logging.getLogger(__name__)


def write_output(
    session: Session,
    documents: Sequence[Document],
    out: Path,
    stop: StopSwitch,
    progress: Progress | None,
    *,
    started_s: float,
) -> Report:
    """Read the documents into the table at `out`, or continue an unfinished one.

    A run that is stopped leaves its journal and builds no table; one that fails while reading or writing leaves its
    journal and a report. started_s: on time.perf_counter. Raises UsageError, OutputError, ModelError, EngineError.
    """
    config = session.config
    table = table_for(out)
    report_path = Path(config.report or f"{out}.report.json")
    require_writable(report_path)
    with Journal.open(out, session.facts, resume=config.resume, overwrite=config.overwrite) as journal:
        _require_same_input(out, documents, journal)
        _log_start(session, documents, out)
        reading = Pass(session, documents, stop, finished=journal, started_s=started_s)
        with _ReportOfFailure(reading, journal, report_path), reading:
            _read(reading, journal, progress)
            if reading.complete:
                writing_s = time.perf_counter()
                table.write(out, rows_in_order(reading.intake, journal), session.facts)
                reading.meter.add("write", time.perf_counter() - writing_s, items=0)
            report = _report(reading, journal)
        write_report(report, report_path)
        if report.complete:
            _retire(journal, report)
    return report


def _log_start(session: Session, documents: Sequence[Document], out: Path) -> None:
    facts = session.facts
    fields = {"out": str(out), "documents": len(documents), "model": facts.model, "version": facts.batchocr_version}
    count = f"{len(documents):,} document{'s' * (len(documents) != 1)}"
    logger.info("reading %s into %s", count, out, extra=event("run_started", **fields))


def _retire(journal: Journal, report: Report) -> None:
    """Delete the journal, unless it is still needed: for failed rows, or for rows that this input does not ask for."""
    num_surplus = journal.count_read() - report.items.ok - report.items.degraded
    if num_surplus > 0:
        journal.keep()
        logger.warning("%d pages of earlier runs are not part of this input; they stay in the journal", num_surplus)
    elif not report.items.failed:
        journal.remove()


def _read(reading: Pass, journal: Journal, progress: Progress | None) -> None:
    intake, ledger = reading.intake, reading.ledger

    def show() -> None:
        if progress is not None:
            planned = min(intake.num_planned, reading.limit or intake.num_planned)
            read = ledger.by_status.total()
            done = intake.num_done_before + read
            progress.show(done, planned, intake.all_planned, ledger.by_status["failed"], read)

    try:
        for _, entry in reading.results(tick=show):
            started_s = time.perf_counter()
            journal.append(_counting_on(entry, journal))
            if entry.result.status == "failed":
                log_failure(entry.result)
            reading.meter.add("write", time.perf_counter() - started_s)
    finally:
        show()
        if progress is not None:
            progress.close()


def _counting_on(entry: Entry, journal: Journal) -> Entry:
    """The entry with the attempts of earlier runs added, if they read the same version of the document."""
    result = entry.result
    earlier = journal.find(result.source, result.page_index)
    if earlier is None or earlier.doc_id != result.doc_id:
        return entry
    return replace(entry, result=replace(result, attempts=earlier.attempts + result.attempts))


def _require_same_input(out: Path, documents: Sequence[Document], journal: Journal) -> None:
    """Refuse to replace a table with one of entirely different documents. Raises OutputMismatchError."""
    known = journal.sources()
    if known and not any(storable_text(document.source) in known for document in documents):
        raise OutputMismatchError(
            f"{out} holds {len(known)} other documents, {min(known)!r} among them, and none of this input: "
            "choose another --out, or start over with --overwrite"
        )


def _keys(rows: RowCursor) -> Iterator[RowKey]:
    while (key := rows.next()) is not None:
        yield key


def rows_in_order(intake: Intake, journal: Journal) -> Iterator[PageResult]:
    """Every row of the table, in input order."""
    for key in _keys(intake.rows()):
        yield journal.read(intake.documents[key.document].source, key.page_index)


def _report(reading: Pass, journal: Journal, error: str | None = None) -> Report:
    """End the pass and return its report. error: what ended the run; None if nothing went wrong."""
    _count_all(reading, journal)
    return reading.report(error)


def _count_all(reading: Pass, journal: Journal) -> None:
    """Count the rows there should be, as far as is known, and those that earlier runs have dealt with."""
    intake, ledger = reading.intake, reading.ledger
    rows = intake.rows()
    for key in _keys(rows):
        ledger.found += 1
        if key.page_index in intake.states[key.document].done:
            source = intake.documents[key.document].source
            row = journal.find(source, key.page_index)
            if row is not None:
                failed = row.status == "failed"
                ledger.add_done(row.status, journal.read(source, key.page_index).error_kind if failed else None)
    ledger.documents_not_opened = rows.num_documents_ahead


class _ReportOfFailure:
    """Writes the report of what was done if an error ends the block."""

    def __init__(self, reading: Pass, journal: Journal, path: Path) -> None:
        self._reading = reading
        self._journal = journal
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not isinstance(error, Exception):
            return
        said = str(error) if isinstance(error, BatchOcrError) else f"{type(error).__name__}: {error}"
        try:
            write_report(_report(self._reading, self._journal, said), self._path)
        except OutputError as in_the_way:
            logger.warning("there is no report of this run: %s", in_the_way)
        else:
            logger.info("the report of this run, which failed, is %s", self._path)
