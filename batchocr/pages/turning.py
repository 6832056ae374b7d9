"""A page turned upright, and what was read of it as it is in the page's own frame."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from PIL import Image

from batchocr.data import Block, Box, Page, Reading

_CLOCKWISE: Final = {
    90: Image.Transpose.ROTATE_270,
    180: Image.Transpose.ROTATE_180,
    270: Image.Transpose.ROTATE_90,
}
_SHARE: Final = r"-?[0-9]{1,9}(?:\.[0-9]{1,9})?(?:e-?[0-9]{1,3})?"
PICTURE_IN_TABLE: Final = re.compile(rf'<img src="(#bbox=(?:{_SHARE},){{3}}{_SHARE})"[^<>]*>')
"""The pattern of a picture within a table, with the name of the picture: see `pages/protocol/families/mineru`."""


def turned_page(page: Page, degrees: int) -> Page:
    """The page turned clockwise, without its own letters: they are not where its pixels are now."""
    return replace(page, image=page.image.transpose(_CLOCKWISE[degrees]), words=(), glyphs=(), again=None)


def turned_back(reading: Reading, orientation: int) -> Reading:
    """What was read of a page that had been turned clockwise by `orientation` degrees, in the frame of the page as it
    is: the blocks are turned the other way, and so is their angle."""
    return replace(
        reading,
        markdown=_with_pictures_turned(reading.markdown, 360 - orientation),
        blocks=tuple(turned_block(block, 360 - orientation) for block in reading.blocks),
    )


def turned_block(block: Block, degrees: int) -> Block:
    """The block on the page turned clockwise."""
    return replace(
        block,
        bbox=turned_box(block.bbox, degrees),
        angle=((block.angle or 0) + degrees) % 360,
        content=block.content and _with_pictures_turned(block.content, degrees),
    )


def turned_box(box: Box, degrees: int) -> Box:
    """The box on the page turned clockwise; to a millionth of its sides, so that 1 − 0.7 is 0.3."""
    x0, y0, x1, y1 = box
    for _ in range(degrees // 90 % 4):
        x0, y0, x1, y1 = round(1 - y1, 6), x0, round(1 - y0, 6), x1
    return x0, y0, x1, y1


def box_named(name: str) -> Box:
    """The box of a picture within a table, by its name."""
    x0, y0, x1, y1 = map(float, name.removeprefix("#bbox=").split(","))
    return x0, y0, x1, y1


def _with_pictures_turned(text: str, degrees: int) -> str:
    """The text with the pictures in its tables named by where they are on the page once it is turned clockwise."""

    def turned(found: re.Match[str]) -> str:
        shares = ",".join(f"{share:g}" for share in turned_box(box_named(found[1]), degrees))
        return found[0].replace(found[1], f"#bbox={shares}")

    return PICTURE_IN_TABLE.sub(turned, text)
