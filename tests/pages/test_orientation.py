"""How a page stands: what its own letters say, what the classifier sees, and what becomes of a page that is turned."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import pymupdf
import pytest
from PIL import Image

from batchocr.data import NO_LETTERS, Block, OrientationUse, Page, Reading, Request
from batchocr.pages import orientation, page_worker
from batchocr.pages.documents import DocumentCache
from batchocr.pages.input.render import open_document
from batchocr.pages.orientation import orientation_of
from batchocr.pages.page_worker import PageWorker
from batchocr.pages.protocol.base import Reader
from batchocr.pages.turning import turned_back, turned_box, turned_page
from batchocr.processes.messages import Failed, Finished, ReadPage
from tests.pages.rendering import render
from tests.pages.test_page_worker import OPEN, OneTask
from tests.support.running import raising

Turn = Literal[90, 180, 270]
TURNS: tuple[Turn, ...] = (90, 180, 270)
LINES = ["A sundial has one moving part,", "and that part is the sky.", "Nothing in it can be wound, or lent,"] * 2
"""154 letters."""


def written(path: Path, lines: list[str], *, rotate: int = 0, render_mode: int = 0, rotation: int = 0) -> Path:
    """A PDF with a page on which the lines run in this direction. rotation: as viewers show the page."""
    document = pymupdf.open()
    page = document.new_page(width=400, height=400)
    place = {0: (20, 40), 90: (40, 380), 180: (380, 360), 270: (360, 20)}[rotate]
    page.insert_text(place, lines, fontsize=14, rotate=rotate, render_mode=render_mode)
    page.set_rotation(rotation)
    document.save(path)
    return path


@pytest.fixture
def unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no classifier."""
    monkeypatch.setattr(orientation, "has_classifier", lambda: False)


@pytest.mark.parametrize(
    ("lines", "options", "expected"),
    [
        (LINES, {}, 0),
        (LINES, {"rotate": 90}, 90),
        (LINES, {"rotate": 180}, 180),
        (LINES, {"rotate": 270}, 270),
        (LINES, {"rotation": 90}, 270),
        (LINES, {"rotate": 90, "rotation": 90}, 0),
        (LINES[:3], {}, None),
        (LINES, {"render_mode": 3}, None),
    ],
)
def test_a_hundred_visible_letters_say_how_a_page_stands(
    tmp_path: Path, unseen: None, lines: list[str], options: dict[str, int], expected: int | None
) -> None:
    assert orientation_of(render(written(tmp_path / "a.pdf", lines, **options))) == expected


@pytest.mark.parametrize(("num_sideways", "expected"), [(15, 0), (25, None), (2000, None)])
def test_nine_in_ten_letters_have_to_run_in_one_direction(
    tmp_path: Path, num_sideways: int, expected: int | None
) -> None:
    """Else the page stands upright, and has a table on its side; it may have nothing else but a number."""
    document = pymupdf.open()
    page = document.new_page()
    page.insert_text((100, 100), LINES)
    for start in range(0, num_sideways, 100):
        page.insert_text((50 + start / 5, 800), "x" * min(100, num_sideways - start), rotate=90, fontsize=6)
    document.save(tmp_path / "a.pdf")
    assert orientation_of(render(tmp_path / "a.pdf")) == expected


def test_one_invisible_line_says_that_the_page_is_a_scan(tmp_path: Path, unseen: None) -> None:
    document = pymupdf.open()
    page = document.new_page()
    page.insert_text((50, 100), LINES)
    page.insert_text((50, 400), "behind", render_mode=3)
    document.save(tmp_path / "a.pdf")
    assert orientation_of(render(tmp_path / "a.pdf")) is None


def test_without_the_text_layer_its_letters_do_not_count(tmp_path: Path, unseen: None) -> None:
    with closing(
        open_document(str(written(tmp_path / "a.pdf", LINES)), password=None, dpi=72, text_layer="off")
    ) as pdf:
        assert orientation_of(pdf.render(0)) is None


def test_without_the_extra_nothing_is_said_of_a_page_without_letters(unseen: None) -> None:
    assert orientation_of(Page(Image.new("RGB", (200, 300), "white"), None)) is None


@pytest.fixture(scope="module")
def letter(sample_data: Path) -> Page:
    """A scan that stands upright."""
    pytest.importorskip("onnxruntime")
    return render(sample_data / "documents" / "scanned-letter.png")


