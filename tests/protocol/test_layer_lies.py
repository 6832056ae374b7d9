"""Not one wrong character comes from a text layer that lies, and text comes from one that does not.

The model of these tests sees what a person sees, as the pages are set so that this is known. What the product takes
from a layer must be that, letter by letter.
"""

from __future__ import annotations

import math
import os
import random
import re
import string
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pymupdf
import pytest

from batchocr.data import Page, Reading
from batchocr.errors import PageError
from batchocr.input.pdf import open_pdf
from batchocr.protocol import audit_plan
from batchocr.protocol.layer_text import LegiblePage
from batchocr.protocol.mineru import MinerUProtocol
from tests.support.drawn_text import Font
from tests.support.lying_pages import HONEST, LYING, SetPage, as_set_page, set_page
from tests.support.prose import article
from tests.support.seeing_model import SeeingModel

_PROTOCOL = MinerUProtocol(max_new_tokens=4096, penalties=True)

FULL = os.environ.get("BATCHOCR_FULL") == "1"

_MENDED = "text that looks like markup"
"""The page on which MinerU's post-processing changes what the model says."""


def read(
    folder: Path,
    page: SetPage,
    *,
    error_rate: float = 0.0,
    seed: int = 0,
    habit: Callable[[str], str] = str,
) -> tuple[Reading, SeeingModel]:
    path = folder / "page.pdf"
    path.write_bytes(page.pdf)
    model = SeeingModel(drawn(path), page.blocks, page.width, page.height, error_rate, seed, habit)
    return model.read(_PROTOCOL), model


def drawn(path: Path) -> Page:
    return open_pdf(str(path), password=None, dpi=200, max_edge=3500, text_layer="use").render(0)


def lies(reading: Reading, model: SeeingModel) -> list[tuple[str, str]]:
    """What was taken from the layer, and what is seen there, where these differ."""
    taken = [
        (block.content or "", model.seen_of(block.bbox)) for block in reading.blocks if block.text_source == "layer"
    ]
    return [(said, seen) for said, seen in taken if said != seen]


def num_taken(reading: Reading) -> int:
    return sum(block.text_source == "layer" for block in reading.blocks)


@pytest.mark.parametrize("name", HONEST)
def test_a_layer_that_is_true_is_used(tmp_path: Path, name: str) -> None:
    reading, model = read(tmp_path, set_page(name))
    assert [block.content for block in reading.blocks] == [model.seen_of(block.bbox) for block in reading.blocks]
    assert num_taken(reading) >= len(reading.blocks) / 2
    assert len(model.asked) >= reading.layer_use.lines > 0


