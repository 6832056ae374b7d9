"""What is said of a page by its row."""

from __future__ import annotations

import pytest

from batchocr.data import Block, PageResult
from batchocr.tables.page_quality import in_words, quality, traits_of


def page(*angles: int | None, orientation: int | None = None, **columns: object) -> PageResult:
    blocks = tuple(Block("text", (0.0, 0.0, 1.0, 1.0), angle, "text", confidence=1.0) for angle in angles)
    return PageResult("a", 0, "ok", blocks=blocks, orientation=orientation, **columns)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("orientation", "angles", "is_turned"),
    [
        (None, [0, 0], False),
        (0, [0, 0], False),
        (0, [90, 90], False),
        (180, [0, 0], True),
        (180, [180, 0], False),
        (180, [180, 0, 0], True),
        (90, [270, 270], False),  # what stands with a page that has to be turned clockwise lies turned the other way
        (90, [90, 90], True),
        (90, [None], True),
        (270, [], True),
    ],
)
def test_a_page_is_turned_if_it_does_not_stand_upright_and_most_of_it_was_read_as_if_it_did(
    orientation: int | None, angles: list[int | None], is_turned: bool
) -> None:
    row = page(*angles, orientation=orientation)
    assert ("turned" in traits_of(row)) == is_turned
    assert ("doubtful" in traits_of(row)) == is_turned == (quality(row) < 0.5)


def test_figures_that_look_like_writing_make_a_page_doubtful_from_half_of_its_ink_on() -> None:
    assert traits_of(page(0, ink_in_figures=1.0, writing_in_figures=1.0)) == {
        *("doubtful", "only_figures", "writing_in_figures")
    }
    assert traits_of(page(0, ink_in_figures=1.0, writing_in_figures=0.0)) == {"only_figures"}
    assert traits_of(page(0, ink_in_figures=0.6, writing_in_figures=0.49)) == set()


def test_a_page_whose_blocks_were_rescued_is_not_doubtful_for_how_their_answers_ended() -> None:
    lost = Block("text", (0.0, 0.0, 1.0, 1.0), 0, "text", confidence=0.1, finish_reason="repetition")
    rescued = Block(**{name: getattr(lost, name) for name in Block.__slots__} | {"text_source": "page"})
    assert traits_of(PageResult("a", 0, "degraded", blocks=(lost,), rescued_blocks=0)) == {"doubtful"}
    assert traits_of(PageResult("a", 0, "ok", blocks=(rescued,), rescued_blocks=1)) == {"rescued"}


@pytest.mark.parametrize("status", ["failed", "skipped"])
def test_nothing_is_said_of_a_page_that_was_not_read(status: str) -> None:
    assert traits_of(PageResult("a", 0, status, orientation=90, ink_in_figures=1.0)) == set()  # type: ignore[arg-type]


def test_marks_in_words_are_those_that_there_are_in_their_order() -> None:
    assert in_words({"rescued": 1, "doubtful": 1200, "turned": 0}) == "1,200 doubtful, 1 rescued"
