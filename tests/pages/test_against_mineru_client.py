"""Whole runs against MinerU's own client on transformers: the same blocks for every page, to the letter.

Both get the same pixels, those of `pages/input/render`. The sample model's text depends on the image; pages of all
kinds are read with the quick model, whose answers are short. Batches differ, and with them the rounding of float32, but
no page is exempted because of it. Two features of MinerU's client are not covered, since these models' blocks hardly
overlap and are never rotated: the random codes it draws over pictures in tables, and its rotated crops.

BATCHOCR_FULL=1 reads the whole exam, not a quarter of two of its pages.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import groupby, islice
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pytest
from PIL import Image

import batchocr
from batchocr.data import PageResult
from batchocr.pages.input.render import open_document
from tests.support.mineru_oracle import make_client
from tests.support.running import QUICK_MODEL

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quick_processes")]

FULL = os.environ.get("BATCHOCR_FULL") == "1"
DPI = 200
PASSWORD = "batchocr"
PAGES_AT_ONCE = 16
"""Pages per call of the client, and chats per batch in it: its fastest setting from 1 to 32 on two cores."""


class ReadBlock(NamedTuple):
    type: str
    bbox: tuple[float, ...]
    angle: int | None
    content: str | None
    merge_prev: bool
    sub_type: str | None


Readings: TypeAlias = dict[tuple[str, int | None], tuple[ReadBlock, ...]]
"""The blocks of each page, by source and page_index."""


def read_by_us(paths: Path, model: Path, *, max_new_tokens: int, **others: Any) -> list[PageResult]:
    options = {"max_new_tokens": max_new_tokens, "penalties": False, "dpi": DPI, "dtype": "float32", "device": "cpu"}
    return list(batchocr.process(paths, model=model, password=PASSWORD, **options, **others))


def read_by_mineru(
    folder: Path, rows: Sequence[PageResult], model: Path, *, max_new_tokens: int, image_analysis: bool = False
) -> Readings:
    """What MinerU's client reads from the pages of these rows, whose sources are in `folder`."""
    client = make_client(model, batch_size=PAGES_AT_ONCE, max_new_tokens=max_new_tokens)
    images = rendered(folder, rows)
    results = []
    while some := list(islice(images, PAGES_AT_ONCE)):
        results += client.batch_two_step_extract(some, image_analysis=image_analysis)
    return {
        (row.source, row.page_index): tuple(
            ReadBlock(
                *(block.type, tuple(block.bbox), block.angle, block.content),
                *(block.get("merge_prev", False), block.get("sub_type")),
            )
            for block in blocks
        )
        for row, blocks in zip(rows, results, strict=True)
    }


def rendered(folder: Path, rows: Sequence[PageResult]) -> Iterator[Image.Image]:
    for source, of_document in groupby(rows, key=lambda row: row.source):
        with closing(open_document(str(folder / source), password=PASSWORD, dpi=DPI)) as document:
            for row in of_document:
                assert row.page_index is not None
                yield document.render(row.page_index).image


def readings(rows: Sequence[PageResult]) -> Readings:
    return {
        (row.source, row.page_index): tuple(
            ReadBlock(block.type, block.bbox, block.angle, block.content, block.merge_prev, block.sub_type)
            for block in row.blocks
        )
        for row in rows
    }


def assert_the_comparison_can_fail(rows: Sequence[PageResult]) -> None:
    """Nine pages in ten have blocks that were read in the second batch, and nine in ten readings are distinct."""
    num_two_rounds = sum(any(block.confidence is not None for block in row.blocks) for row in rows)
    assert num_two_rounds >= 0.9 * len(rows)
    assert len(set(readings(rows).values())) >= 0.9 * len(rows)


@pytest.mark.long
def test_every_sample_page_has_the_blocks_of_minerus_client(sample_data: Path) -> None:
    folder, model = sample_data / "documents", QUICK_MODEL
    rows = read_by_us(folder, model, max_new_tokens=256)
    assert [row.source for row in rows if row.status == "failed"] == ["broken.pdf"]
    read = [row for row in rows if row.status != "failed"]
    assert_the_comparison_can_fail(read)
    assert readings(read) == read_by_mineru(folder, read, model, max_new_tokens=256)


def test_what_the_sample_model_reads_is_what_it_reads_for_minerus_client(sample_data: Path, tmp_path: Path) -> None:
    folder, model = sample_data / "exam", sample_data / "model"
    if not FULL:
        for name in ("all-kinds-5.png", "familiar-4.png"):  # tables, formulas, pictures, captions, titles, texts
            with Image.open(folder / name) as page:
                page.crop((0, 0, page.width, page.height // 4)).save(tmp_path / name)
        folder = tmp_path
    rows = read_by_us(folder, model, max_new_tokens=1024)
    assert_the_comparison_can_fail(rows)
    assert readings(rows) == read_by_mineru(folder, rows, model, max_new_tokens=1024)


@pytest.mark.long
def test_figures_are_read_as_by_minerus_client(sample_data: Path) -> None:
    folder, model = sample_data / "documents", QUICK_MODEL
    rows = read_by_us(folder / "article.pdf", model, max_new_tokens=256, figures="read", pages="1")
    figures = [block for row in rows for block in row.blocks if block.sub_type]
    assert figures and all(block.description and block.description == block.content for block in figures)
    assert readings(rows) == read_by_mineru(folder, rows, model, max_new_tokens=256, image_analysis=True)


def test_every_real_page_has_the_blocks_of_minerus_client(corpus: Path) -> None:
    folder, model = corpus / "real", QUICK_MODEL
    rows = read_by_us(folder, model, max_new_tokens=256)
    assert not [row for row in rows if row.status == "failed"]
    assert_the_comparison_can_fail(rows)
    assert readings(rows) == read_by_mineru(folder, rows, model, max_new_tokens=256)
