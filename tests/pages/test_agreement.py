"""How far a reading agrees with the PDF's own text."""

from __future__ import annotations

import time

import pytest

from batchocr.data import Block, PlacedWord
from batchocr.pages.protocol.agreement import agreement_of

SENTENCE = "the office informs everyone of the final figures"


def block(content: str | None, kind: str = "text", top: float = 0.0) -> Block:
    return Block(kind, (0.0, top, 1.0, top + 0.2), 0, content)


def words(text: str, y: float = 0.1) -> list[PlacedWord]:
    said = text.split()
    return [((index + 0.5) / len(said), y, word) for index, word in enumerate(said)]


def test_what_was_read_as_it_stands_there_agrees() -> None:
    assert agreement_of(words(SENTENCE), [block(SENTENCE)]) == 1.0


@pytest.mark.parametrize(
    ("layer", "read"),
    [
        ("the o\ufb03ce in- forms every\u00adone", "the office informs everyone"),
        ("ＦＵＬＬ width and so on and on", "FULL  width\nand so on and on"),
        ("一行 文字 沒有 空格 一行 文字 沒有 空格 一行 文字", "一行文字沒有空格一行文字沒有空格一行文字"),
    ],
)
def test_ligatures_hyphens_wide_letters_and_spaces_make_no_difference(layer: str, read: str) -> None:
    assert agreement_of(words(layer), [block(read)]) == 1.0


def test_misread_letters_count_one_by_one() -> None:
    assert agreement_of(words("a" * 40), [block("a" * 30 + "b" * 10)]) == 0.75
    assert agreement_of(words("a" * 40), [block("a" * 80)]) == 0.5
    assert agreement_of(words("a" * 40), [block("")]) == 0.0


def test_words_belong_to_the_block_in_which_their_centre_lies() -> None:
    layer = words(SENTENCE, 0.1) + words("of another sentence altogether", 0.5) + words("in no block", 0.9)
    blocks = [block("of another sentence altogether", top=0.4), block(SENTENCE, "title", top=0.0)]
    assert agreement_of(layer, blocks) == 1.0
    assert agreement_of(layer, list(reversed(blocks))) == 1.0


def test_only_text_is_compared_and_only_where_the_layer_has_some() -> None:
    layer = words(SENTENCE)
    for other in ("table", "equation", "image", "chart", "code"):
        assert agreement_of(layer, [block("<table></table>", other)]) is None
    assert agreement_of(layer, [block(None, "list")]) is None
    assert agreement_of(layer, [block(SENTENCE), block("text in a picture", top=0.5)]) == 1.0
    assert agreement_of(layer, []) is None
    assert agreement_of([], [block(SENTENCE)]) is None
    assert agreement_of(words("17"), [block("17", "page_number")]) is None


def test_text_with_formulas_is_compared_but_for_these() -> None:
    layer = words("where ai ≤ √n is the first of all such numbers and n is their sum")
    read = r"where \( a_{i} \le \sqrt{n} \) is the first of all such numbers and \( n \) is their sum"
    assert agreement_of(layer, [block(read)]) == 1.0
    assert agreement_of(layer, [block(read.replace("first of all such numbers", "worst of any odd figures"))]) < 0.8
    assert agreement_of(layer, [block(r"where \( a_{i} \)")]) < 0.4
    assert (
        agreement_of(layer, [block(r"\( w h e r e \quad a i \le \sqrt { n } \text { is the first of all such } \)")])
        is None
    )


def test_misread_text_with_formulas_is_not_hidden_by_a_heading_that_is_right() -> None:
    layer = words(SENTENCE, 0.1) + words("where n is the number of all figures that it knows of", 0.5)
    wrong = block(r"there \( n \) was a man who had never been to sea, nor to the harbour", top=0.4)
    agreement = agreement_of(layer, [block(SENTENCE, "title"), wrong])
    assert agreement is not None
    assert agreement < 0.8


def test_a_page_of_any_number_of_words_and_blocks_takes_no_time() -> None:
    layer = [(0.5, 0.99, "no")] * 50_000
    started_s = time.process_time()
    assert agreement_of(layer, [block(SENTENCE)] * 2000) is None
    assert agreement_of([(0.5, 0.1, "a" * 100_000)], [block("b" * 100_000)]) == 0.0
    assert time.process_time() - started_s < 5.0
