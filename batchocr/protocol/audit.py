"""Whether a PDF's glyphs are what it says they are, found out by asking the model about a few lines of the page.

A wrong map from glyphs to characters looks perfect in the text. So each shape, a glyph of a font with what it is said
to be, has to be seen by the model on this very page before any text that has it is believed. Nothing is carried over
from other pages: what becomes of a page does not depend on which pages were read before.
"""

from __future__ import annotations

import heapq
import math
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from rapidfuzz.distance import Levenshtein

from batchocr.data import Glyph
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

_ANCHOR: Final = 2
"""An agreement counts if the letters so far on both sides agree too: alignments can match letters that were swapped."""

_AGREED_PER_MISTAKE: Final = 5
"""A model misreads one letter in a hundred or less; a map that lies about a shape does so every time."""

_MOST_WRONG: Final = 0.25
"""An answer that differs in more of its letters is not about this text."""

_MOST_WRONG_IN_BLOCK: Final = 0.1
_FORGIVEN: Final = 1
"""Letters of a block's lines that may be wrong in any case."""

_MOST_MISPLACED: Final = 0.03
"""Spaces that the model does not see, or that only it sees. With more, words are not parted as it looks in the file."""

_SAME: Final = {ord(c): to for to, group in (("'", "‘’‚‛ʼ′`´"), ('"', "“”„‟″"), ("-", "‐‑‒–—―−\xad")) for c in group}
"""Typographic variants that the model writes as it likes."""


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
        compared = _Compared(lines, answer)
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


def plain_letters(text: str) -> str:
    """Ligatures as letters, and a soft hyphen, which has ink here, as a hyphen."""
    return unicodedata.normalize("NFC", "".join(_letters_of(c) for c in text))


def _letters_of(character: str) -> str:
    if character == "\xad":
        return "-"
    return unicodedata.normalize("NFKC", character) if "\ufb00" <= character <= "\ufb06" else character


def _folded(character: str) -> str:
    """The character as it is compared: one or several."""
    return unicodedata.normalize("NFKC", character).translate(_SAME)


def _folded_text(glyphs: Iterable[Glyph]) -> str:
    return "".join(_folded(character) for glyph in glyphs for character in glyph.text)


class _Compared:
    """An answer beside the lines that it is about, letter by letter, without spaces.

    num_letters: of the lines. num_wrong: by how many the answer differs. num_spaces: how many places between words
    could be compared. misplaced: the letters, by number, before which a space was read that is none, or the reverse.
    """

    def __init__(self, lines: Sequence[LayerLine], answer: str) -> None:
        said = [(fold, index) for index, c in enumerate(answer) if not c.isspace() for fold in _folded(c)]
        read = "".join(fold for fold, _ in said)
        self._answer, self._origins = answer, [index for _, index in said]
        self._words = [list(word) for line in lines for word in line.words]
        self._hyphens = self._without_hyphens(lines, read)
        self._spans: list[tuple[int, int]] = []
        start = 0
        for word in self._words:
            self._spans.append((start, start := start + len(_folded_text(word))))
        self._align("".join(map(_folded_text, self._words)), read)
        spaces = list(self._spaces())
        self.num_spaces, self.misplaced = len(spaces), {place for place, agreed in spaces if not agreed}

    def _without_hyphens(self, lines: Sequence[LayerLine], read: str) -> dict[int, tuple[int, bool]]:
        """Take those hyphens at line ends away without which the lines are closer to what was read. Returns, by line,
        the word that ended with one, and whether it still does."""
        found, last = {}, -1
        for index, line in enumerate(lines[:-1]):
            last += len(line.words)
            if line.hyphenated:
                word = self._words[last]
                kept = Levenshtein.distance("".join(map(_folded_text, self._words)), read)
                self._words[last] = word[:-1]
                if Levenshtein.distance("".join(map(_folded_text, self._words)), read) >= kept:
                    self._words[last] = word
                found[index] = (last, self._words[last] is word)
        return found

    def _align(self, letters: str, read: str) -> None:
        self.num_letters, self.num_wrong = len(letters), 0
        self._match: list[int | None] = [None] * len(letters)
        self._sure = [False] * len(letters)
        self._broken = [False] * (len(letters) + 1)
        """Before each letter, and behind the last: whether the answer has something there that the lines have not."""
        for step in Levenshtein.opcodes(letters, read):
            if step.tag == "equal":
                own = slice(step.src_start, step.src_end)
                self._match[own] = range(step.dest_start, step.dest_end)
                # Where letters take turns, as in 0101, and were swapped, most seem to agree, one place further on.
                in_place = step.dest_start - step.src_start in (0, len(read) - len(letters))
                self._sure[own] = [in_place] * (step.src_end - step.src_start)
                continue
            self.num_wrong += max(step.src_end - step.src_start, step.dest_end - step.dest_start)
            self._broken[step.src_start] |= step.tag == "insert"
        self._is_other = self.num_wrong > _MOST_WRONG * max(1, len(letters))

    def verdicts(self) -> Iterator[tuple[Glyph, bool | None, str]]:
        """Each glyph; whether the model agrees about it, None if that is not clear; and how the model writes it."""
        for word, (word_start, word_end) in zip(self._words, self._spans, strict=True):
            is_apart = self.misplaced.isdisjoint(range(word_start, word_end + 1))
            agreed = is_apart and self._agreed(word_start - _ANCHOR, word_end + _ANCHOR)
            start = word_start
            for glyph in word:
                end = start + len(_folded_text([glyph]))
                if self._is_other or None in self._match[start:end] or any(self._broken[start : end + 1]):
                    yield glyph, False, ""
                else:
                    yield glyph, (agreed and self._stands_alone(start, end)) or None, self._written(start, end)
                start = end

    def hyphens(self) -> Iterator[tuple[int, bool]]:
        """The lines at whose ends it is clear whether the hyphen belongs to the word, and whether it does."""
        for line, (word, kept) in self._hyphens.items():
            if self._agreed(self._spans[word][0] - _ANCHOR, self._spans[word + 1][1] + _ANCHOR):
                yield line, kept

    def _spaces(self) -> Iterator[tuple[int, bool]]:
        """Where each two words part whose letters were read, and whether a space was read there; and where one was read
        within a word, and False. By number of the letter behind."""
        hyphenated = {word for word, _ in self._hyphens.values()}
        for number, (start, end) in enumerate(self._spans):
            for place in range(max(start, 1), end):
                left, right = self._match[place - 1], self._match[place]
                if left is None or right is None or right != left + 1 or (number - 1 in hyphenated and place == start):
                    continue
                has_space = any(map(str.isspace, self._answer[self._origins[left] : self._origins[right]]))
                if place == start or has_space:
                    yield place, has_space == (place == start)

    def _agreed(self, start: int, end: int) -> bool:
        """Whether the model agrees about all letters from start to end."""
        start, end = max(0, start), min(len(self._match), end)
        return not self._is_other and all(self._sure[start:end]) and not any(self._broken[start : end + 1])

    def _stands_alone(self, start: int, end: int) -> bool:
        """Whether what the model wrote for the letters from start to end stands for nothing else beside."""
        own = set(self._origins_of(start, end))
        return own.isdisjoint(self._origins_of(start - 1, start)) and own.isdisjoint(self._origins_of(end, end + 1))

    def _origins_of(self, start: int, end: int) -> Iterator[int]:
        return (self._origins[place] for place in self._match[max(0, start) : end] if place is not None)

    def _written(self, start: int, end: int) -> str:
        return plain_letters("".join(self._answer[origin] for origin in dict.fromkeys(self._origins_of(start, end))))
