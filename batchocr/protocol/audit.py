"""Whether a PDF's glyphs are what it says they are, found out by asking the model about a few lines of the page.

A wrong map from glyphs to characters looks perfect in the text. So each shape, a glyph of a font with what it is said
to be, has to be seen by the model on this very page before any text that has it is believed. Nothing is carried over
from other pages: what becomes of a page does not depend on which pages were read before.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from batchocr.data import Glyph
from batchocr.protocol.audit_plan import LineQuestion
from batchocr.protocol.compared_lines import ComparedLines
from batchocr.protocol.layer_text import LayerBlock

_AGREED_PER_MISTAKE: Final = 5
"""A model misreads one letter in a hundred or less; a map that lies about a shape does so every time."""

_MOST_WRONG_IN_BLOCK: Final = 0.1
_FORGIVEN: Final = 1
"""Letters of a block's lines that may be wrong in any case."""

_MOST_MISPLACED: Final = 0.03
"""Spaces that the model does not see, or that only it sees. With more, words are not parted as it looks in the file."""


@dataclass(slots=True)
class _Votes:
    """What the model made of a shape. spelled: how it wrote it where it agreed."""

    agreed: int = 0
    disagreed: int = 0
    spelled: Counter[str] = field(default_factory=Counter)


class Audit:
    """Collects what the model said about lines of the page, and decides which shapes to believe."""

    def __init__(self, blocks: Mapping[int, LayerBlock]) -> None:
        self._blocks = blocks
        self._votes: defaultdict[int, _Votes] = defaultdict(_Votes)
        self._keeps_hyphen: dict[tuple[int, int], bool] = {}
        self._doubted: set[int] = set()
        self._num_spaces = self._num_misplaced = 0

    def hear(self, question: LineQuestion, answer: str) -> tuple[int, int]:
        """Take the answer about some lines, or about all lines of a block. Returns how many letters these have, and
        by how many the answer differs."""
        lines = self._blocks[question.block].lines[question.first : question.last + 1]
        compared = ComparedLines(lines, answer)
        if compared.num_wrong > max(_FORGIVEN, _MOST_WRONG_IN_BLOCK * compared.num_letters):
            self._doubted.add(question.block)
        for glyph, agreed, spelled in compared.verdicts():
            votes = self._votes[glyph.shape]
            votes.disagreed += agreed is False
            if agreed:
                votes.agreed += 1
                votes.spelled[spelled] += 1
        for index, keeps in compared.hyphens():
            self._keeps_hyphen[question.block, question.first + index] = keeps
        self._num_spaces += compared.num_spaces
        self._num_misplaced += len(compared.misplaced)
        if compared.misplaced:
            self._doubted.add(question.block)
        return compared.num_letters, compared.num_wrong

    def text_of(self, number: int) -> str | None:
        """What a block says; None if it has a shape or a hyphen that cannot be believed."""
        if number in self._doubted or self._num_misplaced > _MOST_MISPLACED * self._num_spaces:
            return None
        parts: list[str] = []
        for index, line in enumerate(self._blocks[number].lines):
            words, end = list(line.words), " "
            if line.hyphenated:
                keeps, end = self._keeps_hyphen.get((number, index)), ""
                if keeps is None:
                    return None
                words[-1] = words[-1] if keeps else words[-1][:-1]
            if not all(self._believed(glyph) for word in words for glyph in word):
                return None
            parts.append(" ".join("".join(map(self._spelled, word)) for word in words) + end)
        return "".join(parts).rstrip()

    def _believed(self, glyph: Glyph) -> bool:
        votes = self._votes[glyph.shape]
        most = max(votes.spelled.values(), default=0)
        return 2 * most > votes.agreed and votes.disagreed * _AGREED_PER_MISTAKE <= votes.agreed

    def _spelled(self, glyph: Glyph) -> str:
        """The glyph's letters; of a sign that has variants, the one that the model writes most often."""
        [(spelled, _)] = self._votes[glyph.shape].spelled.most_common(1)
        return spelled
