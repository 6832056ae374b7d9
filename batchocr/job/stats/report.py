"""The throughput report: what a run's counts say once it has ended."""

from __future__ import annotations

import json
import platform
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import fmean
from typing import Any, Final, Self, TypeAlias

from batchocr.config import Config, given_options
from batchocr.data import ErrorKind, Status, counted
from batchocr.errors import ExitCode, OutputError
from batchocr.job.stats.ledger import ExitReason, Ledger
from batchocr.job.stats.quality import Distribution
from batchocr.machine import own_version
from batchocr.processes.counts import DEVICE_STAGES, WORKER_STAGES, Stage, StageCount, sum_of
from batchocr.processes.engines import EngineUse
from batchocr.tables.atomic import atomic_file, reading, require_writable
from batchocr.tables.page_quality import Trait

_BEGINNING = b'{\n  "pages_per_second": '
"""The beginning of every report, by which one is known, on a cluster too."""
Setting: TypeAlias = str | int | float | bool | None

ENOUGH_ROWS: Final = 20
"""How many rows of the newest documents there must be to say how many fail."""


@dataclass(frozen=True, slots=True)
class Items:
    """The rows that there should be, of a run or of a table, by what became of them."""

    found: int
    """All items, as far as documents have been opened."""
    ok: int
    degraded: int
    failed: int
    skipped: int
    not_reached: int
    """Items that no run has read, if this run ended early."""
    already_done: int
    """Items that earlier runs dealt with; they are counted by status, too."""

    @classmethod
    def of(cls, rows: Counter[Status], *, found: int, not_reached: int = 0, already_done: int = 0) -> Self:
        """The items, of which so many `rows` have each status."""
        return cls(found, rows["ok"], rows["degraded"], rows["failed"], rows["skipped"], not_reached, already_done)

    def exceeded(
        self, max_page_error_rate: float, max_degraded_rate: float, max_doubtful_rate: float = 1.0, *, doubtful: int = 0
    ) -> list[str]:
        """A sentence for each share that is larger than it may be. Failures do not hide degraded or doubtful pages:
        these are shares of the pages that were read."""
        pages, rows = self.ok + self.degraded, self.found - self.skipped
        shares = (
            (self.failed, rows, "row", "failed", "--max-page-error-rate", max_page_error_rate),
            (self.degraded, pages, "page", "came out incomplete", "--max-degraded-rate", max_degraded_rate),
            (doubtful, pages, "page", "are doubtful", "--max-doubtful-rate", max_doubtful_rate),
        )
        if self.skipped == self.found > 0:
            return [f"nothing was read: {counted(self.skipped, 'row')} skipped, and no other"]
        return [
            f"{count:,} of {counted(total, noun)} {what}, more than {option} {allowed:g} allows"
            for count, total, noun, what, option, allowed in shares
            if total and count / total > allowed
        ]

    def exceeded_as_newest(self, max_page_error_rate: float, max_degraded_rate: float) -> list[str]:
        """A sentence for each share that is larger than it may be, of items that are those of the newest documents;
        nothing if they are too few to tell."""
        said = self.exceeded(max_page_error_rate, max_degraded_rate) if self.found >= ENOUGH_ROWS else []
        return [f"of the newest documents, {each}" for each in said]


@dataclass(frozen=True, slots=True)
class StageReport:
    """What a stage has done."""

    busy_seconds: float
    busy_share: float
    """The share of the work time that the stage was busy; for worker stages, of that of all workers, and for device
    stages, of that of all engines."""
    batches: int
    mean_fill: float | None
    """How full the batches were on average, of what the limits allow; None without a limit."""
    items: int
    items_per_busy_second: float

    @classmethod
    def of(cls, count: StageCount, available_s: float) -> Self:
        """What the stage has done. available_s: how long all processes together could have been busy with it."""
        share, rate = ratio(count.busy_s, available_s), ratio(count.items, count.busy_s)
        fill = count.items / count.limit_sum if count.limit_sum else None
        return cls(count.busy_s, share, count.batches, fill, count.items, rate)


