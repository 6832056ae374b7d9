"""One output from start to finish: its journal, the documents read into it, the table built from it, the report."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np

from batchocr.config import Config
from batchocr.data import PageResult, counted, valid_text
from batchocr.errors import BatchOcrError, OutputError, OutputMismatchError, UsageError
from batchocr.job.document_run import RowKey
from batchocr.job.newest import find_newest
from batchocr.job.output_rows import OutputRows
from batchocr.job.progress import Progress, RunProgress, event, log_failure
from batchocr.job.row_plan import RowPlan
from batchocr.job.run import Run
from batchocr.job.session import Session
from batchocr.job.shortfalls import count_worsened, require_rows, warn_of_documents_without_rows, warn_of_worsened
from batchocr.job.stats.ledger import Ledger
from batchocr.job.stats.report import Report, TableReport, require_place, write_report
from batchocr.job.stop import StopSwitch
from batchocr.pages.input.folders import describe_skipped
from batchocr.pages.input.sources import Found
from batchocr.storage.uris import is_uri
from batchocr.tables.atomic import remove_leftovers
from batchocr.tables.files import among, files_of, is_folder, report_path, without_output
from batchocr.tables.journal import Journal
from batchocr.tables.known import KnownRow, is_failed_again
from batchocr.tables.output import Output
from batchocr.tables.page_quality import TRAITS
from batchocr.tables.schema import RunMetadata, largest, require_same_settings, sample_of
from batchocr.tables.selection import selection_of

AnyReport = TypeVar("AnyReport", bound=TableReport)
_Made = TypeVar("_Made", bound=TableReport, covariant=True)

logger = logging.getLogger(__name__)


class Reading(Protocol[_Made]):
    """What reads the documents of an output: a Run, or one on a cluster."""

    plan: RowPlan
    stop: StopSwitch
    ledger: Ledger

    def results(self, tick: Callable[[], None]) -> Iterator[tuple[RowKey, PageResult]]:
        """Yield rows as they are finished, but for those that are put where the table is."""

    def progress(self) -> RunProgress: ...

    def close(self) -> None: ...

    def report(self, error: str | None = None) -> _Made: ...


def read_into_table(
    session: Session, config: Config, found: Found, output: Output, stop: StopSwitch, progress: Progress | None
) -> Report:
    """Read what was found into a table, or continue an unfinished one.

    A run that is stopped leaves its journal and builds no table; one that fails while reading or writing leaves its
    journal and a report. config: that of the session, or one that differs in what a call may choose. stop: new, of this
    run alone. Raises UsageError, OutputError, ModelError, EngineError.
    """

    def begun(journal: Journal, documents: Found) -> Run:
        def on_load() -> None:
            require_same_settings(journal.path, journal.metadata, session.metadata)
            log_start(documents, output, session.metadata)

        return Run(session, config, documents, stop, finished=journal, on_load=on_load)

    return make_table(session.metadata, config, found, output, begun, progress)


def make_table(
    metadata: RunMetadata,
    config: Config,
    found: Found,
    output: Output,
    begun: Callable[[Journal, Found], Reading[AnyReport]],
    progress: Progress | None,
) -> AnyReport:
    """Make a table as `read_into_table` does, of whatever reads. metadata: of the table's rows, as far as it is known.
    begun: begins reading, with an open journal and what was found without the output's own files."""
    out, table = output.path, valid_text(output.name)
    report_file = _report_file(out, config)
    require_place(report_file)
    found = replace(found, documents=without_output(found.documents, among(files_of(out, report_file))))
    roots = tuple(map(valid_text, found.roots))
    metadata = replace(metadata, input_roots=roots, selection=selection_of(config))
    with Journal.open(
        out,
        metadata,
        resume=config.resume,
        overwrite=config.overwrite,
        table=output.table,
        there=output.tag,
        items=output.items,
        documents=found.documents,
    ) as journal:
        remove_leftovers(files_of(out, report_file))
        output.begin()
        if config.overwrite and metadata.settings_fingerprint:
            output.start_over()
        output.settle(journal.earlier)
        run = begun(journal, found)
        _require_same_input(out, run.plan, journal, found)
        try:
            with closing(run):
                _read(run, journal, progress)
            _require_time(run)
            warn_of_documents_without_rows(run.plan, config)
            unreported = output.unreported(journal.worsened)
            journal.worsened = {**(unreported if journal.earlier else {}), **count_worsened(run.plan, journal)}
            sources, newest = find_newest(run.plan, journal, prune=config.prune) or ([], None)
            if run.plan.is_complete:
                require_rows(run.plan, config)
                rows = OutputRows(run.plan, journal, found, prune=config.prune)
                containers = {} if config.only or config.limit or config.sample_documents else found.containers
                whole = replace(journal.own if config.prune else journal.metadata, containers=containers)
                if newest and newest.exceeded_as_newest(config.max_page_error_rate, config.max_degraded_rate):
                    # Else the next run would end well without having read more of them.
                    whole = replace(whole, newest=sample_of(sources))
                report = _write_table(run, config, journal, output, rows, whole)
            else:
                report = run.report()
        except Exception as error:
            _report_failure(run, error, report_file, table)
            raise
        warn_of_worsened(journal.worsened)
        worsened, num_pages = len(journal.worsened), sum(journal.worsened.values())
        report = replace(report, table=table, newest=newest, worse_documents=worsened, worse_pages=num_pages)
        write_report(report, report_file)
        if report.complete:
            output.put_report(report_file)
            journal.remove()
    return report


