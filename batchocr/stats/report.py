"""The throughput report: what a run's counters say once it has ended."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from batchocr.data import ErrorKind
from batchocr.exit_codes import EXIT_BUG, EXIT_INTERRUPTED, EXIT_STOPPED, EXIT_TOO_MANY_FAILURES, too_many_failed
from batchocr.output.atomic import atomic_file
from batchocr.stats.bottleneck import name_bottleneck
from batchocr.stats.meter import HOST_STAGES, STAGES, WORKER_STAGES, Ledger, Meter, Stage, StageCount, StageCounter
from batchocr.stats.report_table import format_table

ExitReason = Literal["finished", "stopped", "interrupted", "failed"]
Setting: TypeAlias = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What the run knows and its counters do not.

    error: what ended a run that failed. table_s: the time it took to build the table, after the work.
    device_flop_per_s: the device's peak, None if unknown. settings: the device, model, backend, dtype and batch sizes
    in use. max_page_error_rate: the share of failed items that is allowed.
    """

    exit_reason: ExitReason
    start_up_s: float
    work_s: float
    workers: int
    table_s: float = 0.0
    error: str | None = None
    settings: Mapping[str, Setting] = field(default_factory=dict)
    max_page_error_rate: float = 0.0
    peak_main_bytes: int | None = None
    peak_worker_bytes: int | None = None
    peak_device_bytes: int | None = None
    device_flop_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class Items:
    """found: as far as documents have been opened. not_reached: items that no run has read, if this one ended early.
    already_done: those of the others that earlier runs dealt with.
    """

    found: int
    ok: int
    degraded: int
    failed: int
    skipped: int
    not_reached: int
    already_done: int


@dataclass(frozen=True, slots=True)
class StageReport:
    """busy_share: of the work time; for worker stages, of that of all workers. mean_fill: None without a limit."""

    busy_seconds: float
    busy_share: float
    batches: int
    mean_fill: float | None
    items: int
    items_per_busy_second: float


@dataclass(frozen=True, slots=True)
class PerPage:
    """Means over the pages read in this run: figures in pages/s cannot be compared without them."""

    patches: float
    image_tokens: float
    output_tokens: float


@dataclass(frozen=True, slots=True)
class DeviceReport:
    """idle: not busy with any stage. starved: while no page had a request. batches_halved: by stage, how often a batch
    did not fit into memory and was tried again at half its size. sequences_put_back: how often a sequence had to be
    prefilled again because the KV cache was full.
    """

    idle_seconds: float
    idle_share: float
    starved_seconds: float
    starved_share: float
    peak_memory_bytes: int | None
    model_flop_per_second: float
    share_of_peak_flop: float | None
    batches_halved: Mapping[Stage, int]
    sequences_put_back: int


@dataclass(frozen=True, slots=True)
class QueueReport:
    mean_tokens: float
    max_tokens: int


@dataclass(frozen=True, slots=True)
class HostMemory:
    """Peak resident memory of the main process, and of the worker that used the most."""

    peak_main_bytes: int | None
    peak_worker_bytes: int | None


@dataclass(frozen=True, slots=True)
class Report:
    """The throughput report. Rates are per second of work, for what was read in this run.

    table_seconds: for building the table, once all rows were in the journal.
    """

    pages_per_second: float
    image_tokens_per_second: float
    output_tokens_per_second: float
    exit_reason: ExitReason
    error: str | None
    pages_read: int
    documents: int
    documents_not_opened: int
    items: Items
    errors: Mapping[ErrorKind, int]
    wall_seconds: float
    start_up_seconds: float
    work_seconds: float
    table_seconds: float
    per_page: PerPage
    stages: Mapping[Stage, StageReport]
    embedding_queue: QueueReport
    device: DeviceReport
    host_memory: HostMemory
    workers: int
    settings: Mapping[str, Setting]
    max_page_error_rate: float

    @property
    def complete(self) -> bool:
        """Whether the run finished on its own."""
        return self.exit_reason == "finished"

    @property
    def ledger_adds_up(self) -> bool:
        items = self.items
        return items.found == items.ok + items.degraded + items.failed + items.skipped + items.not_reached

    @property
    def exit_code(self) -> int | None:
        """The exit code of the command. None if an error ended the run, as that error has it."""
        if self.exit_reason == "failed":
            return None
        if not self.complete:
            return EXIT_INTERRUPTED if self.exit_reason == "interrupted" else EXIT_STOPPED
        if not self.ledger_adds_up:
            return EXIT_BUG
        too_many = too_many_failed(self.items.failed, self.items.found, self.max_page_error_rate)
        return EXIT_TOO_MANY_FAILURES if too_many else 0

    @property
    def bottleneck(self) -> str:
        """One line: what limits the rate, and the option that would change that."""
        return name_bottleneck(self)

    def to_json(self) -> str:
        """The report as a JSON object; times in seconds, memory in bytes, shares from 0 to 1."""
        added = {
            "complete": self.complete,
            "exit_code": self.exit_code,
            "ledger_adds_up": self.ledger_adds_up,
            "bottleneck": self.bottleneck,
        }
        return json.dumps(asdict(self) | added, indent=2, ensure_ascii=False)

    def to_table(self) -> str:
        """The report as plain text, at most 100 columns wide."""
        return format_table(self)


