"""Which blocks of a page show nothing but text that the PDF itself draws, and what it says there.

A block is legible if a picture of the PDF's plain glyphs alone is the picture of the block: nothing else has ink there,
and no glyph is hidden, clipped away or of the colour of the paper. What such a block says depends on what its glyphs
are, and there a file can lie: that is for `audit` to find out.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from statistics import median
from typing import Final, cast

from PIL import Image, ImageChops

from batchocr.data import Glyph, TextLayer

_ORDINARY: Final = re.compile(
    r"[A-Za-z0-9.,;:!?'\"()\[\]/&%#@*$§©®™€£¡¿«»‹›‘’‚“”„…•\xad‐‑–—-]|"
    r"[\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u1e00-\u1eff"  # Latin
    r"\u0400-\u0482\u048a-\u052f"  # Cyrillic
    r"\ufb00-\ufb06]|"  # ligatures
    r"f[fijlt]{1,2}|t[fit]{1,2}|[cs]t|c[hk]|Th|\.{3}"
)
"""What a glyph may say in text whose lines run from left to right and whose letters stand alone. No signs of
mathematics, which the model writes as LaTeX. Several letters only where fonts have one glyph for them: else a glyph may
say the letters of its neighbours, and these something else, and yet all of it be right in some lines."""

_HYPHENS: Final = frozenset("-‐‑\xad")

_OPEN_END: Final = re.compile(
    r"""
    .*[–—/]\n.* | .*\n[–—/‐‑\xad-].+ |                                        # a dash: is there a space beside it?
    .*\w['’]\n\w.* | .*[(\[#$€£]\n.* | .*\n[)\]%.,;:!?…].* |                # a mark that belongs to the other
    .*[./:@][^\s.,;:)\]].*\n.* | .*\n.*[./:@][^\s.,;:)\]].* | .*\.\n[a-z].* |  # an address
    .*\d[.,:]?\n\d.* | .*[A-Z]\.\n[A-Z]\..*                                  # a number, initials
""",
    re.VERBOSE,
)
"""The last word of a line and the first of the next, if it is not clear that they are two."""

_ROUNDED: Final = 6
"""By how many of 255 levels pixels may differ from what the glyphs alone would make of them. In 261 real blocks none
does by more than 3; of an `e` in small print whose bar is covered, four may, by 40."""

_LEAST_INK: Final = 128
_LEAST_CONTRAST: Final = 64
_MOST_COLORS: Final = 4
"""Letters cover some pixel at least half, and stand out by a quarter of all levels, and half as much as all others:
against black, the lack of a thin stroke in pale grey could pass for a rounding."""

_LEVELS: Final = range(256)

_OVERHANG: Final = re.compile(
    """[AFKLPRTVWY][ACGJOQSTVWYaceimnopqrsuvwxyz.,:;'’"”-]|[frvwy][.,]|[ADFLOPQRTVWY"“'‘][ATVWY]"""
)
"""Pairs that are set closer than others, as one leaves room for the other."""

_REACHING_BACK: Final = frozenset("Jfjp")
"""Letters that begin above or below the one before, in italics at least."""

_MOST_HIDDEN: Final = 0.5
"""Of a glyph's box, by that of its neighbour; in italics they overlap."""

# In sizes of the font:
_WITHIN_LINE: Final = 0.03
_BETWEEN_LINES: Final = 1.0
_SAME_SIZE: Final = 0.03
_KERNED, _KERNED_PAIR = -0.085, -0.16
"""The least gap between two letters, and between two that overhang."""
_CUT, _CUT_ASIDE = 0.25, 0.12
"""How much of a letter may be behind the edge of a block, or within it."""
_NO_SPACE, _SPACE, _ANY_SPACE, _COLUMN_GAP = 0.08, 0.12, 0.18, 1.2
"""A gap up to the first is kerning. From the second it is a space if the file has one there, from the third in any
case; what is between may be either. From the last it may be the gap between columns."""

_SPACE_OF_INK, _SAME_SPACE = 0.3, 0.03
"""How close the ink of letters is in a block of one word; and by how much spaces differ that are not stretched."""

_CHANNEL, _CHANNEL_SHARE = 0.6, 1.5
"""A gap so wide that goes on in the next line may be one too, if it is so much wider than the others there."""

_HIGHEST, _LOWEST = 1.1, 0.5
"""How far the ink of a letter may be above and below its baseline."""

_CENTRE: Final = 0.3
"""Of a letter above its baseline."""

