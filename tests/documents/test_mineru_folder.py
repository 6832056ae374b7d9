"""A document as MinerU's output folder, held against what MinerU documents and what reads such folders."""

from __future__ import annotations

import hashlib
import io
import json
import re
import shutil
from functools import partial
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from PIL import Image

from batchocr.data import Block
from batchocr.documents.assembly.document import Gap, Piece, Place
from batchocr.documents.export.formats import FormatOptions
from batchocr.documents.export.mineru import files
from tests.documents.mineru_output_schema import CONTENT_LIST, CONTENT_LIST_V2, MODEL
from tests.support.documents import SolidFigures, block, document_of_pages, piece

HTML = "<table><tr><td>Site</td><td>Flow</td></tr><tr><td>A</td><td>5</td></tr></table>"


captioned = partial(piece, captions=[r"Figure 1: the \(x\) axis"], footnotes=["Source: us"])


EVERYTHING: list[Block | Piece | Gap] = [
    block("header", "Journal of Hydrology"),
    block("page_number", "253"),
    Piece("title", "The  response\nof flow", (Place(0, (0.0621, 0.0479, 0.9464, 1.2), 0),), level=1),
    piece("title", r"Flow \(Q\)", level=2),
    piece("text", r"The flow \( Q_5 \) is low."),
    captioned("image", None),
    captioned("chart", None),
    captioned("table", HTML),
    piece("equation", "\\[\nQ = f(P)\n\\]"),
    captioned("code", "print(1)\nprint(2)"),
    captioned("algorithm", r"1: \(x \gets 1\)"),
    piece("list", "1. One\n2. Two"),
    piece("list", "- One\n- Two"),
    piece("ref_text", "[1] Somebody, 1999."),
    piece("index", "Preface … 1\nFlow … 3"),
    piece("page_footnote", "* Corresponding author"),
    piece("phonetic", "fləʊ"),
    piece("text", ""),
]
NEXT: list[Block | Piece | Gap] = [Gap(1, "failed", "cut off"), block("aside_text", "arXiv"), block("text", "Next.")]


def exported(*pages: list[Block | Piece | Gap], missing: tuple[int, ...] = ()) -> dict[str, bytes]:
    document = document_of_pages(*(pages or (EVERYTHING, NEXT)))
    return {file.path: file.data for file in files(document, "a/b", SolidFigures(*missing), FormatOptions())}


def lists(*pages: list[Block | Piece | Gap], missing: tuple[int, ...] = ()) -> tuple[Any, Any, Any]:
    """The three JSON files."""
    found = exported(*pages, missing=missing)
    flat, paged, model = (
        json.loads(found[f"a/b/b_{name}.json"]) for name in ("content_list", "content_list_v2", "model")
    )
    return flat, paged, model


def put(folder: Path) -> Path:
    """The folder of the document, on disk."""
    for path, data in exported().items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    return folder / "a/b"


def entries(flat: list[dict[str, Any]], type: str) -> list[dict[str, Any]]:
    return [entry for entry in flat if entry["type"] == type]


def test_the_files_are_those_of_mineru() -> None:
    found = exported()
    assert [path for path in found if not path.startswith("a/b/images/")] == [
        f"a/b/b{name}" for name in ("_content_list.json", "_content_list_v2.json", "_model.json", ".md")
    ]


@pytest.mark.parametrize("missing", [(), (0, 1)], ids=["with pictures", "without"])
def test_the_files_are_as_mineru_documents_them(missing: tuple[int, ...]) -> None:
    for content, schema in zip(lists(missing=missing), (CONTENT_LIST, CONTENT_LIST_V2, MODEL), strict=True):
        Draft202012Validator(schema).validate(content)


def test_every_type_of_content_is_there() -> None:
    flat, paged, _ = lists()
    types = {option["properties"]["type"]["const"] for option in CONTENT_LIST["items"]["oneOf"]}
    assert types - {entry["type"] for entry in flat} == {"footer"}
    types = {option["properties"]["type"]["const"] for option in CONTENT_LIST_V2["items"]["items"]["oneOf"]}
    assert types - {entry["type"] for page in paged for entry in page} == {"page_footer"}


