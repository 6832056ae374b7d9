"""What Docling's own loader and exporters make of a document that was exported for them."""

from __future__ import annotations

import importlib
import json
import mimetypes
import random
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from batchocr.data import Block
from batchocr.documents.assembly.document import AssembledDocument, Gap, PageEnd, Piece, Place
from batchocr.documents.export.formats import FormatOptions
from batchocr.errors import UsageError
from batchocr.pages.input.folders import SUFFIXES
from tests.support.documents import BBOX, SolidFigures, document_of, piece, row_of
from tests.support.hostile_markdown import any_block

pytest.importorskip("docling_core")
from docling_core.types.doc import ContentLayer, DoclingDocument

from batchocr.documents.export import docling

TABLE = (
    '<table><tr><td rowspan="2">Name</td><td colspan="2">Of \\(H_2O\\)</td></tr><tr><td>a|b</td><td>c &lt; d</td></tr>'
    "<tr><td>x<sub>1</sub></td><td>2<br>3</td><td></td></tr></table>"
)


def exported(document: AssembledDocument, *missing: int) -> DoclingDocument:
    """The document as Docling loads it. missing: pages whose pictures cannot be cut out."""
    [file] = docling.files(document, "a", SolidFigures(*missing), FormatOptions())
    assert file.path == "a.docling.json"
    made = DoclingDocument.model_validate_json(file.data)
    assert json.loads(file.data) == made.export_to_dict(), "it is not what Docling itself writes"
    return made


def test_docling_exports_the_text_that_was_put_in() -> None:
    document = document_of(
        piece("title", "A paper", level=1),
        piece("text", "Text with \\( x_1 < 2 \\) & a_b."),
        piece("title", "1.1 More", level=2),
        piece("list", "• one\n• two\nand more"),
        piece("list", "1. first\n2. second"),
        piece("equation", "\\[\n\\frac{a}{b} \\tag{1}\n\\]"),
        piece("code", "```python\nif a < b:\n    c\n```"),
        piece("table", TABLE, captions=["Table 1: T"], footnotes=["* a note"]),
        Gap(1, "failed", "it took\ntoo long"),
        piece("page_footnote", "1 A footnote"),
    )
    made = exported(document)
    assert [text.code_language for text in made.texts if text.label == "code"] == ["Python"]
    markdown = made.export_to_markdown(escape_html=False, escape_underscores=False)
    assert markdown.split("\n\n") == [
        "## A paper",
        "Text with $x_1 < 2$ & a_b.",
        "### 1.1 More",
        "- one\n- two and more",
        "1. first\n2. second",
        "$$\\frac{a}{b} \\tag{1}$$",
        "```\nif a < b:\n    c\n```",
        "Table 1: T",
        markdown.split("\n\n")[8],
        "* a note",
        "Page 2 could not be read: it took too long",
        "1 A footnote",
    ]
    assert [" ".join(line.split()) for line in markdown.split("\n\n")[8].split("\n")][::2] == [
        "| Name | Of $H_2O$ - a&#124;b | Of $H_2O$ - c < d |",
        "| x1 | 2 3 | |",
    ]


def test_a_tables_cells_have_their_spans() -> None:
    [table] = exported(document_of(piece("table", TABLE))).tables
    assert (table.data.num_rows, table.data.num_cols) == (3, 3)
    assert [[cell.text for cell in row] for row in table.data.grid] == [
        ["Name", "Of $H_2O$", "Of $H_2O$"],
        ["Name", "a|b", "c < d"],
        ["x1", "2 3", ""],
    ]
    assert [cell.column_header for cell in table.data.table_cells] == [True] * 4 + [False] * 3


def test_a_tables_own_caption_stands_behind_the_ones_it_was_given() -> None:
    html = "<table><caption>Sales<br>of \\(t_0\\)</caption><tr><td>1</td></tr></table>"
    places = (Place(0, BBOX, 1), Place(1, BBOX, 0))
    note = Piece("table_caption", "Table 1", (Place(0, BBOX, 0),))
    blocks = [Block("table_caption", BBOX, 0, "Table 1"), Block("table", BBOX, 0, html)]
    rows = [row_of(0, blocks), row_of(1, blocks[1:])]
    made = exported(document_of(Piece("table", html, places, captions=(note,)), rows=rows))
    [table] = made.tables
    captions = [caption.resolve(made) for caption in table.captions]
    assert [(caption.label, caption.text) for caption in captions] == [
        ("caption", "Table 1"),
        ("caption", "Sales of $t_0$"),
    ]
    assert [prov.page_no for prov in captions[1].prov] == [1]
    assert [prov.page_no for prov in table.prov] == [1, 2]


