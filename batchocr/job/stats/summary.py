"""From a run's counters to its report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from batchocr.config import Config
from batchocr.job.stats.bottleneck import name_bottleneck
from batchocr.job.stats.ledger import Ledger
from batchocr.job.stats.quality import distribution_of_agreement, distribution_of_ink_outside
from batchocr.job.stats.report import (
    DeviceReport,
    ExitReason,
    HostMemory,
    Items,
    PerPage,
    QueueReport,
    Report,
    SavedReport,
    Setting,
    StageReport,
)
from batchocr.processes.counts import DEVICE_STAGES, HOST_STAGES, STAGES, WORKER_STAGES, Stage, StageCount, sum_of
from batchocr.processes.engines import EngineUse


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What the run knows and its counters do not.

    pages_in_flight: how many there could be. error: what ended a run that failed. settings: the devices, model,
    backend, dtype and batch sizes in use. rates: has the shares of failed items, and of degraded and doubtful pages,
    that are allowed.
    """

    exit_reason: ExitReason
    start_up_s: float
    work_s: float
    workers: int
    pages_in_flight: int = 1
    on_gpu: bool = False
    error: str | None = None
    settings: Mapping[str, Setting] = field(default_factory=dict)
    rates: Config = field(default_factory=Config)
    peak_main_bytes: int | None = None
    peak_worker_bytes: int | None = None


def make_report(ledger: Ledger, engines: Sequence[EngineUse], circumstances: Circumstances) -> Report:
    """The report of a run that has ended. engines: what they did; none if there was nothing to do."""
    done = sum_of(engine.counts for engine in engines)
    counts = {stage: ledger.host.stages[stage] if stage in HOST_STAGES else done.stages[stage] for stage in STAGES}
    processes: dict[Stage, int] = dict.fromkeys(DEVICE_STAGES, max(1, len(engines)))
    processes |= dict.fromkeys(WORKER_STAGES, circumstances.workers)
    work_s = circumstances.work_s
    status, answers = ledger.by_status, ledger.answers
    # A page that is begun again has the same answers, and its row counts them once: hence not below zero.
    image_tokens = max(0, ledger.image_tokens - answers.image_tokens)
    output_tokens = max(0, ledger.output_tokens - answers.output_tokens)
    device = _device_report(engines, work_s)
    report = Report(
        pages_per_second=_ratio(ledger.pages_read, work_s),
        image_tokens_per_second=_ratio(image_tokens, work_s),
        output_tokens_per_second=_ratio(output_tokens, work_s),
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
        wall_seconds=circumstances.start_up_s + work_s + ledger.table_s,
        start_up_seconds=circumstances.start_up_s,
        work_seconds=work_s,
        table_seconds=ledger.table_s,
        per_page=PerPage(
            patches=_ratio(done.patches, ledger.pages_read),
            image_tokens=_ratio(image_tokens, ledger.pages_read),
            output_tokens=_ratio(output_tokens, ledger.pages_read),
        ),
        saved=SavedReport(
            questions=answers.asked,
            from_run=answers.from_run,
            from_cache=answers.from_cache,
            documents=ledger.documents_copied,
            pages=ledger.pages_copied,
        ),
        ink_outside=distribution_of_ink_outside(ledger.quality),
        text_layer_agreement=distribution_of_agreement(ledger.quality),
        stages={stage: _stage_report(count, work_s * processes.get(stage, 1)) for stage, count in counts.items()},
        embedding_queue=QueueReport(_ratio(done.queue_token_sum, done.queue_samples), done.queue_max_tokens),
        device=device,
        engines=tuple(_device_report([engine], work_s) for engine in engines),
        host_memory=HostMemory(circumstances.peak_main_bytes, circumstances.peak_worker_bytes, device.peak_host_bytes),
        workers=circumstances.workers,
        settings=dict(circumstances.settings),
        max_page_error_rate=circumstances.rates.max_page_error_rate,
        max_degraded_rate=circumstances.rates.max_degraded_rate,
        max_doubtful_rate=circumstances.rates.max_doubtful_rate,
    )
    bottleneck = name_bottleneck(report, pages_in_flight=circumstances.pages_in_flight, on_gpu=circumstances.on_gpu)
    return replace(report, bottleneck=bottleneck)


def _stage_report(count: StageCount, available_s: float) -> StageReport:
    """available_s: how long all processes together could have been busy with the stage."""
    return StageReport(
        busy_seconds=count.busy_s,
        busy_share=_ratio(count.busy_s, available_s),
        batches=count.batches,
        mean_fill=count.items / count.limit_sum if count.limit_sum else None,
        items=count.items,
        items_per_busy_second=_ratio(count.items, count.busy_s),
    )


def _device_report(engines: Sequence[EngineUse], work_s: float) -> DeviceReport:
    """These devices together; if there is none, one that was idle."""
    done = sum_of(engine.counts for engine in engines)
    counts = [engine.counts for engine in engines] or [done]
    idle_s = [max(0.0, work_s - each.busy_s) for each in counts]
    # An engine waits for its first request before the work begins.
    starved_s = [min(each.starved_s, idle) for each, idle in zip(counts, idle_s, strict=True)]
    return DeviceReport(
        device=",".join(engine.device for engine in engines),
        kernels="; ".join(dict.fromkeys(engine.kernels for engine in engines if engine.kernels)),
        lost=sum(engine.num_lost for engine in engines),
        idle_seconds=fmean(idle_s),
        idle_share=_ratio(fmean(idle_s), work_s),
        starved_seconds=fmean(starved_s),
        starved_share=_ratio(fmean(starved_s), work_s),
        model_flop_per_second=_ratio(done.model_flop, work_s),
        peak_memory_bytes=done.peak_device_bytes or None,
        peak_host_bytes=max((engine.peak_bytes or 0 for engine in engines), default=0) or None,
        batches_halved=dict(done.batches_halved),
        preemptions=done.preemptions,
    )


def _ratio(amount: float, base: float) -> float:
    """amount / base; 0 if base is 0."""
    return amount / base if base else 0.0
