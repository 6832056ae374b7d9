"""What is known of letters: how wide they usually are, and in which direction they are read."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import cache, lru_cache
from itertools import groupby
from statistics import fmean
from typing import Final

import pymupdf

_OTHER: Final = 550
"""The width of a letter that the fonts do not have, in 1/1000 em."""

WIDE: Final = 1000
"""The width of Chinese, Japanese and Korean characters."""

_WIDE_RANGES: Final = ((0x1100, 0x115F), (0x2E80, 0xA4CF), (0xAC00, 0xD7A3), (0xF900, 0xFAFF), (0xFF01, 0xFF60))
"""The wide characters of the Basic Multilingual Plane."""


@lru_cache(maxsize=65536)
def advance(letter: str) -> int:
    """The usual advance width of a character in 1/1000 em, a mean of two fonts; 0 if it is drawn on the one before."""
    if unicodedata.category(letter) in ("Mn", "Me", "Cf"):
        return 0
    if any(first <= ord(letter) <= last for first, last in _WIDE_RANGES) or 0x20000 <= ord(letter) < 0x40000:
        return WIDE
    base = ord(unicodedata.normalize("NFKD", letter)[0])
    known = [font.glyph_advance(base) for font in _fonts() if font.has_glyph(base)]
    return min(round(1000 * fmean(known)), WIDE - 1) if known else _OTHER


@cache
def _fonts() -> tuple[pymupdf.Font, ...]:
    """Helvetica and Times, as MuPDF has them."""
    return pymupdf.Font("helv"), pymupdf.Font("tiro")


_RUNS_LEFTWARDS: Final = frozenset({"R", "AL"})
_RUN: Final = r"[0-9\u0660-\u0669\u06f0-\u06f9A-Za-z]+"
_OTHERWISE: Final = re.compile(rf"{_RUN}(?:[.,:/-]{_RUN})*")
"""Digits and Latin letters, which run from left to right within a word that runs from right to left."""


def runs_leftwards(text: str) -> bool:
    """Whether most letters of the text run from right to left."""
    kinds = [unicodedata.bidirectional(letter) for letter in text]
    return sum(kind in _RUNS_LEFTWARDS for kind in kinds) > sum(kind == "L" for kind in kinds)


def drawn(word: str) -> str:
    """The word's letters from left to right; marks stay behind their letter."""
    if not runs_leftwards(word):
        return word
    letters = re.findall(r".[\u0591-\u05c7\u064b-\u065f\u0670]*", word, re.DOTALL)
    return _OTHERWISE.sub(lambda run: run[0][::-1], "".join(reversed(letters)))


def drawn_order(words: Sequence[str]) -> list[int]:
    """The indices of a line's words from left to right. In a line that runs leftwards, words of other scripts that
    follow each other stand as they are read."""
    if not runs_leftwards("".join(words)):
        return list(range(len(words)))
    order: list[int] = []
    for leftwards, group in groupby(range(len(words)), key=lambda index: runs_leftwards(words[index])):
        run = list(group)
        order += run if leftwards else run[::-1]
    return order[::-1]