@dataclass(frozen=True, slots=True)
class PerPage:
    """What was computed for a page read in this run: figures in pages/s cannot be compared without it."""

    patches: float
    image_tokens: float
    output_tokens: float


@dataclass(frozen=True, slots=True)
class SavedReport:
    """What this run did not do twice."""

    questions: int
    """Questions that the pages of the run asked."""
    from_run: int
    """Questions that no engine was asked, because another page of this run had asked the same."""
    from_cache: int
    """Questions that no engine was asked, because an earlier run had asked the same."""
    documents: int
    """How many documents have rows made from those of another document."""
    pages: int
    """How many rows were made from those of a file of the same bytes."""


@dataclass(frozen=True, slots=True)
class DeviceReport:
    """A device and the engines that were there, or all devices together: then seconds and shares are means."""

    device: str
    """The name of the device, or the names of all."""
    kernels: str
    lost: int
    """How many engines of the device were lost."""
    idle_seconds: float
    """How long the device was not busy with any stage."""
    idle_share: float
    starved_seconds: float
    """How long the device was idle while no page had a request."""
    starved_share: float
    model_flop_per_second: float
    peak_memory_bytes: int | None
    """What torch has held of the GPU, in use or kept for later; None on a CPU."""
    peak_host_bytes: int | None
    """The main memory of the largest engine, in bytes."""
    batches_halved: Mapping[Stage, int]
    """How often a batch did not fit into memory, and was tried again at half its size."""
    preemptions: int
    """How often a sequence had to begin again because the KV cache was full."""

    @classmethod
    def of(cls, engines: Sequence[EngineUse], work_s: float) -> Self:
        """The report of these devices together; if there is none, of one that was idle."""
        done = sum_of(engine.counts for engine in engines)
        counts = [engine.counts for engine in engines] or [done]
        idle_s = [max(0.0, work_s - each.busy_s) for each in counts]
        # An engine waits for its first request before the work begins.
        starved_s = [min(each.starved_s, idle) for each, idle in zip(counts, idle_s, strict=True)]
        return cls(
            device=",".join(engine.device for engine in engines),
            kernels="; ".join(dict.fromkeys(engine.kernels for engine in engines if engine.kernels)),
            lost=sum(engine.num_lost for engine in engines),
            idle_seconds=fmean(idle_s),
            idle_share=ratio(fmean(idle_s), work_s),
            starved_seconds=fmean(starved_s),
            starved_share=ratio(fmean(starved_s), work_s),
            model_flop_per_second=ratio(done.model_flop, work_s),
            peak_memory_bytes=done.peak_device_bytes or None,
            peak_host_bytes=max((engine.peak_bytes or 0 for engine in engines), default=0) or None,
            batches_halved=dict(done.batches_halved),
            preemptions=done.preemptions,
        )


@dataclass(frozen=True, slots=True)
class QueueReport:
    """The image tokens that waited between the stages of an engine."""

    mean_tokens: float
    max_tokens: int


