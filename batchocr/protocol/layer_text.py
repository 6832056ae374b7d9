"""Which blocks of a page show nothing but text that the PDF itself draws, and what it says there.

A block is legible if a picture of the PDF's glyphs alone is the picture of the block: nothing else has ink there, and
no glyph is hidden, clipped away or of the colour of the paper. What such a block says depends on what its glyphs are,
and there a file can lie: that is for `audit` to find out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image

from batchocr.data import Glyph, TextLayer

Box = tuple[float, float, float, float]
"""x0, y0, x1, y1 as shares of the page."""


@dataclass(frozen=True, slots=True)
class LayerLine:
    """A line of a block, from left to right. words: its glyphs, parted where there is a space. hyphenated: whether it
    ends with a hyphen that may not belong to the word, which goes on in the next line."""

    words: tuple[tuple[Glyph, ...], ...]
    hyphenated: bool


@dataclass(frozen=True, slots=True)
class LayerBlock:
    """A legible block. flowing: whether its lines are one text whose words are where the spaces are; if not, the model
    has to say how it is to be written."""

    lines: tuple[LayerLine, ...]
    flowing: bool


def legible_block(layer: TextLayer, image: Image.Image, box: Box) -> LayerBlock | None:
    """The lines of a block, if it is legible. image: of the page, RGB. None if it is not."""
    raise NotImplementedError
