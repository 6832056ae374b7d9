"""Runs with --text-layer: what it changes in a table, and what it leaves as it is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import batchocr
from batchocr import open_table
from batchocr.config import Config
from batchocr.data import PageResult
from batchocr.errors import OutputMismatchError
from batchocr.pages.protocol.revision import TRUSTED_TEXT

pytestmark = pytest.mark.slow

OPTIONS: dict[str, Any] = {"dpi": 72, "workers": 1, "pages_in_flight": 2, "dtype": "float32", "max_degraded_rate": 1}
AGREEMENT = {"text_layer_agreement": None}


@pytest.fixture(scope="module")
def article(sample_data: Path) -> Path:
    return sample_data / "documents" / "article.pdf"


def rows_of(path: Path) -> list[PageResult]:
    return list(open_table(path).rows())


@pytest.mark.long
def test_off_and_check_differ_in_the_agreement_alone(tmp_path: Path, model: Path, article: Path) -> None:
    off, check = (tmp_path / f"{name}.parquet" for name in ("off", "check"))
    batchocr.run(article, out=off, model=model, text_layer="off", **OPTIONS)
    batchocr.run(article, out=check, model=model, text_layer="check", **OPTIONS)
    assert Config().text_layer == "check"
    assert [replace(row, **AGREEMENT) for row in rows_of(check)] == rows_of(off)
    assert open_table(off).metadata == open_table(check).metadata
    assert "text_layer" not in open_table(off).metadata.settings


@pytest.mark.long
def test_a_run_goes_on_with_the_other_use(tmp_path: Path, model: Path, article: Path) -> None:
    out = tmp_path / "t.parquet"
    batchocr.run(article, out=out, model=model, text_layer="off", **OPTIONS)
    again = batchocr.run(article, out=out, model=model, text_layer="check", **OPTIONS)
    assert again.nothing_to_do


def test_trust_takes_texts_from_the_page_and_is_a_setting(tmp_path: Path, article: Path, sample_data: Path) -> None:
    out, options = tmp_path / "trust.parquet", OPTIONS | {"model": sample_data / "model"}
    report = batchocr.run(article, out=out, text_layer="trust", limit=1, **options)
    [row] = rows_of(out)
    trusted = [block for block in row.blocks if block.text_source == "page"]
    assert trusted and all(block.content and block.tokens is None for block in trusted)
    assert report.text_layer_agreement.pages == (row.text_layer_agreement is not None)
    assert open_table(out).metadata.settings["text_layer"] == f"trust r{TRUSTED_TEXT}"
    with pytest.raises(OutputMismatchError, match=r"text_layer trust r1 there, not set here\): run with the same"):
        batchocr.run(article, out=out, **options)
