"""How large batches are, once one has not fitted into the memory."""

from __future__ import annotations

from itertools import pairwise

from batchocr.engine.batch_limit import BatchLimit
from batchocr.processes.meter import Meter


def sizes(limit: BatchLimit, room: list[int]) -> list[int]:
    """Those of full batches, one after the other, in this much room for each."""
    tried, meter = [], Meter()
    for most in room:
        tried.append(limit.size)
        if limit.size > most:
            limit.halve(limit.size, meter)
        else:
            limit.count_good()
    return tried


def test_a_size_that_did_not_fit_once_is_tried_again_after_twenty_good_batches() -> None:
    tried = sizes(BatchLimit("vit", 100, "patches"), [99] + 40 * [1000])
    assert tried == [100] + 20 * [50] + 20 * [100]


def test_what_was_halved_several_times_comes_back_in_as_many_steps_and_never_to_more_than_it_was() -> None:
    tried = sizes(BatchLimit("prefill", 101, "tokens"), 3 * [12] + 500 * [1000])
    assert sorted(set(tried)) == [12, 24, 25, 48, 50, 96, 101]
    assert tried[3:] == sorted(tried[3:])


def test_a_size_that_never_fits_is_tried_ever_less_often() -> None:
    tried = sizes(BatchLimit("layout", 8, "pages"), 1300 * [4])
    failed = [number for number, size in enumerate(tried) if size == 8]
    assert [later - earlier - 1 for earlier, later in pairwise(failed)] == [20, 40, 80, 160, 320, 640]


def test_a_moment_without_memory_long_after_the_last_is_like_the_first() -> None:
    limit = BatchLimit("vit", 100, "patches")
    moment = [99] + 100 * [1000]
    assert sizes(limit, moment) == sizes(limit, moment)