@pytest.mark.parametrize("turn", TURNS)
def test_a_turned_scan_is_seen_to_be_turned(letter: Page, turn: Turn) -> None:
    assert orientation_of(letter) == 0
    assert orientation_of(turned_page(letter, turn)) == 360 - turn


@pytest.mark.parametrize(
    "image",
    [
        Image.new("RGB", (1700, 2200), "white"),
        Image.effect_noise((800, 1000), 60).convert("RGB"),
        Image.radial_gradient("L").resize((900, 1200)).convert("RGB"),
        Image.new("RGB", (3000, 3), "white"),
        Image.new("RGB", (1, 1)),
    ],
)
def test_a_page_without_writing_is_left_as_it_is(letter: Page, image: Image.Image) -> None:
    assert not orientation_of(Page(image, None))


def test_an_upright_page_with_a_table_on_its_side_is_not_turned(letter: Page, tmp_path: Path) -> None:
    document = pymupdf.open()
    page = document.new_page()
    page.insert_textbox((60, 60, 540, 300), " ".join(LINES * 6), fontsize=11)
    for column in range(6):
        page.insert_text((90 + 60 * column, 700), [f"Item {column} {row}" for row in range(3)], rotate=90)
    document.save(tmp_path / "a.pdf")
    seen = render(tmp_path / "a.pdf")
    assert orientation_of(seen) is None
    assert orientation_of(replace(seen, letters_run=NO_LETTERS)) in (0, None)


@dataclass
class Looking:
    """A protocol that asks nothing and reads these blocks. seen: the page that it was given."""

    blocks: tuple[Block, ...]
    markdown: str = ""
    seen: Page | None = None

    def read(self, page: Page) -> Reader:
        self.seen = page
        yield list[Request]()
        return Reading(self.markdown, self.blocks, 0, 0)


WIDE = (0.1, 0.2, 0.7, 0.3)
"""A box on the upright page."""
ON_PAGE = {90: (0.7, 0.1, 0.8, 0.7), 180: (0.3, 0.7, 0.9, 0.8), 270: (0.2, 0.3, 0.3, 0.9)}
"""Where it is on the page that lies turned clockwise by so many degrees."""


def read(path: Path, protocol: Looking, use: OrientationUse) -> Reading:
    channel = OneTask(ReadPage(1, str(path), 0))
    PageWorker(channel, protocol, DocumentCache(OPEN), use).run()  # type: ignore[arg-type]
    finished = channel.sent[-1]
    assert isinstance(finished, Finished)
    return finished.reading


@pytest.fixture
def lying(tmp_path: Path) -> Path:
    """A picture of a page that is black at its top, and lies turned clockwise: black on its right."""
    image = Image.new("RGB", (300, 200), "white")
    image.paste("black", (250, 0, 300, 200))
    image.save(tmp_path / "a.png")
    return tmp_path / "a.png"


@pytest.mark.parametrize("use", ["off", "check", "turn"])
def test_off_does_not_look_check_says_it_and_turn_shows_the_page_upright(
    lying: Path, monkeypatch: pytest.MonkeyPatch, use: OrientationUse
) -> None:
    monkeypatch.setattr(page_worker, "orientation_of", lambda page: 270)
    protocol = Looking((Block("text", WIDE, 0, "read"),))
    reading = read(lying, protocol, use)
    assert protocol.seen is not None
    is_turned = use == "turn"
    assert protocol.seen.image.size == ((200, 300) if is_turned else (300, 200))
    assert protocol.seen.image.getpixel((100, 10)) == ((0, 0, 0) if is_turned else (255, 255, 255))
    assert reading.orientation == (None if use == "off" else 270)
    assert (reading.width, reading.height) == (300, 200)
    [block] = reading.blocks
    assert (block.bbox, block.angle) == ((ON_PAGE[90], 90) if is_turned else (WIDE, 0))


@pytest.mark.parametrize("turn", TURNS)
@pytest.mark.parametrize(("angle", "in_all"), [(0, 0), (None, 0), (90, 90), (270, 270)])
def test_blocks_are_put_back_where_they_are_on_the_page(turn: Turn, angle: int | None, in_all: int) -> None:
    reading = Reading("", (Block("text", WIDE, angle, "read"),), 0, 0)
    [block] = turned_back(reading, 360 - turn).blocks
    assert (block.bbox, block.angle) == (ON_PAGE[turn], (turn + in_all) % 360)
    assert turned_box(block.bbox, 360 - turn) == WIDE


