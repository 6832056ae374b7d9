"""PaddleOCR-VL's pages are read as its authors' pipeline reads them: the same parts, prompts, crops and texts.

What is expected of 40 drawn pages is that of paddlex 3.7.2, written by tests/support/paddle_oracle.py.
"""

from __future__ import annotations

import json
import re
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from batchocr.data import Completion, Page, Reading, around
from batchocr.pages.protocol.detected_layout import BLOCK_TYPES
from batchocr.pages.protocol.families.paddle import PaddleProtocol, cleaned
from batchocr.planning.families.paddleocr_vl import DETECTORS
from tests.pages.test_glm_protocol import FULL_WIDTH, Found, drawn
from tests.pages.test_rescue import LOST, below, checked
from tests.pages.test_trusted_text import SAID, write
from tests.support.detectors import LABELS
from tests.support.paddle_oracle import (
    LINES,
    LOOP,
    LOOPING,
    LOOPING_TABLE,
    PAGES,
    PRICES,
    TWO_MARKS,
    UNTAGGED,
    picture,
)
from tests.support.page_reading import Reader, completion, long_answers

FINGERPRINT = "d" * 64
USES: Final = {use.types[0]: use for use in DETECTORS.values()}
PICTURES = {"image", "header_image", "footer_image"}
ORACLE: dict[str, Any] = json.loads(PAGES.read_text("utf-8"))
OURS: Final[Mapping[str, str]] = {
    LOOP: f"Before it. {LOOPING.rstrip('. ')}",
    LINES: "A\nB\nthe same",
    LOOPING_TABLE: "<table><tr><td>a</td><td>b</td></tr></table>",
    PRICES: "$5 or $x$ dollars",
    TWO_MARKS: "$z$ or $\\alpha$",
    UNTAGGED: "<table><tr><td>before</td><td>a</td></tr><tr><td>b</td><td></td></tr></table>",
}
"""Where the authors lose text: what is said again and again, or is before the first cell; single dollar signs."""


def protocol(*, penalties: bool = True, read_figures: bool = False) -> PaddleProtocol:
    return PaddleProtocol(max_new_tokens=64, penalties=penalties, read_figures=read_figures, detector=FINGERPRINT)


def as_theirs(label: str, content: str) -> str:
    """A text in their marks, with nothing around them: formulas in dollar signs; a chart's table without a rule. Of a
    formula, or its number, the signs alone."""
    if "formula" in label:
        return re.sub(r"\\[()\[\]]|[\s$]", "", content)
    return re.sub(r"\s*(?:\\[()]|\$+)\s*", "$", content).replace("\n---|---\n", "\n").strip()


@pytest.mark.parametrize("number", range(len(ORACLE["pages"])))
def test_parts_prompts_crops_order_and_texts_are_those_of_its_authors(number: int) -> None:
    page = ORACLE["pages"][number]
    width, height = page["size"]
    answers = [ORACLE["answers"][each[-1]] for each in page["asked"]]
    use = USES[page["detector"]]
    found = [each for each in page["found"] if each[1] >= use.least_scores.get(each[0], use.least_score)]
    reader = Reader(json.dumps(found), lambda number, prompt: answers[number])
    reading = reader.read(
        Page(picture(page["size"], page["ink"]), 72),
        protocol(read_figures=page["reads_figures"]),
    )
    asked = [request for batch in reader.batches[1:] for request in batch]
    assert [[each.prompt, each.pixels.width, each.pixels.height, zlib.crc32(each.pixels.data)] for each in asked] == [
        each[:-1] for each in page["asked"]
    ]
    places = [
        [round(share * side) for share, side in zip(each.bbox, (width, height) * 2, strict=True)]
        for each in reading.blocks
    ]
    assert [(block.type, box) for block, box in zip(reading.blocks, places, strict=True)] == [
        (BLOCK_TYPES[each["label"]], list(around(each["boxes"]))) for each in page["blocks"]
    ]
    remaining = iter(answers)
    for block, each in zip(reading.blocks, page["blocks"], strict=True):
        answer = None if each["content"] is None else next(remaining)
        if answer is None:
            assert block.content is None
        else:
            theirs = OURS.get(answer, each["content"])
            assert as_theirs(each["label"], block.content or "") == as_theirs(each["label"], theirs)


def read(found: list[Found], *answers: str | Completion, **options: Any) -> tuple[Reader, Reading]:
    reader = Reader(json.dumps(found) if found else "", lambda number, prompt: answers[number])
    return reader, reader.read(drawn(), protocol(**options))


@pytest.mark.parametrize(("read_figures", "unread"), [(False, {*PICTURES, "chart", "seal"}), (True, PICTURES)])
def test_every_part_but_a_frame_is_a_block_and_what_is_not_read_is_no_shortfall(
    read_figures: bool, unread: set[str]
) -> None:
    labels = [label for label in LABELS if label != "reference"]
    step = 0.9 / len(labels)
    found = [(label, 0.9, 0.1, index * step, 0.9, (index + 0.9) * step) for index, label in enumerate(LABELS)]
    reader = Reader(json.dumps(found), lambda number, prompt: "<fcel>a<nl>" if prompt.startswith("Table") else "a")
    reading = reader.read(drawn(), protocol(read_figures=read_figures))
    assert [block.type for block in reading.blocks] == [BLOCK_TYPES[label] for label in labels]
    assert {label for label, block in zip(labels, reading.blocks, strict=True) if block.content is None} == unread
    prompts = dict(zip((label for label in labels if label not in unread), reader.batches[1], strict=True))
    assert {label: each.prompt for label, each in prompts.items() if each.prompt != "OCR:"} == {
        "table": "Table Recognition:",
        **dict.fromkeys(("display_formula", "inline_formula"), "Formula Recognition:"),
        **({"chart": "Chart Recognition:", "seal": "Seal Recognition:"} if read_figures else {}),
    }
    assert reading.error_message is None


