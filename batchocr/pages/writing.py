"""Lines of writing among marks of ink, whatever they say and in whatever script."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Marks = NDArray[np.bool_]

_LEAST_WIDTH: Final = 3
"""The least width of a piece of a line, in its heights."""

_DENSITY: Final = (0.12, 0.65)
"""The least and the largest share of a line's rectangle that is ink."""

_STROKE: Final = (1.0, 0.2)
"""The longest mean run of ink across a line: so many marks, and so many of its heights. Letters are strokes and gaps; a
bar, a rule or a patch of a picture has longer runs."""

_CONTRAST: Final = 64
"""By how many levels ink differs from most of the page."""

_STRIP: Final = 96
"""The width in px of the vertical strips in which `line_height` looks for lines: it finds letters up to a third of it,
and larger ones are easy to read."""


def lines_in(marks: Marks, strip_width: int) -> list[tuple[int, int]]:
    """The height of each piece of a line of writing, and how many marks are in it.

    strip_width: of the strips that the marks are cut into, so that slanted lines, and those of columns side by side,
    have empty rows between them. Letters of more than a third of it are not found.
    """
    found: list[tuple[int, int]] = []
    if not marks.any():
        return found
    for strip in np.array_split(marks, max(1, round(marks.shape[1] / strip_width)), axis=1):
        inked = strip.sum(axis=1)
        strokes = strip[:, 0] + (strip[:, 1:] & ~strip[:, :-1]).sum(axis=1)
        for top, bottom in runs_of(inked > 0):
            columns = np.flatnonzero(strip[top:bottom].any(axis=0))
            height, width, num_marks = bottom - top, columns[-1] + 1 - columns[0], int(inked[top:bottom].sum())
            stroke = num_marks / strokes[top:bottom].sum()
            if (
                height > 1
                and width >= _LEAST_WIDTH * height
                and _DENSITY[0] <= num_marks / (width * height) <= _DENSITY[1]
                and stroke <= _STROKE[0] + _STROKE[1] * height
            ):
                found.append((height, num_marks))
    return found


def line_height(page: Image.Image) -> float | None:
    """The usual height of the lines of writing on a page, in px; None if most of its ink is something else."""
    grey = np.asarray(page.convert("L"), dtype=np.int16)
    marks = np.abs(grey - np.median(grey[::8, ::8])) > _CONTRAST
    lines = np.array(lines_in(marks, _STRIP)).reshape(-1, 2)
    if 2 * lines[:, 1].sum() <= marks.sum():
        return None
    return float(np.median(np.repeat(lines[:, 0], lines[:, 1])))


def runs_of(flags: Marks) -> list[tuple[int, int]]:
    """The [start, end) of each run of true values."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], flags, [False])).astype(np.int8)))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))
