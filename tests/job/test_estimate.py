"""How long a run would take: at the rate of pages that were read, or of an earlier run; and what is added up."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from batchocr.data import Document, Failure, PageSeen
from batchocr.errors import UsageError
from batchocr.job.stats.ledger import Ledger
from batchocr.job.stats.report import make_report
from batchocr.job.survey.estimate import Estimate, estimate_by, estimate_like
from batchocr.job.survey.look import DocumentSeen
from batchocr.job.survey.sample import Sample
from batchocr.job.survey.survey import Survey
from batchocr.processes.engines import EngineUse
from batchocr.processes.meter import Meter


def sample(work_s: float, tokens: Sequence[tuple[int, int]], *, decoding: float = 0.5) -> Sample:
    """Pages that took so long together, so much of it in decoding, after a start of 5 s; one without tokens failed."""
    meter = Meter()
    meter.add("vit", (1 - decoding) * work_s)
    meter.add("decode", decoding * work_s)
    ledger = Ledger(found=len(tokens), pages_read=sum(page != (0, 0) for page in tokens), start_up_s=5.0, work_s=work_s)
    report = make_report(ledger, [EngineUse("cpu", counts=meter.counts())])
    return Sample(tokens, replace(report, settings={"device": "cpu"}), "a family")


def range_of(estimate: Estimate | None) -> tuple[float, float]:
    assert estimate is not None and estimate.seconds_low is not None and estimate.seconds_high is not None
    return estimate.seconds_low, estimate.seconds_high


def test_all_pages_take_as_long_as_those_that_were_read_and_the_start_counts_once() -> None:
    estimate = estimate_by(sample(20.0, [(100, 50)] * 10), 1000)
    assert estimate == Estimate("cpu", "pages read", 2005.0, 0.5, 5.0, seconds_low=2005.0, seconds_high=2005.0)


@pytest.mark.parametrize("decoding", [0.0, 0.5, 1.0])
def test_pages_that_differ_in_what_takes_the_time_make_a_range(decoding: float) -> None:
    images = estimate_by(sample(20.0, [(50, 50), (150, 50)] * 5, decoding=decoding), 1000)
    texts = estimate_by(sample(20.0, [(100, 25), (100, 75)] * 5, decoding=decoding), 1000)
    assert images is not None and texts is not None and images.seconds == texts.seconds == 2005.0
    low, high = range_of(images)
    assert high - 2005 == pytest.approx(2005 - low)
    assert high - low == pytest.approx((1 - decoding) * 1547.8, rel=0.01, abs=0.01)
    low, high = range_of(texts)
    assert high - low == pytest.approx(decoding * 1547.8, rel=0.01, abs=0.01)


def test_the_more_of_all_pages_were_read_the_narrower_the_range() -> None:
    tokens = [(50, 50), (150, 50)]
    widths = []
    for number, pages in ((4, 40), (20, 40), (40, 40)):
        low, high = range_of(estimate_by(sample(2.0 * number, tokens * (number // 2)), pages))
        widths.append(high - low)
    assert widths[0] > 2 * widths[1] > 0 == widths[2]


@pytest.mark.parametrize(("number", "lengths"), [(5, (100, 150, 200, 250)), (20, (100, 150, 200, 200, 300, 400, 1000))])
def test_the_range_holds_the_time_of_the_whole_about_nineteen_times_out_of_twenty(
    number: int, lengths: tuple[int, ...]
) -> None:
    """From five pages on where they are alike, from twenty on where some take ten times as long."""
    random, held, times = Random(1), 0, 400
    pages = [random.choice(lengths) for _ in range(500)]
    for _ in range(times):
        drawn = [(tokens, tokens) for tokens in random.sample(pages, number)]
        low, high = range_of(estimate_by(sample(sum(tokens for tokens, _ in drawn) / 100, drawn), len(pages)))
        held += low <= 5.0 + sum(pages) / 100 <= high
    assert 0.9 < held / times < 0.99


def test_the_whole_takes_no_less_than_what_was_read_of_it() -> None:
    low, _ = range_of(estimate_by(sample(20.0, [(10, 10), (5000, 5000)]), 20))
    assert low == 25.0


def test_pages_that_fail_are_part_of_the_rate_and_of_the_range() -> None:
    estimate = estimate_by(sample(10.0, [(100, 50)] * 5 + [(0, 0)] * 5), 1000)
    assert estimate is not None and (estimate.seconds, estimate.pages_per_second) == (1005.0, 1.0)
    low, high = range_of(estimate)
    assert low < 1005 < high


def test_of_pages_that_all_failed_there_is_no_time() -> None:
    assert estimate_by(sample(1.0, [(0, 0)] * 4), 8) is None


def test_the_only_page_of_an_input_has_no_range() -> None:
    assert range_of(estimate_by(sample(2.0, [(100, 50)]), 1)) == (7.0, 7.0)


def test_the_time_at_the_rate_of_an_earlier_run(tmp_path: Path) -> None:
    report = {"pages_read": 20, "work_seconds": 40.0, "start_up_seconds": 5.0, "settings": {"device": "cpu"}, "x": 1}
    (tmp_path / "report.json").write_text(json.dumps(report))
    estimate = estimate_like(tmp_path / "report.json", 100)
    assert (estimate.seconds, estimate.pages_per_second, estimate.basis) == (205.0, 0.5, "earlier run")


@pytest.mark.parametrize(("from_cache", "refused"), [(0, False), (50, False), (51, True), (1000, True)])
def test_the_rate_of_a_run_that_found_its_answers_in_a_cache_is_not_taken(
    tmp_path: Path, from_cache: int, *, refused: bool
) -> None:
    report = {"pages_read": 20, "work_seconds": 2.0, "start_up_seconds": 5.0, "settings": {}}
    report["saved"] = {"questions": 1000, "from_run": 400, "from_cache": from_cache, "documents": 0, "pages": 0}
    (tmp_path / "report.json").write_text(json.dumps(report))
    if refused:
        with pytest.raises(UsageError, match="of 1,000 questions were answered from a cache"):
            estimate_like(tmp_path / "report.json", 100)
    else:
        assert estimate_like(tmp_path / "report.json", 100).pages_per_second == 10.0


def test_a_report_that_is_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "report.json")
    with pytest.raises(UsageError, match=r"report\.json: it is not an ordinary file"):
        estimate_like(tmp_path / "report.json", 100)


@pytest.mark.parametrize(
    "text",
    [None, "", "[]", '{"pages_read": 0, "work_seconds": 1, "start_up_seconds": 0}', "\xff", "[" * 100_000, "9" * 5000],
)
def test_what_is_no_report_is_refused(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "report.json").write_text(text, encoding="latin-1")
    with pytest.raises(UsageError, match="report"):
        estimate_like(tmp_path / "report.json", 100)


def seen(source: str, **more: object) -> DocumentSeen:
    return DocumentSeen(Document(source, source), **more)  # type: ignore[arg-type]


def test_the_counts_add_up_and_a_sample_stands_for_its_document() -> None:
    survey = Survey({".docx": 2})
    scan, text = PageSeen(1700, 2200, 0), PageSeen(1700, 2200, 2000)
    survey.take(seen("long.pdf", page_count=300, wanted=range(300), format="PDF", pages=(text, text, None)))
    survey.take(seen("copy.pdf", page_count=300, wanted=range(300), same=True))
    survey.take(seen("scan.png", page_count=1, wanted=range(1), format="PNG", pages=(scan,)))
    survey.take(seen("locked.pdf", problem=Failure("encrypted", "asks for a password")))
    assert survey.documents == survey.formats.total() + survey.problems.total() + survey.same_documents == 4
    assert (survey.pages, survey.same_pages, survey.measured, survey.unreadable) == (601, 300, 4, 1)
    assert survey.text_share == pytest.approx(200 / 201)
    assert survey.readable_pages == 301 * 3 / 4, "a copy is not read"
    assert [(document.source, len(pages)) for document, pages in survey.wanted] == [("long.pdf", 300), ("scan.png", 1)]
    assert survey.distinct_pages == 301
