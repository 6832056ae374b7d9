"""`batchocr inspect`: what is in an input and, by reading some of it, how long reading it would take."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections import Counter
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

from batchocr.cli import console, options
from batchocr.cli.console import configure_logging, counting_bar, print_out, printable, quieten_libraries
from batchocr.cli.signals import clear_up_on_signals
from batchocr.config import RUN, Config, Option, make_config
from batchocr.data import ErrorKind, counted
from batchocr.job.progress import ProgressLog
from batchocr.machine import usable_cores
from batchocr.pages.input.folders import describe_skipped

if TYPE_CHECKING:
    from batchocr.job.survey.estimate import Estimate
    from batchocr.job.survey.sample import Sample
    from batchocr.job.survey.survey import Survey
    from batchocr.pages.input.sources import Found

_SIZES_SHOWN = 3
_Counted = TypeVar("_Counted", str, ErrorKind, tuple[int, int])
_PROBLEMS_SHOWN = 10


@options.takes_options(
    *options.ALL
    - {"limit", "resume", "overwrite", "prune", "retry_failed", "stop_after", "report", "cache", "work_dir"}
    - {"max_page_error_rate", "max_degraded_rate", "max_doubtful_rate", "rows_per_part"},
    page_timeout=Option(RUN, "Time limit for hashing and opening a document, and for each page.", "SECONDS"),
)
@clear_up_on_signals()
def inspect(
    inputs: options.Inputs,
    flags: options.Flags,
    read: Annotated[
        int | None,
        options.flag(
            "--read",
            metavar="N",
            least=2,
            help="Read N pages and say how long all would take: they are drawn at random from all of the input.",
        ),
    ] = None,
    like: Annotated[
        Path | None,
        options.flag("--like", metavar="REPORT", help="Calculate at the rate of an earlier run: its OUT.report.json."),
    ] = None,
    recipe: options.Recipe = None,
    as_json: options.AsJson = False,
    quiet: options.QuietCheck = False,
) -> None:
    """Look at the INPUTs before a long run: formats and what will be skipped, pages, documents that are encrypted,
    damaged or identical, page sizes, text layers; and with --read or --like, how long reading would take. Only --read
    loads the model, and the options of the model are for it. Of long documents, a sample of pages is looked at.

    Examples:
    batchocr inspect ./scans
    batchocr inspect ./scans --read 50
    batchocr inspect ./scans --like results.parquet.report.json
    """
    configure_logging("json" if as_json else "text", logging.WARNING if quiet else logging.INFO)
    options.refuse_both("--read", read is not None, "--like", like is not None)
    quieten_libraries(downloads=quiet or not sys.stderr.isatty())
    from batchocr.job.session import Session
    from batchocr.job.survey.estimate import estimate_by, estimate_like
    from batchocr.job.survey.sample import draw, read_pages
    from batchocr.tables.page_list import documents_asked_for

    config = make_config(flags, recipe)
    if like is not None:
        estimate_like(like, 0)  # to refuse it before all the work
    found = documents_asked_for(inputs, config)
    sample, estimate = None, None
    if read is None:
        survey = _look(found, config)
        if like is not None and survey.readable_pages:
            estimate = estimate_like(like, survey.readable_pages)
    else:
        started_s = time.perf_counter()
        with closing(Session(config)) as session:  # first, so that a wrong model is refused before all the work
            opening_s = time.perf_counter() - started_s
            survey = _look(found, config)
            if survey.readable_pages:
                progress = ProgressLog() if quiet else console.progress_on_stderr()
                documents = draw(sorted(survey.wanted, key=lambda wanted: wanted[0].source), read)
                sample = read_pages(session, documents, progress, opening_s=opening_s)
                estimate = estimate_by(sample, survey.distinct_pages)
    remark = _remark(survey, sample, estimate)
    said = _as_json if as_json else _as_text
    if as_json or not quiet:
        print_out(said(survey, sample, estimate, remark))


def _look(found: Found, config: Config) -> Survey:
    from batchocr.job.survey.look import look_at
    from batchocr.job.survey.survey import Survey

    survey = Survey(found.skipped)
    documents = look_at(found.documents, config, workers=config.workers or usable_cores())
    total = len(found.documents)
    for seen in counting_bar(documents, total=total, what="inspecting", unit="files"):
        survey.take(seen)
    return survey


def _remark(survey: Survey, sample: Sample | None, estimate: Estimate | None) -> str:
    """Why no time is estimated; empty if a time is estimated."""
    if estimate is not None:
        return ""
    if not survey.readable_pages:
        return "there is no page that could be read"
    if sample is None:
        return "--read N reads N pages to tell, --like REPORT takes the rate of an earlier run"
    return "none of the pages that were drawn could be read"


def _as_text(survey: Survey, sample: Sample | None, estimate: Estimate | None, remark: str) -> str:
    parts = [f"{count:,} {name}" for name, count in _most_first(survey.formats)]
    parts += [f"{survey.same_documents:,} identical to others"] if survey.same_documents else []
    parts += [f"{count:,} {kind}" for kind, count in _most_first(survey.problems)]
    lines = [f"files       {survey.documents:,}: {', '.join(parts)}"]
    if survey.skipped:
        lines += [f"            {describe_skipped(survey.skipped)}"]
    identical = f", {survey.same_pages:,} of them in identical files" if survey.same_pages else ""
    lines += [f"pages       {survey.pages:,}{identical}"]
    if survey.unreadable:
        lines += [f"            {survey.unreadable:,} of {survey.measured:,} that were looked at cannot be read"]
    if survey.represented:
        lines += _measured(survey)
    if sample is not None:
        settings, failed = sample.report.settings, f", {sample.num_failed:,} failed" if sample.num_failed else ""
        made_with = f"{settings['model']} ({sample.family}) in {settings['dtype']} on {settings['device']}"
        made_with += f", layouts with {settings['layout']}" if "layout" in settings else ""
        lines += [f"read        {sample.num_pages:,} of {survey.distinct_pages:,} pages{failed}: with {made_with}"]
        lines += [f"bottleneck  {sample.report.bottleneck}"]
    why = f"{'not known' if survey.readable_pages else 'none'}: {remark}"
    lines += [f"time        {_time(estimate) if estimate else why}"]
    shown = survey.named[:_PROBLEMS_SHOWN]
    lines += [""] if shown else []
    lines += [f"{kind:11} {source}: {message}" for source, kind, message in shown]
    if (rest := survey.problems.total() - len(shown)) > 0:
        lines += [f"and {rest:,} more: --json has them"]
    return "\n".join(map(printable, lines))


def _measured(survey: Survey) -> list[str]:
    """Two lines on sizes and text layers of pages. If only a sample of the pages was looked at, they say so."""
    distinct = survey.distinct_pages
    sample = "" if survey.measured == distinct else f" (from {survey.measured:,} of {distinct:,} pages)"
    sizes = [
        f"{width} × {height} px ({count:,})" for (width, height), count in _most_first(survey.sizes)[:_SIZES_SHOWN]
    ]
    others = len(survey.sizes) - len(sizes)
    sizes += [counted(others, "other size")] if others else []
    return [
        f"page size   {', '.join(sizes)}{sample}",
        f"text layer  on {survey.text_share:.0%} of the pages{sample}",
    ]


def _most_first(counts: Counter[_Counted]) -> list[tuple[_Counted, int]]:
    """What was counted and how often, in an order that does not depend on which document was looked at first."""
    return sorted(counts.items(), key=lambda kind: (-kind[1], kind[0]))


def _time(estimate: Estimate) -> str:
    about, rate = f"about {_duration(estimate.seconds)}", f"{estimate.pages_per_second:.2g} pages/s"
    if estimate.basis == "earlier run":
        return f"{about}, at the {rate} of that run on {estimate.device}"
    low, high = (_duration(seconds or 0.0) for seconds in (estimate.seconds_low, estimate.seconds_high))
    between = f", between {low} and {high}" if low != high else ""
    return f"{about}{between}: {_duration(estimate.start_up_seconds)} to start, then {rate}"


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    if minutes < 100:
        return f"{minutes:.0f} min"
    return f"{minutes / 60:.1f} h" if minutes < 6000 else f"{minutes / 1440:,.1f} days"


def _as_json(survey: Survey, sample: Sample | None, estimate: Estimate | None, remark: str) -> str:
    report = sample.report if sample else None
    return json.dumps(
        {
            "documents": survey.documents,
            "formats": dict(_most_first(survey.formats)),
            "skipped_files": dict(survey.skipped),
            "problems": dict(_most_first(survey.problems)),
            "problem_documents": [
                {"source": source, "error_kind": kind, "message": message} for source, kind, message in survey.named
            ],
            "identical_documents": survey.same_documents,
            "identical_pages": survey.same_pages,
            "pages": survey.pages,
            "pages_measured": survey.measured,
            "pages_unreadable": survey.unreadable,
            "page_sizes": [
                {"width": width, "height": height, "pages": count}
                for (width, height), count in _most_first(survey.sizes)
            ],
            "text_layer_share": survey.text_share,
            "pages_read": sample.num_pages if sample else 0,
            "pages_failed": sample.num_failed if sample else 0,
            "per_page": asdict(report.per_page) if report else None,
            "bottleneck": report.bottleneck if report else "",
            "settings": report.settings if report else None,
            "estimate": asdict(estimate) if estimate else None,
            "remark": remark,
        },
        indent=2,
    )
