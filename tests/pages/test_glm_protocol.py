"""GLM-OCR's pages are read as its authors' pipeline reads them: the same parts, prompts, crops and texts.

What is expected of 40 drawn pages is that of glmocr 0.1.5, written by tests/support/glm_oracle.py.
"""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageDraw

from batchocr.data import Completion, Page, Reading
from batchocr.errors import RefusedError
from batchocr.pages.kinds import kind_of
from batchocr.pages.protocol.detected_layout import BLOCK_TYPES
from batchocr.pages.protocol.families.glm import PROMPTS, GlmProtocol, cleaned, parts_of
from tests.pages.test_rescue import LOST, below, checked
from tests.pages.test_trusted_text import SAID, write
from tests.support.detectors import LABELS
from tests.support.glm_oracle import PAGES
from tests.support.page_reading import Reader, completion, long_answers

Found = tuple[str, float, float, float, float, float]
FINGERPRINT = "d" * 64
PROTOCOL = GlmProtocol(max_new_tokens=64, penalties=True, detector=FINGERPRINT)
ABANDONED = {"header", "footer", "number", "footnote", "aside_text", "reference", "footer_image", "header_image"}
SIZE = (600, 800)
FULL_WIDTH = (0.1, 0.1, 0.9, 0.2)
ORACLE: dict[str, Any] = json.loads(PAGES.read_text("utf-8"))


def drawn(size: tuple[int, int] = SIZE) -> Page:
    """A page with lines of ink everywhere."""
    image = Image.new("RGB", size, "white")
    for y in range(0, size[1], 8):
        ImageDraw.Draw(image).line((0, y, size[0], y), "black", 3)
    return Page(image, 72)


def read(found: list[Found], *answers: str | Completion, protocol: GlmProtocol = PROTOCOL) -> tuple[Reader, Reading]:
    reader = Reader(json.dumps(found) if found else "", lambda number, prompt: answers[number])
    return reader, reader.read(drawn(), protocol)


def as_theirs(content: str) -> str:
    """A text of ours in their marks: formulas in dollar signs, with nothing around and within them; dashes for items;
    no difference between ends of lines and of paragraphs."""
    dollars = re.sub(r"\\\((.*?)\\\)", r"$\1$", content, flags=re.DOTALL)
    dollars = re.sub(r"\\\[(.*?)\\\]", r"$$\1$$", dollars, flags=re.DOTALL)
    return _canonical(re.sub("^• ", "- ", dollars))


def _canonical(content: str) -> str:
    return re.sub(r"\n+", "\n", re.sub(r" *(\$+)\s*([^$]+?)\s*\1 *", r"$\2$", content)).strip()


def heading_of(content: str) -> str:
    return re.sub(r"\A##? ", "", content)


@pytest.mark.parametrize("number", range(len(ORACLE["pages"])))
def test_parts_prompts_crops_order_and_texts_are_those_of_its_authors(number: int) -> None:
    page = ORACLE["pages"][number]
    answers = [ORACLE["answers"][each["answer"]] for each in page["regions"] if each["prompt"]]
    layout = json.dumps(page["found"])
    reader = Reader(layout, lambda number, prompt: answers[number])
    reading = reader.read(Page(Image.new("RGB", page["size"], "white"), 72), PROTOCOL)
    parts = parts_of(layout, *page["size"])
    kept = [(part, block) for part, block in zip(parts, reading.blocks, strict=True) if part.label not in ABANDONED]
    asked = [request for batch in reader.batches[1:] for request in batch]
    assert [(part.label, list(part.box)) for part, _ in kept] == [
        (each["label"], each["box"]) for each in page["regions"]
    ]
    assert [(request.prompt, [request.pixels.width, request.pixels.height]) for request in asked] == [
        (each["prompt"], each["crop"]) for each in page["regions"] if each["prompt"]
    ]
    for (_, block), each in zip(kept, page["regions"], strict=True):
        theirs = each["content"] or ""
        theirs = heading_of(theirs) if kind_of(block.type).role == "heading" else theirs
        if theirs.replace("$", "").strip():  # an empty formula is their `$$\n\n$$`
            assert as_theirs(block.content or "") == _canonical(theirs)
        else:
            assert not block.content