def test_boxes_are_thousandths_of_the_page_pages_count_from_0_and_headings_have_their_level() -> None:
    flat, paged, _ = lists()
    assert flat[0] == {
        "type": "text",
        "text": "The response of flow",
        "text_level": 1,
        "bbox": [62, 48, 946, 1000],
        "page_idx": 0,
    }
    assert [entry["page_idx"] for entry in flat][-3:] == [0, 1, 1]
    assert [len(page) for page in paged] == [len(flat) - 2, 2]
    assert [entry.get("text_level") for entry in entries(flat, "text")] == [1, 2, None, None, None]
    assert [entry["content"]["level"] for entry in paged[0] if entry["type"] == "title"] == [1, 2]


def test_formulas_are_in_dollars_and_spans() -> None:
    flat, paged, _ = lists()
    assert entries(flat, "text")[2]["text"] == "The flow $Q_5$ is low."
    assert entries(flat, "equation")[0]["text"] == "$$\nQ = f(P)\n$$"
    assert entries(paged[0], "paragraph")[0]["content"]["paragraph_content"] == [
        {"type": "text", "content": "The flow "},
        {"type": "equation_inline", "content": "Q_5"},
        {"type": "text", "content": " is low."},
    ]


def test_captions_and_footnotes_are_with_what_they_belong_to() -> None:
    flat, _, _ = lists()
    for kind in ("image", "chart", "table", "code"):
        entry = entries(flat, kind)[0]
        assert entry[f"{kind}_caption"] == ["Figure 1: the $x$ axis"]
        assert entry[f"{kind}_footnote"] == ["Source: us"]


def test_lists_have_their_items() -> None:
    flat, paged, _ = lists()
    assert [entry["list_items"] for entry in entries(flat, "list")] == [
        ["1. One", "2. Two"],
        ["- One", "- Two"],
        ["[1] Somebody, 1999."],
    ]
    assert [entry["content"].get("attribute") for entry in entries(paged[0], "list")] == ["ordered", "unordered", None]


def test_a_picture_is_named_by_the_digest_of_its_file_in_the_lists_and_in_the_text() -> None:
    found = exported()
    pictures = {path: data for path, data in found.items() if path.startswith("a/b/images/")}
    named = {entry["img_path"] for entry in lists()[0] if "img_path" in entry}
    assert {f"a/b/{name}" for name in named} == set(pictures)
    for path, data in pictures.items():
        assert path == f"a/b/images/{hashlib.sha256(data).hexdigest()}.jpg"
        with Image.open(io.BytesIO(data)) as picture:
            assert (picture.format, picture.size) == ("JPEG", (8, 6))
    in_text = re.findall(r"!\[\w+\]\((.*?)\)", found["a/b/b.md"].decode())
    assert len(in_text) == 2 and set(in_text) <= named


def test_a_picture_that_cannot_be_had_has_an_empty_path_and_a_mark_in_the_text() -> None:
    assert {entry["img_path"] for entry in lists(missing=(0,))[0] if "img_path" in entry} == {""}
    assert "that could not be cut out:** a/b.pdf is not there" in exported(missing=(0,))["a/b/b.md"].decode()


def test_pictures_within_tables_are_files() -> None:
    table = block("table", '<table><tr><td><img src="#bbox=0.2,0.3,0.4,0.4"/></td></tr></table>', (0.1, 0.1, 0.9, 0.9))
    found = exported([table])
    [name] = re.findall('<img src="([^"#]+)"/>', json.loads(found["a/b/b_content_list.json"])[0]["table_body"])
    assert f"a/b/{name}" in found
    assert f'<img src="{name}">' in found["a/b/b.md"].decode()


