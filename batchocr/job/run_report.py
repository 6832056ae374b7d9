"""The report of a run, made of what its context knows."""

from __future__ import annotations

import time
from copy import deepcopy

from batchocr.job.run_context import RunContext
from batchocr.job.stats.ledger import Ledger
from batchocr.job.stats.report import ExitReason, Report
from batchocr.job.stats.summary import Circumstances, make_report
from batchocr.machine import peak_resident_bytes


def report_of(run: RunContext, error: str | None = None) -> Report:
    """The throughput report of what was read, once the run's processes have been ended.

    error: what ended the run, even before there was a worker; None if nothing went wrong.
    """
    ended_s = run.work_ended_s or time.perf_counter()
    work_started_s = run.work_started_s or ended_s
    return make_report(
        _whole_ledger(run),
        run.engine_uses,
        Circumstances(
            exit_reason=_exit_reason(run, error),
            error=error,
            start_up_s=work_started_s - run.started_s,
            work_s=ended_s - work_started_s,
            workers=run.session.workers,
            pages_in_flight=run.session.pages_in_flight,
            on_gpu=run.session.on_gpu,
            settings=run.session.settings(),
            rates=run.config,
            peak_main_bytes=peak_resident_bytes(),
            peak_worker_bytes=run.pool.peak_worker_bytes if run.pool else None,
        ),
    )


def _exit_reason(run: RunContext, error: str | None) -> ExitReason:
    if error is not None:
        return "failed"
    if run.complete:
        return "finished"
    return "interrupted" if run.stop.reason == "interrupted" else "stopped"


def _whole_ledger(run: RunContext) -> Ledger:
    """What this run has counted, and the rows there should be, as far as is known, with those that earlier runs have
    dealt with."""
    intake, ledger = run.intake, deepcopy(run.ledger)
    for key in intake.known_rows():
        ledger.found += 1
        if run.finished is not None and key.page_index in intake.states[key.document].done:
            row = run.finished.find(intake.documents[key.document].source, key.page_index)
            if row is not None:
                ledger.add_done(row.status, row.error_kind)
    ledger.documents_copied = intake.num_copied
    if run.answers is not None:
        ledger.answers = run.answers.counts
    ledger.documents_not_opened = 0 if intake.all_planned else len(intake.documents) - intake.num_known
    return ledger
