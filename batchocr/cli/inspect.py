"""`batchocr inspect`: what is in an input, and how long reading it would take."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

from tqdm import tqdm

from batchocr.cli.console import print_out, printable
from batchocr.config import Config
from batchocr.data import ErrorKind
from batchocr.errors import UsageError
from batchocr.input.folders import describe_skipped
from batchocr.input.sources import find_documents
from batchocr.machine import usable_cores
from batchocr.survey.devices import DEVICE_KINDS, GPUS, DeviceKind, device_here, measured_cpu_rate
from batchocr.survey.estimate import Estimate, estimate_like, estimate_on_cpu, forecast_on_gpu
from batchocr.survey.look import Look
from batchocr.survey.model_shape import architecture_at_hand
from batchocr.survey.page_work import MINERU
from batchocr.survey.survey import Survey

_NOTHING_TO_READ = "there is no page that could be read"
_SIZES_SHOWN = 3
_Counted = TypeVar("_Counted", str, ErrorKind, tuple[int, int])
_PROBLEMS_SHOWN = 10


def inspect_inputs(
    inputs: Sequence[str], config: Config, *, device_kind: str, like: Path | None, as_json: bool
) -> None:
    """Look at the documents, and print what there is and how long reading would take. device_kind: of the device;
    `here` for the one that a run would take. like: the report of an earlier run, at whose rate to calculate.
    Raises UsageError, NoInputError, ModelError, OutputError, BatchOcrError."""
    if device_kind not in DEVICE_KINDS:
        raise UsageError(f"--device-kind {device_kind!r}: one of {', '.join(DEVICE_KINDS)}")
    if like is not None:
        estimate_like(like, 0)  # to refuse it before all the work
    model = architecture_at_hand(config.model, config.revision)
    found = find_documents(
        inputs, stdin=sys.stdin, null=config.null, follow_symlinks=config.follow_symlinks, shard=config.shard
    )
    survey = Survey(model or MINERU, found.skipped)
    with Look(found.documents, config, workers=config.workers or usable_cores()) as look:
        total = len(found.documents)
        for seen in tqdm(look.documents(), total=total, desc="inspecting", unit=" files", disable=None, leave=False):
            survey.take(seen)
    if survey.readable_pages:
        estimate = _estimate(survey, device_kind, like, config.workers or max(1, usable_cores() // 2))
        remark = "" if model else f"{config.model} is not on this machine: MinerU2.5's dimensions are assumed"
    else:
        estimate, remark = None, _NOTHING_TO_READ
    print_out(_as_json(survey, estimate, remark) if as_json else "\n".join(_as_text(survey, estimate, remark)))


def _estimate(survey: Survey, device_kind: DeviceKind, like: Path | None, workers: int) -> Estimate | None:
    """None for a GPU of which no figures are known."""
    pages = survey.readable_pages
    if like is not None:
        return estimate_like(like, pages)
    kind = device_here() if device_kind == "here" else device_kind
    work = survey.per_page.times(pages)
    if kind == "cpu":
        return estimate_on_cpu(work, pages, survey.model, rate=measured_cpu_rate(), workers=workers)
    return None if kind is None else forecast_on_gpu(work, pages, survey.model, GPUS[kind])


def _as_text(survey: Survey, estimate: Estimate | None, remark: str) -> list[str]:
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
    if survey.readable_pages:
        lines += [f"time        {_time(estimate)}"]
        lines += [f"            {remark}"] if remark else []
    else:
        lines += [f"time        none: {remark}"]
    shown = survey.named[:_PROBLEMS_SHOWN]
    lines += [""] * bool(shown) + [f"{kind:11} {source}: {message}" for source, kind, message in shown]
    if (rest := survey.problems.total() - len(shown)) > 0:
        lines += [f"and {rest:,} more: --json has them"]
    return [printable(line) for line in lines]


def _measured(survey: Survey) -> list[str]:
    """What is known of all pages or of a sample, which it says."""
    distinct = survey.distinct_pages
    sample = "" if survey.measured == distinct else f" (from {survey.measured:,} of {distinct:,} pages)"
    sizes = [
        f"{width} × {height} px ({count:,})" for (width, height), count in _most_first(survey.sizes)[:_SIZES_SHOWN]
    ]
    others = len(survey.sizes) - len(sizes)
    sizes += [f"{others:,} other sizes"] if others else []
    work = survey.per_page
    return [
        f"page size   {', '.join(sizes)}{sample}",
        f"text layer  on {survey.text_share:.0%} of the pages{sample}",
        f"work        about {work.patches:,.0f} patches and {work.output_tokens:,.0f} output tokens a page{sample}",
    ]


def _most_first(counts: Counter[_Counted]) -> list[tuple[_Counted, int]]:
    """What was counted and how often, in an order that does not depend on which document was looked at first."""
    return sorted(counts.items(), key=lambda counted: (-counted[1], counted[0]))


def _time(estimate: Estimate | None) -> str:
    if estimate is None:
        return "not known for the GPU here: name one with --device-kind, or an earlier run's report with --like"
    rate = f"{estimate.pages_per_second:.2g} pages/s"
    match estimate.basis:
        case "earlier run":
            return f"about {_duration(estimate.seconds)}, at the {rate} of that run on {estimate.device}"
        case "forecast":
            return f"about {_duration(estimate.seconds)} on {estimate.device}, {rate}: a forecast, not measured on one"
        case _:
            return f"about {_duration(estimate.seconds)} on {estimate.device}, {rate}: calculated from its rate now"


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    if minutes < 100:
        return f"{minutes:.0f} min"
    return f"{minutes / 60:.1f} h" if minutes < 6000 else f"{minutes / 1440:,.1f} days"


def _as_json(survey: Survey, estimate: Estimate | None, remark: str) -> str:
    work = survey.per_page
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
            "per_page": {"patches": work.patches, "output_tokens": work.output_tokens},
            "estimate": asdict(estimate) if estimate else None,
            "remark": remark,
        },
        indent=2,
    )
