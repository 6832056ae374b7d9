"""Pages read MinerU's way: the same questions and blocks as MinerU's own client, and what is said of each block."""

from __future__ import annotations

import random
import re
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import mineru_vl_utils.mineru_client as mineru_client
import pymupdf
import pytest
from mineru_vl_utils.mineru_client import DEFAULT_PROMPTS, DEFAULT_SAMPLING_PARAMS
from mineru_vl_utils.post_process.table_image_processor import TABLE_IMAGE_TOKEN_CHARS
from mineru_vl_utils.vlm_client import SamplingParams, VlmClient
from PIL import Image

from batchocr.data import Block, Completion, Page, Sampling
from batchocr.pages.protocol.families import VERSIONS
from batchocr.pages.protocol.families.mineru import PICTURE_CODE_SEED, MinerUProtocol
from batchocr.pages.protocol.revision import MAX_LAYOUT_TOKENS
from tests.support.page_reading import PROTOCOL, Reader, completion, line, read

# --- against MinerU's own client -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """What MinerU asked a model."""

    image: Image.Image
    prompt: str
    params: SamplingParams


class AnsweringClient(VlmClient):
    """Takes the place of the model in MinerU's client."""

    def __init__(self, layout: str, answer: Callable[[int, str], str]) -> None:
        super().__init__()
        self.layout, self.answer = layout, answer
        self.asked: list[Asked] = []

    def predict(self, image: Any, prompt: str = "", sampling_params: Any = None, priority: Any = None) -> str:
        self.asked.append(Asked(image, prompt, sampling_params))
        return self.layout

    def batch_predict(
        self, images: Any, prompts: Any = "", sampling_params: Any = None, priority: Any = None
    ) -> list[str]:
        self.asked += map(Asked, images, prompts, sampling_params)
        return [self.answer(number, prompt) for number, prompt in enumerate(prompts)]


def mineru_reads(
    page: Page, layout: str, answer: Callable[[int, str], str], monkeypatch: pytest.MonkeyPatch, **options: Any
) -> tuple[list[dict[str, Any]], list[Asked]]:
    """What the real MinerUClient, with its defaults but for these options, makes of the page, and what it asked."""
    model = AnsweringClient(layout, answer)
    monkeypatch.setattr(mineru_client, "new_vlm_client", lambda **options: model)
    client = mineru_client.MinerUClient(backend="transformers", model=object(), processor=object(), **options)
    random.seed(PICTURE_CODE_SEED)
    return list(client.two_step_extract(page.image)), model.asked


@pytest.fixture(scope="module")
def article(sample_data: Path) -> Page:
    pixmap = pymupdf.open(sample_data / "documents" / "article.pdf")[1].get_pixmap(dpi=100)
    return Page(Image.frombytes("RGB", (pixmap.width, pixmap.height), pixmap.samples), 100)


EVERYTHING = "".join(
    [
        line("100 050 400 070", "header"),
        line("100 072 400 076", "footer"),
        line("121 092 879 140", "text"),
        line("121 160 400 180", "title"),
        line("121 190 879 250", "text", tail="<|txt_contd_tgt|>"),
        line("121 190 879 251", "text"),  # a duplicate
        line("180 280 820 450", "table"),
        line("200 300 300 350", "image"),  # inside the table
        line("500 300 600 340", "text"),  # inside the table
        line("180 450 820 470", "table_footnote"),
        line("100 480 500 560", "table", turn="left"),
        line("120 490 200 520", "image"),  # inside the turned table
        line("100 570 900 700", "equation_block"),
        line("110 580 890 630", "equation"),
        line("110 640 890 690", "equation"),
        line("100 705 300 730", "equation"),
        line("310 705 340 730", "formula_number"),
        line("350 705 900 730", "code", turn="right"),
        line("100 740 900 800", "list"),
        line("110 742 890 765", "list_item"),
        line("110 770 890 795", "list_item"),
        line("100 800 900 860", "image_block"),
        line("110 802 450 840", "image"),
        line("500 802 890 840", "chart"),
        line("110 842 450 858", "image_caption"),  # inside the image_block
        line("100 870 101 871", "text"),  # hardly a pixel
        line("100 880 900 882", "text"),  # long and thin
        line("900 100 903 900", "aside_text", turn="down"),
        line("100 900 300 920", "no_such_type"),
        line("100 900 300 920", "inline_formula"),
        line("100 900 100 920", "text"),  # no width
        line("100 900 3000 920", "text"),  # beyond the page
        line("480 950 520 960", "page_number"),
    ]
)


