"""A page of HTML shows all of a document, is valid, and does nothing else."""

from __future__ import annotations

import base64
import hashlib
import os
import random
import re
from pathlib import Path

import pytest

from batchocr.data import Failure
from batchocr.documents.assembly.document import AssembledDocument, Gap, PageEnd, Piece
from batchocr.documents.export import html
from batchocr.documents.export.formats import FormatOptions
from batchocr.documents.export.html import document_html
from tests.support.browser import chromium, opened
from tests.support.documents import SolidFigures, document_of, piece
from tests.support.hostile_markdown import any_block, any_formula
from tests.support.strict_html import acting_in, parsed

NUM_BLOCKS = 10_000 if os.environ.get("BATCHOCR_FULL") == "1" else 250
PICTURE = '<img src="#bbox=0.2,0.25,0.3,0.35">'


def body_of(page: str) -> str:
    """What a model may have a part in: all between the page's own header and its end."""
    return page[page.index("<main>") + len("<main>") : page.rindex("</main>")]


def test_a_page_shows_all_of_a_document() -> None:
    document = document_of(
        piece("title", "A <b> paper", level=1),
        piece("text", "Text with \\( x < 2 \\)."),
        PageEnd(0),
        piece("title", "1 More \\( y \\)", level=2, page_index=1),
        piece("table", "<table><tr><td>a</td></tr></table>", captions=["Table 1"], footnotes=["note"], page_index=1),
        Gap(2, "failed", "it took <too> long"),
        PageEnd(2),
    )
    page = parsed(document_html(document, {}))
    main = page.find("body/main")
    assert [" ".join("".join(part.itertext()).split()) for part in main] == [
        *("A <b> paper", "Text with x<2.", "end of page 1", "1 More y", "Table 1 a note"),
        *("Page 3 could not be read: it took <too> long", "end of page 3"),
    ]
    assert page.find("head/title").text == "A <b> paper"
    links = {link.get("href"): "".join(link.itertext()) for link in page.find("body/header").iter("a")}
    assert links == {
        "#gap-1": "1 mark of something missing",
        "#page-1-block-0": "A <b> paper",
        "#page-2-block-0": "1 More y",
    }
    ids = {element.get("id") for element in page.iter() if element.get("id")}
    assert {link.removeprefix("#") for link in links} <= ids


def test_figures_are_files_beside_it() -> None:
    table = f"<table><tr><td>a{PICTURE}{PICTURE.replace('0.2', '0.9')}</td></tr></table>"
    document = document_of(piece("image", None, captions=["Figure 1"]), piece("table", table))
    *pictures, page = html.files(document, "folder/a b#1", SolidFigures(), FormatOptions())
    assert [file.path for file in pictures] == [
        "folder/a b#1.html.images/page-1-block-1.png",
        "folder/a b#1.html.images/page-1-block-2.png",
    ]
    assert page.path == "folder/a b#1.html"
    main = parsed(page.data.decode()).find("body/main")
    assert [image.get("src") for image in main.iter("img")] == [
        "a%20b%231.html.images/page-1-block-1.png",
        "a%20b%231.html.images/page-1-block-2.png",
    ]
    assert "(picture not available)" in "".join(main.itertext())


def test_a_figure_that_is_missing_leaves_a_mark() -> None:
    [page] = html.files(document_of(piece("image", None)), "a", SolidFigures(0), FormatOptions())
    [mark] = parsed(page.data.decode()).find("body/main").iter("strong")
    assert mark.text == "Here is a figure of page 1 that could not be cut out:"
    assert mark.tail == " a/b.pdf is not there"


def test_no_request_leaves_the_page_and_its_style_is_the_only_one() -> None:
    page = document_html(document_of(piece("text", "a")), {})
    parsed(page)
    [policy] = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', page)
    [style] = re.findall("<style>(.*?)</style>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy == f"default-src 'none'; img-src 'self' file: data:; style-src 'sha256-{digest}'"
    assert not re.findall(r"url\(|@import|<script|https?:", page)


def test_formulas_are_set_in_a_font_for_them() -> None:
    page = document_html(document_of(piece("equation", "x")), {})
    assert re.search(r"^math \{[^}]*font-family: [^;}]*, math;", page, re.MULTILINE)


def test_whatever_a_model_writes_the_page_is_valid_and_nothing_in_it_acts() -> None:
    dice = random.Random(18)
    parts = []
    for block in map(any_block, [dice] * NUM_BLOCKS):
        content = f"{block.content} \\( {any_formula(dice)} \\) {dice.choice(['<', '', '•'])}"
        parts.append(piece(block.type, content, captions=[content]))
    source = '</title><script>alert(1)</script>"\x1b\u202e\ud800'
    document = document_of(*parts, Gap(0, "degraded", "</p><script>alert(1)</script>"))
    document = AssembledDocument(source, None, None, document.rows, document.parts)
    places = [part.places[0] for part in document.parts if isinstance(part, Piece)]
    failure = Failure("changed", "<script>\x1b")
    page = document_html(document, {place: "a.png" if place.block % 3 else failure for place in places})
    assert list(parsed(page).iter("script")) == []
    own = re.compile(r' (?:id|class)="[a-z0-9 -]*"|</?(?:figure|strong)[^>]*>|<img src="a\.png" alt="[^"]*">')
    assert acting_in(own.sub("", body_of(page))) == []


def test_an_empty_document_is_a_page() -> None:
    assert parsed(document_html(AssembledDocument("a.pdf", None, None, (), ()), {})).find("head/title").text == "a.pdf"


@pytest.mark.slow
def test_a_browser_shows_the_full_stop_of_an_arabic_line_at_its_left_end(tmp_path: Path) -> None:
    line = "موعد العبارة 12:30 (Pier 4)."
    table = f"<table><tr><td>{line}</td><td>1</td></tr><tr><td>An English cell.</td><td>2</td></tr></table>"
    blocks = [piece("title", line), piece("text", line), piece("list", f"• {line}\n• {line}"), piece("table", table)]
    (tmp_path / "page.html").write_text(document_html(document_of(*blocks, piece("text", "In English.")), {}))
    with chromium() as browser, opened(browser, tmp_path / "page.html") as watched:
        from_the_left = watched.page.evaluate("""() =>
        [...document.querySelectorAll("main :is(h1,p,li,td)")].map(block => {
            const [text, range] = [block.firstChild, document.createRange()];
            const left = (at) => {
                range.setStart(text, at);
                range.setEnd(text, at + 1);
                return range.getBoundingClientRect().left;
            };
            return left(0) <= left(text.length - 1);
        })""")
        columns = watched.page.evaluate("[...document.querySelectorAll('td')].map(cell => cell.offsetLeft)")
    assert from_the_left == [*[False] * 5, True, True, True, True]
    assert columns[0] > columns[1]
