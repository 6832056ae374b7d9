"""A model that answers anything at all: no answer makes the reading of a page raise, or holds it up for long."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable

import pytest

from batchocr.data import FinishReason
from batchocr.pages.protocol.families import VERSIONS
from tests.support.page_reading import Reader, completion, line

FULL = os.environ.get("BATCHOCR_FULL") == "1"
NUM_PAGES = 2_000 if FULL else 120
MAX_CHARACTERS = 32_000
"""Four for each of the 8192 tokens that a block may take."""

DEADLINE_S = 60.0
"""What --page-timeout allows by default."""

TYPES = ["text", "title", "table", "equation", "equation_block", "code", "image", "list", "list_item", "caption", "odd"]
LAYOUT_PIECES = ["<|box_start|>", "<|box_end|>", "<|ref_start|>", "<|ref_end|>", "<|rotate_up|>", "<|txt_contd_tgt|>"]
PIECES = [
    *("\\( a ", "\\(", "\\[ a ", "\\left( ", "\\right) ", "\\left\\{ \\right.", "\\big ", "\\bigg(", "\\tag{", "\\\\"),
    *("{", "}", "_{a}_", "_{", "^{", "\\begin{array}{l}", "\\end{array}", "\\text{", "\\frac{a}{", "\\in", "____ "),
    *("<fcel>", "<ecel>", "<lcel>", "<ucel>", "<xcel>", "<nl>", "<fcel>a<lcel>", "<ucel><nl>", "|a|b|\n|---|---|\n"),
    *("<table><tr><td>", "<table>x", "<sub>", "</td>", "<script>", "<!--", "&#x", "<", "`", "```\n", "](", "$", "[a]:"),
    *("\x00", "\ud800", "\udfff", "\x1b[2J", "\u202e", "\ufeff", "日", "a\u0301", " ", "\n", "\t", "9", "-", "• "),
]
"""Repeated as a whole, each is the worst known input for some pattern in post-processing."""

TRUE_ANSWERS = [
    "The quick brown fox \\( x_{1}^{2} \\) jumps over \\[ 1, 2 \\] dogs.",
    "<fcel>a<lcel><fcel>b<nl><ucel><xcel><fcel>5 < 6<nl><ecel><fcel>\\( \\frac{a}{b} \\)<fcel>c<nl>",
    "\\[ \\left( \\begin{array}{ll} a & b \\\\ c & d \\end{array} \\right) \\tag{1} \\]",
    "<table><tr><td colspan='2'>a</td></tr><tr><td>b</td><td>c</td></tr></table>",
    "```python\nfor x in y:\n    print(x)\n```",
]


def any_bytes(rng: random.Random) -> str:
    return rng.randbytes(rng.randrange(2000)).decode("utf-8", rng.choice(["replace", "surrogateescape", "ignore"]))


def any_pieces(rng: random.Random) -> str:
    return "".join(rng.choices(PIECES, k=rng.randrange(400)))


def one_piece_without_end(rng: random.Random) -> str:
    piece = rng.choice(PIECES)
    return (piece * (MAX_CHARACTERS // len(piece)))[: rng.choice([2_000, 8_000, MAX_CHARACTERS if FULL else 8_000])]


def deeply_nested(rng: random.Random) -> str:
    depth = rng.randrange(2_000)
    opening, closing = rng.choice(
        [("\\left( ", "\\right) "), ("{", "}"), ("<table><tr><td>", "</td></tr></table>"), ("\\frac{1}{", "}")]
    )
    return opening * depth + "x" + closing * rng.choice([depth, depth // 2, 0])


def a_true_answer_cut_off(rng: random.Random) -> str:
    answer = rng.choice(TRUE_ANSWERS)
    return answer[rng.randrange(3) : rng.randrange(len(answer) + 1)] * rng.choice([1, 1, 50])


def any_layout(rng: random.Random) -> str:
    """Boxes as a model writes them, some of them mangled."""
    lines = []
    for _ in range(rng.randrange(1, 25)):
        box = " ".join(str(rng.choice([rng.randrange(1001), rng.randrange(-5, 3000)])) for _ in range(4))
        sound = f"{rng.randrange(400)} {rng.randrange(400)} {rng.randrange(500, 1000)} {rng.randrange(500, 1000)}"
        boxed = line(rng.choice([sound, sound, box]), rng.choice(TYPES), turn=rng.choice(["up", "left", "odd"]))
        lines.append(rng.choice([boxed, boxed, boxed[rng.randrange(len(boxed)) :], rng.choice(LAYOUT_PIECES)]))
    return "".join(lines)


TEXTS: list[Callable[[random.Random], str]] = [
    *(any_bytes, any_pieces, one_piece_without_end, deeply_nested, a_true_answer_cut_off)
]
REASONS: list[FinishReason] = ["stop", "length", "repetition"]


@pytest.mark.parametrize("seed", range(NUM_PAGES))
def test_no_model_text_makes_a_page_raise_or_holds_it_past_its_deadline(seed: int) -> None:
    rng = random.Random(f"{VERSIONS['mineru']} {seed}")
    layout = any_layout(rng) if rng.random() < 0.9 else rng.choice(TEXTS)(rng)
    reader = Reader(
        completion(layout, rng.choice(REASONS)),
        lambda number, prompt: completion(
            rng.choice(TEXTS)(rng), rng.choice(REASONS), rng.choice([None, None, None, "the engine failed"])
        ),
    )
    started_s = time.process_time()
    reading = reader.read()
    assert time.process_time() - started_s < DEADLINE_S
    assert all(0 <= b.bbox[0] < b.bbox[2] <= 1 and 0 <= b.bbox[1] < b.bbox[3] <= 1 for b in reading.blocks)
    assert all(b.type == "text" for b in reading.blocks if b.merge_prev)
    assert "\x00" not in reading.markdown
    assert "\x1b" not in reading.markdown


@pytest.mark.slow
@pytest.mark.parametrize("piece", PIECES if FULL else PIECES[::14])
@pytest.mark.parametrize("type", ["text", "table", "equation", "code"])
def test_a_block_of_one_piece_without_end_is_read_within_the_deadline(piece: str, type: str) -> None:
    text = piece * (MAX_CHARACTERS // len(piece))
    started_s = time.process_time()
    reading = Reader(line("0 0 900 100", type), lambda number, prompt: text).read()
    assert time.process_time() - started_s < DEADLINE_S
    assert len(reading.markdown) < 20 * MAX_CHARACTERS
