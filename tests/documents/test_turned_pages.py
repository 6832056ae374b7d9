"""Pages that were read upright though they lie on a side: every export says what it says of the upright page."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pymupdf
import pytest
from PIL import Image

from batchocr.config import Config
from batchocr.data import Block, PageResult
from batchocr.documents.assembly.assemble import assemble, open_table
from batchocr.documents.assembly.document import Piece
from batchocr.documents.export.export import Export
from batchocr.documents.export.folder import ExportFolder
from batchocr.documents.export.formats import FORMATS, FormatOptions
from batchocr.documents.export.names import Names
from batchocr.pages.turning import turned_block
from batchocr.processes.source_files import SourceFiles
from tests.support.documents import page_of, write_table

LEFT = "In the left column a sentence of the page begins that is not yet at its end and therefore it goes"
RIGHT = "on in the right column, where it ends. Behind it there is one more sentence that says nothing new."
BLOCKS = (
    Block("page_number", (0.45, 0.01, 0.55, 0.04), 0, "7"),
    Block("title", (0.1, 0.05, 0.9, 0.1), 0, "A heading"),
    Block("text", (0.1, 0.15, 0.45, 0.3), 0, LEFT),
    Block("image", (0.1, 0.4, 0.4, 0.6), 0, None),
    Block("image_caption", (0.1, 0.62, 0.4, 0.66), 0, "Figure 1. Noise."),
    Block("text", (0.55, 0.12, 0.9, 0.25), 0, RIGHT),
    Block(
        "table",
        (0.55, 0.4, 0.9, 0.6),
        0,
        '<table><tr><td>a</td><td><img src="#bbox=0.75,0.5,0.85,0.55"/></td></tr></table>',
    ),
    Block("page_footnote", (0.1, 0.9, 0.6, 0.95), 0, "A footnote."),
)
"""Of the upright page, in reading order."""
SIZE = (480, 600)


def upright_page() -> Image.Image:
    """A page with text, and noise in the place of the figure."""
    with pymupdf.open() as document:
        page = document.new_page(width=SIZE[0], height=SIZE[1])
        for block in BLOCKS:
            x0, y0, x1, y1 = (share * side for share, side in zip(block.bbox, SIZE * 2, strict=True))
            if block.type == "image":
                noise = Image.effect_noise((90, 70), 60).convert("RGB")
                page.insert_image(
                    (x0, y0, x1, y1), pixmap=pymupdf.Pixmap(pymupdf.csRGB, *noise.size, noise.tobytes(), False)
                )
            elif block.type != "table":
                page.insert_textbox((x0, y0, x1, y1), block.content or "", fontsize=9)
        pixmap = page.get_pixmap(dpi=144)
        return Image.frombytes("RGB", (pixmap.width, pixmap.height), pixmap.samples)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the page lies turned clockwise, in `90/a.png` and so on."""
    root = tmp_path_factory.mktemp("documents")
    page = upright_page()
    for turn in (0, 90, 180, 270):
        (root / str(turn)).mkdir()
        page.rotate(-turn, expand=True).save(root / str(turn) / "a.png")
    return root


@pytest.fixture(scope="module")
def sources(quick_processes: None, root: Path) -> Iterator[SourceFiles]:
    with SourceFiles([str(root)], Config(model="none")) as found:
        yield found


def row_of(root: Path, turn: int) -> PageResult:
    """The row of the page that lies turned by so much, and was read upright."""
    path = root / str(turn) / "a.png"
    doc_id = hashlib.sha256(path.read_bytes()).hexdigest()
    blocks = tuple(turned_block(block, turn) for block in BLOCKS)
    row = PageResult(f"{turn}/a.png", 0, "ok", doc_id, 1, *page_of(path).size, markdown="", blocks=blocks)
    return replace(row, orientation=-turn % 360)