def test_each_part_of_a_table_over_pages_has_its_picture_on_its_page() -> None:
    box = (0.1, 0.1, 0.9, 0.9)
    table = Piece("table", HTML, (Place(0, box, 0), Place(1, box, 1)))
    found = exported([table], [block("header", "Journal"), block("text", "It ends.")])
    flat, paged = (json.loads(found[f"a/b/b_content_list{version}.json"]) for version in ("", "_v2"))
    whole, rest = (entry for entry in flat if entry["type"] == "table")
    assert (whole["page_idx"], rest["page_idx"]) == (0, 1)
    assert (whole["table_body"], rest["table_body"]) == (HTML, "")
    assert whole["img_path"] != rest["img_path"]
    assert {f"a/b/{entry['img_path']}" for entry in (whole, rest)} <= set(found)
    assert [entry["type"] for page in paged for entry in page] == ["table", "table", "paragraph", "page_header"]


def test_what_belongs_to_the_sheet_comes_after_the_text_of_its_page() -> None:
    flat, paged, _ = lists()
    assert [entry["type"] for entry in flat if entry["page_idx"] == 0][-2:] == ["header", "page_number"]
    assert [entry["type"] for entry in paged[1]] == ["paragraph", "page_aside_text"]


def test_the_model_s_output_is_the_blocks_as_they_were_read() -> None:
    _, _, model = lists([block("header", "H"), block("text", r"\(x\)")], [block("image")])
    assert [[(entry["type"], entry["content"]) for entry in page] for page in model] == [
        [("header", "H"), ("text", r"\(x\)")],
        [("image", None)],
    ]


@pytest.mark.filterwarnings("ignore")
def test_lightrag_reads_the_folder(tmp_path: Path) -> None:
    """By `pip install --no-deps lightrag-hku`, and `httpx json_repair python-dotenv` if it asks for them."""
    reader = pytest.importorskip("lightrag.parser.external.mineru.ir_builder", reason="LightRAG is not installed")
    raw = shutil.copytree(put(tmp_path), tmp_path / "raw")
    (raw / "b_content_list.json").rename(raw / "content_list.json")
    document = reader.MinerUIRBuilder().normalize_from_workdir(raw, document_name="b.pdf")
    assert document.doc_title == "The response of flow"
    assert [(part.heading, part.level) for part in document.blocks] == [("The response of flow", 1), ("Flow $Q$", 2)]
    body = document.blocks[1]
    assert [(table.num_rows, table.num_cols, table.caption) for table in body.tables] == [
        (2, 2, "Figure 1: the $x$ axis")
    ]
    assert [equation.latex for equation in body.equations] == ["$$\nQ = f(P)\n$$"]
    assert [asset.source.is_file() for asset in document.assets] == [True]
    assert "The flow $Q_5$ is low." in body.content_template and "Next." in body.content_template
    assert {position.anchor for position in body.positions} == {"1", "2"}


def test_rag_anything_reads_the_second_list_as_the_first() -> None:
    """By `pip install --no-deps raganything`; its reader needs nothing else."""
    if (package := find_spec("raganything")) is None or package.origin is None:
        pytest.skip("RAG-Anything is not installed")
    spec = spec_from_file_location("mineru_content", Path(package.origin).with_name("mineru_content.py"))
    assert spec is not None and spec.loader is not None
    reader = module_from_spec(spec)
    spec.loader.exec_module(reader)
    flat, paged, _ = lists()
    read = reader.convert_mineru_content_list_v2(paged, include_layout_blocks=True)
    for ours, theirs in zip(flat, read, strict=True):
        assert (theirs["page_idx"], theirs["bbox"]) == (ours["page_idx"], ours["bbox"])
        same = {"img_path", "table_body", "code_body", "text_level", "table_caption", "table_footnote", "image_caption"}
        same |= {"list_items"} if ours["type"] == "list" else set()
        assert {key: theirs.get(key) for key in same & ours.keys()} == {key: ours[key] for key in same & ours.keys()}
        if ours["type"] == "text":
            assert theirs["text"] == ours["text"]
