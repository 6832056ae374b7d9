"""One run: its plan, its workers, the session's engines once there is a page to be read, and the report of it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import replace
from types import TracebackType
from typing import Self

from batchocr.config import Config
from batchocr.data import PageResult
from batchocr.errors import UsageError
from batchocr.job.document_run import RowKey
from batchocr.job.pipeline import Pipeline
from batchocr.job.progress import RunProgress
from batchocr.job.row_plan import RowPlan
from batchocr.job.session import Session
from batchocr.job.stats.bottleneck import name_bottleneck
from batchocr.job.stats.ledger import ExitReason, Ledger
from batchocr.job.stats.report import Report, make_report
from batchocr.job.stop import StopSwitch
from batchocr.machine import allow_open_files, peak_resident_bytes, return_freed_memory
from batchocr.pages.input.sources import Found
from batchocr.processes.counts import sum_of
from batchocr.processes.engines import Engines, EngineUse
from batchocr.processes.messages import Setup
from batchocr.processes.pool import WorkerPool
from batchocr.processes.questions import Questions
from batchocr.tables.journal import Journal

_TRIM_INTERVAL_S = 10.0
_OTHER_FILES = 1024
"""More than a run opens besides the pixels of its pages: sockets, journal, table."""


class Run:
    """What reads the documents, inside its `with` block: workers, and engines from the first page on that is read.

    config: that of the session, or one that differs in what a call may choose. finished: rows that need not be read
    again; without any, the model is loaded at once. on_load: called when the model is about to be loaded.
    max_unreleased: as in RowPlan. started_s: when the whole run began, on time.perf_counter. Entering it raises what
    `results` raises.
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
        started_s: float,
    ) -> None:
        self.session = session
        self.config = config
        self.stop = stop
        self.finished = finished
        self.plan = RowPlan(
            found.documents,
            config.pages,
            finished,
            limit=config.limit,
            retry_failed=config.retry_failed,
            max_unreleased=max_unreleased,
            reads_all=session.reads_all,
        )
        self.ledger = Ledger(documents=len(found.documents), skipped_files=found.skipped)
        self.questions: Questions | None = None
        """None until a page is to be read, for which the model is loaded."""
        self.started_s = started_s
        self.work_started_s: float | None = None
        """When the model was loaded; None if it was not needed."""
        self.ended_s: float | None = None
        self.engine_uses: list[EngineUse] = []
        self._on_load = on_load
        self.pool: WorkerPool | None = None
        self._engines: Engines | None = None
        self._closing = ExitStack()
        self._trimmed_s = time.monotonic()
        self._pid = os.getpid()

    def __enter__(self) -> Self:
        setup = Setup.of(self.config, self.session.worker_memory_bytes, detector=self.session.detector.fingerprint)
        with ExitStack() as undo:
            undo.callback(self.close)
            # The workers start up while the weights are being read.
            self.pool = self._closing.enter_context(WorkerPool(self.session.workers, setup))
            if not any(self.finished.rows(each.source) for each in self.plan.documents[:1] if self.finished):
                self._load()
            undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the workers, whatever they are doing, and give the engines back. A fork leaves them to its parent."""
        if self.is_of_parent:
            return
        if self.ended_s is None:
            self.ended_s = time.perf_counter()
            if self._engines is not None:
                self.engine_uses = self._engines.uses()
        self.stop.phase = "finishing"
        self._closing.close()

    @property
    def is_of_parent(self) -> bool:
        """Whether this is a copy in a fork: the workers and engines are its parent's."""
        return os.getpid() != self._pid

    def results(self, tick: Callable[[], None]) -> Iterator[tuple[RowKey, PageResult]]:
        """Rows as they are finished; see Pipeline.results. Raises what loading the model raises, too."""
        assert self.pool is not None
        pipeline = Pipeline(self.plan, self.pool, self.ledger.counts, self._load, self.config.page_timeout)

        def tick_and_trim() -> None:
            tick()
            if time.monotonic() - self._trimmed_s > _TRIM_INTERVAL_S:
                return_freed_memory()
                self._trimmed_s = time.monotonic()

        return pipeline.results(self.stop, tick_and_trim)

    def _load(self) -> tuple[Questions, int]:
        """What passes questions on to engines that have the model, and how many pages to have in flight for them.
        Raises UsageError, ModelError, EngineError."""
        pages_in_flight = self.session.device_plan.pages_in_flight
        if self.questions is None:
            self._on_load()
            allow_open_files(_OTHER_FILES + pages_in_flight)  # the pixels of each page are one
            self._engines = self._closing.enter_context(self.session.lend_engines())
            cache = None if self.session.reads_all else self.session.open_cache()
            self.questions = Questions(self._engines, cache, shares=not self.session.reads_all)
            self._closing.callback(self.questions.close)
            self.work_started_s = time.perf_counter()
            self.stop.phase = "reading"
        return self.questions, pages_in_flight

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

    @property
    def complete(self) -> bool:
        """Whether every row was read; a stop that came too late to leave any out does not count."""
        return self.plan.is_complete

    def require_time(self) -> None:
        """Raises UsageError if the time for the run was over before it finished a row: so it would be the next time and
        every time after that."""
        num_rows = self.ledger.by_status.total() - self.ledger.already_done
        if self.stop.reason == "stop_after" and not num_rows and not self.complete:
            start_up_s, work_s = self.start_up_and_work_s
            raise UsageError(
                f"--stop-after was over before the first page was finished: starting up took {start_up_s:.0f} s, and "
                f"no page was finished in the {work_s:.0f} s after that; give the run more time"
            )

    @property
    def start_up_and_work_s(self) -> tuple[float, float]:
        """How long it took until the model was loaded, and from then on."""
        ended_s = self.ended_s or time.perf_counter()
        work_started_s = self.work_started_s or ended_s
        return work_started_s - self.started_s, ended_s - work_started_s


