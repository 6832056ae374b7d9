"""How the sample model is scored."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pymupdf
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sample_data.training.scoring import character_error_rate, edit_distance, layout_boxes, matched
from sample_data.training.story import set_story_pages
from sample_data.training.table_scoring import table_similarity

TABLE = "<table><tr><td>a</td><td>bc</td></tr><tr><td colspan='2'>d</td></tr></table>"


def plain_distance(a: str, b: str) -> int:
    if not a or not b:
        return len(a) + len(b)
    return min(
        plain_distance(a[1:], b) + 1, plain_distance(a, b[1:]) + 1, plain_distance(a[1:], b[1:]) + (a[0] != b[0])
    )


@given(st.text("ab", max_size=5), st.text("abc", max_size=5))
def test_the_edit_distance_is_the_least_number_of_edits(a: str, b: str) -> None:
    assert edit_distance(a, b) == plain_distance(a, b)


def test_the_error_rate_weighs_every_character_the_same() -> None:
    assert character_error_rate([("abcdefgh", "abcdefgh"), ("xy", "x")]) == pytest.approx(0.1)


def test_a_box_is_matched_once_with_the_one_that_overlaps_most() -> None:
    truth = [(0.0, 0.0, 10.0, 10.0), (20.0, 0.0, 30.0, 10.0)]
    found = [(0.0, 0.0, 10.0, 6.0), (0.0, 1.0, 10.0, 10.0), (20.0, 0.0, 23.0, 10.0)]
    assert matched(truth, found) == [(0, 1)]


def test_a_layout_is_read_up_to_where_it_breaks_off() -> None:
    answer = "<|box_start|>001 002 003 004<|box_end|><|ref_start|>text<|ref_end|><|rotate_up|>\n<|box_start|>005"
    assert layout_boxes(answer) == [("text", (1, 2, 3, 4))]


def test_a_table_is_like_itself_and_less_like_one_with_an_error_in_it() -> None:
    assert table_similarity(TABLE, TABLE) == 1.0
    assert table_similarity(TABLE, TABLE.replace("bc", "bd")) == pytest.approx(1 - 0.5 / 6)
    assert table_similarity(TABLE, TABLE.replace(" colspan='2'", "")) == pytest.approx(1 - 1 / 6)
    assert table_similarity(TABLE, "<table><tr><td>a</td><td>bc</td></tr></table>") == pytest.approx(1 - 2 / 6)
    assert table_similarity(TABLE, "") == pytest.approx(1 / 6)  # both are tables


def test_the_pages_of_prose_hold_what_they_are_said_to(tmp_path: Path) -> None:
    truths = set_story_pages(tmp_path / "prose.pdf")
    with pymupdf.open(tmp_path / "prose.pdf") as document:
        assert len(document) == len(truths) == 10
        for page, truth in zip(document, truths, strict=True):
            shown = unicodedata.normalize("NFKC", page.get_text().replace("•", ""))  # Story sets ligatures
            assert "".join(shown.split()) == "".join(truth.split())
