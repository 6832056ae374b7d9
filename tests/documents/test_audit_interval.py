"""What a sample of pages says of a table holds for that table."""

from __future__ import annotations

import math
from random import Random

import pytest

from batchocr.documents.audit.interval import share_interval

NUM_TABLES = 200


def simulated_table(random: Random, num_pages: int, affected: float, *, heavy: bool) -> list[tuple[int, int]]:
    """Pages as letters concerned and letters in all. heavy: a page may lose all of it, most lose little."""
    pages = []
    for _ in range(num_pages):
        characters = 200 + int(3800 * random.random())
        share = random.random() ** 3 if heavy else random.random() / 10
        pages.append((int(characters * share) if random.random() < affected else 0, characters))
    return pages


@pytest.mark.parametrize(
    ("num_pages", "num_drawn", "affected", "heavy"),
    [
        (500, 100, 0.02, True),
        pytest.param(500, 150, 0.1, True, marks=pytest.mark.long),
        (300, 60, 0.5, False),
        (400, 40, 0.2, False),
    ],
)
def test_the_interval_holds_the_truth_in_at_least_92_percent_of_tables(
    num_pages: int, num_drawn: int, affected: float, heavy: bool
) -> None:
    held, pages_held = 0, 0
    for seed in range(NUM_TABLES):
        random = Random(seed)
        table = simulated_table(random, num_pages, affected, heavy=heavy)
        true = sum(lost for lost, _ in table) / sum(characters for _, characters in table)
        drawn = random.sample(table, num_drawn)
        interval = share_interval(drawn, num_pages)
        held += interval.low <= true <= interval.high
        of_pages = share_interval([(lost > 0, 1) for lost, _ in drawn], num_pages)
        pages_held += of_pages.low <= sum(lost > 0 for lost, _ in table) / num_pages <= of_pages.high
    assert held >= 0.92 * NUM_TABLES
    assert pages_held >= 0.92 * NUM_TABLES


def test_a_whole_table_leaves_no_doubt() -> None:
    interval = share_interval([(lost, 100) for lost in (0, 10, 0, 30)], 4)
    assert (interval.estimate, interval.low, interval.high) == (0.1, 0.1, 0.1)
    assert share_interval([(1, 1), (1, 1), (0, 1), (0, 1)], 4).high == 0.5


def test_a_sample_without_findings_does_not_prove_that_there_are_none() -> None:
    interval = share_interval([(0, 1000)] * 200, 1_000_000)
    assert interval.low == 0.0
    assert 0.01 < interval.high < 0.02  # 3.7 pages of 200


def test_the_share_of_pages_is_hardly_wider_than_that_of_clopper_and_pearson() -> None:
    interval = share_interval([(1, 1)] * 2 + [(0, 1)] * 98, 10**9)
    assert 0.0022 < interval.low <= 0.0024
    assert 0.0704 <= interval.high < 0.0725


def test_of_pages_that_were_not_looked_at_nothing_is_known() -> None:
    interval = share_interval([], 10)
    assert math.isnan(interval.estimate)
    assert (interval.low, interval.high) == (0.0, 1.0)