@dataclass(frozen=True, slots=True)
class HostMemory:
    """Peak resident memory of the main process, and of the worker and the engine that used the most."""

    peak_main_bytes: int | None
    peak_worker_bytes: int | None
    peak_engine_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What a run was, in the reports of all runs."""

    started: str = ""
    """When the run began, in UTC, as in 2026-01-31T23:59:59+00:00; `ended` has the same form."""
    ended: str = ""
    host: str = ""
    version: str = ""
    """The version of batchocr."""
    inputs: tuple[str, ...] = ()
    """The first hundred INPUTs, as they were given."""
    options: Mapping[str, Setting | tuple[int, int]] = field(default_factory=dict)
    """The options that differ from their defaults, wherever they were given; never a password."""
    table: str = ""
    """Where the table is, or was to be, as it was given."""
    rows: int | None = None
    """The number of rows of the table; None if it was not written, as `bytes` is then."""
    bytes: int | None = None


def facts_of(inputs: tuple[str, ...], config: Config, began_s: float) -> dict[str, Any]:
    """The RunFacts of a run that ends now, but for its table. began_s: when it began, by `time.monotonic`."""
    ended = datetime.now(UTC)
    started = ended - timedelta(seconds=time.monotonic() - began_s)
    times = {"started": started.isoformat(timespec="seconds"), "ended": ended.isoformat(timespec="seconds")}
    here = {"host": platform.node(), "version": own_version()}
    return {**times, **here, "inputs": inputs, "options": given_options(config)}


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReport(RunFacts):
    """What came of a run into a table, on one machine or on several. Rates are per second of work, for what was read in
    this run."""

    pages_per_second: float
    exit_reason: ExitReason
    error: str | None = None
    """What ended a run that failed."""
    pages_read: int
    documents: int
    skipped_files: Mapping[str, int]
    """Files in the folders of the input that are no documents, by suffix."""
    documents_not_opened: int
    items: Items
    newest: Items | None = None
    """The rows of documents that are new or have changed since the table's last version; if they are few, with those
    that it remembers. None without such a table, as all are new then, or if an error ended the run."""
    errors: Mapping[ErrorKind, int]
    wall_seconds: float
    start_up_seconds: float
    work_seconds: float
    table_seconds: float
    """How long building the table took, once all rows were read."""
    ink_outside: Distribution
    """The ink outside of blocks, over all rows of the table; if there is none, over the pages read in this run."""
    text_layer_agreement: Distribution
    """The agreement with the PDFs' own text, over all rows of the table; if there is none, over the pages read in this
    run."""
    settings: Mapping[str, Setting] = field(default_factory=dict)
    """The devices, model, backend, dtype and batch sizes in use."""
    max_page_error_rate: float
    max_degraded_rate: float
    max_doubtful_rate: float
    bottleneck: str = ""
    """One line that says what limits the rate, and the option that would change that."""
    worse_documents: int = 0
    worse_pages: int = 0
    """Pages that an earlier run read better, and whose files have changed since."""
    doubtful: int = 0
    """The pages asked for whose quality is under 0.5, if the table was written."""
    traits: Mapping[Trait, int] = field(default_factory=dict)
    """How many of the pages asked for have each trait; traits that none has are left out."""
    rows_gone: int = 0
    """Rows of earlier runs that stay in the table though their documents are not there any more; with --prune, those
    that were removed."""
    rows_not_asked: int = 0
    """Other rows of earlier runs that are no items of this run; with --prune, those that were removed."""

    @property
    def complete(self) -> bool:
        """Whether the run finished on its own."""
        return self.exit_reason == "finished"

    @property
    def nothing_to_do(self) -> bool:
        """Whether earlier runs had dealt with every row before this one."""
        return self.complete and 0 < self.items.found == self.items.already_done

    @property
    def ledger_adds_up(self) -> bool:
        items = self.items
        return items.found == items.ok + items.degraded + items.failed + items.skipped + items.not_reached

    @property
    def exceeded(self) -> list[str]:
        """A sentence for each share that is larger than it may be."""
        rates = self.max_page_error_rate, self.max_degraded_rate
        said = self.items.exceeded(*rates, self.max_doubtful_rate, doubtful=self.doubtful)
        return said + (self.newest.exceeded_as_newest(*rates) if self.newest else [])

    @property
    def exit_code(self) -> ExitCode | None:
        """The exit code of the command. None if an error ended the run, as that error has it."""
        early = {"failed": None, "interrupted": ExitCode.INTERRUPTED, "stopped": ExitCode.STOPPED}
        if not self.complete:
            return early[self.exit_reason]
        if not self.ledger_adds_up:
            return ExitCode.BUG
        return ExitCode.TOO_MANY_FAILURES if self.exceeded or self.worse_pages else ExitCode.DONE

    def to_json(self) -> str:
        """The report as a JSON object; times in seconds, memory in bytes, shares from 0 to 1."""
        ended = {"complete": self.complete, "exit_code": self.exit_code, "ledger_adds_up": self.ledger_adds_up}
        return json.dumps(
            {"pages_per_second": self.pages_per_second} | asdict(self) | ended, indent=2, ensure_ascii=False
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(TableReport):
    """The throughput report of a run on one machine. Rates of tokens, and the means per page, are for what was
    computed."""

    image_tokens_per_second: float
    output_tokens_per_second: float
    per_page: PerPage
    saved: SavedReport
    stages: Mapping[Stage, StageReport]
    embedding_queue: QueueReport
    device: DeviceReport
    engines: tuple[DeviceReport, ...]
    host_memory: HostMemory
    workers: int


def figures_of(ledger: Ledger) -> dict[str, Any]:
    """The figures of a TableReport that its run has counted."""
    # A run that finished has none: if items are missing then, that is a bug, and must show.
    not_reached = 0 if ledger.exit_reason == "finished" else ledger.found - ledger.by_status.total()
    return {
        "pages_per_second": ratio(ledger.pages_read, ledger.work_s),
        "exit_reason": ledger.exit_reason,
        "pages_read": ledger.pages_read,
        "documents": ledger.documents,
        "skipped_files": dict(ledger.skipped_files),
        "documents_not_opened": ledger.documents_not_opened,
        "items": Items.of(
            ledger.by_status, found=ledger.found, not_reached=not_reached, already_done=ledger.already_done
        ),
        "errors": dict(ledger.errors.most_common()),
        "wall_seconds": ledger.start_up_s + ledger.work_s + ledger.table_s,
        "start_up_seconds": ledger.start_up_s,
        "work_seconds": ledger.work_s,
        "table_seconds": ledger.table_s,
        "ink_outside": ledger.quality.of_ink_outside(),
        "text_layer_agreement": ledger.quality.of_agreement(),
        "max_page_error_rate": ledger.rates.max_page_error_rate,
        "max_degraded_rate": ledger.rates.max_degraded_rate,
        "max_doubtful_rate": ledger.rates.max_doubtful_rate,
    }


def make_report(ledger: Ledger, engines: Sequence[EngineUse]) -> Report:
    """The report of a run that has ended, but for an error that ended it, its settings, and what its table holds.

    engines: what they did; none if there was nothing to do.
    """
    done = sum_of([ledger.counts, *(engine.counts for engine in engines)])
    pages, work_s = ledger.pages_read, ledger.work_s
    # A page that is begun again has the same answers, and its row counts them once: hence not below zero.
    image_tokens = max(0, ledger.image_tokens - done.saved_image_tokens)
    output_tokens = max(0, ledger.output_tokens - done.saved_output_tokens)
    processes: dict[Stage, int] = dict.fromkeys(DEVICE_STAGES, max(1, len(engines)))
    processes |= dict.fromkeys(WORKER_STAGES, ledger.workers)
    device = DeviceReport.of(engines, work_s)
    return Report(
        **figures_of(ledger),
        image_tokens_per_second=ratio(image_tokens, work_s),
        output_tokens_per_second=ratio(output_tokens, work_s),
        per_page=PerPage(ratio(done.patches, pages), ratio(image_tokens, pages), ratio(output_tokens, pages)),
        saved=SavedReport(done.asked, done.from_run, done.from_cache, ledger.documents_copied, ledger.pages_copied),
        stages={stage: StageReport.of(count, work_s * processes.get(stage, 1)) for stage, count in done.stages.items()},
        embedding_queue=QueueReport(ratio(done.queue_token_sum, done.queue_samples), done.queue_max_tokens),
        device=device,
        engines=tuple(DeviceReport.of([engine], work_s) for engine in engines),
        host_memory=HostMemory(ledger.peak_main_bytes, ledger.peak_worker_bytes, device.peak_host_bytes),
        workers=ledger.workers,
    )


def require_place(path: Path) -> None:
    """Check before the work that a report can be put there, in place of another at most. Raises OutputError."""
    require_writable(path)
    if path.exists():
        with reading(path), open(path, "rb") as file:
            beginning = file.read(len(_BEGINNING))
        if beginning not in (b"", _BEGINNING):
            raise OutputError(f"{path} is no report: it is left as it is; move it away, or choose another place")


def write_report(report: TableReport, path: Path) -> None:
    """Write the report as JSON, whole or not at all. Raises OutputError."""
    with atomic_file(path) as file:
        file.write(report.to_json().encode() + b"\n")


def ratio(amount: float, base: float) -> float:
    """amount / base; 0 if base is 0."""
    return amount / base if base else 0.0
