"""Answers that say the same again and again, as a model does that has lost its way."""

from __future__ import annotations

import math
from collections import Counter
from typing import Final

_LEAST_LINES: Final = 10
_OF_LINES: Final = 0.8
"""The share of an answer's lines, at least `_LEAST_LINES` of them, that are the same if the model has lost its way."""


def said_once(text: str, rounds: int, *, unit: int = 1, share: float = 0.0) -> str:
    """The text; if its end says one thing at least so many times in a row, with that only once.

    unit: letters of that thing at least; what is shorter is taken several times. share: the end is more than this of
    the text.
    """
    length, period = _circling_end(text, rounds)
    said = period * math.ceil(unit / period) if period else 0
    return text[: len(text) - length + said] if length > share * len(text) and length >= rounds * said else text


def _circling_end(text: str, rounds: int) -> tuple[int, int]:
    """The longest end of the text that says one thing so many times in a row: how many letters the end has, and how
    many the thing has; 0 and 0 if there is no such end. Takes linear time: the failure function of Knuth, Morris and
    Pratt, from the end."""
    backwards, borders, border = text[::-1], [0], 0
    longest, period = 0, 0
    for end, letter in enumerate(backwards[1:], start=1):
        while border and letter != backwards[border]:
            border = borders[border - 1]
        border += letter == backwards[border]
        borders.append(border)
        if end + 1 >= rounds * (end + 1 - border):
            longest, period = end + 1, end + 1 - border
    return longest, period


def line_said_once(text: str) -> str:
    """The text up to where it begins to say one line again and again, if nearly all of its lines are that line."""
    lines = text.split("\n")
    filled = [index for index, line in enumerate(lines) if line.strip()]
    said = [lines[index].strip() for index in filled]
    common, count = Counter(said).most_common(1)[0] if said else ("", 0)
    if count >= max(_LEAST_LINES, _OF_LINES * len(said)):
        for place in range(len(said) - 2):
            if said[place : place + 3] == [common] * 3:
                return "\n".join(lines[: filled[place] + 1])
    return text
