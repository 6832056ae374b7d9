"""How long a run would take: by some of its pages that were read, or by an earlier run's report."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import stdev
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from batchocr.errors import UsageError
from batchocr.job.survey.sample import Sample
from batchocr.processes.counts import DEVICE_STAGES
from batchocr.tables.atomic import require_ordinary

Basis = Literal["pages read", "earlier run"]

_MOST_FROM_CACHE = 0.05
"""The largest share of a run's questions that may be answered from the cache, where its rate is to stand for other
pages."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """How long a whole run would take."""

    device: str
    basis: Basis
    seconds: float
    """How long the whole run takes, start_up_seconds among it."""
    pages_per_second: float
    start_up_seconds: float
    seconds_low: float | None = None
    """The lower end of the range to seconds_high in which the time lies with a confidence of 95 %, as far as that
    depends on which pages were read; None if that is not known."""
    seconds_high: float | None = None


def estimate_by(sample: Sample, pages: int) -> Estimate | None:
    """The time at the rate of the sample, which has two pages at least, or all. pages: all, those of the sample among
    them. None if none of these could be read."""
    report, num = sample.report, sample.num_pages
    if not report.pages_read:
        return None
    device, start_s = str(report.settings["device"]), report.start_up_seconds
    work_s = report.work_seconds * pages / num
    margin_s = 0.0
    if num < pages:
        quantile = 2 + 3 / (num - 1)  # of Student's t at 97.5 %, within 6 % from four pages on
        drawn_from_few = math.sqrt(1 - num / pages)
        margin_s = quantile * drawn_from_few * pages * stdev(_seconds_of_pages(sample)) / math.sqrt(num)
    return Estimate(
        device,
        "pages read",
        start_s + work_s,
        pages / work_s,
        start_s,
        seconds_low=start_s + max(report.work_seconds, work_s - margin_s),
        seconds_high=start_s + work_s + margin_s,
    )


def _seconds_of_pages(sample: Sample) -> Sequence[float]:
    """What each page had of the time of the whole sample: its share of the output tokens, of the time that was spent on
    decoding, and of the image tokens, of the rest. Pages are read together, so that no clock tells."""
    stages = sample.report.stages
    busy_s = sum(stages[stage].busy_seconds for stage in DEVICE_STAGES)
    decoding = stages["decode"].busy_seconds / busy_s if busy_s else 0.0
    images, texts = (max(1, sum(counts)) for counts in zip(*sample.tokens, strict=True))
    work_s = sample.report.work_seconds
    return [work_s * (decoding * text / texts + (1 - decoding) * image / images) for image, text in sample.tokens]


def estimate_like(report: Path, pages: float) -> Estimate:
    """The time at the rate of an earlier run. report: what it wrote at its end. Raises UsageError."""
    try:
        require_ordinary(report)
        run = _REPORT.validate_python(json.loads(report.read_bytes()))
    except (OSError, ValueError, RecursionError) as error:  # those from json, and ValidationError
        reason = getattr(error, "strerror", None) or "it is not the report of a run that read pages"
        raise UsageError(f"--like {report}: {reason}") from error
    questions, from_cache = run.saved.get("questions", 0), run.saved.get("from_cache", 0)
    if from_cache > _MOST_FROM_CACHE * questions:
        raise UsageError(
            f"--like {report}: {from_cache:,} of {questions:,} questions were answered from a cache, so that its rate "
            "says little of pages that are new; give the report of a run without --cache"
        )
    device = str(run.settings.get("device", "its device"))
    rate, start_s = run.pages_read / run.work_seconds, run.start_up_seconds
    return Estimate(device, "earlier run", start_s + pages / rate, rate, start_s)


@dataclass(frozen=True, slots=True)
class _Report:
    """The fields of a Report that count here."""

    pages_read: Annotated[int, Field(gt=0)]
    work_seconds: Annotated[float, Field(gt=0)]
    start_up_seconds: float
    settings: dict[str, Any]
    saved: dict[str, int] = field(default_factory=dict)


_REPORT = TypeAdapter(_Report)