def test_charts_and_seals_are_figures_whose_content_is_in_the_text() -> None:
    found: list[Found] = [("chart", 0.9, *FULL_WIDTH), ("seal", 0.9, 0.1, 0.3, 0.9, 0.5)]
    _, reading = read(found, "Year | Sales\n2020 | 1\n2021", "ACME & Co.", read_figures=True)
    assert [(block.type, block.sub_type) for block in reading.blocks] == [("chart", "chart"), ("image", "seal")]
    assert reading.blocks[0].content == "Year | Sales\n---|---\n2020 | 1\n2021"
    assert "<th>Year</th><th>Sales</th>" in reading.markdown
    assert "ACME" in reading.markdown


def test_texts_that_are_read_together_are_one_block_which_no_text_of_the_page_replaces(tmp_path: Path) -> None:
    found: list[Found] = [
        ("text", 0.9, 0.05, 0.02, 0.95, 0.45),
        ("paragraph_title", 0.9, 0.05, 0.46, 0.95, 0.47),
        ("text", 0.9, 0.05, 0.5, 0.95, 0.6),
        ("table", 0.9, 0.5, 0.61, 0.95, 0.7),
        ("text", 0.9, 0.05, 0.61, 0.45, 0.7),
    ]
    answers = (completion(SAID), "A title", LOST, "<fcel>a<nl>")
    reader = Reader(json.dumps(found), lambda number, prompt: answers[number])
    reading = reader.read(checked(tmp_path, write, below("0.51 and the rest of the page")), protocol())
    assert [(block.type, block.text_source) for block in reading.blocks] == [
        *(("text", "model"), ("paragraph_title", "model"), ("text", None), ("table", "model")),
    ]
    assert reading.blocks[2].bbox == pytest.approx((0.05, 0.5, 0.95, 0.7), abs=0.005)
    assert (reading.error_message, reading.rescued_blocks) == (f"block 2 could not be read: {LOST.error}", 0)


def test_texts_of_two_columns_are_read_apart() -> None:
    found: list[Found] = [("text", 0.9, 0.05, 0.5, 0.45, 0.9), ("text", 0.9, 0.5, 0.1, 0.95, 0.3)]
    reader, reading = read(found, "ends here", "and goes on")
    assert len(reader.batches[1]) == 2
    assert [block.content for block in reading.blocks] == ["ends here", "and goes on"]


@pytest.mark.parametrize(("penalties", "checks"), [(True, ["at_once", "at_limit"]), (False, ["never", "never"])])
def test_nothing_is_penalised_and_loops_are_looked_for_with_penalties_alone(penalties: bool, checks: list[str]) -> None:
    found: list[Found] = [("text", 0.9, *FULL_WIDTH), ("table", 0.9, 0.1, 0.3, 0.9, 0.5)]
    reader, _ = read(found, "a", "<fcel>a<nl>", penalties=penalties)
    sampling = [request.sampling for request in reader.batches[1]]
    assert [each.loop_check for each in sampling] == checks
    assert {each.repetition_penalty for each in sampling} == {1.0}


@pytest.mark.parametrize(
    ("label", "answer", "said"),
    [
        ("text", completion("cut", "length"), "block 0 hit the token limit"),
        ("header", completion("", error="no room"), "block 0 could not be read: no room"),
        ("display_formula", "\\[ \\]", "nothing was read in block 0, though there is ink"),
        ("text", "<fcel>a<nl>", "the model's own tokens are in block 0"),
        ("table", "no table", "table 0 could not be parsed"),
    ],
)
def test_what_was_not_read_in_full_is_said(label: str, answer: str | Completion, said: str) -> None:
    _, reading = read([(label, 0.9, *FULL_WIDTH)], answer)
    assert reading.error_message == said


@pytest.mark.parametrize(
    ("label", "answer", "content"),
    [
        ("text", "costs $5 and $6 a piece", "costs $5 and $6 a piece"),
        ("text", "so \\[ a \\\\[2pt] b \\] holds", "so \\(a \\\\[2pt] b\\) holds"),
        ("text", "never \\( closed", "never \\( closed"),
        (
            "display_formula",
            "\\[ \\begin{matrix} 1 \\\\[2pt] 2 \\end{matrix} \\]",
            "\\[\n\\begin{matrix} 1 \\\\[2pt] 2 \\end{matrix}\n\\]",
        ),
        ("formula_number", "$(1)$", "(1)"),
        ("chart", "a | b\n---|---\n1 | 2", "a | b\n---|---\n1 | 2"),
        ("chart", "rising", "rising"),
        ("text", "0.00\n" * 9, "\n".join(["0.00"] * 9)),
    ],
)
def test_what_cleaning_would_harm_stays(label: str, answer: str, content: str) -> None:
    assert cleaned(label, answer) == content


@pytest.mark.parametrize(
    "label",
    ["table", *(pytest.param(label, marks=pytest.mark.long) for label in ("text", "display_formula", "chart"))],
)
def test_whatever_the_model_says_is_a_block_in_a_moment(label: str) -> None:
    for answer in long_answers():
        started_s = time.process_time()
        read([(label, 0.9, *FULL_WIDTH)], answer, read_figures=True)
        assert time.process_time() - started_s < 5, answer[:40]