def report_of(run: Run, error: str | None = None) -> Report:
    """The throughput report of what was read, once the run's processes have been ended.

    error: what ended the run, even before there was a worker; None if nothing went wrong.
    """
    session, (start_up_s, work_s) = run.session, run.start_up_and_work_s
    ledger = replace(
        _whole_ledger(run),
        exit_reason=_exit_reason(run, error),
        start_up_s=start_up_s,
        work_s=work_s,
        workers=session.workers,
        rates=run.config,
        peak_main_bytes=peak_resident_bytes(),
        peak_worker_bytes=run.pool.peak_worker_bytes if run.pool else None,
    )
    report = make_report(ledger, run.engine_uses)
    planned = session.device_plan if run.questions else None
    in_flight, on_gpu = (planned.pages_in_flight, planned.on_gpu) if planned else (1, False)
    bottleneck = name_bottleneck(report, pages_in_flight=in_flight, on_gpu=on_gpu)
    return replace(report, bottleneck=bottleneck, error=error, settings=session.settings())


def _exit_reason(run: Run, error: str | None) -> ExitReason:
    if error is not None:
        return "failed"
    if run.complete:
        return "finished"
    return "interrupted" if run.stop.reason == "interrupted" else "stopped"


def _whole_ledger(run: Run) -> Ledger:
    """What this run has counted, and the rows there should be, as far as is known, with those that earlier runs have
    dealt with."""
    plan, ledger = run.plan, deepcopy(run.ledger)
    for key in plan.known_rows():
        ledger.found += 1
        if run.finished is not None and key.page_index in plan.states[key.document].done:
            row = run.finished.find(plan.documents[key.document].source, key.page_index)
            if row is not None:
                ledger.add_done(row.status, row.error_kind)
    ledger.documents_copied = plan.copies.num_documents
    if run.questions is not None:
        ledger.counts = sum_of([ledger.counts, run.questions.counts])
    ledger.documents_not_opened = 0 if plan.all_planned else len(plan.documents) - plan.num_known
    return ledger
