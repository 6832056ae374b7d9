"""The text of a block from the PDF itself, for makers that the user trusts: where its ink is plain, flowing text.

Plain: every glyph in the block can be seen, and nothing else has ink there. Flowing: lines of one column, from left to
right and in the order of the file. Anything else is left to the model.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Final, TypeAlias

import numpy as np
from PIL import Image

from batchocr.data import Glyph, shared_area

_ORDINARY: Final = re.compile(
    r"[ !-\[\]-~\xa0-\u02ff\u0370-\u052f\u1e00-\u1fff\u2010-\u2027\u2030-\u205e\u20a0-\u20bf\u2122\u2190-\u2193"
    r"\u2212\u223c\u2248\u2260\u2264\u2265\u25a0\u25aa\u25cb\u25cf\u3000-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff"
    r"\ufb00-\ufb06\uff00-\uffef]+"
)
"""A pattern of ordinary signs: letters, digits and marks of scripts from left to right whose letters stand alone. Few
signs of mathematics, nothing of private use, and no backslash, with which the model begins a formula."""

_MARKS: Final = re.compile(r"[0-9A-Za-z,;()\[\]*+†‡§–−-]")
"""What may be raised or lowered."""
_LIGATURES: Final = {"ﬀ": "ff", "ﬁ": "fi", "ﬂ": "fl", "ﬃ": "ffi", "ﬄ": "ffl", "ﬅ": "st", "ﬆ": "st", "\xa0": " "}
_UNSPACED: Final = re.compile(r"[\u3000-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uffef]{2}")
_HYPHENS: Final = ("-", "‐", "\xad")

_CONTRAST: Final = 40
"""By how many of 255 levels of grey ink differs from the paper."""
_OTHER_INK: Final = 0.01
"""The share of a block's ink that may be outside of its glyphs."""
_LEAST_INK: Final = 0.03
"""The least share of ink in a glyph's box, and what is around it."""
_EDGE_PX: Final = 2

# In sizes of the font:
_SAME_LINE, _NEXT_LINE = 0.06, 0.7
_SMALL, _LARGE = 0.85, 1.5
_LOWERED, _RAISED = -0.3, 0.65
_SPACE, _SURE_SPACE = 0.05, 0.2
"""The least gaps that are a space: from the first on if the file has a space there, from the second in any case."""
_OVERLAP, _COLUMN_GAP = -0.4, 2.5
_WORD_GAP = 0.8
"""The largest gap between words of a line; between columns there is more."""
_BELOW: Final = 0.25
"""How far below its baseline a line under a letter may be, and is no other ink."""

Line: TypeAlias = list[tuple[Glyph, str]]
"""The glyphs of a line, each with ^ if it is raised, _ if it is lowered."""


@dataclass(frozen=True, slots=True)
class PlainText:
    """The plain text in a box."""

    text: str
    glyphs: tuple[Glyph, ...]
    """The glyphs of the text in the order in which they are read, without spaces."""


class TrustedText:
    """The plain text of a page. glyphs: of the page, in the order of the file. image: of the page."""

    def __init__(self, glyphs: Sequence[Glyph], image: Image.Image) -> None:
        self._grey = image.convert("L")
        self._glyphs = sorted(enumerate(glyphs), key=lambda numbered: numbered[1].box[1])
        self._tops = [glyph.box[1] for _, glyph in self._glyphs]
        self._highest = max((glyph.box[3] - glyph.box[1] for glyph in glyphs), default=0.0)

    def of(self, bbox: Sequence[float]) -> PlainText | None:
        """The text in a box, given in shares of the page; None if it is for the model to read."""
        width, height = self._grey.size
        box = (bbox[0] * width, bbox[1] * height, bbox[2] * width, bbox[3] * height)
        glyphs, others = self._glyphs_in(box)
        if not all(_ORDINARY.fullmatch(glyph.text) for glyph in glyphs) or _is_line_cut(glyphs, others):
            return None
        if not self._is_seen(glyphs, others, box):
            return None
        lines = _lines([glyph for glyph in glyphs if glyph.text.strip()])
        if not lines or not _is_flowing(glyphs, lines):
            return None
        spaces = [glyph for glyph in glyphs if not glyph.text.strip()]
        text = _joined([_line_text(line, spaces) for line in lines])
        return PlainText(text, tuple(glyph for line in lines for glyph, _ in line))

    def _glyphs_in(self, box: Sequence[float]) -> tuple[list[Glyph], list[Glyph]]:
        """The glyphs whose middle is in the box, in the order of the file, and others that reach into it, or stand
        beside it."""
        found: list[tuple[int, Glyph]] = []
        others: list[Glyph] = []
        for number, glyph in self._glyphs[bisect_left(self._tops, box[1] - self._highest) :]:
            x0, y0, x1, y1 = glyph.box
            if y0 > box[3]:
                break
            if box[0] <= (x0 + x1) / 2 < box[2] and box[1] <= (y0 + y1) / 2 < box[3]:
                found.append((number, glyph))
            elif shared_area(glyph.box, (box[0] - glyph.size, box[1], box[2] + glyph.size, box[3])):
                others.append(glyph)
        return [glyph for _, glyph in sorted(found, key=lambda numbered: numbered[0])], others

    def _is_seen(self, glyphs: Sequence[Glyph], others: Sequence[Glyph], box: Sequence[float]) -> bool:
        """Whether all glyphs can be seen, and are the only ink in the box but for these others."""
        left, top, right, bottom = map(round, box)
        grey = np.asarray(self._grey.crop((left, top, right, bottom)), dtype=np.int16)
        if not grey.size:
            return False
        ink = np.abs(grey - np.bincount(grey.ravel()).argmax()) > _CONTRAST
        rest = ink.copy()
        for glyph in others:
            rest[_pixels(glyph, left, top)] = False
        for glyph in glyphs:
            place = _pixels(glyph, left, top)
            part = ink[place]
            if glyph.text.strip(" \xa0\xad") and np.count_nonzero(part) <= _LEAST_INK * part.size:
                return False
            rest[place] = False
        return bool(rest.sum() <= _OTHER_INK * ink.sum())


