"""Text that runs from right to left in the order in which it is drawn: from left to right, as viewers expect it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Final

_RUNS_LEFTWARDS: Final = frozenset({"R", "AL"})
_RUN: Final = r"[0-9\u0660-\u0669\u06f0-\u06f9A-Za-z]+"
_OTHERWISE: Final = re.compile(rf"{_RUN}(?:[.,:/-]{_RUN})*")
"""What runs from left to right within such a word."""


def runs_leftwards(text: str) -> bool:
    """Whether most of its letters do."""
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
    run: list[int] = []
    for index, word in enumerate(words):
        if runs_leftwards(word):
            order += [*reversed(run), index]
            run = []
        else:
            run.append(index)
    return [*order, *reversed(run)][::-1]