def test_every_part_is_a_block_and_what_is_not_read_is_no_shortfall() -> None:
    step = 0.9 / len(LABELS)
    found = [(label, 0.9, 0.1, index * step, 0.9, (index + 0.9) * step) for index, label in enumerate(LABELS)]
    reader, reading = read(found, *["<table></table>"] * len(PROMPTS))
    assert [block.type for block in reading.blocks] == [BLOCK_TYPES[label] for label in LABELS]
    unread = [label for label, block in zip(LABELS, reading.blocks, strict=True) if block.content is None]
    assert set(unread) == ABANDONED | {"image", "chart"}
    assert (len(reader.batches[1]), reading.error_message) == (len(LABELS) - len(unread), None)


def test_a_seal_is_a_figure_whose_text_is_read() -> None:
    _, reading = read([("seal", 0.9, *FULL_WIDTH)], "ACME & Co.")
    [block] = reading.blocks
    assert (block.type, block.sub_type, block.content) == ("image", "seal", "ACME & Co.")
    assert "ACME" in reading.markdown


@pytest.mark.parametrize(
    ("found", "kept"),
    [
        # Where glmocr drops both, the larger one stays.
        ([("text", 0.9, *FULL_WIDTH), ("paragraph_title", 0.8, 0.1, 0.1, 0.9, 0.19)], [0]),
        # Where glmocr drops a text because a frame lies in it, the text stays.
        ([("text", 0.9, 0.1, 0.1, 0.9, 0.5), ("reference", 0.8, 0.2, 0.2, 0.5, 0.3)], [0]),
        ([("image", 0.9, 0.1, 0.1, 0.9, 0.5), ("reference", 0.8, 0.2, 0.2, 0.5, 0.3)], [0]),
        ([("reference", 0.9, 0.1, 0.1, 0.9, 0.5), ("reference", 0.8, 0.2, 0.2, 0.5, 0.3)], [1]),
        ([("reference", 0.9, 0.1, 0.1, 0.9, 0.5), ("reference_content", 0.8, 0.2, 0.2, 0.5, 0.3)], [0, 1]),
        ([("text", 0.9, 0.1, 0.1, 0.9, 0.5), ("seal", 0.8, 0.2, 0.2, 0.5, 0.3)], [0, 1]),
        ([("text", 0.9, 1.1, 0.1, 1.2, 0.5)], []),
    ],
)
def test_no_text_is_lost_to_a_box_that_is_not_there(found: list[Found], kept: list[int]) -> None:
    labels = [found[index][0] for index in kept]
    assert [part.label for part in parts_of(json.dumps(found), *SIZE)] == labels


def test_a_part_of_less_than_a_pixel_is_a_block_that_nobody_is_asked_about() -> None:
    reader, reading = read([("text", 0.9, 0.1, 0.1, 0.1005, 0.5)])
    assert len(reader.batches) == 1
    assert [(block.type, block.content) for block in reading.blocks] == [("text", None)]


