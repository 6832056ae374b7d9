"""The throughput report as text for a terminal or a log."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import timedelta
from itertools import chain

from batchocr.data import counted
from batchocr.job.stats.bottleneck import SIZE_OPTIONS
from batchocr.job.stats.report import DeviceReport, Report
from batchocr.pages.input.folders import describe_skipped
from batchocr.tables.page_quality import in_words

_WIDTH = 100
_LABEL_WIDTH = 12
_SLOW = 0.1
"""The pages/s below which two decimals would say too little."""


def format_table(report: Report, *, details: bool = True) -> str:
    """The report as lines of at most 100 columns: a heading, what was read, a line per stage, the bottleneck.
    details: with what only some readers look for, too."""
    said = chain(_summary(report), _details(report) if details else ())
    summary = [line for label, text in said for line in _labelled(label, text)]
    bottleneck = _labelled("bottleneck", report.bottleneck)
    return "\n".join([_heading(report), "", *summary, "", *_stages(report), "", *bottleneck])


def _heading(report: Report) -> str:
    start_up, work, table = map(_duration, (report.start_up_seconds, report.work_seconds, report.table_seconds))
    pages, rate = counted(report.pages_read, "page"), report.pages_per_second
    shown = f"{rate:,.2f}" if rate >= _SLOW or not rate else f"{rate:.2g}"
    ended = "" if report.complete else f"; {report.exit_reason} before the end, run again to continue"
    return f"{pages} read at {shown} pages/s (start-up {start_up}, work {work}, table {table}){ended}"


def _summary(report: Report) -> Iterator[tuple[str, str]]:
    """What came of the run and how fast it was, each with its label; an empty text if there is nothing."""
    yield "items", _items(report)
    yield "errors", ", ".join(f"{count:,} {kind}" for kind, count in report.errors.items())
    yield "traits", in_words(report.traits)
    if report.worse_pages:
        worse, documents = counted(report.worse_pages, "page"), counted(report.worse_documents, "document")
        yield "worse", f"{worse} of {documents} than in an earlier run, or gone"
    kept = {"of documents that are not there": report.rows_gone, "not asked for": report.rows_not_asked}
    yield "other rows", ", ".join(f"{count:,} {which}" for which, count in kept.items() if count)
    yield "input", describe_skipped(report.skipped_files)
    rates = {"image_tokens": report.image_tokens_per_second, "output_tokens": report.output_tokens_per_second}
    yield "per second", _figures(rates)
    if report.saved.questions or report.saved.pages:
        yield "saved", _figures(asdict(report.saved))
    yield "device", _device(report.device)
    if len(report.engines) > 1:
        yield from (("", f"{engine.device}: {_device(engine)}") for engine in report.engines)


def _details(report: Report) -> Iterator[tuple[str, str]]:
    """What the pages were like, what the run held, and its settings."""
    yield "per page", _figures(asdict(report.per_page))
    for name, measure in (("ink outside", report.ink_outside), ("text layer", report.text_layer_agreement)):
        if measure.pages:
            yield name, _figures(asdict(measure))
    yield "queue", _figures(asdict(report.embedding_queue))
    yield "host", _figures(asdict(report.host_memory) | {"workers": report.workers})
    yield "settings", _figures(report.settings)


def _items(report: Report) -> str:
    items, not_opened = report.items, report.documents_not_opened
    return (
        f"{items.found:,} {'=' if report.ledger_adds_up else '≠'} "
        f"{items.ok:,} ok + {items.degraded:,} degraded + {items.failed:,} failed"
        + (f" + {items.skipped:,} skipped" if items.skipped else "")
        + (f" + {items.not_reached:,} not reached" if items.not_reached else "")
        + f"; in {counted(report.documents, 'document')}"
        + (f", {not_opened:,} of them not opened yet" if not_opened else "")
        + (f"; {items.already_done:,} were done before this run" if items.already_done else "")
    )


def _device(device: DeviceReport) -> str:
    said = [f"idle {device.idle_share:.0%} of the time, {device.starved_share:.0%} waiting for pages"]
    for stage, count in device.batches_halved.items():
        said.append(f"out of memory in {count} {stage} batch{'es' * (count != 1)}: lower {SIZE_OPTIONS[stage]}")
    if device.preemptions:
        said.append(f"begun again for lack of KV cache: {device.preemptions:,}; lower --llm-batch-size")
    figures = {"peak_memory_bytes": device.peak_memory_bytes, "engines lost": device.lost}
    return ", ".join([*said, f"{device.model_flop_per_second / 1e9:,.0f} GFLOP/s", _figures(figures)])


def _figures(values: Mapping[str, object]) -> str:
    """The values under their names in the JSON; values that are not known are left out."""
    return ", ".join(f"{name} {_figure(name, value)}" for name, value in values.items() if value is not None)


def _figure(name: str, value: object) -> str:
    if name.endswith("_bytes") and isinstance(value, int):
        return f"{value / 1e9:,.2f} GB"
    if isinstance(value, float):
        return f"{value:,.2f}" if value < 100 else f"{value:,.0f}"
    return f"{value:,}" if type(value) is int else str(value)


def _stages(report: Report) -> Iterator[str]:
    """A line for each stage that had something to do."""
    columns = f"{'busy':>12} {'share':>7} {'batches':>10} {'fill':>6} {'items':>11} {'per busy s':>11}"
    yield f"{'stage':<{_LABEL_WIDTH}} {columns}"
    for name, stage in report.stages.items():
        fill = "–" if stage.mean_fill is None else f"{stage.mean_fill:.0%}"
        if stage.batches:
            yield (
                f"{name:<{_LABEL_WIDTH}} {_duration(stage.busy_seconds):>12} {stage.busy_share:>7.0%} "
                f"{stage.batches:>10,} {fill:>6} {stage.items:>11,} {stage.items_per_busy_second:>11,.1f}"
            )


def _labelled(label: str, text: str) -> list[str]:
    """The text in lines, the first with its label; no lines if it is empty."""
    margin = " " * (_LABEL_WIDTH + 1)
    beside = f"{label:<{_LABEL_WIDTH}} "
    return textwrap.wrap(text, _WIDTH, initial_indent=beside, subsequent_indent=margin, break_on_hyphens=False)


def _duration(seconds: float) -> str:
    return f"{seconds:.1f} s" if round(seconds, 1) < 60 else str(timedelta(seconds=round(seconds)))
