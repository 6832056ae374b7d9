"""Pages read with the text that their PDF has of its own: rounds, blocks, and what is counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pymupdf
import pytest

from batchocr.data import Completion, LayerUse, Page, Reading, Request
from batchocr.input.pdf import open_pdf
from batchocr.protocol.audit_plan import plan_audit
from batchocr.protocol.layer_text import LegiblePage
from tests.support.page_reading import PROTOCOL, completion, line

Answer = Callable[[str], Completion]

TITLE = "A quiz about the jinx"
LINES = [
    "The path of the earth is a little longer on one side than on",
    "the other, and its axis leans, so a sundial runs ahead of it",
    "in some months and behind it in others, by as much as",
] * 9
LAYOUT = line("080 040 900 080", "title") + line("080 100 900 900", "text") + line("080 910 900 990", "table")


@pytest.fixture
def page(tmp_path: Path) -> Page:
    document = pymupdf.open()
    sheet = document.new_page(width=500, height=700)
    sheet.insert_text((50, 45), TITLE, fontsize=18)
    for number, text in enumerate(LINES):
        sheet.insert_text((50, 90 + 20 * number), text, fontsize=12)
    document.save(tmp_path / "page.pdf")
    return open_pdf(str(tmp_path / "page.pdf"), password=None, dpi=144, max_edge=3500, text_layer="use").render(0)


def lines_asked(page: Page) -> list[str]:
    """What the lines say that are asked about."""
    assert page.layer is not None
    legible = LegiblePage(page.layer, page.image)
    boxes = {0: (0.08, 0.04, 0.9, 0.08), 1: (0.08, 0.1, 0.9, 0.9)}
    blocks = {number: block for number, box in boxes.items() if (block := legible.block(box)) is not None}
    texts = {0: [TITLE], 1: LINES}
    plan = plan_audit(blocks)
    assert plan.spared == {1}
    return [" ".join(texts[asked.block][asked.first : asked.last + 1]) for asked in plan.questions]


def read(page: Page, answer: Answer) -> tuple[Reading, list[list[Request]]]:
    """The page's reading and all rounds. answer: the model's about a text that it sees."""
    lines = lines_asked(page) if page.layer is not None else []
    reader = PROTOCOL.read(page)
    rounds = [next(reader)]
    try:
        rounds.append(reader.send([completion(LAYOUT)]))
        seen = [TITLE, *([] if lines else [" ".join(LINES)]), "<fcel>a<nl>", *lines]
        rounds.append(reader.send([answer(text) for text in seen]))
        rounds.append(reader.send([completion(" ".join(LINES)) for _ in rounds[-1]]))
    except StopIteration as end:
        reading: Reading = end.value
        return reading, rounds
    raise AssertionError("more rounds than are needed")


def test_a_block_that_is_confirmed_takes_its_text_from_the_layer(page: Page) -> None:
    reading, rounds = read(page, completion)
    title, text, table = reading.blocks
    assert (text.content, text.text_source) == (" ".join(LINES), "layer")
    assert (text.confidence, text.min_logprob, text.output_tokens, text.finish_reason) == (None, None, None, None)
    assert (title.content, title.text_source, title.confidence) == (TITLE, "model", 0.9)
    assert table.text_source == "model"
    num_lines = len(lines_asked(page))
    assert [len(asked) for asked in rounds] == [1, 2 + num_lines]
    assert {request.prompt for request in rounds[1][2:]} == {rounds[1][0].prompt}
    assert {request.round for request in rounds[1]} == {1}
    num_letters = sum(len(text.replace(" ", "")) for text in lines_asked(page))
    assert reading.layer_use == LayerUse(1, num_lines, num_letters, 0)
    assert (reading.image_tokens, reading.output_tokens) == (10 * (3 + num_lines), 3 * (3 + num_lines))
    assert f"{TITLE}\n\n{' '.join(LINES)}\n\n" in reading.markdown
    assert reading.degraded is None


def test_the_lines_asked_about_are_cut_out_of_the_page(page: Page) -> None:
    _, rounds = read(page, completion)
    for request in rounds[1][2:]:
        assert (request.pixels.height, request.pixels.width) == (28, round(0.9 * 1000) - round(0.08 * 1000))
        rows = [request.pixels.data[start : start + 3 * request.pixels.width] for start in range(0, 28 * 2460, 2460)]
        own = [row for row in map(bytes, rows) if row != b"\xff" * 2460]
        cut = page.image.crop((80, 0, 900, page.image.height)).tobytes()
        assert b"".join(own) in cut


@pytest.mark.parametrize(
    "answer",
    [
        lambda text: completion(text.replace("h", "b")),
        lambda text: completion(text[::-1]),
        lambda text: completion(text, "length"),
        lambda text: completion("", error="too long"),
    ],
)
def test_a_block_that_is_not_confirmed_is_asked_about_as_ever(page: Page, answer: Answer) -> None:
    reading, rounds = read(page, answer)
    assert len(rounds) == 3
    [asked] = rounds[2]
    assert (asked.pixels.width, asked.pixels.height) == (820, 1120)
    text = reading.blocks[1]
    assert (text.content, text.text_source, text.confidence) == (" ".join(LINES), "model", 0.9)
    assert reading.layer_use.blocks == 0


def test_without_a_layer_the_questions_are_as_ever(page: Page) -> None:
    reading, rounds = read(replace(page, layer=None), completion)
    assert [len(asked) for asked in rounds] == [1, 3]
    assert reading.blocks[1].text_source == "model"
    assert reading.layer_use == LayerUse()