def _is_line_cut(glyphs: Sequence[Glyph], others: Sequence[Glyph]) -> bool:
    """Whether a box leaves letters out of a line of which it has other letters. others: glyphs that are in the box in
    part, or stand beside it."""
    ends: dict[int, tuple[float, float]] = {}
    for glyph in filter(_has_ink, glyphs):
        left, right = ends.get(round(glyph.y), (glyph.x, glyph.x))
        ends[round(glyph.y)] = min(left, glyph.x), max(right, glyph.x + glyph.advance)
    return any(
        other.x - right < _WORD_GAP * other.size and left - other.x - other.advance < _WORD_GAP * other.size
        for other in filter(_has_ink, others)
        for left, right in [ends.get(round(other.y), (math.inf, -math.inf))]
    )


def _has_ink(glyph: Glyph) -> bool:
    return bool(glyph.text.strip())


def _pixels(glyph: Glyph, left: int, top: int) -> tuple[slice, slice]:
    """The pixels of a glyph, and of what may be under it, as rows and columns of the crop. left, top: of the crop."""
    x0, y0, x1, y1 = glyph.box
    x1, y1 = max(x1, glyph.x + glyph.advance), max(y1, glyph.y + _BELOW * glyph.size)
    rows = slice(max(0, int(y0) - top - _EDGE_PX), max(0, int(y1) - top + _EDGE_PX + 1))
    return rows, slice(max(0, int(x0) - left - _EDGE_PX), max(0, int(x1) - left + _EDGE_PX + 1))


def _lines(glyphs: Sequence[Glyph]) -> list[Line] | None:
    """The glyphs line by line, each from left to right; None if these are no plain lines."""
    usual = median(glyph.size for glyph in glyphs) if glyphs else 0.0
    lines: list[Line] = []
    for glyph in sorted(glyphs, key=lambda glyph: glyph.y):
        down = (glyph.y - lines[-1][0][0].y) / usual if lines else _NEXT_LINE
        if glyph.size < _SMALL * usual:
            continue
        if down >= _NEXT_LINE and glyph.size < _LARGE * usual:
            lines.append([(glyph, "")])
        elif down <= _SAME_LINE:
            lines[-1].append((glyph, ""))
        else:
            return None
    if not all(_take_in(glyph, lines) for glyph in glyphs if glyph.size < _SMALL * usual):
        return None
    return [sorted(line, key=lambda placed: placed[0].x) for line in lines]


def _take_in(glyph: Glyph, lines: Sequence[Line]) -> bool:
    """Put a small glyph into its line: a small capital, or a glyph that is raised or lowered."""
    for line in lines:
        up = (line[0][0].y - glyph.y) / line[0][0].size
        shift = "^" if up > _SAME_LINE else "_" if up < -_SAME_LINE else ""
        if _LOWERED < up < _RAISED and (not shift or _MARKS.fullmatch(glyph.text)):
            line.append((glyph, shift))
            return True
    return False


def _is_flowing(glyphs: Sequence[Glyph], lines: Sequence[Line]) -> bool:
    """Whether these are lines of one column. glyphs: in the order of the file."""
    numbers = {id(glyph): number for number, glyph in enumerate(glyphs)}
    order = [numbers[id(glyph)] for line in lines for glyph, _ in line]
    gaps = (_gap(left, right) for line in lines for (left, _), (right, _) in pairwise(line))
    return order == sorted(order) and all(_OVERLAP < gap < _COLUMN_GAP for gap in gaps)


def _gap(left: Glyph, right: Glyph) -> float:
    return (right.x - left.x - left.advance) / max(left.size, right.size)


def _line_text(line: Line, spaces: Sequence[Glyph]) -> str:
    r"""The text of a line, with raised and lowered marks as the model writes them: `\(^{12}\)`."""
    first, _ = line[0]
    here = [space.x + space.advance / 2 for space in spaces if abs(space.y - first.y) < _NEXT_LINE * first.size / 2]
    said, shifted = "", ""
    for (left, _), (glyph, shift) in zip([line[0], *line], line, strict=False):
        gap = _gap(left, glyph) if said else 0.0
        has_space = gap > _SPACE and any(left.x < x < glyph.x for x in here)
        is_apart = has_space or (gap > _SURE_SPACE and not _UNSPACED.match(left.text + glyph.text))
        is_other = shift != shifted or is_apart
        said += "}\\)" if shifted and is_other else ""
        said += " " if is_apart else ""
        said += f"\\({shift}{{" if shift and is_other else ""
        said += _LIGATURES.get(glyph.text, glyph.text)
        shifted = shift
    return said + ("}\\)" if shifted else "")


def _joined(lines: Sequence[str]) -> str:
    """The lines as one text. A hyphen at the end of a line goes if a small letter follows: most hyphens there only
    divide a word."""
    text = lines[0]
    for line in lines[1:]:
        if text.endswith(_HYPHENS) and line[0].isalpha():
            text = (text[:-1] if line[0].islower() or text.endswith("\xad") else text) + line
        else:
            text += line if _UNSPACED.match(text[-1] + line[0]) else f" {line}"
    return text.replace("\xad", "")
