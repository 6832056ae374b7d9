"""Texts as two readers can be compared by: letters and figures alone, and where in the text each of them stands."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from html import unescape
from typing import Final

from batchocr.pages.protocol.markdown import INLINE_FORMULA

FORMULA: Final = "\ufffc"
"""The sign that stands for a formula in text. The second reader knows no formulas: whatever it reads there is right."""

UNREAD: Final = "\ufffd"
"""The sign that stands for a line that the second reader found and could not read: it may be anything of about its
length."""

_KNOWN_SCRIPTS: Final = ("LATIN", "CJK", "HIRAGANA", "KATAKANA", "HALFWIDTH", "FULLWIDTH", "GREEK", "DIGIT")
"""The scripts of all the letters among the second reader's 18,708 characters."""

_MAX_UNKNOWN: Final = 0.1
_CELL_END: Final = re.compile(r"</t[dhr]>|</caption>|<br\s*/?>")
_TAG: Final = re.compile(r"<[^>]*>")
_NUMBER: Final = re.compile(r"\d{3,}")
_LIKE_DIGITS: Final = str.maketrans("oli|", "0111")


@dataclass(frozen=True, slots=True)
class Letters:
    """A text, and its letters and figures alone."""

    text: str
    """The text as it is written."""
    folded: str
    """The letters and figures of the text, in small letters without accents."""
    places: Sequence[int]
    """Where in `text` each of the letters of `folded` stands."""

    def part(self, start: int, end: int) -> Letters:
        """The letters from one place in `folded` to another."""
        return Letters(self.text, self.folded[start:end], self.places[start:end])

    def shown(self, start: int, end: int) -> str:
        """What is written from one place in `folded` to another, in whole words; empty if that is nothing."""
        if start >= end:
            return ""
        first, last = self.places[start], self.places[end - 1] + 1
        while first > 0 and _is_within_word(self.text[first - 1]):
            first -= 1
        while last < len(self.text) and _is_within_word(self.text[last]):
            last += 1
        return " ".join(self.text[first:last].split())


def _is_within_word(character: str) -> bool:
    return (character.isascii() and not character.isspace()) or (character.isalpha() and ord(character) < _FIRST_WIDE)


_FIRST_WIDE: Final = 0x2E80
"""The first character of the scripts that put no spaces between words."""


def letters_of(text: str) -> Letters:
    """The letters of a text, with a mark for each formula in it."""
    marked = INLINE_FORMULA.sub(lambda formula: FORMULA + " " * (len(formula[0]) - 1), text)
    folded: list[str] = []
    places: list[int] = []
    for place, character in enumerate(marked):
        found = _folded(character)
        folded += found
        places += [place] * len(found)
    return Letters(text, "".join(folded), places)


@lru_cache(maxsize=1 << 15)
def _folded(character: str) -> str:
    if character in (FORMULA, UNREAD):
        return character
    spelt = unicodedata.normalize("NFKD", character).casefold()
    return "".join(letter for letter in spelt if letter.isalnum())


def cells_of(html: str) -> list[str]:
    """What the cells of a table say, in the order of the HTML."""
    cells = (unescape(_TAG.sub(" ", cell)) for cell in _CELL_END.split(html))
    return [cell for cell in (" ".join(cell.split()) for cell in cells) if cell]


def is_of_known_script(text: str) -> bool:
    """Whether the second reader knows nearly all letters of the text."""
    letters = [character for character in text if character.isalpha()]
    unknown = sum(not unicodedata.name(letter, "").startswith(_KNOWN_SCRIPTS) for letter in letters)
    return unknown <= _MAX_UNKNOWN * len(letters)


def numbers_of(shown: str) -> list[str]:
    """The figures of three digits or more in some words. A letter that looks like a digit is taken for it beside
    others."""
    with_digits = (word for word in shown.casefold().split() if any(map(str.isdigit, word)))
    return [number for word in with_digits for number in _NUMBER.findall(word.translate(_LIKE_DIGITS))]


def words_of(shown: str) -> list[str]:
    """The words of a text, folded."""
    return [word for word in (letters_of(word).folded for word in shown.split()) if word]
