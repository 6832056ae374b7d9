"""`--pages 1-10,15,r3-r1`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchocr.errors import UsageError
from batchocr.option_values import PageSpec, parse_page_spec


@pytest.mark.parametrize(
    ("spec", "page_count", "indices"),
    [
        ("1", 5, [0]),
        ("1-3", 5, [0, 1, 2]),
        ("r1", 5, [4]),
        ("r3-r1", 5, [2, 3, 4]),
        ("2-r2", 5, [1, 2, 3]),
        ("r2-5", 5, [3, 4]),
        ("1-10,15,r3-r1", 20, [*range(10), 14, 17, 18, 19]),
        (" 1 , 3-4 ", 5, [0, 2, 3]),
    ],
)
def test_a_spec_names_pages_from_one_and_from_the_last(spec: str, page_count: int, indices: list[int]) -> None:
    assert [*parse_page_spec(spec).pages(page_count)] == indices


@pytest.mark.parametrize("part", ["0", "-3", "3-", "a", "1-2-3", "r0", "R1", "1.5", "", "1–3", "٣"])
def test_the_part_that_cannot_be_read_is_quoted(part: str) -> None:
    with pytest.raises(UsageError, match="no page or range of pages") as caught:
        parse_page_spec(f"1,{part},2")
    assert repr(part) in str(caught.value)


@pytest.mark.parametrize("part", ["10-1", "r1-r3"])
def test_a_range_that_runs_backwards_is_refused(part: str) -> None:
    with pytest.raises(UsageError, match=f"'{part}' runs backwards"):
        parse_page_spec(part)


_ENDS = st.integers(-30, 30).filter(bool)


@given(ranges=st.lists(st.tuples(_ENDS, _ENDS), max_size=6), page_count=st.integers(0, 25))
def test_a_page_is_chosen_exactly_if_a_range_holds_it(ranges: list[tuple[int, int]], page_count: int) -> None:
    def counted_from_one(end: int) -> int:
        return end if end > 0 else page_count + 1 + end

    expected = [
        number - 1
        for number in range(1, page_count + 1)
        if any(counted_from_one(first) <= number <= counted_from_one(last) for first, last in ranges)
    ]
    assert [*PageSpec(tuple(ranges)).pages(page_count)] == expected