def _report_file(out: Path, config: Config) -> Path:
    """Where the report goes. Raises UsageError if it would replace another file of the run."""
    usual = report_path(out)
    path = Path(config.report or usual)
    if path != usual and os.path.realpath(path) in map(os.path.realpath, files_of(out, usual)):
        raise UsageError(f"--report {path} is where the run's own output goes: choose another place")
    return path


def log_start(found: Found, output: Output, metadata: RunMetadata) -> None:
    """Log that the model is about to be loaded, for what and into which table."""
    out, table = output.path, valid_text(output.name)
    fields = {"out": str(out), "documents": len(found.documents), "skipped_files": dict(found.skipped)}
    fields |= {"model": metadata.model, "version": metadata.batchocr_version}
    documents = counted(len(found.documents), "document")
    skipped = f"; {describe_skipped(found.skipped)}" if found.skipped else ""
    made = "" if not is_uri(output.name) else f", which is made in {out.parent} and put there at the end"
    logger.info("reading %s into %s%s%s", documents, table, made, skipped, extra=event("run_started", **fields))


def _read(run: Reading[AnyReport], journal: Journal, progress: Progress | None) -> None:
    """Append every row to the journal as soon as it is finished."""

    def tick() -> None:
        journal.tick()
        show()

    def show() -> None:
        if progress is not None and run.stop.phase == "reading":
            progress.show(run.progress())

    try:
        for _, result in run.results(tick=tick):
            earlier = journal.known.find(result.source, result.page_index)
            if earlier is not None and is_failed_again(result, earlier):
                run.ledger.add_done(earlier.status, earlier.error_kind)
            else:
                started_s = time.perf_counter()
                journal.append(_counting_on(result, earlier))
                run.ledger.counts.add("write", time.perf_counter() - started_s)
                run.ledger.add_result(result)
            if result.status == "failed":
                log_failure(result)
    finally:
        show()
        if progress is not None:
            progress.close()


def _counting_on(result: PageResult, earlier: KnownRow | None) -> PageResult:
    """The row with the attempts of earlier runs added, if they read the same version of the document."""
    if earlier is None or earlier.doc_id != result.doc_id:
        return result
    return replace(result, attempts=earlier.attempts + result.attempts)


def _write_table(
    run: Reading[AnyReport],
    config: Config,
    journal: Journal,
    output: Output,
    rows: OutputRows,
    metadata: RunMetadata,
) -> AnyReport:
    """Put the table in its place, unless it is there already. Raises OutputError."""
    began_s = time.monotonic()
    earlier = journal.earlier.metadata if journal.earlier else None
    is_there = earlier is not None and rows.are_the_table(in_order=not is_folder(output.path))
    containers = {**(earlier.containers if earlier and is_there else {}), **metadata.containers}
    metadata = replace(metadata, containers=largest(containers))
    is_same = earlier is not None and earlier == replace(
        metadata, batchocr_version=earlier.batchocr_version, schema_version=earlier.schema_version
    )
    if not (is_same and is_there) or output.lacks_record:
        output.commit(
            rows,
            metadata,
            rows_per_part=config.rows_per_part,
            earlier=journal.earlier,
            worse=journal.worsened,
            written=journal.end,
        )
    run.ledger.table_s, run.ledger.quality = time.monotonic() - began_s, rows.quality
    rows.log()
    return replace(
        run.report(),
        doubtful=rows.traits["doubtful"],
        traits={trait: rows.traits[trait] for trait in TRAITS if rows.traits[trait]},
        rows_gone=sum(rows.gone.values()),
        rows_not_asked=sum(rows.not_asked.values()),
        rows=rows.num_rows,
        bytes=output.num_bytes(),
    )


def _require_same_input(out: Path, plan: RowPlan, journal: Journal, found: Found) -> None:
    """Refuse to replace a table with one of entirely different documents, from other archives too. Raises
    OutputMismatchError."""
    if np.any(plan.places >= 0) or plan.among_documents(journal.known.sources()):
        return
    known = {*journal.known.sources(), *journal.known.table.sources.to_pylist()}
    if known and not any(map(found.container_of, known)):
        raise OutputMismatchError(
            f"{out} holds {len(known)} other documents, {min(known)!r} among them, and none of this input: "
            "choose another --out, or start over with --overwrite, which deletes their rows for good"
        )


def _require_time(run: Reading[AnyReport]) -> None:
    """Refuse a time for the run that was over before it finished a row: so it would be the next time and every time
    after that. Raises UsageError."""
    ledger = run.ledger
    num_rows = ledger.by_status.total() - ledger.already_done
    if run.stop.reason == "stop_after" and not num_rows and not run.plan.is_complete:
        raise UsageError(
            f"--stop-after was over before the first page was finished: starting up took {ledger.start_up_s:.0f} s, "
            f"and no page was finished in the {ledger.work_s:.0f} s after that; give the run more time"
        )


def _report_failure(run: Reading[AnyReport], error: Exception, path: Path, table: str) -> None:
    """Write the report of what was done until an error ended the run."""
    said = str(error) if isinstance(error, BatchOcrError) else f"{type(error).__name__}: {error}"
    try:
        write_report(replace(run.report(valid_text(said)), table=table), path)
    except OutputError as in_the_way:
        logger.warning("there is no report of this run: %s", in_the_way)
    else:
        logger.info("the report of this run, which failed, is %s", path)
