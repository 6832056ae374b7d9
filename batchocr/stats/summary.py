"""From a run's counters to its report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from batchocr.stats.bottleneck import name_bottleneck
from batchocr.stats.meter import HOST_STAGES, STAGES, WORKER_STAGES, Ledger, Meter, Stage, StageCount, StageCounter
from batchocr.stats.quality import distribution_of_agreement, distribution_of_ink_outside
from batchocr.stats.report import (
    DeviceReport,
    ExitReason,
    HostMemory,
    Items,
    PerPage,
    QueueReport,
    Report,
    Setting,
    StageReport,
)


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What the run knows and its counters do not.

    pages_in_flight: how many there could be. error: what ended a run that failed. table_s: the time it took to build
    the table, after the work. device_flop_per_s: the device's peak, None if unknown. settings: the device, model,
    backend, dtype and batch sizes in use. max_page_error_rate, max_degraded_rate: the shares of failed items and of
    degraded pages that are allowed.
    """

    exit_reason: ExitReason
    start_up_s: float
    work_s: float
    workers: int
    pages_in_flight: int = 1
    on_gpu: bool = False
    table_s: float = 0.0
    error: str | None = None
    settings: Mapping[str, Setting] = field(default_factory=dict)
    max_page_error_rate: float = 0.0
    max_degraded_rate: float = 1.0
    peak_main_bytes: int | None = None
    peak_worker_bytes: int | None = None
    peak_device_bytes: int | None = None
    device_flop_per_s: float | None = None


def make_report(ledger: Ledger, host: StageCounter, meter: Meter, circumstances: Circumstances) -> Report:
    """The report of a run that has ended. host: what the pipeline's thread counted; meter: what the engine's did."""
    counts = {stage: (host if stage in HOST_STAGES else meter).stages[stage] for stage in STAGES}
    work_s = circumstances.work_s
    status = ledger.by_status
    report = Report(
        pages_per_second=_ratio(ledger.pages_read, work_s),
        image_tokens_per_second=_ratio(ledger.image_tokens, work_s),
        output_tokens_per_second=_ratio(ledger.output_tokens, work_s),
        exit_reason=circumstances.exit_reason,
        error=circumstances.error,
        pages_read=ledger.pages_read,
        documents=ledger.documents,
        skipped_files=dict(ledger.skipped_files),
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
        ink_outside=distribution_of_ink_outside(ledger.quality),
        text_layer_agreement=distribution_of_agreement(ledger.quality),
        stages={stage: _stage_report(stage, count, circumstances) for stage, count in counts.items()},
        embedding_queue=QueueReport(_ratio(meter.queue_token_sum, meter.queue_samples), meter.queue_max_tokens),
        device=_device_report(meter, circumstances),
        host_memory=HostMemory(circumstances.peak_main_bytes, circumstances.peak_worker_bytes),
        workers=circumstances.workers,
        settings=dict(circumstances.settings),
        max_page_error_rate=circumstances.max_page_error_rate,
        max_degraded_rate=circumstances.max_degraded_rate,
    )
    bottleneck = name_bottleneck(report, pages_in_flight=circumstances.pages_in_flight, on_gpu=circumstances.on_gpu)
    return replace(report, bottleneck=bottleneck)


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
    # The engine's thread waits for its first request before the work begins, and for its end behind the last.
    starved_s = min(meter.starved_s, idle_s)
    flop_per_s, peak = _ratio(meter.model_flop, circumstances.work_s), circumstances.device_flop_per_s
    return DeviceReport(
        idle_seconds=idle_s,
        idle_share=_ratio(idle_s, circumstances.work_s),
        starved_seconds=starved_s,
        starved_share=_ratio(starved_s, circumstances.work_s),
        peak_memory_bytes=circumstances.peak_device_bytes,
        model_flop_per_second=flop_per_s,
        batches_halved=dict(meter.batches_halved),
        preemptions=meter.preemptions,
        share_of_peak_flop=None if peak is None else _ratio(flop_per_s, peak),
    )


def _ratio(amount: float, base: float) -> float:
    """amount / base; 0 if base is 0."""
    return amount / base if base else 0.0
