"""The training pages of the sample model: what they show is what their truth says."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import numpy as np
import pytest
from mineru_vl_utils.post_process.otsl2html import convert_otsl_to_html

from sample_data.training.essay import Essay
from sample_data.training.familiar import TrainingVoice, Voice, make_familiar_page, make_plain_page
from sample_data.training.pages import compose_page
from sample_data.training.scan import make_page, render
from sample_data.training.table import draw_table, set_table
from sample_data.training.truth import TrainingPage, block_of
from sample_data.training.typesetting import MIDDLE, Sheet, Style
from sample_data.training.words import draw_repetitive_text, draw_text

SEEDS = range(16)
IN_LIGATURES = "filﬁﬂ"


@pytest.fixture(scope="module")
def sheets() -> list[Sheet]:
    return [compose_page(np.random.default_rng(seed)) for seed in SEEDS]


@pytest.fixture(scope="module")
def clean_pages(sheets: list[Sheet]) -> list[TrainingPage]:
    return [render(sheet) for sheet in sheets]


def test_the_truth_of_a_page_is_its_text_layer(sheets: list[Sheet], clean_pages: list[TrainingPage]) -> None:
    for sheet in sheets:
        spans = [
            span
            for block in sheet.page.get_text("rawdict")["blocks"]
            for line in block.get("lines", ())
            for span in line["spans"]
        ]
        shown = {
            (char["c"], round(char["origin"][0]), round(char["origin"][1]))
            for span in spans
            for char in span["chars"]
            if not char["c"].isspace() and char["c"] not in IN_LIGATURES and not _in_a_formula(sheet, *char["origin"])
        }
        said = {
            (token, round(float(x0)), round(float(y + MIDDLE * size)))
            for block in sheet.blocks
            if block.type != "equation"
            for token, (x0, _, y, size) in zip(block.tokens, block.places, strict=True)
            if len(token) == 1 and token not in " " + IN_LIGATURES
        }
        assert said
        assert {char for char, _, _ in shown} == {char for char, _, _ in said}
        assert len(_close(shown, said)) == len(shown)
        assert len(_close(said, shown)) == len(said)


def _in_a_formula(sheet: Sheet, x: float, y: float) -> bool:
    boxes = [block.box for block in sheet.blocks if block.type == "equation"]
    return any(x0 - 1 <= x <= x1 + 1 and y0 - 1 <= y <= y1 + 1 for x0, y0, x1, y1 in boxes)


def _close(some: set[tuple[str, int, int]], others: set[tuple[str, int, int]]) -> set[tuple[str, int, int]]:
    """The elements of `some` that are also in `others`, give or take one point of rounding."""
    near = [(dx, dy) for dx in (-1, 0, 1) for dy in (-1, 0, 1)]
    return {(char, x, y) for char, x, y in some if any((char, x + dx, y + dy) in others for dx, dy in near)}


def test_every_box_holds_ink(clean_pages: list[TrainingPage]) -> None:
    for page in clean_pages:
        for block in page.blocks:
            x0, y0, x1, y1 = (round(edge) for edge in block.box)
            crop = page.image[max(y0, 0) : y1, max(x0, 0) : x1]
            assert crop.min() < 128, block.type


def test_blocks_of_text_do_not_overlap(clean_pages: list[TrainingPage]) -> None:
    for page in clean_pages:
        covered = np.zeros(page.image.shape, dtype=np.int8)
        for block in page.blocks:
            x0, y0, x1, y1 = (round(edge) for edge in block.box)
            covered[max(y0, 0) + 4 : y1 - 4, max(x0, 0) + 4 : x1 - 4] += 1
        assert (covered > 1).mean() < 0.001


def test_the_same_numbers_name_the_same_page_scanned_or_not() -> None:
    first, again, other = make_page(3, 1), make_page(3, 1), make_page(3, 2)
    assert np.array_equal(first.image, again.image)
    assert [block.text for block in first.blocks] == [block.text for block in again.blocks]
    assert [block.text for block in first.blocks] != [block.text for block in other.blocks]


@pytest.mark.parametrize("voice", [Essay(), TrainingVoice()], ids=["exam", "training"])
@pytest.mark.parametrize("number", range(6))
def test_a_page_set_like_the_sample_documents_shows_what_it_says_where_it_says(voice: Voice, number: int) -> None:
    check_what_it_says(make_familiar_page(voice, 11, number))


@pytest.mark.parametrize("number", range(12))
def test_a_plain_page_shows_what_it_says_where_it_says(number: int) -> None:
    check_what_it_says(make_plain_page(TrainingVoice(), 11, number))


def check_what_it_says(page: TrainingPage) -> None:
    """Check that blocks are on the paper, and that there is ink where their letters should be."""
    height, width = page.image.shape
    paper = float(np.median(page.image))
    for block in page.blocks:
        assert 0 <= block.box[0] < block.box[2] <= width
        assert 0 <= block.box[1] < block.box[3] <= height
        if block.type in ("image", "table", "equation"):
            continue
        inked = [
            page.image[round(y - size / 3) : round(y + size / 3), round(x0) : round(x1) + 1].min() < 0.8 * paper
            for token, (x0, x1, y, size) in zip(block.tokens, block.places, strict=True)
            if token.isalnum()
        ]
        assert np.mean(inked) > 0.99


def test_the_text_for_pages_set_like_the_sample_documents_says_things_again() -> None:
    def said_again(text: str) -> int:
        words = text.split()
        runs = [tuple(words[first : first + 3]) for first in range(len(words) - 2)]
        return len(runs) - len(set(runs))

    again, usual = (
        sum(said_again(draw(np.random.default_rng(seed), 600)) for seed in range(10))
        for draw in (draw_repetitive_text, draw_text)
    )
    assert again > 50 > 5 > usual


def test_the_text_for_pages_set_like_the_sample_documents_hardly_ever_says_a_phrase_twice_in_a_row() -> None:
    texts = [draw_repetitive_text(np.random.default_rng(seed), 600) for seed in range(50)]
    twice = re.compile(r"\b(\S.{3,40}?) \1\b")
    assert sum(len(twice.findall(text)) for text in texts) < 10


def test_the_text_for_pages_set_like_the_sample_documents_has_narrow_words_together_and_capitals() -> None:
    texts = [draw_repetitive_text(np.random.default_rng(seed), 600) for seed in range(50)]
    narrow = re.compile(r"\b(?:it|is|in|if|I|ill|lit)[,;.]? (?:it|is|in|if|ill|lit)\b")
    assert sum(len(narrow.findall(text)) for text in texts) > 25
    assert sum(word.isupper() and len(word) > 3 for text in texts for word in text.split()) > 50


class _Cells(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.rows: list[int] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "tr":
            self.rows.append(0)
        if tag == "td":
            self.rows[-1] += int(dict(attrs).get("colspan") or 1)


def test_tables_are_well_formed_otsl() -> None:
    style = Style("times", "regular", 10.0)
    for seed in range(40):
        sheet = Sheet(600.0, 600.0)
        table = draw_table(np.random.default_rng(seed), style, 450.0)
        otsl = block_of("table", set_table(sheet, table, 50.0, 50.0, padding=4.0)).text
        cells = _Cells()
        cells.feed(convert_otsl_to_html(otsl))
        assert len(cells.rows) == otsl.count("<nl>")
        assert len(set(cells.rows)) == 1