def test_pages_are_in_points_and_boxes_where_they_are_on_them() -> None:
    made = exported(document_of(piece("text", "a")))
    assert (made.pages[1].size.width, made.pages[1].size.height) == (216, 288)
    [prov] = made.texts[0].prov
    assert prov.page_no == 1
    assert prov.bbox.as_tuple() == pytest.approx((21.6, 57.6, 194.4, 115.2))
    assert prov.bbox.coord_origin == "TOPLEFT"


def test_a_paragraph_over_two_pages_says_what_of_it_is_where() -> None:
    rows = [row_of(page, [Block("text", BBOX, 0, "x" * length)]) for page, length in ((0, 30), (1, 10))]
    document = document_of(Piece("text", "x" * 40, (Place(0, BBOX, 0), Place(1, BBOX, 0))), rows=rows)
    [text] = exported(document).texts
    assert [(prov.page_no, prov.charspan) for prov in text.prov] == [(1, (0, 30)), (2, (30, 40))]


def test_a_picture_is_in_the_file_and_opens_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document = document_of(piece("image", None, captions=["Figure 1"]))
    made = exported(document)
    [picture] = made.pictures
    monkeypatch.chdir(tmp_path)
    image = picture.get_image(made)
    assert image is not None and image.getcolors() == [(8 * 6, (0, 1, 200))]
    assert picture.caption_text(made) == "Figure 1"
    assert made.export_to_markdown() == "Figure 1\n\n<!-- image -->"


def test_a_picture_that_could_not_be_cut_out_has_its_place() -> None:
    made = exported(document_of(piece("image", None)), 0)
    [picture] = made.pictures
    assert picture.image is None
    assert picture.prov[0].page_no == 1


def test_page_headers_and_footers_are_furniture() -> None:
    blocks = [
        Block("header", (0.1, 0.0, 0.9, 0.05), 0, "A journal"),
        Block("text", BBOX, 0, "text"),
        Block("page_number", (0.5, 0.95, 0.6, 1.0), 0, "7"),
    ]
    document = document_of(Piece("text", "text", (Place(0, BBOX, 1),)), PageEnd(0), rows=[row_of(0, blocks)])
    made = exported(document)
    found = [(text.label, text.text) for text in made.texts if text.content_layer is ContentLayer.FURNITURE]
    assert found == [("page_header", "A journal"), ("page_footer", "7")]
    assert made.export_to_markdown() == "text"


def test_a_document_that_could_not_be_read_says_so() -> None:
    made = exported(AssembledDocument("a.pdf", None, None, (), (Gap(None, "failed", "encrypted"),)))
    assert made.export_to_markdown() == "This document could not be read: encrypted"
    assert made.origin is None


def test_the_file_that_was_read_is_named() -> None:
    origin = exported(document_of()).origin
    assert origin is not None
    assert (origin.filename, origin.mimetype, origin.binary_hash) == ("a.pdf", "application/pdf", 0xABABABABABABABAB)


def test_whatever_a_model_writes_docling_loads_it_and_exports_it() -> None:
    dice = random.Random(18)
    blocks = [any_block(dice) for _ in range(150)]
    odd = ["<table>" * 20, "<table><tr><td colspan=1000 rowspan=9999>x", "<table><tr></tr></table>", "\ud800", ""]
    parts = [piece(block.type, block.content, level=200) for block in blocks] + [piece("table", html) for html in odd]
    assert exported(document_of(*parts)).export_to_markdown()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_document_of_any_format_loads_on_a_machine_with_no_more_than_python_s_own_types(
    suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {kind: suffix for kind, suffix in mimetypes.MimeTypes().types_map[True].items() if suffix != "image/webp"}
    monkeypatch.setattr(mimetypes, "types_map", known)
    rows = (row_of(0, [Block("text", BBOX, 0, "a")]),)
    document = replace(document_of(piece("text", "a")), source=f"in/a{suffix.upper()}", rows=rows)
    made = exported(document)
    assert made.origin is not None
    kinds = {
        ".pdf": "application/pdf",
        ".jfif": "image/jpeg",
        ".tif": "image/tiff",
        ".webp": "application/octet-stream",
    }
    assert made.origin.mimetype == kinds.get(suffix, made.origin.mimetype)


def test_without_docling_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "docling_core.types.doc", None)
    monkeypatch.delitem(sys.modules, "batchocr.documents.export.docling")
    with pytest.raises(UsageError, match=r"'\.\[docling\]' in a clone"):
        importlib.import_module("batchocr.documents.export.docling")