def picture_code() -> str:
    return "".join(random.Random(PICTURE_CODE_SEED).choices(TABLE_IMAGE_TOKEN_CHARS, k=4))


def answer_everything(number: int, prompt: str) -> str:
    if prompt == "\nTable Recognition:":
        return f"<fcel>[{picture_code()}]<fcel>a & b<nl><fcel>c<lcel><nl>"
    if prompt == "\nFormula Recognition:":
        return rf"\[ a_{{{number}}} \leq \left( b \tag{{1}} \]"
    return ["[Non-Text]", r"a \[ x \in Y \] b", "answer"][number % 3] + f" {number}" * (number > 1)


def test_the_questions_are_those_of_mineru(article: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader(EVERYTHING, answer_everything)
    reader.read(article)
    _, asked = mineru_reads(article, EVERYTHING, answer_everything, monkeypatch)

    [[layout], blocks] = reader.batches
    assert layout.pixels.data == article.image.tobytes()
    assert layout.resize_to == (1036, 1036)
    assert asked[0].image.tobytes() == article.image.resize((1036, 1036), Image.Resampling.BICUBIC).tobytes()
    assert [r.prompt for r in (layout, *blocks)] == [a.prompt for a in asked]
    assert [(r.pixels.width, r.pixels.height) for r in blocks] == [a.image.size for a in asked[1:]]
    assert [r.pixels.data for r in blocks] == [a.image.tobytes() for a in asked[1:]]
    limits = [MAX_LAYOUT_TOKENS] + [4096] * len(blocks)
    assert [replace(r.sampling, loop_check="at_once") for r in (layout, *blocks)] == [
        Sampling(limit, a.params.presence_penalty, a.params.frequency_penalty, 100)
        for limit, a in zip(limits, asked, strict=True)
    ]
    assert [r.sampling.loop_check == "at_limit" for r in (layout, *blocks)] == [
        a.prompt == DEFAULT_PROMPTS["table"] for a in asked
    ]
    assert [r.round for r in (layout, *blocks)] == [0] + [1] * len(blocks)


def test_the_blocks_are_those_of_mineru(article: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = Reader(EVERYTHING, answer_everything).read(article).blocks
    theirs, _ = mineru_reads(article, EVERYTHING, answer_everything, monkeypatch)

    assert len(theirs) > 15
    assert [(b.type, list(b.bbox), b.angle, b.merge_prev) for b in ours] == [
        (b["type"], b["bbox"], b["angle"], b.get("merge_prev", False)) for b in theirs
    ]
    assert [b.content and re.sub('src="[^"]*"', "", b.content) for b in ours] == [
        b["content"] and re.sub('src="[^"]*"', "", b["content"]) for b in theirs
    ]


def test_a_picture_in_a_table_is_named_by_its_place(article: Page) -> None:
    reading = Reader(EVERYTHING, answer_everything).read(article)
    upright, turned = [b.content or "" for b in reading.blocks if b.type == "table"]
    assert '<td><img src="#bbox=0.2,0.3,0.3,0.35"/></td><td>a &amp; b</td>' in upright
    assert "base64" not in repr(reading)
    assert turned.startswith("<table>")


def test_a_page_reads_the_same_every_time_and_leaves_random_alone(article: Page) -> None:
    first, second = Reader(EVERYTHING, answer_everything), Reader(EVERYTHING, answer_everything)
    random.seed(1)
    expected = random.Random(1).random()
    assert first.read(article) == second.read(article)
    assert random.random() == expected
    assert [r.pixels.data for r in first.batches[1]] == [r.pixels.data for r in second.batches[1]]


def test_a_mineru_with_a_penalty_that_the_engine_does_not_know_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DEFAULT_SAMPLING_PARAMS["[layout]"], "repetition_penalty", 1.1)
    with pytest.raises(NotImplementedError, match="mineru-vl-utils sets a repetition penalty"):
        MinerUProtocol(max_new_tokens=7, penalties=True)
    MinerUProtocol(max_new_tokens=7, penalties=False)


def test_without_penalties_every_rule_is_off() -> None:
    reader = Reader(line("0 0 900 100", "text") + line("0 100 900 200", "table"))
    reader.read(protocol=MinerUProtocol(max_new_tokens=7, penalties=False))
    plain = Sampling(7, 0.0, 0.0, 0, loop_check="never")
    [[layout], blocks] = reader.batches
    assert [r.sampling for r in blocks] == [plain] * 2
    assert layout.sampling == replace(plain, max_new_tokens=MAX_LAYOUT_TOKENS)


def test_the_limit_of_a_block_does_not_cut_the_layout() -> None:
    for max_new_tokens in (1, 100_000):
        reader = Reader(line("0 0 900 100", "text"))
        reader.read(protocol=MinerUProtocol(max_new_tokens=max_new_tokens, penalties=True))
        [[layout], [block]] = reader.batches
        assert (layout.sampling.max_new_tokens, block.sampling.max_new_tokens) == (MAX_LAYOUT_TOKENS, max_new_tokens)


# --- what is known of each block -------------------------------------------------------------------------------------


def test_each_block_carries_what_is_known_of_its_answer() -> None:
    sure = Completion("sure", "stop", 10, 5, 0.99, -0.01)
    loop = Completion("la la la", "repetition", 20, 6, 0.5, -2.0)
    layout = line("0 0 900 100", "text") + line("0 100 900 200", "image") + line("0 200 900 300", "caption")
    reading = read(Completion(layout, "stop", 1369, 40, 0.9, -0.1), sure, loop)
    assert reading.blocks == (
        Block("text", (0.0, 0.0, 0.9, 0.1), 0, "sure", False, 0.99, -0.01, 5, "stop", "model"),
        Block("image", (0.0, 0.1, 0.9, 0.2), 0, None),
        Block("caption", (0.0, 0.2, 0.9, 0.3), 0, "la la la", False, 0.5, -2.0, 6, "repetition", "model"),
    )
    assert (reading.layout_confidence, reading.layout_min_logprob) == (0.9, -0.1)
    assert (reading.image_tokens, reading.output_tokens) == (1399, 51)
    assert reading.markdown == "sure\n\n![image](#block-1)\n\nla la la\n"


def test_parts_of_an_equation_block_become_one_block_of_which_no_answer_is_known() -> None:
    parts = line("0 0 900 50", "equation") + line("0 50 900 100", "equation")
    [block] = read(line("0 0 900 100", "equation_block") + parts, "a", "b").blocks
    assert (block.type, block.confidence, block.finish_reason) == ("equation", None, None)
    assert block.content == "\\[\n\\begin{array}{l} a \\\\ b \\\\ \\end{array}\n\\]"


def test_a_block_answered_with_nothing_has_empty_content() -> None:
    reading = read(line("0 0 900 100", "text"), "")
    assert [b.content for b in reading.blocks] == [""]
    assert (reading.error_message, reading.markdown) == (None, "")


# --- the process it lives in -----------------------------------------------------------------------------------------


def test_a_page_is_let_go_while_the_model_reads_its_blocks() -> None:
    page = Page(Image.new("RGB", (200, 300)), None)
    pixels = weakref.ref(page.image)
    reader = PROTOCOL.read(page)
    next(reader)
    assert len(reader.send([completion(line("0 0 900 100", "text"))])) == 1
    del page
    assert pixels() is None


def test_mineru_stays_silent(capfd: pytest.CaptureFixture[str]) -> None:
    read("Sorry, I cannot see a page.")
    assert capfd.readouterr().err == ""


def test_the_version_names_the_library() -> None:
    assert re.fullmatch(r"mineru [\d.]+ r\d+", VERSIONS["mineru"])
