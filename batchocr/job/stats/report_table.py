"""The throughput report as text for a terminal or a log."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from batchocr.data import counted
from batchocr.job.stats.bottleneck import SIZE_OPTIONS
from batchocr.job.stats.quality import Distribution
from batchocr.job.stats.report import DeviceReport, Report, SavedReport, StageReport
from batchocr.pages.input.folders import describe_skipped

_WIDTH = 100
_LABEL_WIDTH = 12
_NOTHING = "–"
_WORTH_SAYING_S = 1.0
_SLOW = 0.1
"""Two decimals of fewer pages/s than this would say too little."""


def format_table(report: Report) -> str:
    """The report as lines of at most 100 columns: a heading, what was read, a line per stage, the bottleneck."""
    summary = [line for label, text in _summary(report) for line in _labelled(label, text)]
    bottleneck = _labelled("bottleneck", report.bottleneck)
    return "\n".join([_heading(report), "", *summary, "", *_stages(report), "", *bottleneck])


def _heading(report: Report) -> str:
    times = f"start-up {_duration(report.start_up_seconds)}, work {_duration(report.work_seconds)}"
    if report.table_seconds >= _WORTH_SAYING_S:
        times += f", table {_duration(report.table_seconds)}"
    ended = "" if report.complete else f"; {report.exit_reason} before the end, run again to continue"
    rate = report.pages_per_second
    pages = counted(report.pages_read, "page")
    return f"{pages} read at {f'{rate:,.2f}' if rate >= _SLOW or not rate else f'{rate:.2g}'} pages/s ({times}){ended}"


def _summary(report: Report) -> Iterator[tuple[str, str]]:
    """What there is to say, each with its label; empty if there is nothing."""
    page, queue = report.per_page, report.embedding_queue
    yield "items", _items(report)
    yield "errors", ", ".join(f"{count:,} {kind}" for kind, count in report.errors.items())
    if report.worse_pages:
        worse, documents = counted(report.worse_pages, "page"), counted(report.worse_documents, "document")
        yield "worse", f"{worse} of {documents} than in an earlier run, or gone"
    kept = {"of documents that are not there": report.rows_gone, "not asked for": report.rows_not_asked}
    yield "other rows", ", ".join(f"{count:,} {which}" for which, count in kept.items() if count)
    yield "input", describe_skipped(report.skipped_files)
    tokens = f"{page.image_tokens:,.0f} image tokens, {page.output_tokens:,.0f} output tokens"
    yield "per page", f"{page.patches:,.0f} patches, {tokens}"
    tokens = f"{report.image_tokens_per_second:,.0f} image tokens, {report.output_tokens_per_second:,.0f} output tokens"
    yield "per second", tokens
    yield "saved", _saved(report.saved)
    yield "quality", _quality(report)
    yield "device", _device(report.device)
    if len(report.engines) > 1:
        yield from (("", f"{engine.device}: {_device(engine)}") for engine in report.engines)
    waiting = f"{queue.mean_tokens:,.0f} image tokens between the stages on average, {queue.max_tokens:,} at most"
    yield "queue", waiting
    yield "host", _host(report)
    values = {name: f"{value:,}" if type(value) is int else value for name, value in report.settings.items()}
    yield "settings", ", ".join(f"{name} {value}" for name, value in values.items())


def _items(report: Report) -> str:
    items, not_opened = report.items, report.documents_not_opened
    return (
        f"{items.found:,} {'=' if report.ledger_adds_up else '≠'} "
        f"{items.ok:,} ok + {items.degraded:,} degraded + {items.failed:,} failed + {items.skipped:,} skipped"
        + (f" + {items.not_reached:,} not reached" if items.not_reached else "")
        + f"; in {counted(report.documents, 'document')}"
        + (f", {not_opened:,} of them not opened yet" if not_opened else "")
        + (f"; {items.already_done:,} were done before this run" if items.already_done else "")
    )


def _device(device: DeviceReport) -> str:
    parts = [
        f"idle {_duration(device.idle_seconds)} ({device.idle_share:.0%}; {device.starved_share:.0%} waiting for pages)"
    ]
    if device.model_flop_per_second:
        parts.append(_flop_per_s(device.model_flop_per_second))
    for stage, count in device.batches_halved.items():
        parts.append(f"out of memory in {count} {stage} batch{'es' * (count != 1)}: lower {SIZE_OPTIONS[stage]}")
    if device.preemptions:
        parts.append(f"begun again for lack of KV cache: {device.preemptions:,}; lower --llm-batch-size")
    if device.peak_memory_bytes is not None:
        parts.append(f"peak memory {_size(device.peak_memory_bytes)}")
    if device.lost:
        parts.append(f"{counted(device.lost, 'engine')} lost")
    return ", ".join(parts)


def _saved(saved: SavedReport) -> str:
    """What was not done twice; empty if there was nothing."""
    said = []
    answered = {"asked before in this run": saved.from_run, "found in the cache": saved.from_cache}
    if answers := ", ".join(f"{count:,} {where}" for where, count in answered.items() if count):
        said.append(f"of {saved.questions:,} questions {answers}")
    if saved.pages:
        pages = counted(saved.pages, "page")
        said.append(f"{pages} of {counted(saved.documents, 'document')} with the bytes of another")
    return "; ".join(said)


def _quality(report: Report) -> str:
    """Both measures of it; empty if no page has one."""
    ink, agreement = report.ink_outside, report.text_layer_agreement
    said = []
    if ink.pages:
        said.append(f"ink outside of blocks {_values(ink)}, above {ink.bound:g} on {ink.num_beyond:,} of {ink.pages:,}")
    if agreement.pages:
        pages = f"{agreement.num_beyond:,} of {agreement.pages:,}"
        said.append(f"agreement with the text layer {_values(agreement)}, below {agreement.bound:g} on {pages}")
    return "; ".join(said)


def _values(measure: Distribution) -> str:
    return f"{measure.median:.2f} (worst tenth {measure.worst_tenth:.2f}, hundredth {measure.worst_hundredth:.2f})"


def _flop_per_s(rate: float) -> str:
    return f"{rate / 1e12:,.2f} TFLOP/s" if rate >= 1e11 else f"{rate / 1e9:,.0f} GFLOP/s"


def _host(report: Report) -> str:
    memory = report.host_memory
    main, worker, engine = map(_size, (memory.peak_main_bytes, memory.peak_worker_bytes, memory.peak_engine_bytes))
    largest = f"{worker} in the largest worker (of {report.workers}), {engine} in the largest engine"
    return f"peak memory {main} in the main process, {largest}"


def _stages(report: Report) -> Iterator[str]:
    columns = f"{'busy':>12} {'share':>7} {'batches':>10} {'fill':>6} {'items':>11} {'per busy s':>11}"
    yield f"{'stage':<{_LABEL_WIDTH}} {columns}"
    has_detector = "layout" in report.settings
    for stage, stage_counts in report.stages.items():
        if stage == "layout" and not has_detector:
            continue
        yield f"{stage:<{_LABEL_WIDTH}} {_stage_columns(stage_counts)}"


def _stage_columns(counted: StageReport) -> str:
    if counted.batches == 0:
        return f"{_NOTHING:>12}"
    fill = _NOTHING if counted.mean_fill is None else f"{counted.mean_fill:.0%}"
    return (
        f"{_duration(counted.busy_seconds):>12} {counted.busy_share:>7.0%} {counted.batches:>10,} {fill:>6} "
        f"{counted.items:>11,} {counted.items_per_busy_second:>11,.1f}"
    )


def _labelled(label: str, text: str) -> list[str]:
    """The text in lines, the first with its label; none if it is empty."""
    margin = " " * (_LABEL_WIDTH + 1)
    beside = f"{label:<{_LABEL_WIDTH}} "
    return textwrap.wrap(text, _WIDTH, initial_indent=beside, subsequent_indent=margin, break_on_hyphens=False)


def _duration(seconds: float) -> str:
    if round(seconds, 1) < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes:02} min"


def _size(num_bytes: int | None) -> str:
    if num_bytes is None:
        return _NOTHING
    return f"{num_bytes / 1e9:,.2f} GB" if num_bytes >= 1e9 else f"{num_bytes / 1e6:,.0f} MB"