def make_report(ledger: Ledger, host: StageCounter, meter: Meter, circumstances: Circumstances) -> Report:
    """The report of a run that has ended. host: what the pipeline's thread counted; meter: what the engine's did."""
    counts = {stage: (host if stage in HOST_STAGES else meter).stages[stage] for stage in STAGES}
    work_s = circumstances.work_s
    status = ledger.by_status
    return Report(
        pages_per_second=_ratio(ledger.pages_read, work_s),
        image_tokens_per_second=_ratio(ledger.image_tokens, work_s),
        output_tokens_per_second=_ratio(ledger.output_tokens, work_s),
        exit_reason=circumstances.exit_reason,
        error=circumstances.error,
        pages_read=ledger.pages_read,
        documents=ledger.documents,
        documents_not_opened=ledger.documents_not_opened,
        items=Items(
            found=ledger.found,
            ok=status["ok"],
            degraded=status["degraded"],
            failed=status["failed"],
            skipped=status["skipped"],
            # A run that finished has none: if items are missing then, that is a bug, and must show.
            not_reached=0 if circumstances.exit_reason == "finished" else ledger.found - status.total(),
            already_done=ledger.already_done,
        ),
        errors=dict(ledger.errors.most_common()),
        wall_seconds=circumstances.start_up_s + work_s + circumstances.table_s,
        start_up_seconds=circumstances.start_up_s,
        work_seconds=work_s,
        table_seconds=circumstances.table_s,
        per_page=PerPage(
            patches=_ratio(meter.patches, ledger.pages_read),
            image_tokens=_ratio(ledger.image_tokens, ledger.pages_read),
            output_tokens=_ratio(ledger.output_tokens, ledger.pages_read),
        ),
        stages={stage: _stage_report(stage, count, circumstances) for stage, count in counts.items()},
        embedding_queue=QueueReport(_ratio(meter.queue_token_sum, meter.queue_samples), meter.queue_max_tokens),
        device=_device_report(meter, circumstances),
        host_memory=HostMemory(circumstances.peak_main_bytes, circumstances.peak_worker_bytes),
        workers=circumstances.workers,
        settings=dict(circumstances.settings),
        max_page_error_rate=circumstances.max_page_error_rate,
    )


def write_report(report: Report, path: Path) -> None:
    """Write the report as JSON, whole or not at all. Raises OutputError."""
    with atomic_file(path) as file:
        file.write(report.to_json().encode() + b"\n")


def _stage_report(stage: Stage, count: StageCount, circumstances: Circumstances) -> StageReport:
    processes = circumstances.workers if stage in WORKER_STAGES else 1
    return StageReport(
        busy_seconds=count.busy_s,
        busy_share=_ratio(count.busy_s, circumstances.work_s * processes),
        batches=count.batches,
        mean_fill=count.items / count.limit_sum if count.limit_sum else None,
        items=count.items,
        items_per_busy_second=_ratio(count.items, count.busy_s),
    )


def _device_report(meter: Meter, circumstances: Circumstances) -> DeviceReport:
    idle_s = max(0.0, circumstances.work_s - meter.device_busy.total_s)
    flop_per_s, peak = _ratio(meter.model_flop, circumstances.work_s), circumstances.device_flop_per_s
    return DeviceReport(
        idle_seconds=idle_s,
        idle_share=_ratio(idle_s, circumstances.work_s),
        starved_seconds=meter.starved_s,
        starved_share=_ratio(meter.starved_s, circumstances.work_s),
        peak_memory_bytes=circumstances.peak_device_bytes,
        model_flop_per_second=flop_per_s,
        batches_halved=dict(meter.batches_halved),
        sequences_put_back=meter.sequences_put_back,
        share_of_peak_flop=None if peak is None else _ratio(flop_per_s, peak),
    )


def _ratio(amount: float, base: float) -> float:
    """amount / base; 0 if base is 0."""
    return amount / base if base else 0.0
