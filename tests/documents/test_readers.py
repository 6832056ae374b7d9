"""Every format of the sample documents, and of real ones in the long form, opened by the reader that it is made for."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from xml.etree import ElementTree

import duckdb
import pymupdf
import pypdfium2 as pdfium
import pytest
from jsonschema import Draft202012Validator
from markdown_it import MarkdownIt
from mineru_vl_utils.structs import ContentBlock
from PIL import Image

from batchocr.config import Config
from batchocr.data import PageResult
from batchocr.documents.assembly.assemble import open_table
from batchocr.documents.export.export import Export
from batchocr.documents.export.folder import ExportFolder
from batchocr.documents.export.formats import FORMATS, FormatOptions
from batchocr.documents.export.names import Names
from batchocr.errors import PageError
from batchocr.pages.input.render import open_document
from batchocr.processes.source_files import SourceFiles
from tests.documents.mineru_output_schema import CONTENT_LIST, CONTENT_LIST_V2, MODEL
from tests.support.documents import block, write_table
from tests.support.strict_html import parsed

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quick_processes")]

DPI = 72
MOST_PAGES = 2
PASSWORD = "batchocr"
READ = [
    block("header", "Journal of Hydrology"),
    block("title", r"Flow \(Q\)"),
    block("text", "The flow is low & falls <fast>.\nIt rose before."),
    block("image"),
    block("image_caption", "Figure 1: The weir."),
    block("table", '<table><tr><td rowspan="2">Site</td><td>Flow</td></tr><tr><td>5</td></tr></table>'),
    block("equation", r"\[Q = f(P)\]"),
    block("list", "1. One\n2. Two"),
    block("code", "```python\nprint(1)\n```"),
    block("page_number", "253"),
]


def rows_of(path: Path) -> list[PageResult]:
    """The first pages of a document, with every kind of block on them; one row if it cannot be opened."""
    doc_id = hashlib.sha256(path.read_bytes()).hexdigest()
    rows: list[PageResult] = []
    try:
        document = open_document(str(path), password=PASSWORD, dpi=DPI)
        for index in range(min(MOST_PAGES, document.page_count)):
            page = document.render(index)
            blocks = [
                block(each.type, each.content, (0.1, number / 10 + 0.01, 0.9, number / 10 + 0.09))
                for number, each in enumerate(READ)
            ]
            facts = (doc_id, document.page_count, *page.image.size, page.dpi)
            rows.append(PageResult(path.name, index, "ok", *facts, markdown="", blocks=tuple(blocks)))
        document.close()
    except PageError as error:
        return [PageResult(path.name, None, "failed", doc_id, error_kind=error.error_kind, error_message=str(error))]
    return rows


@pytest.fixture(scope="module", params=["sample", pytest.param("real", marks=pytest.mark.long)])
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the documents in every format."""
    sample = request.getfixturevalue("sample_data") / "documents"
    root = sample if request.param == "sample" else request.getfixturevalue("corpus") / "real"
    rows = [row for path in sorted(root.iterdir()) if path.is_file() for row in rows_of(path)]
    folder = tmp_path_factory.mktemp("exported")
    table = open_table(write_table(folder / "t.parquet", rows))
    with (
        ExportFolder(folder / "out") as to,
        SourceFiles([str(root)], Config(model="none", dpi=DPI, password=PASSWORD), workers=2) as sources,
    ):
        done = Export(table, to, tuple(FORMATS), FormatOptions(force_text=True), sources).run(
            Names(row.source for row in rows)
        )
    assert (done.written, done.missing_figures, done.refused) == (done.documents, {}, 0)
    return folder / "out"


def files_of(exported: Path, suffix: str) -> list[Path]:
    found = sorted(exported.rglob(f"*{suffix}"))
    assert len(found) >= 5
    return found


def test_markdown(exported: Path) -> None:
    for path in files_of(exported, ".md"):
        inline = [token.children or [] for token in MarkdownIt().parse(path.read_text()) if token.type == "inline"]
        for image in [token for tokens in inline for token in tokens if token.type == "image"]:
            with Image.open(path.parent / str(image.attrs["src"])) as picture:
                picture.load()


def test_html(exported: Path) -> None:
    for path in files_of(exported, ".html"):
        for image in parsed(path.read_text()).iter("img"):
            with Image.open(path.parent / image.get("src")) as picture:
                picture.load()


def test_mineru_s_files(exported: Path) -> None:
    for suffix, schema in (("_content_list.json", CONTENT_LIST), ("_content_list_v2.json", CONTENT_LIST_V2)):
        for path in files_of(exported, suffix):
            Draft202012Validator(schema).validate(json.loads(path.read_text()))
    for path in files_of(exported, "_model.json"):
        pages = json.loads(path.read_text())
        Draft202012Validator(MODEL).validate(pages)
        for found in (found for page in pages for found in page):
            read = ContentBlock(found["type"], found["bbox"], angle=found["angle"], content=found["content"])
            assert (read.bbox, read.content) == (found["bbox"], found["content"])


def test_chunks(exported: Path) -> None:
    pattern = str(exported / "**/*.chunks.jsonl")
    read = duckdb.read_json(pattern, format="newline_delimited")
    found = dict(read.aggregate("source, bool_and(text like '%Flow%')", "source").fetchall())
    assert (len(found) >= 5, set(found.values())) == (True, {True})


def test_docling(exported: Path) -> None:
    docling_core = pytest.importorskip("docling_core.types.doc")
    for path in files_of(exported, ".docling.json"):
        document = docling_core.DoclingDocument.load_from_json(path)
        for picture in document.pictures:
            picture.get_image(document).load()
        assert document.export_to_markdown()


def test_pdf(exported: Path) -> None:
    for path in files_of(exported, ".searchable.pdf"):
        read = pdfium.PdfDocument(path, password=PASSWORD)
        with pymupdf.open(path) as document:
            document.authenticate(PASSWORD)
            assert (len(read), document.is_repaired) == (len(document), False)
            for index in range(min(MOST_PAGES, len(read))):
                assert read[index].get_textpage().count_chars() and document[index].get_text()
                read[index].render(scale=0.2)
        read.close()


@pytest.mark.parametrize("suffix", [".hocr", ".alto.xml"])
def test_hocr_and_alto(exported: Path, suffix: str) -> None:
    for path in files_of(exported, suffix):
        root = ElementTree.parse(path).getroot()
        words = "".join([*root.itertext(), *(word.get("CONTENT", "") for word in root.iter())])
        assert "JournalofHydrology" in "".join(filter(str.isalpha, words))
