"""Runs with --text-layer: what it changes in a table, and what it leaves as it is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

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
def test_of_sound_answers_off_and_check_differ_in_the_agreement_alone(
    tmp_path: Path, model: Path, article: Path
) -> None:
    off, check = (tmp_path / f"{name}.parquet" for name in ("off", "check"))
    batchocr.run(article, out=off, model=model, text_layer="off", **OPTIONS)
    batchocr.run(article, out=check, model=model, text_layer="check", **OPTIONS)
    assert Config().text_layer == "check"
    assert [replace(row, **AGREEMENT) for row in rows_of(check)] == rows_of(off)


@pytest.mark.parametrize("use", [pytest.param("off", marks=pytest.mark.long), "check"])
def test_an_answer_that_was_cut_is_rescued_by_default_and_not_without_the_text_layer(
    tmp_path: Path, article: Path, sample_data: Path, use: Literal["off", "check"]
) -> None:
    out, options = tmp_path / "t.parquet", OPTIONS | {"model": sample_data / "model", "dpi": 200}
    report = batchocr.run(article, out=out, pages="1", text_layer=use, max_new_tokens=48, **options)
    [row] = rows_of(out)
    cut = [block for block in row.blocks if block.finish_reason == "length"]
    rescued = [block for block in cut if block.text_source == "page"]
    assert cut and all(len(block.content or "") > 48 for block in rescued)
    if use == "check":
        assert (row.status, row.error_message, row.rescued_blocks) == ("ok", None, len(cut))
        assert rescued == cut and report.traits == {"rescued": 1}
    else:
        assert (row.status, rescued, row.rescued_blocks) == ("degraded", [], 0)
    other = "check" if use == "off" else "off"
    with pytest.raises(OutputMismatchError, match=rf"text_layer {use}( r\d)? there, {other}( r\d)? here"):
        batchocr.run(article, out=out, pages="1", text_layer=other, max_new_tokens=48, **options)


def test_trust_takes_texts_from_the_page_and_is_a_setting(tmp_path: Path, article: Path, sample_data: Path) -> None:
    out, options = tmp_path / "trust.parquet", OPTIONS | {"model": sample_data / "model"}
    report = batchocr.run(article, out=out, text_layer="trust", limit=1, **options)
    [row] = rows_of(out)
    trusted = [block for block in row.blocks if block.text_source == "page"]
    assert trusted and all(block.content and block.tokens is None for block in trusted)
    assert report.text_layer_agreement.pages == (row.text_layer_agreement is not None)
    assert open_table(out).metadata.settings["text_layer"] == f"trust r{TRUSTED_TEXT}"
    with pytest.raises(OutputMismatchError, match=r"text_layer trust r2 there, check r2 here\): run with the same"):
        batchocr.run(article, out=out, **options)
