"""Where a page has ink, whatever the colour of its paper."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
from PIL import Image, ImageChops, ImageFilter

from batchocr.data import Box
from batchocr.pages.writing import lines_in

_LONG_SIDE: Final = 512
"""The long side of the samples that stand for a page: one in 4.6 by 4.6 px at 200 dpi."""

_BACKGROUND: Final = (22, 138)
"""Samples of the background along a long side, across and down; at each place it is their median over 5 by 5. They are
closer together than lines of text, so that they do not all fall on the middle of one."""

_CONTRAST: Final = 56
"""By how many of 255 levels ink differs from the background in one of the three colours."""

_BLANK: Final = 0.0002
"""The share of ink below which a page is blank, or as good as that: a scan's specks."""

_LEAST_SHARE: Final = 0.02
_LEAST_SAMPLES: Final = 6
"""The fewest samples of ink in a box with text. In the text blocks of real pages 12 % of the samples are ink; in a page
number, some ten samples."""

_STRIPS: Final = (24, 72)
"""Samples across the strips in which lines of writing are looked for: of small letters, and of large ones."""

_WRITING: Final = 0.5
"""The share of a figure's ink that is in lines of writing if the figure looks like writing. Of 594 figures of papers, 5
% have more, half of them text in a frame; of blocks of text 95 % have more, of old newspapers, whose lines are 5
samples apart, 37 %."""

_IS_INK: Final = [255 if difference > _CONTRAST else 0 for difference in range(256)]


class Ink:
    """Which samples of a page stand out against what is around them: darker, lighter, or of another colour.

    So paper may have any colour, and get darker towards an edge. An even area, such as the black border of a scan, is
    no ink; where it ends there is some. Takes 1 to 2 ms and 200 kB a page.
    """

    def __init__(self, page: Image.Image) -> None:
        samples = _sampled(page, _LONG_SIDE, _LONG_SIDE)
        background = _sampled(page, *_BACKGROUND).filter(ImageFilter.MedianFilter(5))
        background = background.resize(samples.size, Image.Resampling.NEAREST)
        red, green, blue = ImageChops.difference(samples, background).split()
        self._marks = ImageChops.lighter(ImageChops.lighter(red, green), blue).point(_IS_INK)

        self._num_marks = _count(self._marks)
        self.is_empty = self._num_marks < _LEAST_SAMPLES

    def share_outside(self, boxes: Iterable[Box]) -> float | None:
        """The share of the page's ink that is in none of the boxes; None if the page is blank."""
        if self._num_marks < _BLANK * self._marks.width * self._marks.height:
            return None
        outside = self._marks.copy()
        for box in boxes:
            outside.paste(0, self._place(box, border=1))  # letters often reach over the edge of their box
        return round(_count(outside) / self._num_marks, 4)

    def fills(self, box: Sequence[float]) -> bool:
        """Whether a box has as much ink as a box with text: more than specks, or than the edges of its neighbours."""
        crop = self._marks.crop(self._place(box, border=0))
        return _count(crop) >= max(_LEAST_SAMPLES, _LEAST_SHARE * crop.width * crop.height)

    def amount(self, boxes: Iterable[Box], others: Iterable[Box] = ()) -> int:
        """How many samples of ink are in the boxes and in none of the other boxes."""
        chosen = Image.new("L", self._marks.size)
        for level, border, places in ((255, 0, boxes), (0, 1, others)):
            for box in places:
                chosen.paste(level, self._place(box, border=border))
        return self._marks.histogram(chosen)[255]

    def is_writing(self, box: Box, least_share: float = _WRITING) -> bool:
        """Whether more than this share of the ink in a box looks like lines of writing, across or down."""
        marks = np.asarray(self._marks.crop(self._place(box, border=0))) > 0
        in_lines = (sum(num for _, num in lines_in(side, strip)) for side in (marks, marks.T) for strip in _STRIPS)
        return max(in_lines) > least_share * int(marks.sum())

    def _place(self, box: Sequence[float], *, border: int) -> tuple[int, int, int, int]:
        """The range of samples of a box, with so many more on each side."""
        width, height = self._marks.size
        x0, y0, x1, y1 = box
        return (
            max(0, int(x0 * width) - border),
            max(0, int(y0 * height) - border),
            min(width, math.ceil(x1 * width) + border),
            min(height, math.ceil(y1 * height) + border),
        )


def _sampled(page: Image.Image, across: int, down: int) -> Image.Image:
    """Pixels of the page at even distances: as many as if its long side had `across` pixels where it lies across, or
    `down` where it stands."""
    long_side = max(page.size)
    width, height = (
        max(1, min(side, round(side * along / long_side)))
        for side, along in zip(page.size, (across, down), strict=True)
    )
    return page.resize((width, height), Image.Resampling.NEAREST)


def _count(marks: Image.Image) -> int:
    return marks.histogram()[255]
