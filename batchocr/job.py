"""One output from begin to end: its journal, a pass over the documents, the table built from it, the report."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from batchocr.data import Document, PageResult
from batchocr.errors import OutputMismatchError
from batchocr.intake import Intake, RowKey
from batchocr.meter import Ledger
from batchocr.output.journal import Journal
from batchocr.output.schema import storable_text
from batchocr.output.table import table_for
from batchocr.progress import Progress
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
    """Read the documents into the table at `out`, or go on with one that is unfinished.

    A run that is stopped leaves its journal and builds no table. started_s: on time.perf_counter. Raises UsageError,
    OutputError, ModelError, EngineError.
    """
    config = session.config
    table = table_for(out)
    report_path = Path(config.report or f"{out}.report.json")
    require_writable(report_path)
    with Journal.open(out, session.facts, resume=config.resume, overwrite=config.overwrite) as journal:
        _require_same_input(out, documents, journal)
        with Pass(session, documents, stop, finished=journal, started_s=started_s) as reading:
            _read(reading, journal, progress)
            if reading.complete:
                _count_all(reading.intake, reading.ledger, journal)
                writing_s = time.perf_counter()
                table.write(out, _rows(reading.intake, journal), session.facts)
                reading.meter.add("write", time.perf_counter() - writing_s, items=0)
            else:
                reading.ledger.found = reading.ledger.by_status.total()
            report = reading.report()
        write_report(report, report_path)
        if report.complete:
            _retire(journal, report)
    return report


def _retire(journal: Journal, report: Report) -> None:
    """Delete the journal, unless it says more than the table: what failed, or rows this input does not ask for."""
    num_surplus = journal.count_read() - report.items.ok - report.items.degraded
    if num_surplus > 0:
        journal.keep()
        logger.warning("%d pages of earlier runs are no part of this input: the journal keeps them", num_surplus)
    elif not report.items.failed:
        journal.remove()


def _read(reading: Pass, journal: Journal, progress: Progress | None) -> None:
    intake, ledger = reading.intake, reading.ledger

    def show() -> None:
        if progress is not None:
            planned = min(intake.num_planned, reading.limit or intake.num_planned)
            done = intake.num_done_before + ledger.by_status.total()
            progress.show(done, planned, intake.all_planned, ledger.by_status["failed"])

    try:
        for _, entry in reading.results(tick=show):
            started_s = time.perf_counter()
            journal.append(entry)
            reading.meter.add("write", time.perf_counter() - started_s)
    finally:
        show()
        if progress is not None:
            progress.close()


def _require_same_input(out: Path, documents: Sequence[Document], journal: Journal) -> None:
    """Refuse to replace a table by one of other documents altogether. Raises OutputMismatchError."""
    known = journal.sources()
    if known and not any(storable_text(document.source) in known for document in documents):
        raise OutputMismatchError(
            f"{out} holds {len(known)} other documents, {min(known)!r} among them, and none of this input: "
            "choose another --out, or start over with --overwrite"
        )


def _keys(intake: Intake) -> Iterator[RowKey]:
    rows = intake.rows()
    while (key := rows.next()) is not None:
        yield key


def _rows(intake: Intake, journal: Journal) -> Iterator[PageResult]:
    """Every row of the table, in input order."""
    for key in _keys(intake):
        yield journal.read(intake.documents[key.document].source, key.page_index)


def _count_all(intake: Intake, ledger: Ledger, journal: Journal) -> None:
    """Count the rows there should be, and those that earlier runs have dealt with."""
    for key in _keys(intake):
        ledger.found += 1
        if key.page_index in intake.states[key.document].done:
            row = journal.find(intake.documents[key.document].source, key.page_index)
            if row is not None:
                ledger.add_done(row.status)
