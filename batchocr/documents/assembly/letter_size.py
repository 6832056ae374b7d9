"""How large the letters of headings are, from their boxes and what they say."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

_LINE_PITCH: Final = 1.2
"""From one line to the next, in em."""
_TOO_WIDE: Final = 1.4
"""How much wider than its lines a text may seem, as fonts differ; a line more makes it narrower than this."""
_MAX_LINES: Final = 10
_DISAGREEMENT: Final = 1.3
"""By which factor the size that the width tells may differ from the one that the height does, to be believed."""
_USUAL_HEIGHTS: Final = (0.6, 1.5)
"""Of a box around one line, in em: from ink only to all of the font's height."""

# Average advance widths of letters in em, of Helvetica and Times.
_WIDTHS: Final = {
    **dict.fromkeys(" .,:;'!|ijlI’‘", 0.26),
    **dict.fromkeys('ftr()[]/-"', 0.33),
    **dict.fromkeys("mMW@%", 0.83),
    **dict.fromkeys("w&—", 0.72),
}
_LATEX_COMMAND: Final = re.compile(r"\\[A-Za-z]+|\\.|[{}^_$]")


@dataclass(frozen=True, slots=True)
class Line:
    """A text in a box: width and height in any unit that is the same for all, measured along its lines."""

    text: str
    width: float
    height: float


def letter_sizes(lines: Sequence[Line]) -> list[float]:
    """The size of the letters of each text, in the unit of its box; 0 if there is no telling.

    How a layout draws boxes, around the ink or around the lines, is taken from those of one line: their width tells
    their size too.
    """
    ems = [_em_width(line.text) for line in lines]
    counts = [_num_lines(em, line) for em, line in zip(ems, lines, strict=True)]
    seen = [
        line.height * em / line.width
        for line, em, count in zip(lines, ems, counts, strict=True)
        if count == 1 and em >= 3 and line.width > 0
    ]
    low, high = _USUAL_HEIGHTS
    line_height = min(max(median(seen), low), high) if seen else 1.0
    sizes = []
    for line, em, count in zip(lines, ems, counts, strict=True):
        by_height = line.height / (_LINE_PITCH * (count - 1) + line_height)
        by_width = line.width / em if count == 1 and em >= 3 else by_height
        is_believable = by_height / _DISAGREEMENT <= by_width <= by_height * _DISAGREEMENT
        sizes.append((by_height * by_width) ** 0.5 if is_believable else by_height)
    return sizes


def _num_lines(em: float, line: Line) -> int:
    """The smallest number of lines in which the text fits into its box."""
    for count in range(1, _MAX_LINES):
        size = line.height / (_LINE_PITCH * (count - 1) + 1)
        if em * size <= _TOO_WIDE * count * line.width:
            return count
    return _MAX_LINES


def _em_width(text: str) -> float:
    """How wide the text is on one line, in em."""
    letters = _LATEX_COMMAND.sub("", text)
    return sum(_WIDTHS.get(letter) or _usual_width(letter) for letter in letters)


def _usual_width(letter: str) -> float:
    if unicodedata.east_asian_width(letter) in "WF":
        return 1.0
    return 0.66 if letter.isupper() else 0.5
