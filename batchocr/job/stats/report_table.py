"""The throughput report as text for a terminal or a log."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from batchocr.data import counted
from batchocr.job.stats.bottleneck import LIMITS_BY_MEMORY
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
    return "\n".join(
        [_heading(report), "", *_summary(report), "", *_stages(report), "", *_labelled("bottleneck", report.bottleneck)]
    )


def _heading(report: Report) -> str:
    times = f"start-up {_duration(report.start_up_seconds)}, work {_duration(report.work_seconds)}"
    if report.table_seconds >= _WORTH_SAYING_S:
        times += f", table {_duration(report.table_seconds)}"
    ended = "" if report.complete else f"; {report.exit_reason} before the end, run again to continue"
    rate = report.pages_per_second
    pages = counted(report.pages_read, "page")
    return f"{pages} read at {f'{rate:,.2f}' if rate >= _SLOW or not rate else f'{rate:.2g}'} pages/s ({times}){ended}"


def _summary(report: Report) -> Iterator[str]:
    page, queue = report.per_page, report.embedding_queue
    yield from _labelled("items", _items(report))
    if report.errors:
        yield from _labelled("errors", ", ".join(f"{count:,} {kind}" for kind, count in report.errors.items()))
    if report.worse_pages:
        worse = counted(report.worse_pages, "page")
        yield from _labelled(
            "worse", f"{worse} of {counted(report.worse_documents, 'document')} than in an earlier run, or gone"
        )
    if report.rows_gone or report.rows_not_asked:
        kept = [f"{report.rows_gone:,} of documents that are not there"] if report.rows_gone else []
        kept += [f"{report.rows_not_asked:,} not asked for"] if report.rows_not_asked else []
        yield from _labelled("other rows", ", ".join(kept))
    if skipped := describe_skipped(report.skipped_files):
        yield from _labelled("input", skipped)
    yield from _labelled(
        "per page",
        f"{page.patches:,.0f} patches, {page.image_tokens:,.0f} image tokens, {page.output_tokens:,.0f} output tokens",
    )
    yield from _labelled(
        "per second",
        f"{report.image_tokens_per_second:,.0f} image tokens, {report.output_tokens_per_second:,.0f} output tokens",
    )
    if saved := _saved(report.saved):
        yield from _labelled("saved", saved)
    if quality := _quality(report):
        yield from _labelled("quality", quality)
    yield from _labelled("device", _device(report.device))
    if len(report.engines) > 1:
        for engine in report.engines:
            yield from _labelled("", f"{engine.device}: {_device(engine)}")
    yield from _labelled(
        "queue", f"{queue.mean_tokens:,.0f} image tokens between the stages on average, {queue.max_tokens:,} at most"
    )
    yield from _labelled("host", _host(report))
    if report.settings:
        said = (
            f"{name} {value:,}" if type(value) is int else f"{name} {value}" for name, value in report.settings.items()
        )
        yield from _labelled("settings", ", ".join(said))


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
        parts.append(f"out of memory in {count} {stage} batch{'es' * (count != 1)}: lower {LIMITS_BY_MEMORY[stage]}")
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
    answered = [f"{saved.from_run:,} asked before in this run"] if saved.from_run else []
    answered += [f"{saved.from_cache:,} found in the cache"] if saved.from_cache else []
    if answered:
        said.append(f"of {saved.questions:,} questions {', '.join(answered)}")
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


def _labelled(label: str, text: str) -> Iterator[str]:
    margin = " " * (_LABEL_WIDTH + 1)
    lines = textwrap.wrap(text, _WIDTH - len(margin), break_on_hyphens=False)
    yield f"{label:<{_LABEL_WIDTH}} {lines[0]}"
    yield from (margin + line for line in lines[1:])


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
