"""How the measures of quality are distributed over the pages of a table."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from batchocr.data import PageResult
from batchocr.job.stats.ledger import Ledger
from batchocr.job.stats.quality import Distribution, Quality
from batchocr.job.stats.report import Report, make_report
from batchocr.job.stats.report_table import format_table

OK = PageResult("a.pdf", 0, "ok")


def quality_of(ink: list[float | None], agreement: list[float | None] | None = None) -> Quality:
    quality = Quality()
    for outside, agreed in zip(ink, agreement or [None] * len(ink), strict=True):
        quality.add(replace(OK, ink_outside=outside, text_layer_agreement=agreed))
    return quality


def report_of(*rows: PageResult) -> Report:
    ledger = Ledger(found=len(rows), start_up_s=1.0, work_s=1.0)
    for row in rows:
        ledger.add_result(row)
    return make_report(ledger, [])


@pytest.mark.parametrize("num_pages", [1, 9, 10, 100, 1000, 12_345])
def test_so_bad_or_worse_is_that_share_of_the_pages(num_pages: int) -> None:
    dice = random.Random(num_pages)
    values = [dice.randrange(1001) / 1000 for _ in range(num_pages)]
    ink = quality_of(list(values)).of_ink_outside()
    agreement = quality_of([None] * num_pages, list(values)).of_agreement()
    for share, worst in ((0.5, ink.median), (0.1, ink.worst_tenth), (0.01, ink.worst_hundredth)):
        assert worst is not None
        assert sum(value > worst for value in values) < num_pages * share <= sum(value >= worst for value in values)
    for share, worst in ((0.5, agreement.median), (0.1, agreement.worst_tenth), (0.01, agreement.worst_hundredth)):
        assert worst is not None
        assert sum(value < worst for value in values) < num_pages * share <= sum(value <= worst for value in values)
    assert ink.num_beyond == sum(value > ink.bound for value in values)
    assert agreement.num_beyond == sum(value < agreement.bound for value in values)


def test_pages_without_a_measure_do_not_count() -> None:
    assert quality_of([None, 0.25, None]).of_ink_outside().pages == 1
    assert quality_of([0.5]).of_agreement() == Distribution(0, None, None, None, 0.8, 0)


def test_the_report_has_both_distributions_and_a_line_about_them() -> None:
    rows = [replace(OK, page_index=index, ink_outside=0.01, text_layer_agreement=0.98) for index in range(99)]
    report = report_of(*rows, replace(OK, page_index=99, ink_outside=1.0, text_layer_agreement=0.1))
    assert report.ink_outside == Distribution(100, 0.01, 0.01, 1.0, 0.2, 1)
    assert report.text_layer_agreement == Distribution(100, 0.98, 0.98, 0.1, 0.8, 1)
    said = " ".join(format_table(report).split())
    worst = "worst_tenth 0.01, worst_hundredth 1.00, bound 0.20, num_beyond 1"
    assert f"ink outside pages 100, median 0.01, {worst}" in said
    worst = "worst_tenth 0.98, worst_hundredth 0.10, bound 0.80, num_beyond 1"
    assert f"text layer pages 100, median 0.98, {worst}" in said


def test_nothing_is_said_of_a_measure_that_no_page_has() -> None:
    assert "ink outside" not in format_table(report_of(OK))
    assert "text layer" not in format_table(report_of(replace(OK, ink_outside=0.0)))
