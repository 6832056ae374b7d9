"""One pass of a session's model over some documents: it starts and ends who reads them, and owns what is counted."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from types import TracebackType
from typing import Self

from batchocr.config import Config
from batchocr.data import PageResult, counted
from batchocr.errors import UsageError
from batchocr.job.intake import FinishedRows, Intake
from batchocr.job.pipeline import Pipeline
from batchocr.job.progress import RunProgress
from batchocr.job.row_queue import RowKey
from batchocr.job.session import Session
from batchocr.job.stats.ledger import Ledger
from batchocr.job.stats.quality import Quality
from batchocr.job.stats.report import ExitReason, Report
from batchocr.job.stats.summary import Circumstances, make_report
from batchocr.job.stop import StopSwitch
from batchocr.machine import allow_open_files, num_files_to_open, peak_resident_bytes, return_freed_memory
from batchocr.page_spec import parse_page_spec
from batchocr.pages.input.sources import Found
from batchocr.processes.answers import SharedAnswers
from batchocr.processes.engines import Engines, EngineUse
from batchocr.processes.messages import Opened, Setup
from batchocr.processes.meter import HostCounter
from batchocr.processes.pool import WorkerPool
from batchocr.tables.index import IndexedRow

_TRIM_INTERVAL_S = 10.0
_OTHER_FILES = 1024
_FEWEST_FILES = 64
"""What a pass opens besides the pixels of its pages, at least: sockets, journal, table."""
_LOOK_AHEAD_S = 5.0
"""How long to look for something to read before the model is loaded, which takes about as long."""
_MAX_NAMED = 5
"""How many documents a warning names."""

logger = logging.getLogger(__name__)


class Pass:
    """One pass over the documents found: its counts, and inside its `with` block its workers and the session's engines.

    config: that of the session, or one that differs in what a call may choose. finished: rows that need not be read
    again; if it is soon clear that they are all rows, the model is not loaded, and `has_work` is False. announce:
    called before the model is loaded. max_unreleased: see Intake. started_s: when the whole run began, on
    time.perf_counter. Entering it raises ModelError, and BatchOcrError if no worker can be started.
    """

    def __init__(
        self,
        session: Session,
        config: Config,
        found: Found,
        stop: StopSwitch,
        *,
        finished: FinishedRows | None,
        announce: Callable[[], None] = lambda: None,
        max_unreleased: int | None = None,
        started_s: float,
    ) -> None:
        self._pid = os.getpid()
        self._announce = announce
        self._engines: Engines | None = None
        self._asked: SharedAnswers | None = None
        self._engine_uses: list[EngineUse] = []
        self._reopen: list[int] = []
        self._session = session
        self._config = config
        self._finished = finished
        self._stop = stop
        self._started_s = started_s
        self._work_started_s: float | None = None
        self._work_ended_s: float | None = None
        self._had_no_time = False
        self._table_s = 0.0
        self._pool: WorkerPool | None = None
        self._closing = ExitStack()
        self._counter = HostCounter()
        self._ledger = Ledger(documents=len(found.documents), skipped_files=found.skipped)
        self._trimmed_s = time.monotonic()
        self.intake = Intake(
            found.documents,
            parse_page_spec(config.pages) if config.pages else None,
            finished,
            limit=config.limit,
            retry_failed=config.retry_failed,
            max_unreleased=max_unreleased,
            reads_all=session.reads_all,
        )

    def __enter__(self) -> Self:
        allow_open_files(_OTHER_FILES + self._session.pages_in_flight)  # the pixels of each page are one
        if any(document.held is not None for document in self.intake.documents):
            _require_files_to_open(_FEWEST_FILES + self._session.pages_in_flight)
        setup = Setup.of(self._config, self._session.worker_memory_bytes)
        with ExitStack() as undo:
            # The workers start up while the weights are being read.
            self._pool = undo.enter_context(WorkerPool(self._session.workers, setup))
            if not self._is_all_done(self._pool):
                self._announce()
                self._engines = undo.enter_context(self._session.lend_engines())
                if not self._session.reads_all:
                    cache = self._session.open_cache()
                    if cache is not None:
                        undo.callback(cache.close)
                    self._asked = SharedAnswers(self._engines, cache)
            self._closing = undo.pop_all()
        self._work_started_s = time.perf_counter()
        self._had_no_time = self._stop.reason == "stop_after"
        self._stop.enter("reading")
        return self

    @property
    def has_work(self) -> bool:
        """Whether there may be a row to read; if not, the pass has no engine."""
        return self._engines is not None

    def _is_all_done(self, pool: WorkerPool) -> bool:
        """Whether earlier runs have dealt with every row, as far as that turns out quickly, one document after the
        other. What is learnt about documents on the way counts."""
        documents, deadline_s = self.intake.documents, time.monotonic() + _LOOK_AHEAD_S
        if self._finished is None or not documents or not self._finished.rows(documents[0].source):
            return False
        while (left_s := deadline_s - time.monotonic()) > 0:
            if next(self.intake.queue.candidates(), None) is not None:
                return False
            if self.intake.exhausted:
                return True
            num_known = self.intake.num_known
            if (index := self.intake.next_document()) is None:
                if self.intake.num_known == num_known:
                    return False
                continue
            found = pool.open_alone(documents[index].path, min(left_s, self._config.page_timeout))
            if not isinstance(found, Opened):
                self._reopen.append(index)
                return False
            self.intake.opened(
                index, page_count=found.page_count, doc_id=found.doc_id, size=found.size, mtime_ns=found.mtime_ns
            )
        return False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the workers, whatever they are doing, and give the engines back. A fork leaves them to its parent."""
        if self.is_of_parent:
            return
        if self._work_ended_s is None:
            self._work_ended_s = time.perf_counter()
            if self._engines is not None:
                self._engine_uses = self._engines.uses()
        self._stop.enter("finishing")
        self._closing.close()

    @property
    def is_of_parent(self) -> bool:
        """Whether this is a copy in a fork: the workers and engines are its parent's."""
        return os.getpid() != self._pid

    def results(self, tick: Callable[[], None]) -> Iterator[tuple[RowKey, PageResult]]:
        """Rows as they are finished; see Pipeline.results."""
        assert self._pool is not None and self._engines is not None

        def tick_and_trim() -> None:
            tick()
            self._trim_memory()

        pipeline = Pipeline(
            self.intake,
            self._pool,
            self._asked or self._engines,
            self._counter,
            pages_in_flight=self._session.pages_in_flight,
            page_timeout_s=self._config.page_timeout,
            reopen=self._reopen,
        )
        return pipeline.results(self._stop, tick_and_trim)

    def _trim_memory(self) -> None:
        now_s = time.monotonic()
        if now_s - self._trimmed_s > _TRIM_INTERVAL_S:
            return_freed_memory()
            self._trimmed_s = now_s

    @contextmanager
    def storing(self, result: PageResult) -> Iterator[None]:
        """Count a row and the time that the block takes to store it, unless it cannot be stored."""
        started_s = time.perf_counter()
        yield
        self._counter.add("write", time.perf_counter() - started_s)
        self._ledger.add_result(result)

    def of_table(self, rows: Iterable[PageResult]) -> Iterator[PageResult]:
        """The rows, counted as those of which the report gives the quality, also those of earlier runs."""
        self._ledger.quality = Quality()
        for row in rows:
            self._ledger.quality.add(row)
            yield row

    def keeping(self, row: IndexedRow) -> None:
        """Count a row that stays as an earlier run left it, as this one could not read it again."""
        self._ledger.add_done(row.status, row.error_kind)

    @contextmanager
    def building_table(self) -> Iterator[None]:
        """Note how long the block takes to build the table, even if it fails."""
        started_s = time.perf_counter()
        try:
            yield
        finally:
            self._table_s = time.perf_counter() - started_s

    def warn_of_short_documents(self) -> None:
        """Log how many documents have none of the pages asked for, if there are any."""
        short = self.intake.documents_without_rows()
        if short:
            named = ", ".join(
                f"{document.source} ({counted(num_pages, 'page')})" for document, num_pages in short[:_MAX_NAMED]
            )
            logger.warning(
                "--pages %s: %s of %s documents have none of these pages, and no row: %s%s",
                self._config.pages,
                f"{len(short):,}",
                f"{len(self.intake.documents):,}",
                named,
                ", …" * (len(short) > _MAX_NAMED),
            )

    def progress(self) -> RunProgress:
        """How far the pass is."""
        by_status = self._ledger.by_status
        return RunProgress(
            done=self.intake.num_done_before + by_status.total(),
            planned=self.intake.num_planned,
            all_planned=self.intake.all_planned,
            failed=by_status["failed"],
            degraded=by_status["degraded"],
            read=self._ledger.pages_read,
            blocks=self._counter.blocks,
        )

    @property
    def complete(self) -> bool:
        """Whether every row was read; a stop that came too late to leave any out does not count."""
        return self.intake.exhausted

    def require_time(self) -> None:
        """Raises UsageError if the time for the run was over before it could begin a page: so it would be the next time
        and every time after that."""
        if self._had_no_time and not self.complete and self._work_started_s is not None:
            raise UsageError(
                f"--stop-after {self._config.stop_after:g}s was over before the first page: starting up took "
                f"{self._work_started_s - self._started_s:.0f} s; give the run more time"
            )

    def _exit_reason(self, error: str | None) -> ExitReason:
        if error is not None:
            return "failed"
        if self.complete:
            return "finished"
        return "interrupted" if self._stop.reason == "interrupted" else "stopped"

    def report(self, error: str | None = None) -> Report:
        """The throughput report of what was read, once the pass has been closed.

        error: what ended the run, even before there was a worker; None if nothing went wrong.
        """
        ended_s = self._work_ended_s or time.perf_counter()
        work_started_s = self._work_started_s or ended_s
        return make_report(
            self._whole_ledger(),
            self._counter,
            self._engine_uses,
            Circumstances(
                exit_reason=self._exit_reason(error),
                error=error,
                start_up_s=work_started_s - self._started_s,
                work_s=ended_s - work_started_s,
                table_s=self._table_s,
                workers=self._session.workers,
                pages_in_flight=self._session.pages_in_flight,
                on_gpu=self._session.on_gpu,
                settings=self._session.settings(),
                max_page_error_rate=self._config.max_page_error_rate,
                max_degraded_rate=self._config.max_degraded_rate,
                peak_main_bytes=peak_resident_bytes(),
                peak_worker_bytes=self._pool.peak_worker_bytes if self._pool else None,
            ),
        )

    def _whole_ledger(self) -> Ledger:
        """What this pass has counted, and the rows there should be, as far as is known, with those that earlier runs
        have dealt with."""
        intake, ledger = self.intake, deepcopy(self._ledger)
        for key in intake.known_rows():
            ledger.found += 1
            if self._finished is not None and key.page_index in intake.states[key.document].done:
                row = self._finished.find(intake.documents[key.document].source, key.page_index)
                if row is not None:
                    ledger.add_done(row.status, row.error_kind)
        ledger.documents_copied = intake.copies.num_documents
        if self._asked is not None:
            ledger.answers = self._asked.counts
        ledger.documents_not_opened = 0 if intake.all_planned else len(intake.documents) - intake.num_known
        return ledger


def _require_files_to_open(number: int) -> None:
    """Refuse documents in memory that leave too few open files for reading them. Raises UsageError."""
    if (left := num_files_to_open()) < number:
        raise UsageError(
            f"with the documents in memory, each of which is an open file, this process may open only {left} more, and "
            f"reading needs {number}: give fewer at once, or files, or raise the limit (ulimit -n)"
        )
