"""How much of a page is written on, judged from a small picture of it."""

from __future__ import annotations

from PIL import Image, ImageFilter

SMALL_EDGE = 550
"""Long side in px of a picture in which lines of text are still apart: 50 dpi for A4 or Letter."""

_CONTRAST = 48
_GAP = 7
"""What lies within 3 px of ink belongs to it: the spaces between words and lines."""


def covered_share(small: Image.Image) -> float:
    """The share of a page that its ink covers, the spaces between words and lines included. small: its long side is
    about SMALL_EDGE px."""
    grey = small.convert("L")
    histogram = grey.histogram()
    paper = max(range(256), key=histogram.__getitem__)
    marked = grey.point(lambda level: 255 if abs(level - paper) > _CONTRAST else 0)
    spread = marked.filter(ImageFilter.MaxFilter(_GAP))
    return spread.histogram()[255] / (spread.width * spread.height)
