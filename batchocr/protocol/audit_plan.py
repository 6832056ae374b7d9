"""Which lines of a page the model is asked about, so that it sees each shape of the text that is to be believed.

Greedy: asking about lines has to cost much less than asking about the blocks that they spare.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from batchocr.protocol.layer_text import LayerBlock, LayerLine

_SEEN: Final = 2
"""How often each shape is looked at, if it is there so often."""

_TOKEN_PX: Final = 28 * 28
_LETTERS_PER_COST: Final = 2
_QUESTION_COST: Final = 30
"""A question costs its image tokens, half of its letters for what is decoded, and the prompt."""

_MOST_OF_BLOCK, _ALL_OF_BLOCK = 0.7, 0.9
"""A block of which more would be asked line by line is asked as a whole: the dearest first, as the lines of others may
have to show its shapes then; those of which all would be asked at once."""

_MOST_OF_PAGE: Final = 0.7
"""An audit that would cost more of what it could save is not begun."""

_WORTH_LESS_CARE: Final = 2


@dataclass(frozen=True, slots=True)
class LineQuestion:
    """Lines of a block, `first` to `last`, that the model is asked about together."""

    block: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class AuditPlan:
    """spared: the blocks that may take their text from the layer. questions: the lines to ask about; what the model
    says about the other blocks counts too."""

    spared: frozenset[int]
    questions: tuple[LineQuestion, ...]


def plan_audit(blocks: Mapping[int, LayerBlock]) -> AuditPlan:
    """What to ask so that each shape of the spared blocks is seen. blocks: the legible ones, by number.

    Each shape is looked at twice if it is there twice, unless looking once saves more than double. Blocks are spared
    only as long as asking about lines costs much less than asking about the blocks as a whole.
    """
    plans = [_plan(blocks, seen) for seen in (_SEEN, 1)]
    (twice, saved_then), (once, saved_now) = plans
    return once if saved_now > _WORTH_LESS_CARE * saved_then else twice


def _plan(blocks: Mapping[int, LayerBlock], seen: int) -> tuple[AuditPlan, int]:
    """The plan if each shape is to be looked at so often, and how much of the costs it saves."""
    whole = {number: _cost(block, 0, len(block.lines) - 1) for number, block in blocks.items()}
    spared = {number for number, block in blocks.items() if block.flowing}
    while spared:
        questions = _chosen(blocks, spared, seen)
        costs = dict.fromkeys(spared, 0)
        for question in questions:
            costs[question.block] += _cost(blocks[question.block], question.first, question.last)
        shares = {number: cost / whole[number] for number, cost in costs.items()}
        total, spent = sum(whole[number] for number in spared), sum(costs.values())
        dearest = max(sorted(spared), key=shares.__getitem__)
        if shares[dearest] <= _MOST_OF_BLOCK and spent <= _MOST_OF_PAGE * total:
            return AuditPlan(frozenset(spared), tuple(questions)), total - spent
        spared -= {number for number, share in shares.items() if share > _ALL_OF_BLOCK} | {dearest}
    return AuditPlan(frozenset(), ()), 0


def _cost(block: LayerBlock, first: int, last: int) -> int:
    top, bottom = block.rows(first, last)
    num_letters = sum(len(word) for line in block.lines[first : last + 1] for word in line.words)
    area = (block.box[2] - block.box[0]) * (bottom - top)
    return _QUESTION_COST + area // _TOKEN_PX + num_letters // _LETTERS_PER_COST


def _chosen(blocks: Mapping[int, LayerBlock], spared: set[int], seen: int) -> list[LineQuestion]:
    """The lines to ask about: those with a hyphen in doubt, then, greedily, whichever shows most for what it costs."""
    wanted = _Wanted((blocks[number] for number in sorted(spared)), seen)
    for number in blocks.keys() - spared:
        wanted.show(blocks[number].lines)
    questions = [
        LineQuestion(number, first, last) for number in sorted(spared) for first, last in _hyphenated(blocks[number])
    ]
    for question in questions:
        wanted.show(blocks[question.block].lines[question.first : question.last + 1])
    asked = {(q.block, line) for q in questions for line in range(q.first, q.last + 1)}
    others = [
        (LineQuestion(number, index, index), wanted.masks([line]), _cost(blocks[number], index, index))
        for number in sorted(spared)
        for index, line in enumerate(blocks[number].lines)
        if (number, index) not in asked
    ]
    queue = [(-math.inf, at) for at in range(len(others))]  # by what each was worth, which is never less than it is
    while queue and wanted.any:
        _, at = heapq.heappop(queue)
        question, shown, cost = others[at]
        worth = (-wanted.gain(shown) / cost, at)
        if queue and worth > queue[0]:
            heapq.heappush(queue, worth)
        else:
            wanted.take(shown)
            questions.append(question)
    return questions


def _hyphenated(block: LayerBlock) -> Iterator[tuple[int, int]]:
    """First and last of the lines that hyphens in doubt hold together."""
    first = None
    for index, line in enumerate(block.lines):
        if line.hyphenated:
            first = index if first is None else first
        elif first is not None:
            yield first, index
            first = None


class _Wanted:
    """The shapes that have not been shown often enough, as bits: those to be shown once more, and those twice."""

    def __init__(self, blocks: Iterable[LayerBlock], seen: int) -> None:
        self._bits: dict[int, int] = {}
        self._seen = seen
        self._once, self._twice = self.masks([line for block in blocks for line in block.lines])

    @property
    def any(self) -> bool:
        return self._once != 0

    def masks(self, lines: Sequence[LayerLine]) -> tuple[int, int]:
        """The shapes that lines show, and those that they show twice or more."""
        counts = Counter(glyph.shape for line in lines for glyph in line.glyphs)
        once = twice = 0
        for shape, count in counts.items():
            bit = self._bits.setdefault(shape, 1 << len(self._bits))
            once |= bit
            twice |= bit if count >= self._seen > 1 else 0
        return once, twice

    def show(self, lines: Sequence[LayerLine]) -> None:
        self.take(self.masks(lines))

    def take(self, shown: tuple[int, int]) -> None:
        once, twice = shown
        self._once &= ~(once & ~self._twice) & ~twice
        self._twice &= ~once

    def gain(self, shown: tuple[int, int]) -> int:
        once, twice = shown
        return (once & self._once).bit_count() + (twice & self._twice).bit_count()
