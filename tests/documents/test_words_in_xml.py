"""hOCR and ALTO: the same words in the same places, in the forms that others read."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import pytest
from PIL import Image, ImageDraw

from batchocr.data import Block, Failure, PageResult
from batchocr.documents.assembly.document import AssembledDocument
from batchocr.documents.export import alto, hocr, pdf
from batchocr.documents.export.formats import FormatOptions
from batchocr.documents.export.placing.document import DocumentText
from batchocr.documents.export.placing.page import page_words, plain_text
from batchocr.documents.export.refusal import FileRefusedError
from batchocr.pages.searchable.placed_text import BlockWords, PageText, PlacedLine, Word

ALTO = "{http://www.loc.gov/standards/alto/ns-v4#}"
XHTML = "{http://www.w3.org/1999/xhtml}"
WORDS = (Word("Fish & <chips>", (0.1, 0.2, 0.3, 0.22)), Word('"daily"', (0.35, 0.2, 0.5, 0.22)))
LINE = PlacedLine((0.1, 0.2, 0.5, 0.22), WORDS)
PAGES = (
    PageText(0, 1000, 2000, 200.0, (BlockWords(3, "title", (0.1, 0.19, 0.5, 0.23), 0, 0.875, (LINE,)),)),
    PageText(1, 1000, 2000, None, (BlockWords(0, "text", (0.1, 0.2, 0.5, 0.22), 90, None, (LINE,), is_whole=True),)),
    PageText(2, None, None, None, ()),
)


def made(
    format: object,
    language: str = "",
    pages: tuple[PageText, ...] = PAGES,
    rows: tuple[PageResult, ...] = (),
) -> Element:
    document = AssembledDocument("a & b/<c>.pdf", "d" * 64, 3, rows, ())
    text = SimpleNamespace(pages=lambda: iter(pages))
    placed, options = SimpleNamespace(text=text), FormatOptions(language=language)
    [file] = format.files(document, "a", placed, options)  # type: ignore[attr-defined]
    return ElementTree.fromstring(bytes(file.data))


def test_hocr_says_where_each_word_is_and_how_sure_it_is() -> None:
    page = made(hocr, "de").find(f".//{XHTML}div[@class='ocr_page']")
    assert page is not None
    words = page.findall(f".//{XHTML}span[@class='ocrx_word']")
    assert [(word.text, word.get("title")) for word in words] == [
        ("Fish & <chips>", "bbox 100 400 300 440; x_wconf 88"),
        ('"daily"', "bbox 350 400 500 440; x_wconf 88"),
    ]
    assert page.get("title") == 'image "a & b/<c>.pdf"; bbox 0 0 1000 2000; ppageno 0; scan_res 200 200'


def test_hocr_has_lines_with_baselines_and_turned_ones_with_angles() -> None:
    lines = [line for line in made(hocr).iter(f"{XHTML}span") if line.get("class") in ("ocr_line", "ocr_header")]
    assert [(line.get("class"), line.get("title")) for line in lines] == [
        ("ocr_header", "bbox 100 400 500 440; baseline 0 -9; x_size 36"),
        ("ocr_line", "bbox 100 400 500 440; textangle 270"),
    ]


def test_hocr_nests_as_its_readers_expect_and_repeats_no_id() -> None:
    root = made(hocr)
    nested = [element.get("class") for element in root.iter() if (element.get("class") or "").startswith("ocr")]
    one = ["ocr_page", "ocr_carea", "ocr_par"]
    assert nested == [*one, "ocr_header", *["ocrx_word"] * 2, *one, "ocr_line", *["ocrx_word"] * 2, "ocr_page"]
    ids = [element.get("id") for element in root.iter() if element.get("id")]
    assert len(ids) == len(set(ids))
    named = root.find(f".//{XHTML}meta[@name='ocr-capabilities']")
    assert named is not None and set(nested) <= set((named.get("content") or "").split())


def test_alto_says_where_each_word_is_and_how_sure_it_is() -> None:
    words = made(alto).findall(f".//{ALTO}Page[@PHYSICAL_IMG_NR='1']//{ALTO}String")
    names = ("ID", "HPOS", "VPOS", "WIDTH", "HEIGHT", "WC", "CONTENT")
    assert [word.attrib for word in words] == [
        dict(zip(names, ("word_1_3_1_1", "100", "400", "200", "40", "0.875", "Fish & <chips>"), strict=True)),
        dict(zip(names, ("word_1_3_1_2", "350", "400", "150", "40", "0.875", '"daily"'), strict=True)),
    ]


def test_alto_keeps_to_what_its_schema_allows() -> None:
    """The constraints of alto-4-4.xsd on what is written here, in the order that it asks for."""
    children = {
        "alto": "Description Layout",
        "Description": "MeasurementUnit sourceImageInformation Processing",
        "Layout": "(Page ?)+",
        "Page": "(PrintSpace)?",
        "PrintSpace": "(TextBlock ?)*",
        "TextBlock": "(TextLine ?)+",
        "TextLine": "String( SP String)*",
    }
    required = {"Page": {"ID", "PHYSICAL_IMG_NR"}, "TextBlock": {"ID"}, "String": {"CONTENT"}, "Processing": {"ID"}}
    placed = {"TextBlock", "TextLine", "String"}
    root = made(alto, "en-GB")
    for element in root.iter():
        name = element.tag.removeprefix(ALTO)
        assert re.fullmatch(children.get(name, ".*"), " ".join(child.tag.removeprefix(ALTO) for child in element))
        assert required.get(name, set()) <= set(element.attrib)
        if name in placed:
            assert all((element.get(key) or "").isdigit() for key in ("HPOS", "VPOS", "WIDTH", "HEIGHT"))
    ids = [element.get("ID") for element in root.iter() if element.get("ID")]
    assert len(ids) == len(set(ids)) and all(re.fullmatch(r"[A-Za-z_][\w.-]*", str(id)) for id in ids)
    assert root.get("SCHEMAVERSION") == "4.4"
    assert [block.get("ROTATION") for block in root.iter(f"{ALTO}TextBlock")] == [None, "270"]
    assert {page.get("LANG") for page in root.iter(f"{ALTO}Page")} == {"en-GB"}


@pytest.mark.parametrize("dpi", [0.5, 1e-3])
def test_words_of_a_page_of_any_resolution_have_places(dpi: float) -> None:
    image = Image.new("RGB", (400, 300), "white")
    ImageDraw.Draw(image).text((40, 60), "Tide table for March", fill="black", font_size=24)
    row = PageResult(
        "a.pdf", 0, "ok", None, 1, *image.size, dpi, blocks=(Block("text", (0.05, 0.1, 0.95, 0.5), 0, "Tide table"),)
    )
    assert [word.text for block in page_words(row, image) for line in block.lines for word in line.words]


@pytest.mark.parametrize("format", [hocr, alto])
def test_what_xml_allows_nowhere_is_left_out_of_names_and_texts(format: Any) -> None:
    line = PlacedLine(LINE.box, (Word("for\ufffe Ma\x0brch\uffff", LINE.box),))
    page = PageText(0, 1000, 2000, None, (BlockWords(0, "text", LINE.box, 0, None, (line,)),))
    document, text = (
        AssembledDocument("bell\x07\x85\ufffe.pdf", None, 1, (), ()),
        SimpleNamespace(pages=lambda: iter([page])),
    )
    [file] = format.files(document, "a", SimpleNamespace(text=text), FormatOptions())
    ElementTree.fromstring(bytes(file.data))
    assert b"bell.pdf" in file.data and b"for March" in file.data


@pytest.mark.parametrize("format", [hocr, alto])
def test_a_document_without_pages_is_refused_as_both_forms_need_one(format: object) -> None:
    failed = PageResult("a.pdf", None, "failed", error_kind="damaged", error_message="it cannot be opened")
    with pytest.raises(FileRefusedError, match="it cannot be opened"):
        made(format, pages=(), rows=(failed,))
    with pytest.raises(FileRefusedError, match="it has no pages"):
        made(format, pages=(), rows=(PageResult("a.pdf", None, "skipped"),))


@pytest.mark.parametrize("format", [hocr, alto, pdf])
def test_a_document_whose_pages_cannot_be_looked_at_is_refused(format: Any) -> None:
    row = PageResult("a.pdf", 0, "ok", blocks=(Block("text", (0.1, 0.2, 0.3, 0.4), None, "Fish"),))
    document, failure = AssembledDocument("a.pdf", None, 1, (row,), ()), Failure("not_found", "a.pdf is not there")
    sources: Any = SimpleNamespace(ahead=lambda jobs: ((row, failure) for row, _ in jobs))
    text = DocumentText(document, failure, sources, FormatOptions())
    text.begin()
    for _ in range(2):
        with pytest.raises(FileRefusedError, match="is not there"):
            list(format.files(document, "a", SimpleNamespace(text=text), FormatOptions()))


def test_words_are_without_the_tags_of_raised_letters() -> None:
    assert plain_text("of 3 m<sup>2</sup>, CO<sub>2</sub>") == "of 3 m2, CO2"
