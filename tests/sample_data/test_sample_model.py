"""The sample model: it loads as MinerU2.5 does, and what it reads is what is on the page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mineru_vl_utils.mineru_client import DEFAULT_PROMPTS
from transformers import AutoConfig, AutoTokenizer

import batchocr
from batchocr.data import PageResult
from benchmarks.accuracy.scoring import character_error_rate
from sample_data import documents_text
from tests.support.jobs import FULL
from tests.support.running import QUICK_MODEL

pytestmark = pytest.mark.slow

LAYOUT = DEFAULT_PROMPTS["[layout]"]


@pytest.fixture(scope="module")
def folder(sample_data: Path) -> Path:
    return sample_data / "model"


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Any:
    return AutoTokenizer.from_pretrained(folder, local_files_only=True)


def chat(tokenizer: Any, prompt: str) -> str:
    content = [{"type": "image"}, {"type": "text", "text": prompt}]
    return str(
        tokenizer.apply_chat_template(
            [{"role": "user", "content": content}], tokenize=False, add_generation_prompt=True
        )
    )


def test_the_checkpoint_is_small_enough_for_the_repository(folder: Path) -> None:
    assert sum(path.stat().st_size for path in folder.iterdir()) < 6_000_000


@pytest.mark.parametrize("is_tied", [False, True], ids=["sample model", "quick model"])
def test_the_config_has_the_layout_of_the_newest_mineru_models(folder: Path, is_tied: bool) -> None:
    folder = QUICK_MODEL if is_tied else folder
    config = AutoConfig.from_pretrained(folder, local_files_only=True)

    assert config.architectures == ["Qwen2VLForConditionalGeneration"]
    assert '"text_config"' in (folder / "config.json").read_text()
    assert config.text_config.tie_word_embeddings == is_tied


def test_the_chat_template_is_that_of_qwen2_vl(tokenizer: Any) -> None:
    assert chat(tokenizer, LAYOUT) == (
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
        "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>\nLayout Detection:<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


@pytest.mark.parametrize(
    "text", ["naïve Ωmega 漢字 🙂", "a\n\nb\t c  <fcel>x<nl>", "<|box_start|>012 345 678 999<|box_end|>"]
)
def test_any_text_survives_the_tokenizer(tokenizer: Any, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.fixture(scope="module")
def pages(sample_data: Path, folder: Path) -> list[PageResult]:
    """All of the sample documents, of which each takes seconds, or one in a short form of the tests."""
    documents = sample_data / "documents" if FULL else sample_data / "documents" / "encrypted.pdf"
    return list(batchocr.process(documents, model=folder, password="batchocr"))


@pytest.mark.long
def test_every_page_of_the_sample_documents_is_read(pages: list[PageResult]) -> None:
    assert [(page.source, page.error_kind) for page in pages if page.status == "failed"] == [("broken.pdf", "damaged")]
    assert all(any(block.content for block in page.blocks) for page in pages if page.status != "failed")


@pytest.mark.parametrize(
    ("source", "written", "rate"),
    [
        ("encrypted.pdf", documents_text.RECIPE, 0.05),
        *(
            pytest.param(name, text, rate, marks=pytest.mark.long)
            for name, text, rate in (
                ("article.pdf", (documents_text.ARTICLE_OPENING, documents_text.ARTICLE_CLOSING), 0.15),
                ("fax.tiff", documents_text.FAX_PAGES, 0.2),
                ("scanned-letter.png", documents_text.LETTER, 0.15),
            )
        ),
    ],
)
def test_what_the_paragraphs_of_a_document_say_is_read(
    pages: list[PageResult], source: str, written: object, rate: float
) -> None:
    """Each paragraph is compared with the block most like it; the rest of the pages is ignored.

    The text of another document gets 0.7 to 0.8 this way.
    """
    blocks = [block.content for page in pages if page.source.endswith(source) for block in page.blocks if block.content]
    paragraphs = [words for words in _texts(written) if len(words) > 40]
    nearest = [min((character_error_rate([(words, block)]), block) for block in blocks)[1] for words in paragraphs]
    assert character_error_rate(list(zip(paragraphs, nearest, strict=True))) < rate


def _texts(written: object) -> Iterator[str]:
    if isinstance(written, str):
        yield written
    elif isinstance(written, tuple):
        for part in written:
            yield from _texts(part)
