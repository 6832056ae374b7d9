"""How many pages whose text was taken for pictures are found, and how many real pictures are taken for text.

    python -m benchmarks.accuracy.figures --pages FILE… --pictures FILE…

Of each page the text blocks are called images: all of them, or only the largest. Those of a PDF are MuPDF's, of 40
letters or more; those of an image the text regions of a PAGE file beside it, of the same name with `.xml`; without one
the page is one block. At most two pages of a file count. A picture stands alone on white paper, at 200 dpi. A page is
found, or a picture marked, if its row is doubtful.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pymupdf
from PIL import Image

from batchocr.data import Block, Box, PageResult, box_area
from batchocr.errors import PageError
from batchocr.pages.input.render import open_document
from batchocr.pages.protocol.figures import shares_in_figures
from batchocr.pages.protocol.ink import Ink
from batchocr.tables.page_quality import DOUBTFUL, quality

_A4 = (1654, 2339)
_MARGIN = 77
_LEAST_LETTERS = 40
_PAGES_OF_A_FILE = 2


def main(argv: Sequence[str] | None = None) -> None:
    """Print the counts as a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", nargs="*", type=Path, default=[], metavar="FILE")
    parser.add_argument("--pictures", nargs="*", type=Path, default=[], metavar="FILE")
    arguments = parser.parse_args(argv)
    pages = [page for path in arguments.pages for page in pages_of(path)]
    pictures = [on_paper(path) for path in arguments.pictures]
    marked = [
        path.name for path, (page, box) in zip(arguments.pictures, pictures, strict=True) if is_marked(page, [box], [])
    ]
    counts = {
        "pages": len(pages),
        "found": sum(is_marked(page, boxes, []) for page, boxes in pages),
        "found_if_only_the_largest": sum(is_marked(page, boxes[:1], boxes[1:]) for page, boxes in pages),
        "pictures": len(pictures),
        "marked": len(marked),
    }
    print(json.dumps(counts | {"names": marked}))


def is_marked(page: Image.Image, figures: Sequence[Box], texts: Sequence[Box]) -> bool:
    """Whether a page is doubtful with these blocks, if nothing else is amiss."""
    images = [Block("image", box, 0, None) for box in figures]
    blocks = [*images, *(Block("text", box, 0, "text", finish_reason="stop") for box in texts)]
    in_figures, writing = shares_in_figures(blocks, Ink(page))
    row = PageResult("page", 0, "ok", ink_in_figures=in_figures, writing_in_figures=writing)
    return quality(row) < DOUBTFUL


def pages_of(path: Path) -> Iterator[tuple[Image.Image, list[Box]]]:
    """Pages of a file, chosen at random, with the boxes of their text, the largest first."""
    with suppress(PageError):
        document = open_document(str(path), password=None, dpi=200)
        chosen = range(document.page_count)
        for index in random.Random(0).sample(chosen, min(_PAGES_OF_A_FILE, len(chosen))):
            with suppress(PageError):
                page = document.render(index)
                boxes = text_boxes(path, index) if page.words else text_regions(path)
                if boxes:
                    yield page.image, boxes


def text_boxes(path: Path, index: int) -> list[Box]:
    """Where MuPDF finds the text blocks of a PDF's page, the largest first."""
    with pymupdf.open(path) as document:
        page = document[index]
        found = [block for block in page.get_text("blocks") if len("".join(block[4].split())) >= _LEAST_LETTERS]
        return _shares([block[:4] for block in found], *page.rect.br)


def text_regions(path: Path) -> list[Box]:
    """The text regions of an image's PAGE file, the largest first; without such a file all of the image."""
    truth = path.with_suffix(".xml")
    if not truth.exists():
        return [(0.0, 0.0, 1.0, 1.0)]
    said = truth.read_text()
    [size] = re.findall(r'imageWidth="(\d+)" imageHeight="(\d+)"', said)
    boxes = []
    for points in re.findall(r'<(?:\w+:)?TextRegion .*?<(?:\w+:)?Coords points="(.*?)"', said, re.DOTALL):
        x, y = zip(*(map(float, point.split(",")) for point in points.split()), strict=True)
        boxes.append((min(x), min(y), max(x), max(y)))
    return _shares(boxes, *map(float, size))


def _shares(boxes: Sequence[Box], width: float, height: float) -> list[Box]:
    shares = [
        (max(0.0, x0 / width), max(0.0, y0 / height), min(1.0, x1 / width), min(1.0, y1 / height))
        for x0, y0, x1, y1 in boxes
        if x0 < width and y0 < height and x1 > 0 and y1 > 0
    ]
    return sorted(shares, key=box_area, reverse=True)


def on_paper(path: Path) -> tuple[Image.Image, Box]:
    """A picture on white paper, and where it is."""
    with Image.open(path) as file:
        picture = file.convert("RGB")
    picture.thumbnail((_A4[0] - 2 * _MARGIN, _A4[1] - 2 * _MARGIN))
    page = Image.new("RGB", _A4, "white")
    page.paste(picture, (_MARGIN, _MARGIN))
    right, bottom = _MARGIN + picture.width, _MARGIN + picture.height
    return page, (_MARGIN / _A4[0], _MARGIN / _A4[1], right / _A4[0], bottom / _A4[1])


if __name__ == "__main__":
    main()
