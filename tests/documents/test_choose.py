"""The pages that are worth a look come first, and no others are kept."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import pytest

from batchocr.data import PageResult
from batchocr.documents.review.choose import ChosenPage, Sort, choose
from batchocr.option_values import parse_page_spec
from batchocr.tables.page_quality import quality
from tests.support.review_pages import block, failed, row


def names(choice: ChosenPage) -> list[str]:
    return [chosen.row.source for chosen in choice.rows]


GOOD = row("good", 0, block("text", "a", confidence=0.99))
UNSURE = row("unsure", 0, block("text", "a", confidence=0.99), block("text", "b", confidence=0.7))
LOOPS = row("loops", 0, block("text", "a", confidence=0.98, finish_reason="repetition"))
UNCOVERED = row("uncovered", 0, block("text", "a", confidence=0.99), ink_outside=0.4)
DEGRADED = row("degraded", 0, block("text", "a", confidence=0.99), status="degraded", error_message="block 0 is cut")
BLANK = row("blank", 0)


def test_failed_comes_before_degraded_before_pages_with_ink_outside_loops_and_doubts() -> None:
    rows = [BLANK, GOOD, UNSURE, DEGRADED, failed("failed"), LOOPS, UNCOVERED]
    expected = ["failed", "degraded", "loops", "uncovered", "unsure", "good", "blank"]
    assert names(choose(rows, "worst", 10)) == expected


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        (BLANK, 1.0),
        (failed("a"), 0.0),
        (replace(GOOD, ink_outside=0.5), 0.495),
        (replace(GOOD, text_layer_agreement=0.5), 0.495),
        (LOOPS, 0.49),
        (row("no confidence", 0, block("image", None)), 1.0),
    ],
)
def test_quality_is_a_share_and_what_is_not_known_counts_as_good(page: PageResult, expected: float) -> None:
    assert quality(page) == pytest.approx(expected)


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf, -3.0, 7.0])
def test_numbers_of_somebody_elses_table_leave_the_quality_a_share(odd: float) -> None:
    page = row("odd", 0, block("text", "a", confidence=odd), ink_outside=odd, text_layer_agreement=odd)
    assert 0.0 <= quality(page) <= 1.0


def test_failed_rows_do_not_crowd_out_the_others() -> None:
    rows = [*(failed(f"failed {number}") for number in range(100)), *(replace(GOOD, source=f"{n}") for n in range(50))]
    assert names(choose(rows, "worst", 10)) == ["failed 0", "failed 1", *(f"{number}" for number in range(8))]
    assert names(choose(rows[:100], "worst", 10)) == [f"failed {number}" for number in range(10)]


def test_a_table_of_many_rows_is_read_once_and_forgotten() -> None:
    def rows() -> Iterator[PageResult]:
        for number in range(5_000):
            yield row(f"{number}.pdf", 0, block("text", "a", confidence=1 - (number % 97) / 100))

    choice = choose(rows(), "worst", 7)
    assert len(choice.rows) == 7
    assert choice.num_wanted == choice.statuses["ok"] == 5_000
    assert [chosen.position for chosen in choice.rows] == [96 + 97 * k for k in range(7)]


@pytest.mark.parametrize("sort", ["order", "random"])
def test_a_choice_is_the_same_each_time(sort: Sort) -> None:
    rows = [row(f"{number}.pdf", number % 3) for number in range(100)]
    first, again = choose(rows, sort, 10), choose(iter(rows), sort, 10)
    assert first == again
    assert (names(first) == names(choose(rows[:10], "order", 10))) == (sort == "order")


def test_pages_are_those_of_each_document() -> None:
    rows = [row(source, index, page_count=4) for source in ("a", "b") for index in range(4)]
    choice = choose([failed("c"), *rows], "order", 10, parse_page_spec("1,r1"))
    assert [(chosen.row.source, chosen.row.page_index) for chosen in choice.rows] == [
        ("a", 0),
        ("a", 3),
        ("b", 0),
        ("b", 3),
    ]
    assert (choice.num_wanted, sum(choice.statuses.values())) == (4, 9)
