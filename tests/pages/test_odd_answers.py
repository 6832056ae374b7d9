"""Whatever a model answers, the page gets a reading that says what is wrong with it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from mineru_vl_utils.post_process.table_image_processor import TABLE_IMAGE_TOKEN_CHARS
from PIL import Image

from batchocr.data import Page, Reading
from batchocr.errors import RefusedError
from batchocr.pages.protocol.families.mineru import MAX_READ_AREA, PICTURE_CODE_SEED
from batchocr.pages.protocol.shortfalls import answer_shortfalls, name_blocks
from tests.support.page_reading import BLANK, Reader, completion, line, read


def test_a_blank_page_is_read_in_one_round() -> None:
    reader = Reader("")
    assert reader.read() == Reading("", (), 10, 3, layout_confidence=0.9, layout_min_logprob=-0.5)
    assert len(reader.batches) == 1


def test_a_page_of_figures_only_is_read_in_one_round() -> None:
    reader = Reader(line("0 0 900 900", "image"))
    assert [b.type for b in reader.read().blocks] == ["image"]
    assert len(reader.batches) == 1


NO_LAYOUT = pytest.mark.parametrize(
    "layout",
    [
        "Sorry, I cannot see a page.",
        "<|box_start|>" * 20_000,
        line("0 0 900 100", "no_such_type"),
        line("0 0 0 100", "text"),
        f"<|box_start|>{'1' * 9000} 0 900 100<|box_end|><|ref_start|>text<|ref_end|><|rotate_up|>",
    ],
)


@NO_LAYOUT
def test_a_layout_that_names_no_block_degrades_a_page_with_ink(layout: str) -> None:
    image = BLANK.image.copy()
    image.paste(0, (50, 50, 80, 60))
    reading = read(layout, page=replace(BLANK, image=image))
    said = f"the model's layout, {len(layout):,} characters, names no block"
    assert reading.error_message == f"no text was found, though there is ink: {said}"
    assert (reading.blocks, reading.markdown, reading.ink_outside) == ((), "", 1)


def test_a_page_with_no_more_than_its_number_is_not_empty() -> None:
    image = BLANK.image.copy()
    image.paste(0, (97, 290, 101, 292))
    reading = read("no block", page=replace(BLANK, image=image))
    assert reading.error_message and reading.ink_outside is None


@NO_LAYOUT
def test_a_blank_page_without_a_block_is_read_whatever_its_layout_says(layout: str) -> None:
    reading = read(layout)
    assert (reading.error_message, reading.blocks, reading.ink_outside) == (None, (), None)


def test_an_endless_number_costs_only_its_own_block() -> None:
    sound = line("0 100 900 200", "text")
    reading = read(line(f"0 0 900 {'1' * 5000}", "text") + sound, "read")
    assert [b.content for b in reading.blocks] == ["read"]


def test_a_layout_in_circles_is_cut_where_it_asks_for_too_many_pixels() -> None:
    boxes = [line(f"0 {top} 1000 {top + 400}", "text") for top in range(0, 600, 50)] * 20
    types = ["text", "caption", "footnote", "code", "index", "ref_text", "title", "footer"]
    layout = "".join(box.replace("text", type) for type in types for box in boxes)
    reader = Reader(completion(layout, "repetition"))
    reading = reader.read()
    num_pixels = sum(r.pixels.height * r.pixels.width for asked in reader.batches[1:] for r in asked)
    assert num_pixels <= MAX_READ_AREA * 200 * 300
    assert reading.error_message == (
        "the layout looped; "
        f"the layout names blocks of more than 4 pages together: {96 - len(reading.blocks)} blocks left out"
    )


@pytest.mark.parametrize("size", [(1, 1), (1, 3500), (3500, 1), (3, 200)])
def test_pages_of_absurd_shape_give_crops_a_model_can_take(size: tuple[int, int]) -> None:
    boxes = ["0 0 1000 1000", "0 0 1 1", "0 0 1000 1", "0 0 1 1000"]
    layout = "".join(line(b, type, turn=turn) for b in boxes for type, turn in (("code", "left"), ("table", "up")))
    reader = Reader(layout)
    assert len(reader.read(Page(Image.new("RGB", size), None)).blocks) == 8
    crops = [request.pixels for asked in reader.batches[1:] for request in asked]
    assert all(min(p.height, p.width) >= 28 and max(p.height, p.width) <= 200 * min(p.height, p.width) for p in crops)


def test_answers_that_did_not_end_on_their_own_degrade_the_page() -> None:
    layout = "".join(line(f"0 {top} 900 {top + 50}", "text") for top in (0, 100, 200, 300))
    answers = [completion("a", "length"), completion("b", "repetition"), completion("c", "length"), "d"]
    reading = read(completion(layout, "length"), *answers)
    assert reading.error_message == (
        "the layout hit its token limit; blocks 0 and 2 hit the token limit; block 1 looped"
    )
    assert [b.content for b in reading.blocks] == ["a", "b", "c", "d"]


def test_a_block_the_engine_refused_has_no_content_and_the_others_are_read() -> None:
    layout = line("0 0 900 100", "equation_block") + line("0 0 900 50", "equation") + line("0 50 900 100", "equation")
    layout += line("0 100 900 200", "table") + line("0 200 900 300", "equation")
    refused = completion("", error="the prompt is too long")
    reading = read(layout, refused, "b", "<fcel>x<nl>", refused)
    assert [(b.type, b.content, b.finish_reason) for b in reading.blocks] == [
        ("equation", "\\[\n\\begin{array}{l}  \\\\ b \\\\ \\end{array}\n\\]", None),
        ("table", "<table><tr><td>x</td></tr></table>", "stop"),
        ("equation", None, None),
    ]
    assert reading.error_message == "blocks 0 and 2 could not be read: the prompt is too long"


def test_a_page_whose_layout_the_engine_refused_fails() -> None:
    with pytest.raises(RefusedError, match="no room"):
        read(completion("", error="no room"))


def test_a_table_that_does_not_parse_degrades_the_page_and_keeps_what_the_model_said() -> None:
    layout = line("0 0 900 100", "table") + line("0 100 900 200", "table")
    reading = read(layout, "no cells at all, ```\n<b>5</b>", "<fcel>x<nl>")
    assert reading.error_message == "table 0 could not be parsed"
    assert [b.content for b in reading.blocks] == [
        "no cells at all, ```\n<b>5</b>",
        "<table><tr><td>x</td></tr></table>",
    ]
    assert reading.markdown == (
        "*A table that could not be parsed, as the model wrote it:*\n\n"
        "````\nno cells at all, ```\n<b>5</b>\n````\n\n<table><tr><td>x</td></tr></table>\n"
    )
    assert read(layout, "[Non-Text]", "").error_message is None


def test_a_table_in_html_that_is_cut_off_is_kept_and_closed() -> None:
    reading = read(line("0 0 900 100", "table"), completion("<table><tr><td>a<td>b", "length"))
    assert reading.error_message == "block 0 hit the token limit; table 0 could not be parsed"
    assert [b.content for b in reading.blocks] == ["<table><tr><td>a<td>b"]
    assert reading.markdown == "<table><tr><td>a</td><td>b</td></tr></table>\n"


def test_a_picture_in_a_table_that_does_not_parse_is_named_by_its_place() -> None:
    code = "".join(random.Random(PICTURE_CODE_SEED).choices(TABLE_IMAGE_TOKEN_CHARS, k=4))
    layout = line("100 100 900 900", "table") + line("200 300 500 600", "image")
    [table] = read(layout, f"[{code}] and words").blocks
    assert table.content == '<img src="#bbox=0.2,0.3,0.5,0.6"/> and words'


def test_the_blocks_of_a_message_are_those_that_the_row_and_its_markdown_number() -> None:
    layout = (
        line("0 0 900 40", "text")  # answered with [Non-Text], so it is dropped
        + line("0 50 900 90", "image")
        + line("0 100 900 200", "equation_block")  # dropped, and its parts become one block
        + line("0 100 900 150", "equation")
        + line("0 150 900 200", "equation")
        + line("0 300 900 400", "text")
        + line("0 400 900 500", "image")
        + line("0 500 900 600", "table")
    )
    answers = [
        completion("[Non-Text]", "length"),
        "a",
        completion("b", "repetition"),
        completion("cut", "length"),
        "no",
    ]
    reading = read(layout, *answers)
    assert [b.type for b in reading.blocks] == ["image", "equation", "text", "image", "table"]
    assert reading.error_message == (
        "block 2 (and 1 that the row leaves out) hit the token limit; block 1 looped; table 4 could not be parsed"
    )
    assert "![image](#block-3)" in reading.markdown


@pytest.mark.parametrize("text", ["a<fcel>b<nl>", "so <|im_end|>", "<ecel>"])
def test_the_models_own_tokens_in_a_text_are_a_shortfall_and_in_a_table_they_are_none(text: str) -> None:
    assert read(line("0 0 900 400", "text"), text).error_message == "the model's own tokens are in block 0"
    table = read(line("0 0 900 400", "table"), "<fcel>a<fcel>b<nl>")
    assert table.error_message is None and (table.blocks[0].content or "").startswith("<table")


@pytest.mark.parametrize("text", ["a < b > c", "x <nl", "<cell>", "|<a>|"])
def test_what_only_looks_like_a_token_is_text(text: str) -> None:
    assert read(line("0 0 900 400", "text"), text).error_message is None


@pytest.mark.parametrize(
    ("places", "said"),
    [
        ([3], "block 3"),
        ([7, 3], "blocks 3 and 7"),
        ([3, 7, 12], "blocks 3, 7 and 12"),
        ([5, 5], "block 5"),
        (list(range(10)), "blocks 0, 1, 2, 3, 4, 5, 6, 7, 8 and 9"),
        (list(range(400)), "blocks 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 390 more"),
        ([None], "1 block that the row leaves out"),
        ([None, None], "2 blocks that the row leaves out"),
        ([4, 9, None], "blocks 4 and 9 (and 1 that the row leaves out)"),
    ],
)
def test_blocks_are_named_by_their_numbers_and_long_lists_are_short(places: Sequence[int | None], said: str) -> None:
    assert name_blocks(places) == said


def test_the_reason_of_the_first_refusal_stands_for_those_of_the_others() -> None:
    refused = [completion("", error=f"the engine failed on it: {number}") for number in (1, 1, 2)]
    answers = [*zip(refused, range(3), strict=True)]
    alike, unlike = answer_shortfalls(answers[:2]), answer_shortfalls(answers)
    assert alike == ["blocks 0 and 1 could not be read: the engine failed on it: 1"]
    assert unlike == ["blocks 0, 1 and 2 could not be read: the engine failed on it: 1, and others for other reasons"]
