"""The page's own text in place of answers that were cut, went in circles, or failed: where what was read says that the
page's letters are what is seen there.

No letters are believed without such evidence, as a font may name them wrongly: each font of a text has to have been
read right on the page. A font that lies about a few letters alone, of which none was read, is not found out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final, TypeAlias

from rapidfuzz.distance import Levenshtein

from batchocr.data import Completion, Page
from batchocr.pages.kinds import kind_of
from batchocr.pages.protocol.agreement import letters_compared
from batchocr.pages.protocol.base import ReadBlock
from batchocr.pages.protocol.repeats import said_once
from batchocr.pages.protocol.trusted_text import PlainText, TrustedText

_LEAST_LETTERS, _LEAST_OF_FONT, _LEAST_OF_DIGITS = 20, 5, 0
_LEAST_AGREEMENT: Final = 0.95
"""The least share of the letters read that are the page's, in a block and in each of its fonts; at least
`_LEAST_LETTERS` and `_LEAST_OF_FONT` are read. Digits need not have been read, as few are; but those that were count by
themselves, as nobody sees a wrong one."""
_SHIFT: Final = 3
"""By how many letters what was read may be longer or shorter than the same text of the page."""
_ROUNDS: Final = 3
"""How often in a row the end of an answer says the same if the answer goes in circles."""
_RAISED: Final = re.compile(r"\\\([\^_]\{([^}]*)\}\\\)")

_Kind: TypeAlias = tuple[int, bool]
"""The kind of a letter: the number of its font, and whether it is a digit."""


def is_lost(completion: Completion) -> bool:
    """Whether an answer was cut, went in circles, or failed."""
    return completion.error is not None or completion.finish_reason != "stop"


def rescued_texts(asked: Sequence[ReadBlock], completions: Sequence[Completion], page: Page) -> dict[int, str]:
    """The page's own text of blocks whose answers are lost, by their number among `asked`. page: with its glyphs."""
    trusted = TrustedText(page.glyphs, page.image)
    evidence = _Evidence()
    lost: dict[int, tuple[PlainText, bool | None]] = {}
    for number, (block, completion) in enumerate(zip(asked, completions, strict=True)):
        if has_running_text(block) and (own := trusted.of(block.bbox)):
            agrees = evidence.take(own, completion)
            if is_lost(completion):
                lost[number] = own, agrees
    return {
        number: own.text
        for number, (own, agrees) in lost.items()
        if (evidence.is_of_page if agrees is None else agrees) and evidence.speaks_for(own)
    }


def has_running_text(block: ReadBlock) -> bool:
    """Whether the letters that stand in a block, lines joined, can be its text."""
    kind = kind_of(block.type)
    return kind.is_as_printed and not kind.holds and not block.angle


class _Evidence:
    """How many letters were read on a page, and how many of them are the page's own; of the blocks in which nearly all
    are, also by their kind."""

    def __init__(self) -> None:
        self._read: Counter[_Kind] = Counter()
        self._right: Counter[_Kind] = Counter()
        self._num_read = self._num_right = 0

    def take(self, own: PlainText, completion: Completion) -> bool | None:
        """Count what was read of a block. Returns whether that agrees with its own text; None if it is nothing."""
        letters, kinds = _letters_of(own)
        read = letters_compared(_RAISED.sub(r"\1", completion.text))
        ends = [len(letters)]
        if is_lost(completion):
            read = said_once(read, _ROUNDS)
            ends = [max(0, len(read) + shift) for shift in range(-_SHIFT, _SHIFT + 1)]
        if not read:
            return None
        part = min((letters[:end] for end in ends), key=lambda part: Levenshtein.distance(part, read))
        num_right = len(read) - Levenshtein.distance(part, read)
        self._num_read, self._num_right = self._num_read + len(read), self._num_right + num_right
        if agrees := _agree(len(read), num_right, _LEAST_LETTERS):
            self._read.update(kinds[: len(part)])
            for edit in Levenshtein.opcodes(part, read):
                self._right.update(kinds[edit.src_start : edit.src_end] if edit.tag == "equal" else ())
        return agrees

    @property
    def is_of_page(self) -> bool:
        """Whether what was read of the page agrees with the page's own letters."""
        return _agree(self._num_read, self._num_right, _LEAST_LETTERS)

    def speaks_for(self, own: PlainText) -> bool:
        """Whether letters of each kind that this text has were read right."""
        return all(
            _agree(self._read[kind], self._right[kind], _LEAST_OF_DIGITS if kind[1] else _LEAST_OF_FONT)
            for kind in {*_letters_of(own)[1]}
        )


def _letters_of(own: PlainText) -> tuple[str, list[_Kind]]:
    """The letters of a text that are compared, and the kind of each."""
    letters = [(letter, glyph.font) for glyph in own.glyphs for letter in letters_compared(glyph.text)]
    return "".join(letter for letter, _ in letters), [(font, letter.isdigit()) for letter, font in letters]


def _agree(num_read: int, num_right: int, least: int) -> bool:
    return num_read >= least and num_right >= _LEAST_AGREEMENT * num_read
