"""A document as Markdown, with its figures."""

from __future__ import annotations

import io

import pytest
from PIL import Image

from batchocr.documents.assembly.document import Gap, Piece, Place
from batchocr.documents.export.figures import File
from batchocr.documents.export.formats import FormatOptions
from batchocr.documents.export.md import files
from tests.support.documents import SolidFigures, block, document_of_pages, piece

OPTIONS = FormatOptions()


def exported(*pages: list, options: FormatOptions = OPTIONS, missing: tuple[int, ...] = ()) -> dict[str, bytes]:
    found = list(files(document_of_pages(*pages), "a/b", SolidFigures(*missing), options))
    assert all(isinstance(file, File) for file in found)
    return {file.path: file.data for file in found}


def text_of(*pages: list, options: FormatOptions = OPTIONS, missing: tuple[int, ...] = ()) -> str:
    return exported(*pages, options=options, missing=missing)["a/b.md"].decode()


def test_pieces_follow_each_other_over_all_pages_and_a_document_in_python_has_the_same_text() -> None:
    pages = ([block("title", "T"), block("header", "H"), Gap(0, "degraded", "block 2")], [block("text", "Two.")])
    assert text_of(*pages) == "# T\n\n**Page 1 was read in part:** block 2\n\nTwo.\n"
    assert document_of_pages(*pages).markdown == text_of(*pages)
    figure = block("image", None, (0.1, 0.3, 0.5, 0.6))
    assert document_of_pages([block("text", "One."), figure]).markdown == "One.\n\n![image](#page-1-block-1)\n"
    assert document_of_pages([]).markdown == ""


def test_headings_have_the_level_of_the_document() -> None:
    headings = [piece("title", "T", level=level) for level in (1, 2, 6, 9)]
    assert text_of(headings) == "# T\n\n## T\n\n###### T\n\n###### T\n"


def test_a_figure_is_a_file_beside_the_text_that_names_it() -> None:
    figure = block("image", None, (0.1, 0.3, 0.5, 0.6))
    found = exported([block("text", "One."), figure], [figure])
    assert list(found) == ["a/b.images/page-1-block-1.png", "a/b.images/page-2-block-0.png", "a/b.md"]
    assert (
        found["a/b.md"].decode()
        == "One.\n\n![image](b.images/page-1-block-1.png)\n\n![image](b.images/page-2-block-0.png)\n"
    )
    with Image.open(io.BytesIO(found["a/b.images/page-1-block-1.png"])) as picture:
        assert (picture.format, picture.mode, picture.getpixel((0, 0))) == ("PNG", "RGB", (0, 1, 300 - 256))


def test_the_path_of_a_figure_is_one_that_markdown_takes_for_a_path() -> None:
    found = list(files(document_of_pages([block("image")]), "a/b (1)] #é%", SolidFigures(), OPTIONS))
    assert found[-1].data.decode() == "![image](b%20%281%29%5D%20%23%C3%A9%25.images/page-1-block-0.png)\n"


def test_a_picture_within_a_table_is_a_file_too() -> None:
    cells = '<td><img src="#bbox=0.2,0.3,0.4,0.4"/></td><td><img src="#bbox=0.5,0.3,0.6,0.4"/></td>'
    table = block("table", f"<table><tr>{cells}</tr></table>", (0.1, 0.1, 0.9, 0.9))
    found = exported([table])
    assert list(found) == ["a/b.images/page-1-block-0.png", "a/b.images/page-1-block-0-2.png", "a/b.md"]
    assert (
        '<td><img src="b.images/page-1-block-0.png"></td><td><img src="b.images/page-1-block-0-2.png"></td>'
        in found["a/b.md"].decode()
    )


def test_a_table_takes_no_picture_from_elsewhere_on_the_page() -> None:
    table = block("table", '<table><tr><td><img src="#bbox=0,0,1,1"/></td></tr></table>', (0.1, 0.1, 0.9, 0.5))
    assert list(exported([table])) == ["a/b.md"]


def test_a_figure_that_cannot_be_had_leaves_a_mark_with_the_reason() -> None:
    table = block("table", '<table><tr><td><img src="#bbox=0.2,0.3,0.4,0.4"/></td></tr></table>', (0.1, 0.1, 0.9, 0.9))
    text = text_of([block("text", "Before."), block("image"), table], missing=(0,))
    assert "**Here is a figure of page 1 that could not be cut out:** a/b.pdf is not there" in text
    assert "<td>(picture not available)</td>" in text


def test_captions_and_footnotes_stand_as_on_the_page() -> None:
    caption, note = (
        Piece(type, text, (Place(0, (0, 0, 1, 1), index),))
        for type, text, index in [("image_caption", "Figure 1", 2), ("image_footnote", "Source: us", 3)]
    )
    figure = Piece("image", None, (Place(0, (0, 0, 1, 1), 1),), captions=(caption,), footnotes=(note,))
    table = piece("table", "<table><tr><td>1</td></tr></table>", captions=["Table 1"])
    assert text_of([figure]) == "![image](b.images/page-1-block-1.png)\n\nFigure 1\n\nSource: us\n"
    assert text_of([table]).startswith("Table 1\n\n<table>")


@pytest.mark.parametrize(
    ("gap", "mark"),
    [
        (Gap(2, "failed", "cut off <b>"), "**Page 3 could not be read:** cut off &lt;b>"),
        (Gap(0, "degraded", "block 4 repeats itself"), "**Page 1 was read in part:** block 4 repeats itself"),
        (Gap(None, "failed", "asks for a\npassword"), "**This document could not be read:** asks for a password"),
        (Gap(None, "skipped", "no pages"), "**This document was skipped:** no pages"),
    ],
)
def test_what_could_not_be_read_leaves_a_mark_with_the_reason(gap: Gap, mark: str) -> None:
    assert text_of([gap]) == mark + "\n"


def test_page_ends_are_marked_if_asked_for() -> None:
    pages = [block("text", "One.")], [block("text", "Two.")]
    assert text_of(*pages, options=FormatOptions(page_breaks=True)) == (
        "One.\n\n*End of page 1*\n\nTwo.\n\n*End of page 2*\n"
    )


def test_a_document_without_text_is_an_empty_file() -> None:
    assert exported([]) == {"a/b.md": b""}
