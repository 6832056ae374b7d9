"""The sample model reads the sample documents: what it reads is what is on the page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import batchocr
from batchocr.data import PageResult
from benchmarks.accuracy.scoring import character_error_rate
from sample_data import documents_text
from tests.support.jobs import FULL

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pages(sample_data: Path) -> list[PageResult]:
    """All of the sample documents, of which each takes seconds, or one in a short form of the tests."""
    documents = sample_data / "documents" if FULL else sample_data / "documents" / "encrypted.pdf"
    return list(batchocr.process(documents, model=sample_data / "model", password="batchocr"))


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