Box = tuple[float, float, float, float]
Color = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class LayerLine:
    """A line of a block, from left to right. words: its glyphs, parted where there is a space. hyphenated: whether it
    ends with a hyphen, and goes on in the next line: does the hyphen belong to the word?"""

    words: tuple[tuple[Glyph, ...], ...]
    hyphenated: bool = False

    @property
    def glyphs(self) -> Iterator[Glyph]:
        return (glyph for word in self.words for glyph in word)


@dataclass(frozen=True, slots=True)
class LayerBlock:
    """A legible block. box: of its crop, in px of the page. flowing: whether it is one text, with spaces where the
    glyphs are apart and the lines end; if not, only the model can say how it is to be written."""

    box: tuple[int, int, int, int]
    lines: tuple[LayerLine, ...]
    flowing: bool

    def rows(self, first: int, last: int) -> tuple[int, int]:
        """The first row of pixels of the lines from `first` to `last`, and the row behind them."""
        boxes = [glyph.box for line in self.lines[first : last + 1] for glyph in line.glyphs]
        top = int(min(box[1] for box in boxes)) - 2
        bottom = int(max(box[3] for box in boxes)) + 3
        return max(top, self.box[1]), min(bottom, self.box[3])


class LegiblePage:
    """Finds legible blocks. image: of the page, RGB."""

    def __init__(self, layer: TextLayer, image: Image.Image) -> None:
        # By where their ink is: a font may draw it far away from the baseline.
        self._glyphs = sorted(layer.glyphs, key=lambda glyph: glyph.box[1])
        self._tops = [glyph.box[1] for glyph in self._glyphs]
        self._highest = max((glyph.box[3] - glyph.box[1] for glyph in self._glyphs), default=0.0)
        self._ink, self._image = layer.ink, image

    def block(self, share_box: Sequence[float]) -> LayerBlock | None:
        """The block in a box, given in shares of the page; None if it is not legible, or has no text."""
        width, height = self._image.size
        if self._ink.size != self._image.size:
            return None
        x0, y0, x1, y1 = share_box
        box = (round(x0 * width), round(y0 * height), round(x1 * width), round(y1 * height))
        found = self._glyphs_of(box)
        rows = _rows(found[0]) if found is not None else None
        if found is None or rows is None or not _looks_like(self._image.crop(box), self._ink.crop(box)):
            return None
        block = _block_of(box, rows, found[1])
        return None if any(map(_has_variable, block.lines)) else block

    def _glyphs_of(self, box: tuple[int, int, int, int]) -> tuple[list[Glyph], list[Glyph]] | None:
        """The glyphs with ink in the box, and the spaces; None if some are cut by its edge, or are not ordinary."""
        glyphs, spaces = [], []
        first, last = bisect_left(self._tops, box[1] - self._highest), bisect_right(self._tops, box[3])
        for glyph in self._glyphs[first:last]:
            centre = (glyph.x + glyph.advance / 2, glyph.y - _CENTRE * glyph.size)
            inside = box[0] <= centre[0] < box[2] and box[1] <= centre[1] < box[3]
            if not glyph.text.strip():
                spaces += [glyph] if inside else []
            elif inside:
                if _reaches_out(glyph, box) or _is_astray(glyph) or not _ORDINARY.fullmatch(glyph.text):
                    return None
                glyphs.append(glyph)
            elif _reaches_in(glyph, box):
                return None
        return glyphs, spaces


def _reaches_out(glyph: Glyph, box: Box) -> bool:
    """Whether a box does not show all of a glyph in it."""
    (x0, y0, x1, y1), (left, top, right, bottom) = glyph.box, box
    return max(left - x0, x1 - right) > _CUT_ASIDE * glyph.size or max(top - y0, y1 - bottom) > _CUT * glyph.size


def _reaches_in(glyph: Glyph, box: Box) -> bool:
    """Whether a box shows something of a glyph outside."""
    (x0, y0, x1, y1), (left, top, right, bottom) = glyph.box, box
    across, down = min(x1, right) - max(x0, left), min(y1, bottom) - max(y0, top)
    return across > _CUT_ASIDE * glyph.size and down > _CUT * glyph.size


def _is_astray(glyph: Glyph) -> bool:
    """Whether a glyph's ink is not on its line."""
    return glyph.y - glyph.box[1] > _HIGHEST * glyph.size or glyph.box[3] - glyph.y > _LOWEST * glyph.size


