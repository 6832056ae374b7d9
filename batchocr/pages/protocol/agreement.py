"""How far what was read agrees with the text that the PDF has of its own."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Final

from rapidfuzz.distance import LCSseq, Levenshtein

from batchocr.data import Block, PlacedWord
from batchocr.pages.kinds import kind_of
from batchocr.pages.protocol.markdown import INLINE_FORMULA

_OTHER_THAN_TEXT: Final = {"table", "formula", "number", "figure", "code"}
"""Roles of blocks whose content is not the letters that are seen, or not in their order."""

_LEAST_LETTERS: Final = 20
"""The fewest letters that say anything about agreement: the number of a page does not."""

_MOST_WORK: Final = 2_000_000
"""The most words times blocks that are compared. More would take a second; a dense page of a newspaper has 200,000."""

_NOT_COMPARED: Final = re.compile(r"[\s\u00ad\u2010-\u2015\u2212-]+")
"""Spaces, which nobody sets alike, and hyphens, which the model drops at the ends of lines."""


def agreement_of(words: Sequence[PlacedWord], blocks: Sequence[Block]) -> float | None:
    """The share of letters that are the same in blocks of text and in the words whose centres lie in them, by edit
    distance, from 0 to 1. Blocks without words do not count; None if nothing is left to compare."""
    texts = [
        block
        for block in blocks
        if block.content is not None and block.text_source != "page"
        if kind_of(block.type).role not in _OTHER_THAN_TEXT
    ]
    if len(words) * len(texts) > _MOST_WORK:
        return None
    num_letters, distance = 0, 0
    for block, said in _words_in(words, texts):
        if layer := letters_compared(said):
            num_compared, num_different = _compared(layer, block.content or "")
            num_letters += num_compared
            distance += num_different
    return round(1 - distance / num_letters, 4) if num_letters >= _LEAST_LETTERS else None


def _compared(layer: str, content: str) -> tuple[int, int]:
    """How many letters of a block are compared, and how many of them differ.

    A formula is LaTeX here and glyphs there: as many letters of the layer as its LaTeX has are not compared.
    """
    read = letters_compared(INLINE_FORMULA.sub("", content))
    num_of_formulas = len(letters_compared(content)) - len(read)
    if not num_of_formulas:
        return max(len(layer), len(read)), Levenshtein.distance(layer, read)
    num_letters = max(len(read), len(layer) - num_of_formulas)
    return num_letters, num_letters - LCSseq.similarity(layer, read)


def _words_in(words: Sequence[PlacedWord], blocks: Sequence[Block]) -> list[tuple[Block, str]]:
    """Each block with its words. A word belongs to the block of the word before, if it lies there too, else to the
    first block in which it lies."""
    found: list[list[str]] = [[] for _ in blocks]
    places = [(block.bbox, said) for block, said in zip(blocks, found, strict=True)]
    nowhere: tuple[Sequence[float], list[str]] = ((1.0, 1.0, 0.0, 0.0), [])
    (x0, y0, x1, y1), here = nowhere
    for x, y, text in words:
        if not (x0 <= x <= x1 and y0 <= y <= y1):
            lies_in = (place for place in places if place[0][0] <= x <= place[0][2] and place[0][1] <= y <= place[0][3])
            (x0, y0, x1, y1), here = next(lies_in, nowhere)
        here.append(text)
    return [(block, "".join(said)) for block, said in zip(blocks, found, strict=True)]


def letters_compared(text: str) -> str:
    """The text as it is compared: ligatures and wide letters as usual ones, without spaces and hyphens."""
    return _NOT_COMPARED.sub("", unicodedata.normalize("NFKC", text))
