"""How a row names its blocks."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from batchocr.pages.protocol.shortfalls import block_shortfalls, name_blocks
from tests.support.page_reading import completion


@pytest.mark.parametrize(
    ("places", "said"),
    [
        ([3], "block 3"),
        ([7, 3], "blocks 3 and 7"),
        ([3, 7, 12], "blocks 3, 7 and 12"),
        ([5, 5], "block 5"),
        (list(range(10)), "blocks 0, 1, 2, 3, 4, 5, 6, 7, 8 and 9"),
        (list(range(400)), "blocks 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 390 more"),
        ([None], "1 block that the row leaves out"),
        ([None, None], "2 blocks that the row leaves out"),
        ([4, 9, None], "blocks 4 and 9 (and 1 that the row leaves out)"),
    ],
)
def test_blocks_are_named_by_their_numbers_and_long_lists_are_short(places: Sequence[int | None], said: str) -> None:
    assert name_blocks(places) == said


def test_the_reason_of_the_first_refusal_stands_for_those_of_the_others() -> None:
    refused = [completion("", error=f"the engine failed on it: {number}") for number in (1, 1, 2)]
    alike, unlike = block_shortfalls(refused[:2], [0, 1], [], []), block_shortfalls(refused, [0, 1, 2], [], [])
    assert alike == ["blocks 0 and 1 could not be read: the engine failed on it: 1"]
    assert unlike == ["blocks 0, 1 and 2 could not be read: the engine failed on it: 1, and others for other reasons"]