def _looks_like(crop: Image.Image, ink: Image.Image) -> bool:
    """Whether a crop of the page is paper of one colour with this ink on it, in a few colours at most, and nothing
    else."""
    counted = crop.getcolors(crop.width * crop.height)
    if not counted:
        return False
    paper = cast(Color, max(counted)[1])
    colors = _colors_of(crop, ink, paper)
    if not colors:
        return False
    others = [_differences(crop, _on_paper(ink, color, paper)) for color in colors]
    return cast(tuple[int, int], reduce(ImageChops.darker, others).getextrema())[1] <= _ROUNDED


def _colors_of(crop: Image.Image, ink: Image.Image, paper: Color) -> list[Color]:
    """The colours of the ink, the most frequent first; none if some could be overlooked beside others."""
    most = cast(tuple[int, int], ink.getextrema())[1]
    if most < _LEAST_INK:
        return []
    covered = Image.composite(
        crop, Image.new("RGB", crop.size, paper), ink.point([255 * (at == most) for at in _LEVELS])
    )
    found: list[Color] = []
    for _, color in sorted(cast(list[tuple[int, Color]], covered.getcolors(crop.width * crop.height)), reverse=True):
        if all(_apart(color, other) > _ROUNDED for other in [paper, *found]):
            found.append(color)
    full = [
        cast(Color, tuple(round(p + (c - p) * 255 / most) for p, c in zip(paper, color, strict=True)))
        for color in found
    ]
    contrasts = [_apart(color, paper) for color in full]
    if not full or len(full) > _MOST_COLORS or min(contrasts) < max(_LEAST_CONTRAST, max(contrasts) / 2):
        return []
    return full


def _apart(one: Color, other: Color) -> int:
    return max(abs(a - b) for a, b in zip(one, other, strict=True))


def _on_paper(ink: Image.Image, color: Color, paper: Color) -> Image.Image:
    bands = [
        ink.point([min(255, max(0, round(p + (c - p) * level / 255))) for level in _LEVELS])
        for p, c in zip(paper, color, strict=True)
    ]
    return Image.merge("RGB", bands)


def _differences(one: Image.Image, other: Image.Image) -> Image.Image:
    """By how many levels each pixel differs in the colour in which it does most."""
    return reduce(ImageChops.lighter, ImageChops.difference(one, other).split())


def _rows(glyphs: Sequence[Glyph]) -> list[list[Glyph]] | None:
    """The glyphs line by line, from left to right; None if these are not plain lines: of one size, each on its
    baseline, no glyph over another."""
    if not glyphs:
        return None
    size = glyphs[0].size
    if any(abs(glyph.size - size) > _SAME_SIZE * size for glyph in glyphs):
        return None
    rows: list[list[Glyph]] = []
    for glyph in sorted(glyphs, key=lambda glyph: glyph.y):
        down = glyph.y - rows[-1][0].y if rows else _BETWEEN_LINES * size
        if down >= _BETWEEN_LINES * size:
            rows.append([glyph])
        elif down <= _WITHIN_LINE * size:
            rows[-1].append(glyph)
        else:
            return None
    for row in rows:
        row.sort(key=lambda glyph: glyph.x)
        if any(not _least_gap(left, right) <= _gap(left, right) / size < _COLUMN_GAP for left, right in pairwise(row)):
            return None
        if any(_hides(left, right) for left, right in [*pairwise(row), *zip(row, row[2:], strict=False)]):
            return None
    return None if any(_has_channel(above, below, size) for above, below in pairwise(rows)) else rows


def _has_channel(above: Sequence[Glyph], below: Sequence[Glyph], size: float) -> bool:
    """Whether there may be a gap between columns that runs through two lines."""
    gaps, others = (
        [(left.box[2], right.box[0]) for left, right in pairwise(row) if _gap(left, right) > _ANY_SPACE * size]
        for row in (above, below)
    )
    if not gaps or not others:
        return False
    usual = median(end - start for start, end in [*gaps, *others])
    widest = max(min(one[1], other[1]) - max(one[0], other[0]) for one in gaps for other in others)
    return widest > max(_CHANNEL * size, _CHANNEL_SHARE * usual)


def _least_gap(left: Glyph, right: Glyph) -> float:
    """How close two glyphs may be, in sizes of the font: closer, two may look like a third."""
    return _KERNED_PAIR if _OVERHANG.fullmatch(left.text + right.text) and left.text != right.text else _KERNED


def _hides(one: Glyph, other: Glyph) -> bool:
    """Whether one of two glyphs may not be seen for the other, or where it belongs to."""
    (a0, b0, a1, b1), (c0, d0, c1, d1) = one.box, other.box
    if a0 + a1 >= c0 + c1:
        return True
    shared = max(0.0, min(a1, c1) - max(a0, c0)) * max(0.0, min(b1, d1) - max(b0, d0))
    return shared > _MOST_HIDDEN * min((a1 - a0) * (b1 - b0), (c1 - c0) * (d1 - d0))