@pytest.mark.slow
@pytest.mark.parametrize("price", [None, "any"] if FULL else ["any"])
@pytest.mark.parametrize("name", LYING)
def test_nothing_that_is_not_seen_comes_from_the_layer(
    tmp_path: Path, name: str, price: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At any price, so that no lie is read by the model merely because asking about its lines would be too dear. With
    BATCHOCR_FULL=1 as the product does it, too."""
    if price == "any":
        for limit in ("_MOST_OF_BLOCK", "_ALL_OF_BLOCK", "_MOST_OF_PAGE"):
            monkeypatch.setattr(audit_plan, limit, math.inf)
    reading, model = read(tmp_path, set_page(name))
    assert lies(reading, model) == []
    if name != _MENDED:
        assert [block.content for block in reading.blocks] == [model.seen_of(block.bbox) for block in reading.blocks]


@pytest.mark.slow
@pytest.mark.parametrize("error_rate", [0.003, 0.02])
@pytest.mark.parametrize(
    "name",
    [
        *("Type 1", "CID TrueType", "two columns in order", "a rare pair swapped", "neighbours swapped"),
        *("a pair swapped that occurs once", "a point for a comma", "ligatures swapped"),
    ],
)
def test_a_model_that_errs_does_not_make_a_lie_true(tmp_path: Path, name: str, error_rate: float) -> None:
    page = set_page(name)
    for seed in range(3):
        reading, model = read(tmp_path, page, error_rate=error_rate, seed=seed)
        assert lies(reading, model) == []


def test_a_model_that_seldom_errs_leaves_the_layer_in_use(tmp_path: Path) -> None:
    for seed in range(3):
        reading, model = read(tmp_path, set_page("columns that are close"), error_rate=0.001, seed=seed)
        assert num_taken(reading)
        assert lies(reading, model) == []


HABITS: dict[str, Callable[[str], str]] = {
    "lines end where they end": lambda text: text.replace(". ", ".\n"),
    "straight quotes": lambda text: text.translate(str.maketrans("’“”", '\'""')),
    "hyphens for dashes": lambda text: text.replace("–", "-").replace("—", "-"),
    "three dots": lambda text: text.replace("…", "..."),
    "formulas of numbers": lambda text: re.sub(r"(\d+)", r"\\(\1\\)", text),
    "words run together": lambda text: text.replace(" of ", " of"),
    "spaces before marks": lambda text: re.sub("([?!;:])", r" \1", text),
    "mistakes mended": lambda text: text.replace("Xavier", "Xaver"),
    "nothing": lambda text: "",
    "something else": lambda text: "The quick brown fox jumps over the lazy dog.",
    "all twice": lambda text: f"{text} {text}",
    "half": lambda text: text[: len(text) // 2],
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["Type 1", "typographic quotes and dashes", "hyphens within words", "a rare pair swapped"]
)
@pytest.mark.parametrize("habit", HABITS)
def test_a_model_with_habits_does_not_change_what_is_seen(tmp_path: Path, name: str, habit: str) -> None:
    """What comes from the layer is what is seen, or, where a sign has variants, as the model writes it."""
    reading, model = read(tmp_path, set_page(name), habit=HABITS[habit])
    for said, seen in lies(reading, model):
        assert said == HABITS[habit](seen), "neither what is seen nor what the model says"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_a_map_damaged_at_random_gives_nothing_wrong(tmp_path: Path, seed: int) -> None:
    for number in range(3):
        reading, model = read(tmp_path, damaged(100 * seed + number))
        assert lies(reading, model) == []


def damaged(seed: int) -> SetPage:
    """An honest page but for some entries of its font's map."""
    lot = random.Random(seed)
    letters = lot.sample(string.ascii_letters + string.digits + ".,:;!? ", lot.choice([1, 1, 2, 3, 8]))
    font = Font(lot.choice(["type1", "cid"]), claims={letter: claim(letter, lot) for letter in letters})
    return as_set_page(article(font, seed=seed % 7)[0], f"damaged {seed}")


def claim(letter: str, lot: random.Random) -> str | None:
    """What a damaged map may say of a letter."""
    other = lot.choice(string.ascii_letters + string.digits)
    wild = chr(lot.choice([lot.randrange(1, 0x300), lot.randrange(0x300, 0xD800), lot.randrange(0xE000, 0x11000)]))
    return lot.choice(
        [other, letter.swapcase(), letter + other, other + letter, letter * 2, f"{letter} ", f" {letter}", " ", "",
         letter + "\u0301", "\u00ad", "\ufb01", "\u200b", wild, letter + wild, None]
    )  # fmt: skip


@pytest.mark.slow
def test_real_documents_say_what_other_readers_find(corpus: Path) -> None:
    """Where a real page's block may be taken from the layer, it has the words that MuPDF's own extraction has there."""
    compared, in_order, strange = 0, 0, []
    for path in sorted((corpus / "real").rglob("*.pdf")):
        for page, boxes in blocks_of(path, 2):
            legible = LegiblePage(page.layer, page.image) if page.layer else None
            for box in boxes:
                block = legible.block(box) if legible else None
                if block is None or not block.flowing:
                    continue
                words = [plain(glyph.text for glyph in word) for line in block.lines for word in line.words]
                others = [plain(word) for x, y, word in page.words if box[0] <= x <= box[2] and box[1] <= y <= box[3]]
                compared += 1
                in_order += words == others
                if sorted(words) != sorted(others) or not "".join(words).isprintable():
                    strange.append((path.name, words, others))
    assert compared > 50
    assert strange == []
    assert in_order > 0.9 * compared


def plain(letters: Iterable[str]) -> str:
    """Ligatures as letters."""
    return unicodedata.normalize("NFKC", "".join(letters))


def blocks_of(path: Path, max_pages: int) -> Iterator[tuple[Page, list[tuple[float, float, float, float]]]]:
    """The first pages, and the boxes of the blocks that MuPDF sees on them; none if they cannot be drawn."""
    try:
        document = open_pdf(str(path), password=None, dpi=150, max_edge=3500, text_layer="use")
    except PageError:
        return
    with pymupdf.open(path) as same:
        for index in range(min(max_pages, document.page_count)):
            try:
                page = document.render(index)
            except PageError:
                continue
            rect, turned = same[index].rect, same[index].rotation_matrix
            found = [pymupdf.Rect(block[:4]) * turned for block in same[index].get_text("blocks") if block[6] == 0]
            yield (
                page,
                [
                    (
                        max(0.0, box.x0 / rect.width),
                        max(0.0, box.y0 / rect.height),
                        min(1.0, box.x1 / rect.width),
                        min(1.0, box.y1 / rect.height),
                    )
                    for box in found
                ],
            )
