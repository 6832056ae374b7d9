"""Images in codings of JBIG2 that MuPDF draws wrong without a word are said to be so.

What is behind a segment's flags is arithmetic code: any bytes are the code of some picture.
"""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from batchocr.errors import DamagedError
from batchocr.pages.input.jbig2 import is_drawn_wrong
from tests.pages.rendering import render, written
from tests.support.pdf_files import HEIGHT, JBIG2, WIDTH, deflated, page, pdf, scan, stream

NOISE = bytes(range(7, 90)) + b"\xff\xac"
SAID = "an image has a coding of JBIG2 that MuPDF draws wrong: the page may be incomplete"


def segment(number: int, kind: int, body: bytes, *refers_to: int) -> bytes:
    """A segment of the first page. Source: ITU-T T.88, section 7.2."""
    count = len(refers_to)
    counted = bytes([count << 5]) if count < 5 else struct.pack(">L", 7 << 29 | count) + bytes((count + 8) // 8)
    head = struct.pack(">LB", number, kind) + counted + bytes(refers_to)
    return head + struct.pack(">BL", 1, len(body)) + body


def region(x: int = 0, y: int = 0, width: int = WIDTH, height: int = HEIGHT) -> bytes:
    return struct.pack(">LLLLB", width, height, x, y, 0)


def halftone(flags: int) -> bytes:
    """The flags, and a grid of 5 × 5 patterns."""
    return region(20, 20, 40, 40) + struct.pack(">BLLllHH", flags, 5, 5, 0, 0, 8 << 8, 0) + NOISE


PAGE = segment(0, 48, struct.pack(">LLLLBH", WIDTH, HEIGHT, 0, 0, 0, 0))
PICTURE = segment(1, 38, region() + bytes([0]) + b"\x03\xff\xfd\xff\x02\xfe\xfe\xfe" + NOISE)
PATTERNS = segment(2, 16, struct.pack(">BBBL", 0, 8, 8, 1) + NOISE)
REFINED = b"\0\xff\xff\xff\xff" + NOISE
NO_SYMBOLS = struct.pack(">8sLL", b"\x03\xff\xfd\xff\x02\xfe\xfe\xfe", 0, 0) + NOISE
DICTIONARIES = b"".join(segment(number, 0, b"\0\0" + NO_SYMBOLS) for number in range(2, 9))
"""Of symbols: seven, each with none."""


def text(flags: int, *dictionaries: int) -> bytes:
    return segment(9, 6, region() + struct.pack(">H", flags) + NOISE, *dictionaries)


@pytest.mark.parametrize(
    ("segments", "expected"),
    [
        (segment(3, 42, region() + REFINED), None),
        (segment(3, 42, region(0, 40, 50, 50) + REFINED), SAID),
        (PATTERNS + segment(3, 22, halftone(0), 2), None),
        (PATTERNS + segment(3, 22, halftone(0x80), 2), SAID),
        (DICTIONARIES + text(0, 2, 3, 4, 5, 6), SAID),
    ],
    ids=["refined", "refined elsewhere", "halftone", "halftone on black", "five dictionaries"],
)
def test_a_coding_that_is_drawn_wrong_without_a_word_is_said(
    tmp_path: Path, segments: bytes, expected: str | None
) -> None:
    assert render(written(tmp_path / "a.pdf", scan(JBIG2, PAGE + PICTURE + segments))).lost == expected


def test_a_page_on_which_nothing_is_left_of_it_failed(tmp_path: Path) -> None:
    with pytest.raises(DamagedError, match=SAID):
        render(written(tmp_path / "a.pdf", scan(JBIG2, PAGE + DICTIONARIES + text(0, 2, 3, 4, 5, 6))))


def test_segments_that_images_share_are_looked_at_too(tmp_path: Path) -> None:
    size = b"/Type /XObject /Subtype /Image /Width %d /Height %d" % (WIDTH, HEIGHT)
    data = pdf(
        b"<</Type /Catalog /Pages 2 0 R>>",
        b"<</Type /Pages /Kids [3 0 R] /Count 1>>",
        page(4, b"/XObject <</I 5 0 R>>"),
        stream(b"%d 0 0 %d 0 0 cm /I Do" % (WIDTH, HEIGHT)),
        stream(PAGE + PICTURE, size + JBIG2 + b"/DecodeParms 6 0 R"),
        b"<</JBIG2Globals 7 0 R>>",
        deflated(segment(2, 0, b"\0\3" + NO_SYMBOLS)),
    )
    assert SAID in str(render(written(tmp_path / "a.pdf", data)).lost)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (segment(2, 0, b"\0\1" + NO_SYMBOLS) + text(1, 2) + text(2, 2), False),
        (segment(2, 0, b"\0\3" + NO_SYMBOLS), True),
        (text(0b10111, 2), True),
        (text(0, *range(2, 9)), False),
        (text(0, *range(2, 10)), True),
        (b"", False),
        (text(3)[:15], False),
    ],
    ids=["either", "symbols", "text", "seven dictionaries", "eight dictionaries", "nothing", "cut"],
)
def test_symbols_and_text_are_drawn_wrong_if_refined_in_a_huffman_code(data: bytes, expected: bool) -> None:
    assert is_drawn_wrong(data) is expected
