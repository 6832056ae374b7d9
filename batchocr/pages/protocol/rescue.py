"""The page's own text in place of answers that were cut, went in circles, or failed: where what was read before that
says that the page's letters are what is seen there.

No letters are believed without such evidence, as a font may name them wrongly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from mineru_vl_utils.structs import ContentBlock
from rapidfuzz.distance import Levenshtein

from batchocr.data import Completion, Page
from batchocr.pages.protocol.agreement import letters_compared
from batchocr.pages.protocol.trusted_text import NO_TEXT, TrustedText

_LEAST_LETTERS: Final = 20
_LEAST_AGREEMENT: Final = 0.95
"""So many letters have to be read, and so large a share of them to be the page's."""
_SHIFT: Final = 3
"""By how many letters what was read may be longer or shorter than the same text of the page."""
_ROUNDS: Final = 3
"""So often in a row the end of an answer says the same, if it goes in circles."""

_Pair: TypeAlias = tuple[str, str]
"""Letters that were read in a block, and those of the page there."""


def is_lost(completion: Completion) -> bool:
    """Whether an answer was cut, went in circles, or failed."""
    return completion.error is not None or completion.finish_reason != "stop"


def rescued_texts(asked: Sequence[ContentBlock], completions: Sequence[Completion], page: Page) -> dict[int, str]:
    """The page's own text of blocks whose answers are lost, by their number among `asked`. page: with its glyphs."""
    trusted = TrustedText(page.glyphs, page.image)
    whole: list[_Pair] = []
    lost: dict[int, tuple[str, _Pair]] = {}
    for number, (block, completion) in enumerate(zip(asked, completions, strict=True)):
        if has_running_text(block) and (text := trusted.of(block.bbox)):
            read, own = letters_compared(completion.text), letters_compared(text)
            if is_lost(completion):
                lost[number] = text, (_before_circles(read), own)
            else:
                whole.append((read, own))
    return {number: text for number, (text, pair) in lost.items() if _agree([pair] if pair[0] else whole)}


def has_running_text(block: ContentBlock) -> bool:
    """Whether the letters that stand in a block, lines joined, can be its text."""
    return block.type not in NO_TEXT and not block.angle


def _agree(pairs: Sequence[_Pair]) -> bool:
    """Whether the letters that were read are those with which the page's begin."""
    num_letters = sum(len(read) for read, _ in pairs)
    distance = sum(
        min(Levenshtein.distance(read, own[: max(0, len(read) + shift)]) for shift in range(-_SHIFT, _SHIFT + 1))
        for read, own in pairs
    )
    return num_letters >= _LEAST_LETTERS and distance <= (1 - _LEAST_AGREEMENT) * num_letters


def _before_circles(letters: str) -> str:
    """The letters without what their end says again and again, but for the first time. Takes linear time: the failure
    function of Knuth, Morris and Pratt, from the end."""
    backwards, borders, border = letters[::-1], [0], 0
    longest, period = 0, 0
    for end, letter in enumerate(backwards[1:], start=1):
        while border and letter != backwards[border]:
            border = borders[border - 1]
        border += letter == backwards[border]
        borders.append(border)
        if end + 1 >= _ROUNDS * (end + 1 - border):
            longest, period = end + 1, end + 1 - border
    return letters[: len(letters) - longest + period]