@pytest.mark.parametrize(
    ("label", "answer", "content"),
    [
        ("text", "costs $5 and $6 a piece", "costs $5 and $6 a piece"),
        ("text", "1.5 million, e.g. here", "1.5 million, e.g. here"),
        ("text", "\\theta is an angle", "\\theta is an angle"),
        ("text", "as $$\na\n- b\n$$ says\n- one\n* two", "as \\(a\n- b\\) says\n• one\n• two"),
        ("text", "never $closed", "never $closed"),
        (
            "table",
            "<table><tr><td>$ 5</td><td>$ 6</td></tr></table>",
            "<table><tr><td>$ 5</td><td>$ 6</td></tr></table>",
        ),
        ("table", "<table><tr><td>$x^2$</td></tr></table>", "<table><tr><td>\\(x^2\\)</td></tr></table>"),
        ("text", "$ $ is none", "$ $ is none"),
        ("display_formula", "\\tau + 1", "\\[\n\\tau + 1\n\\]"),
        ("display_formula", " $$ $$ ", ""),
        ("paragraph_title", "-1 is negative", "-1 is negative"),
    ],
)
def test_what_cleaning_would_harm_stays(label: str, answer: str, content: str) -> None:
    assert cleaned(label, answer) == content


@pytest.mark.parametrize(("penalties", "penalty", "checks"), [(True, 1.1, ["at_once", "at_limit"]), (False, 1.0, None)])
def test_only_with_penalties_repetition_is_penalised(penalties: bool, penalty: float, checks: list[str] | None) -> None:
    protocol = GlmProtocol(max_new_tokens=64, penalties=penalties, detector=FINGERPRINT)
    found: list[Found] = [("text", 0.9, *FULL_WIDTH), ("table", 0.9, 0.1, 0.3, 0.9, 0.5)]
    reader, _ = read(found, "a", "<table></table>", protocol=protocol)
    sampling = [request.sampling for request in reader.batches[1]]
    assert [each.repetition_penalty for each in sampling] == [penalty] * 2
    assert [each.loop_check for each in sampling] == (checks or ["never"] * 2)
    assert [each.presence_penalty + each.frequency_penalty + each.no_repeat_ngram_size for each in sampling] == [0, 0]


@pytest.mark.parametrize(
    ("label", "answer", "said"),
    [
        ("text", completion("cut", "length"), "block 1 hit the token limit"),
        ("text", completion("", error="no room"), "block 1 could not be read: no room"),
        ("text", "", "nothing was read in block 1, though there is ink"),
        ("text", "<|user|>", "the model's own tokens are in block 1"),
        ("table", "no table", "table 1 could not be parsed"),
    ],
)
def test_what_was_not_read_in_full_is_said(label: str, answer: str | Completion, said: str) -> None:
    _, reading = read([("header", 0.9, 0.1, 0.0, 0.9, 0.05), (label, 0.9, *FULL_WIDTH)], answer)
    assert reading.error_message == said


def test_the_pages_own_text_takes_the_place_of_an_answer_that_was_lost(tmp_path: Path) -> None:
    own = "0.51 and the rest of the page"
    found = [
        ("header", 0.9, 0.05, 0.0, 0.95, 0.05),
        ("text", 0.9, 0.05, 0.1, 0.95, 0.45),
        ("text", 0.9, 0.05, 0.5, 0.95, 0.9),
    ]
    reader = Reader(json.dumps(found), lambda number, prompt: (completion(SAID), LOST)[number])
    reading = reader.read(checked(tmp_path, write, below(own)), PROTOCOL)
    assert [(block.content, block.text_source) for block in reading.blocks] == [
        *((None, None), (SAID, "model"), (own, "page")),
    ]
    assert (reading.error_message, reading.rescued_blocks) == (None, 1)


def test_a_layout_that_failed_refuses_the_page() -> None:
    with pytest.raises(RefusedError, match="the page's layout could not be asked for: gone"):
        Reader(completion("", error="gone")).read(drawn(), PROTOCOL)


def test_a_page_without_parts_is_read() -> None:
    reader, reading = read([])
    assert (len(reader.batches), reading.blocks, reading.error_message) == (1, (), None)


@pytest.mark.parametrize("label", ["text", "table", "display_formula", "paragraph_title"])
def test_a_long_answer_is_cleaned_in_a_moment(label: str) -> None:
    for answer in long_answers():
        started_s = time.process_time()
        cleaned(label, answer)
        assert time.process_time() - started_s < 5, answer[:40]
