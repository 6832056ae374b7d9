"""One run: its plan, its workers, the session's engines once there is a page to be read, and the report of it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace

from batchocr.config import Config
from batchocr.data import PageResult, counted
from batchocr.job.document_run import RowKey
from batchocr.job.pipeline import Pipeline
from batchocr.job.progress import RunProgress
from batchocr.job.row_plan import RowPlan
from batchocr.job.session import Session
from batchocr.job.stats.bottleneck import name_bottleneck
from batchocr.job.stats.ledger import Ledger
from batchocr.job.stats.report import Report, facts_of, make_report
from batchocr.job.stop import StopSwitch
from batchocr.machine import allow_open_files, peak_resident_bytes, return_freed_memory
from batchocr.pages.input.sources import Found
from batchocr.pages.protocol.revision import has_classifier
from batchocr.processes.counts import sum_of
from batchocr.processes.engines import EngineUse
from batchocr.processes.messages import Setup
from batchocr.processes.pool import WorkerPool
from batchocr.processes.questions import Questions
from batchocr.tables.journal import Journal

logger = logging.getLogger(__name__)

_TRIM_INTERVAL_S = 10.0
_OTHER_FILES = 1024
"""How many files a run opens at most besides the pixels of its pages: sockets, journal, table."""


class Run:
    """What reads the documents: a plan of the rows, workers, and engines from the first page on that is read.

    Ask for `results` once, and `close` it. config: that of the session, or one that differs in what a call may choose.
    finished: rows that need not be read again; if it has none at all, the model is loaded at once.
    on_load: called when the model is about to be loaded. max_unreleased: as in RowPlan.
    """

    def __init__(
        self,
        session: Session,
        config: Config,
        found: Found,
        stop: StopSwitch,
        *,
        finished: Journal | None = None,
        on_load: Callable[[], None] = lambda: None,
        max_unreleased: int | None = None,
    ) -> None:
        self.session = session
        self.stop = stop
        self.plan = RowPlan(
            found.documents,
            config.pages,
            finished,
            limit=config.limit,
            retry_failed=config.retry_failed,
            max_unreleased=max_unreleased,
            reads_all=session.reads_all,
        )
        self.ledger = Ledger(len(found.documents), found.skipped, workers=session.workers, rates=config)
        self._config = config
        self._inputs = found.inputs
        self._on_load = on_load
        self._pool: WorkerPool | None = None
        self._questions: Questions | None = None
        """The questions of the pages, for the engines; None until the model is loaded."""
        self._engine_uses: list[EngineUse] = []
        self._trimmed_s = time.monotonic()
        self._closing = ExitStack()

    def results(self, tick: Callable[[], None]) -> Iterator[tuple[RowKey, PageResult]]:
        """Yield rows as they are finished, see Pipeline.results; the workers are started at once. Raises what loading
        the model raises, too."""
        setup = replace(
            Setup.of(self._config, self.session.worker_memory_bytes),
            protocol=self.session.family.protocol,
            detector=self.session.detector.fingerprint,
        )
        self._pool = self._closing.enter_context(WorkerPool(self.session.workers, setup))
        if self.plan.documents and not self.plan.known.has_rows:
            self._load()  # while the workers start up
        pipeline = Pipeline(self.plan, self._pool, self.ledger.counts, self._load, self._config.page_timeout)

        def tick_and_trim() -> None:
            tick()
            if time.monotonic() - self._trimmed_s > _TRIM_INTERVAL_S:
                self.stop.phase = "reading"  # also if there are only files to look at, and rows to copy
                return_freed_memory()
                self._trimmed_s = time.monotonic()

        return pipeline.results(self.stop, tick_and_trim)

    def _load(self) -> tuple[Questions, int]:
        """What passes questions on to engines that have the model, and how many pages to have in flight for them.
        Raises UsageError, ModelError, EngineError."""
        session, pages_in_flight = self.session, self.session.device_plan.pages_in_flight
        if self._questions is None:
            self._on_load()
            allow_open_files(_OTHER_FILES + pages_in_flight)  # the pixels of each page are one
            session.load()
            self._closing.callback(session.engines.forget)
            questions = Questions(session.engines, session.open_cache(), shares=not session.reads_all)
            self._questions = self._closing.enter_context(closing(questions))
            self.ledger.start_up_s = time.monotonic() - self.stop.began_s
            self.stop.phase = "reading"
        return self._questions, pages_in_flight

    def close(self) -> None:
        """End the workers, whatever they are doing, and give the engines back. A fork leaves them to its parent."""
        if self.session.is_of_parent:
            return
        ledger, elapsed_s = self.ledger, time.monotonic() - self.stop.began_s
        if self._questions is None:
            ledger.start_up_s = elapsed_s
        elif self.stop.phase == "reading":
            ledger.work_s = elapsed_s - ledger.start_up_s
            ledger.counts = sum_of([ledger.counts, self._questions.counts])
            self._engine_uses = self.session.engines.uses()
        if ledger.pages_of_unknown_orientation and self._config.orientation == "check" and not has_classifier():
            pages = counted(ledger.pages_of_unknown_orientation, "page")
            logger.info("which way up is not known of %s: pip install '.[orientation]' in a clone of batchocr", pages)
        self.stop.phase = "finishing"
        self._closing.close()

    def progress(self) -> RunProgress:
        """How far the run is."""
        by_status = self.ledger.by_status
        return RunProgress(
            done=self.plan.num_ended,
            planned=self.plan.num_planned,
            all_planned=self.plan.all_planned,
            failed=by_status["failed"],
            degraded=by_status["degraded"],
            read=self.ledger.pages_read,
            blocks=self.ledger.counts.blocks,
        )

    def report(self, error: str | None = None) -> Report:
        """The throughput report of what was read, to be made once, after `close`. It counts the rows that there should
        be, as far as is known, with those that earlier runs have dealt with.

        error: what ended the run, even before there was a worker; None if nothing went wrong.
        """
        ledger, plan, session = self.ledger, self.plan, self.session
        ledger.add_earlier(*plan.known.table.counts(plan.is_asked))
        for index, state in plan.all_given():
            ledger.found += len(state.rows or ())
            for row in plan.known.rows(plan.documents[index].source) if state.done else ():
                if row.page_index in state.done:
                    ledger.add_done(row.status, row.error_kind)
        ledger.documents_copied = plan.copies.num_documents
        ledger.documents_not_opened = 0 if plan.all_planned else len(plan.documents) - plan.num_known
        if error is not None:
            ledger.exit_reason = "failed"
        elif not plan.is_complete:
            ledger.exit_reason = "interrupted" if self.stop.reason == "interrupted" else "stopped"
        ledger.peak_main_bytes = peak_resident_bytes()
        ledger.peak_worker_bytes = self._pool.peak_worker_bytes if self._pool else None
        report = make_report(ledger, self._engine_uses)
        planned = session.device_plan if self._questions else None
        in_flight, on_gpu = (planned.pages_in_flight, planned.found.device != "cpu") if planned else (1, False)
        bottleneck = name_bottleneck(report, pages_in_flight=in_flight, on_gpu=on_gpu)
        facts = facts_of(self._inputs, self._config, self.stop.began_s)
        return replace(report, bottleneck=bottleneck, error=error, settings=session.settings(), **facts)