def exported(root: Path, sources: SourceFiles, to: Path, turn: int) -> dict[str, bytes]:
    """The files of all formats, by their names."""
    to.mkdir()
    table = open_table(write_table(to / "t.parquet", [row_of(root, turn)]))
    with ExportFolder(to / "out") as folder:
        Export(table, folder, tuple(FORMATS), FormatOptions(), sources).run(Names([f"{turn}/a.png"]))
    below = to / "out"
    files = {str(path.relative_to(below)): path.read_bytes() for path in below.rglob("*") if path.is_file()}
    return {name.removeprefix(f"{turn}/"): data for name, data in files.items()}


def without_boxes(text: str) -> str:
    """The text without the places of pictures in tables, which are on the page."""
    return re.sub("#bbox=[0-9.,]+", "", text)


def text_in(name: str, data: bytes) -> object:
    """What a file says, without where that is."""
    text = without_boxes((gzip.decompress(data) if name.endswith(".gz") else data).decode())
    if ".jsonl" in name:
        return [json.loads(line)["text"] for line in text.splitlines()]
    return re.sub("[0-9]+/a.png", "a.png", text)


def items_in(content_list: bytes) -> list[dict[str, object]]:
    """The items of MinerU's list, without their boxes."""
    return [
        {key: item[key] for key in item if key != "bbox"} for item in json.loads(without_boxes(content_list.decode()))
    ]


def words_in(html: bytes) -> list[str]:
    """The words of hOCR or ALTO, in their order."""
    return re.findall(r'CONTENT="([^"]*)"|ocrx_word[^>]*>([^<]*)<', html.decode())


@pytest.mark.parametrize(
    "turn", [90, pytest.param(180, marks=pytest.mark.long), pytest.param(270, marks=pytest.mark.long)]
)
def test_every_export_says_what_it_says_of_the_upright_page(
    root: Path, sources: SourceFiles, tmp_path: Path, turn: int
) -> None:
    upright, turned = (exported(root, sources, tmp_path / str(each), each) for each in (0, turn))
    for name in ("a.md", "a.html", "a/a.md", "a.chunks.jsonl", "documents/00000.jsonl.gz"):
        assert text_in(name, turned[name]) == text_in(name, upright[name]), name
    for name in ("a.hocr", "a.alto.xml"):
        assert words_in(turned[name]) == words_in(upright[name]) != [], name
    pictures = [name for name in upright if name.endswith((".png", ".jpg"))]
    assert len(pictures) == 7
    assert all(turned[name] == upright[name] for name in pictures)
    assert items_in(turned["a/a_content_list.json"]) == items_in(upright["a/a_content_list.json"])
    one, two = (json.loads(files["a.docling.json"]) for files in (upright, turned))
    assert [(each["label"], each["text"]) for each in one["texts"]] == [
        (each["label"], each["text"]) for each in two["texts"]
    ]
    assert one["pictures"][0]["image"] == two["pictures"][0]["image"]
    with (
        pymupdf.open("pdf", upright["a.searchable.pdf"]) as one,
        pymupdf.open("pdf", turned["a.searchable.pdf"]) as two,
    ):
        assert one[0].get_text().split() == two[0].get_text().split() != []


@pytest.mark.parametrize("turn", [90, 180, 270])
def test_a_document_is_put_together_as_the_page_stands_upright_and_its_places_are_on_the_page(
    root: Path, turn: int
) -> None:
    upright, turned = (assemble("a.png", [row_of(root, each)]) for each in (0, turn))
    assert without_boxes(turned.markdown) == without_boxes(upright.markdown)
    assert f"{LEFT} {RIGHT}" in upright.markdown
    pieces = [part for part in turned.parts if isinstance(part, Piece)]
    shown = [place for piece in pieces for each in piece.with_captions for place in each.places]
    assert all(place.bbox == turned.rows[0].blocks[place.block].bbox for place in shown)
    assert sorted(place.block for place in shown) == list(range(1, len(BLOCKS)))


def test_a_page_that_was_only_seen_to_be_turned_is_looked_at_as_it_would_stand(root: Path) -> None:
    row = row_of(root, 180)
    unread = replace(row, blocks=tuple(replace(block, angle=0) for block in row.blocks))
    assert assemble("a.png", [unread]).markdown == assemble("a.png", [row]).markdown
