"""What the model read of a few lines beside what a PDF says that they say, letter by letter."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from rapidfuzz.distance import Levenshtein

from batchocr.data import Glyph
from batchocr.protocol.layer_text import LayerLine

_ANCHOR: Final = 2
"""An agreement counts if the letters so far on both sides agree too: alignments can match letters that were swapped."""

_MOST_WRONG: Final = 0.25
"""An answer that differs in more of its letters is not about this text."""

_SAME: Final = {ord(c): to for to, group in (("'", "‘’‚‛ʼ′`´"), ('"', "“”„‟″"), ("-", "‐‑‒–—―−\xad")) for c in group}
"""Typographic variants that the model writes as it likes."""


def _plain_letters(text: str) -> str:
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


class ComparedLines:
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
        """The lines at whose ends it is clear whether the hyphen belongs to the word, and whether it does. It is not if
        a space follows, as in "pre- and postwar"."""
        for line, (word, kept) in self._hyphens.items():
            start, end = self._spans[word + 1]
            is_clear = start > 0 and self._agreed(self._spans[word][0] - _ANCHOR, end + _ANCHOR)
            if is_clear and not self._has_space_before(start):
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
                has_space = self._has_space_before(place)
                if place == start or has_space:
                    yield place, has_space == (place == start)

    def _has_space_before(self, place: int) -> bool:
        """Whether a space was read before the letter at `place`; both letters beside it have to match."""
        before, here = self._match[place - 1], self._match[place]
        assert before is not None
        assert here is not None
        return any(map(str.isspace, self._answer[self._origins[before] : self._origins[here]]))

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
        return _plain_letters("".join(self._answer[origin] for origin in dict.fromkeys(self._origins_of(start, end))))
