"""Documents that people have: every figure is the page's own pixels, and every piece of text is there once."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from PIL import Image

from batchocr.config import Config
from batchocr.data import Block
from batchocr.documents.assembly.assemble import open_table
from batchocr.documents.export.export import Export
from batchocr.documents.export.figures import pixel_box
from batchocr.documents.export.folder import ExportFolder
from batchocr.documents.export.formats import FormatOptions
from batchocr.documents.export.names import Names
from batchocr.processes.source_files import SourceFiles
from tests.conftest import ROOT
from tests.support.documents import DPI, block, page_of, rows_of, write_table
from tests.support.mineru_output_schema import CONTENT_LIST, CONTENT_LIST_V2, MODEL

pytestmark = pytest.mark.slow

SAMPLES = ROOT / "sample_data" / "documents"
FIGURES = [block("image", None, (0.1, 0.2, 0.613, 0.4)), block("chart", None, (0.3, 0.5, 0.613, 0.677))]
TEXTS = ("Before the figures.", "Between them.", "After them.")
PAGE: list[Block] = [
    block("text", TEXTS[0], (0.1, 0.1, 0.9, 0.19)),
    FIGURES[0],
    block("text", TEXTS[1], (0.1, 0.41, 0.9, 0.49)),
    FIGURES[1],
    block("text", TEXTS[2], (0.1, 0.88, 0.9, 0.9)),
]
"""What is said to have been read of every first page."""


def check(folder: Path, to: Path, *, each: int = 1) -> int:
    """Export the first page of each document, or one of several, in the folder that has one; returns how many."""
    rows = []
    for path in sorted(folder.iterdir())[::each]:
        try:
            rows += rows_of(path, path.name, PAGE)
        except Exception:  # noqa: BLE001 (encrypted or damaged: what becomes of it is not asked here)
            continue
    table = open_table(write_table(to / "t.parquet", rows))
    names = Names(table.sources())
    with SourceFiles([str(folder)], Config(model="none", dpi=DPI)) as sources, ExportFolder(to / "out") as out:
        done = Export(table, out, ("md", "mineru"), FormatOptions(), sources).run(names)
    assert (done.written, done.missing_figures, done.refused) == (len(rows), {}, 0)
    for row in rows:
        check_document(to / "out", names.name_of(row.source), page_of(folder / row.source))
    return len(rows)


def check_document(out: Path, name: str, page: Image.Image) -> None:
    text = (out / f"{name}.md").read_text()
    assert [text.count(part) for part in TEXTS] == [1, 1, 1]
    for index, figure in ((1, FIGURES[0]), (3, FIGURES[1])):
        path = out / f"{name}.images" / f"page-1-block-{index}.png"
        with Image.open(path) as picture:
            assert picture.tobytes() == page.crop(pixel_box(figure.bbox, *page.size)).tobytes()
    stem = out / name / name.rpartition("/")[2]
    for suffix, schema in (("content_list", CONTENT_LIST), ("content_list_v2", CONTENT_LIST_V2), ("model", MODEL)):
        Draft202012Validator(schema).validate(json.loads(Path(f"{stem}_{suffix}.json").read_text()))
    entries = json.loads(Path(f"{stem}_content_list.json").read_text())
    assert [entry.get("text") for entry in entries if entry["type"] == "text"] == list(TEXTS)
    for entry, figure in zip((entry for entry in entries if "img_path" in entry), FIGURES, strict=True):
        with Image.open(io.BytesIO((out / name / entry["img_path"]).read_bytes())) as picture:
            left, top, right, bottom = pixel_box(figure.bbox, *page.size)
            assert picture.size == (right - left, bottom - top)


def test_the_sample_documents_are_exported_with_their_own_pixels(tmp_path: Path) -> None:
    assert check(SAMPLES, tmp_path) >= 4


def test_real_documents_are_exported_with_their_own_pixels(tmp_path: Path, corpus: Path) -> None:
    """One of four; all of them with BATCHOCR_FULL."""
    each = 1 if os.environ.get("BATCHOCR_FULL") else 4
    assert check(corpus / "real", tmp_path, each=each) >= 20 // each
