"""Figures that were read: what they show stands below them in every export."""

from __future__ import annotations

import json

import pytest

from batchocr.data import Block
from batchocr.documents.export import chunks, docling, html, md, mineru
from batchocr.documents.export.formats import FormatOptions
from tests.support.documents import SolidFigures, document_of_pages

BOX = (0.1, 0.3, 0.5, 0.6)
CHART = Block("chart", BOX, 0, "| a | b |\n| --- | --- |\n| 1 | 2 |", sub_type="bar", description="Sums [a] by year.")
PHOTO = Block("image", BOX, 0, "A <dog>.", sub_type="natural_image", description="A <dog>.")
TABLE = "<table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>2</td></tr></table>"


def exported(module: object, name: str) -> str:
    document = document_of_pages([Block("text", (0.1, 0.1, 0.9, 0.2), 0, "Before."), CHART, PHOTO])
    files = {file.path: file.data for file in module.files(document, "a", SolidFigures(), FormatOptions())}
    return files[name].decode()


def test_markdown() -> None:
    assert exported(md, "a.md") == (
        f"Before.\n\n![Sums \\[a\\] by year.](a.images/page-1-block-1.png)\n\n{TABLE}\n\n"
        "![A &lt;dog>.](a.images/page-1-block-2.png)\n"
    )


def test_html() -> None:
    page = exported(html, "a.html")
    assert (
        '<img src="a.html.images/page-1-block-1.png" alt="Sums [a] by year."><div class="wide"><table dir="auto">'
        in page
    )
    assert 'alt="A &lt;dog&gt;.">' in page and page.count("dog") == 1


def test_minerus_lists() -> None:
    first, second = (json.loads(exported(mineru, f"a/a_content_list{version}.json")) for version in ("", "_v2"))
    assert [(each["type"], each.get("content")) for each in first[1:]] == [("chart", CHART.content), ("image", None)]
    assert [each["content"]["content"] for each in second[0][1:]] == [CHART.content, PHOTO.content]


def test_chunks() -> None:
    [chunk] = [json.loads(line) for line in exported(chunks, "a.chunks.jsonl").splitlines()]
    assert chunk["text"] == f"Before.\n\n{TABLE}\n\nA &lt;dog>."


def test_docling() -> None:
    types = pytest.importorskip("docling_core.types.doc")
    loaded = types.DoclingDocument.model_validate_json(exported(docling, "a.docling.json"))
    assert [picture.meta.description.text for picture in loaded.pictures] == ["Sums [a] by year.", "A <dog>."]
    [table] = loaded.tables
    assert [[cell.text for cell in row] for row in table.data.grid] == [["a", "b"], ["1", "2"]]