def _gap(left: Glyph, right: Glyph) -> float:
    return right.x - left.x - left.advance


def _block_of(box: tuple[int, int, int, int], rows: Sequence[Sequence[Glyph]], spaces: Sequence[Glyph]) -> LayerBlock:
    parted = [_words(row, spaces) for row in rows]
    lines = [words for words, _ in parted]
    flowing = all(sure for _, sure in parted) and _are_apart(lines) and not _is_filled(lines)
    right_edge = max(row[-1].box[2] for row in rows)
    for row, words, below in zip(rows, lines, lines[1:], strict=False):
        size, first_word = row[0].size, below[0]
        room = right_edge - row[-1].box[2] - size / 2
        ends_early = room > first_word[-1].box[2] - first_word[0].box[0]
        if ends_early or _OPEN_END.fullmatch(f"{_text(words[-1])}\n{_text(first_word)}"):
            flowing = False
    last = len(lines) - 1
    hyphenated = [index < last and words[-1][-1].text in _HYPHENS for index, words in enumerate(lines)]
    return LayerBlock(box, tuple(LayerLine(*line) for line in zip(lines, hyphenated, strict=True)), flowing)


def _are_apart(lines: Sequence[Sequence[Sequence[Glyph]]]) -> bool:
    """Whether words are apart and letters are not, by their ink too: how wide a glyph is, fonts may say wrongly."""
    size = lines[0][0][0].size
    within = [right.box[0] - left.box[2] for words in lines for word in words for left, right in pairwise(word)]
    between = [_seen_gap(left[-1], right[0]) for words in lines for left, right in pairwise(words)]
    return max(within, default=-size) < min(between, default=_SPACE_OF_INK * size)


def _seen_gap(left: Glyph, right: Glyph) -> float:
    """How far the ink of two words is apart, without that which is above or below the other's letters."""
    end = min(left.box[2], left.x + left.advance) if left.text == "f" else left.box[2]
    start = max(right.box[0], right.x) if right.text in _REACHING_BACK else right.box[0]
    return start - end


def _is_filled(lines: Sequence[Sequence[Sequence[Glyph]]]) -> bool:
    """Whether lines may end within words without a hyphen: each has no room for another letter, though its spaces are
    as narrow as the others'."""
    size = lines[0][0][0].size
    right_edge = max(words[-1][-1].box[2] for words in lines)
    spaces = [_gap(left[-1], right[0]) for words in lines for left, right in pairwise(words)]
    space = max(spaces, default=0.0)
    if len(lines) == 1 or space - min(spaces, default=0.0) > _SAME_SPACE * size:
        return False
    return all(
        right_edge - words[-1][-1].box[2] < space + below[0][0].advance and words[-1][-1].text not in _HYPHENS
        for words, below in pairwise(lines)
    )


def _has_variable(line: LayerLine) -> bool:
    """Whether a letter stands alone in another font than the words beside it, as variables do."""
    fonts = [[glyph.font for glyph in word if glyph.text.isalpha()] for word in line.words]
    fonts = [found for found in fonts if found]
    return any(
        len(found) == 1
        and not any(found[0] in other for other in [*fonts[max(0, at - 1) : at], *fonts[at + 1 : at + 2]])
        for at, found in enumerate(fonts)
        if len(fonts) > 1
    )


def _text(word: Sequence[Glyph]) -> str:
    return "".join(glyph.text for glyph in word)


def _words(row: Sequence[Glyph], spaces: Sequence[Glyph]) -> tuple[tuple[tuple[Glyph, ...], ...], bool]:
    """The words of a line, and whether there is no doubt where they part."""
    size = row[0].size
    here = [space.x + space.advance / 2 for space in spaces if abs(space.y - row[0].y) < _CENTRE * size]
    words, sure = [[row[0]]], True
    for left, right in pairwise(row):
        gap = _gap(left, right) / size
        has_space = any(left.x < x < right.x + right.advance / 2 for x in here)
        if gap >= (_SPACE if has_space else _ANY_SPACE):
            words.append([right])
        else:
            words[-1].append(right)
            sure &= gap <= _NO_SPACE and not has_space
    spaced_out = any(all(len(word) == 1 for word in words[at : at + 3]) for at in range(len(words) - 2))
    return tuple(map(tuple, words)), sure and not spaced_out
