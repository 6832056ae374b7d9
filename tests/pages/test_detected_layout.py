"""A detector's boxes as blocks: merged as its authors merge them, in its order, under the names of our types."""

from __future__ import annotations

import json

import pytest
from PIL import Image

from batchocr.data import Page, Reading
from batchocr.pages.protocol.detected_layout import BLOCK_TYPES, Box, detected_blocks
from batchocr.pages.protocol.families.mineru import MinerUProtocol
from tests.support.detectors import LABELS
from tests.support.page_reading import Reader

Part = tuple[str, float, float, float, float, float]
FINGERPRINT = "d" * 64


def blocks(*parts: Part, width: int = 600, height: int = 800) -> list[tuple[str, Box]]:
    return detected_blocks(json.dumps(parts), width, height)


def test_every_label_of_the_detectors_has_a_type() -> None:
    assert BLOCK_TYPES.keys() >= set(LABELS)


def test_the_order_is_the_detectors_and_boxes_lie_within_the_page() -> None:
    found = blocks(("text", 0.9, 0.1, 0.51234, 1.02, 0.6), ("doc_title", 0.8, -0.01, 0.1, 0.5, 0.15))
    assert found == [("text", (0.1, 0.512, 1.0, 0.6)), ("doc_title", (0.0, 0.1, 0.5, 0.15))]


def test_a_label_that_nobody_knows_is_read_too() -> None:
    assert [type for type, _ in blocks(("marginalia", 0.9, 0.1, 0.1, 0.5, 0.5))] == ["unknown"]


@pytest.mark.parametrize(
    ("parts", "kept"),
    [
        # Of one class, the surer one; of two classes, only if their boxes are all but the same.
        ([("text", 0.7, 0.1, 0.1, 0.5, 0.2), ("text", 0.9, 0.1, 0.1, 0.5, 0.22)], [1]),
        ([("text", 0.9, 0.1, 0.1, 0.5, 0.2), ("footnote", 0.6, 0.1, 0.1, 0.5, 0.2)], [0]),
        # The smaller of two texts that overlap, but not where they only touch.
        ([("text", 0.6, 0.1, 0.1, 0.9, 0.5), ("text", 0.9, 0.1, 0.2, 0.5, 0.3)], [0]),
        ([("text", 0.6, 0.1, 0.1, 0.9, 0.5), ("text", 0.9, 0.1, 0.48, 0.9, 0.9)], [0, 1]),
        # Text within a picture is its own; within a table it is the table's.
        ([("image", 0.9, 0.1, 0.1, 0.9, 0.5), ("text", 0.9, 0.2, 0.2, 0.5, 0.3)], [0, 1]),
        ([("table", 0.9, 0.1, 0.1, 0.9, 0.5), ("text", 0.9, 0.2, 0.2, 0.5, 0.3)], [0]),
        ([("table", 0.9, 0.1, 0.1, 0.9, 0.5), ("image", 0.9, 0.2, 0.2, 0.5, 0.3)], [0, 1]),
        # What lies within a chart, a formula or a heading is a part of it.
        ([("image", 0.9, 0.2, 0.2, 0.5, 0.3), ("chart", 0.9, 0.1, 0.1, 0.9, 0.5)], [1]),
        # A formula within a text is the text's; one that stands alone is read.
        ([("text", 0.9, 0.1, 0.1, 0.9, 0.5), ("inline_formula", 0.9, 0.2, 0.2, 0.3, 0.22)], [0]),
        ([("inline_formula", 0.9, 0.2, 0.2, 0.3, 0.22)], [0]),
        # The frame around references goes if they were found one by one, and stays if not.
        ([("reference", 0.9, 0.1, 0.1, 0.9, 0.5), ("reference_content", 0.9, 0.1, 0.1, 0.9, 0.2)], [1]),
        ([("reference", 0.9, 0.1, 0.1, 0.9, 0.5)], [0]),
        # An image of the whole page is none, if there is anything else.
        ([("image", 0.9, 0.0, 0.0, 1.0, 1.0), ("text", 0.9, 0.1, 0.1, 0.5, 0.2)], [1]),
        ([("image", 0.9, 0.0, 0.0, 1.0, 1.0)], [0]),
        # Nothing can be read in so few pixels.
        ([("text", 0.9, 0.1, 0.1, 0.5, 0.107)], []),
    ],
)
def test_overlapping_boxes_are_merged(parts: list[Part], kept: list[int]) -> None:
    assert [bbox for _, bbox in blocks(*parts)] == [tuple(parts[index][2:]) for index in kept]


@pytest.mark.parametrize("one", ["chart", "text", "table", "paragraph_title"])
@pytest.mark.parametrize("other", ["chart", "text", "display_formula"])
def test_two_boxes_that_cover_each_other_are_never_both_dropped(one: str, other: str) -> None:
    assert blocks((one, 0.9, 0.1, 0.1, 0.5, 0.2), (other, 0.8, 0.1, 0.1, 0.5, 0.204))


def read(answer: str) -> tuple[Reader, Reading]:
    """A page whose layout a detector finds."""
    reader = Reader(answer)
    page = Page(Image.new("RGB", (600, 800), "white"), 72)
    return reader, reader.read(page, MinerUProtocol(max_new_tokens=64, penalties=True, detector=FINGERPRINT))


def test_a_page_is_read_block_by_block_as_the_detector_found_it() -> None:
    parts = [("text", 0.9, 0.1, 0.5, 0.9, 0.6), ("table", 0.9, 0.1, 0.7, 0.9, 0.8), ("chart", 0.9, 0.1, 0.1, 0.9, 0.4)]
    reader, reading = read(json.dumps(parts))
    [[layout], blocks] = reader.batches
    assert (layout.detector, layout.prompt, layout.round) == (FINGERPRINT, "", 0)
    assert [block.prompt for block in blocks] == ["\nText Recognition:", "\nTable Recognition:"]
    assert [(block.type, block.content, block.angle) for block in reading.blocks] == [
        *(("text", "answer 0", None), ("table", "answer 1", None), ("chart", None, None)),
    ]
    assert reading.error_message == "table 1 could not be parsed"


def test_a_page_without_boxes_is_not_degraded() -> None:
    reader, reading = read("")
    assert (len(reader.batches), reading.blocks, reading.error_message) == (1, (), None)