def test_pictures_in_a_table_are_named_by_where_they_are_on_the_page() -> None:
    html = '<table><tr><td><img src="#bbox=0.1,0.2,0.7,0.3"/></td><td>{}</td></tr></table>'
    odd = 'text of #bbox=1,2 and <img src="#bbox=1e999,0,0,1"/>'
    reading = Reading(html.format("in Markdown"), (Block("table", WIDE, 0, html.format(odd)),), 0, 0)
    back = turned_back(reading, 270)
    assert back.markdown == html.format("in Markdown").replace("0.1,0.2,0.7,0.3", "0.7,0.1,0.8,0.7")
    assert '<img src="#bbox=0.7,0.1,0.8,0.7"/></td><td>text of #bbox=1,2 and' in (back.blocks[0].content or "")


def test_the_text_of_a_turned_pdf_is_compared_where_it_is_and_not_taken_for_what_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lines run upwards: the page lies turned counterclockwise."""
    path = written(tmp_path / "a.pdf", LINES, rotate=90)
    monkeypatch.setattr(page_worker, "orientation_of", lambda page: 90)
    content = " ".join(LINES)
    protocol = Looking((Block("text", (0.0, 0.0, 1.0, 1.0), 0, content),))
    reading = read(path, protocol, "turn")
    assert reading.text_layer_agreement == 1.0
    assert protocol.seen is not None
    assert (protocol.seen.words, protocol.seen.glyphs, protocol.seen.again) == ((), (), None)


def test_a_page_that_stands_upright_is_read_as_it_is(letter: Page, sample_data: Path) -> None:
    protocol = Looking((Block("text", WIDE, None, "read"),))
    reading = read(sample_data / "documents" / "scanned-letter.png", protocol, "turn")
    assert (reading.orientation, reading.blocks) == (0, protocol.blocks)
    assert protocol.seen is not None
    assert protocol.seen.image.size == letter.image.size


def test_a_page_of_which_nothing_is_sure_is_read_as_it_is(lying: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_worker, "orientation_of", lambda page: None)
    protocol = Looking((Block("text", WIDE, None, "read"),))
    reading = read(lying, protocol, "turn")
    assert (reading.orientation, reading.blocks) == (None, protocol.blocks)


@pytest.mark.parametrize("is_under", [True, False], ids=["under the scan", "stamped on it"])
def test_letters_of_a_page_that_an_image_covers_do_not_say_how_it_stands(tmp_path: Path, is_under: bool) -> None:
    picture = Image.new("RGB", (400, 300), "#ddd")
    picture.save(tmp_path / "a.png")
    with pymupdf.open() as document:
        page = document.new_page(width=400, height=300)
        for draw in sorted((0, 1), reverse=is_under):
            if draw == 0:
                page.insert_image(page.rect, filename=tmp_path / "a.png")
            else:
                page.insert_textbox((20, 20, 380, 280), "This content was downloaded from a library. " * 4)
        document.save(tmp_path / "a.pdf")
    rendered = open_document(str(tmp_path / "a.pdf"), password=None, dpi=72).render(0)
    assert len(rendered.words) > 20
    assert rendered.letters_run == NO_LETTERS


@pytest.mark.parametrize("use", ["check", "turn"])
def test_a_classifier_that_cannot_be_loaded_costs_no_page_but_those_that_are_to_be_turned(
    lying: Path, monkeypatch: pytest.MonkeyPatch, use: OrientationUse
) -> None:
    monkeypatch.setattr(page_worker, "orientation_of", raising(ImportError("libX.so: cannot open shared object file")))
    protocol = Looking((Block("text", WIDE, None, "read"),))
    channel = OneTask(ReadPage(1, str(lying), 0))
    PageWorker(channel, protocol, DocumentCache(OPEN), use).run()  # type: ignore[arg-type]
    said = channel.sent[-1]
    if use == "check":
        assert isinstance(said, Finished)
        assert (said.reading.orientation, said.reading.blocks) == (None, protocol.blocks)
    else:
        assert isinstance(said, Failed)
        assert said.failure.kind == "engine"
        assert "install onnxruntime again: libX.so" in said.failure.message
