"""What a second reader of a page does not confirm of a row: text omitted, invented, different.

The lines that lie in a block are put in order and aligned with its text, letter by letter. Where the two differ, each
stretch of the one with the stretch of the other in its place is a gap. Long stretches that stand in another gap of the
page, in another block or in no block at all, are struck out of both: order does not matter, nor which block a line was
taken for. What is left is judged: a gap that is long on one side only is text omitted or invented, and so are together
the short ones that a block lacks; one with the same words but for some letters is the second reader's own uncertainty,
unless it is a figure or a word that it is sure of.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rapidfuzz import fuzz
from rapidfuzz.distance import Levenshtein

from batchocr.data import Block, Box, around
from batchocr.documents.audit.gaps import ALIKE, MIN_EQUAL, TextGap, judged_together, put_together, strike_out
from batchocr.documents.audit.letters import FORMULA, UNREAD, Letters, cells_of, is_of_known_script, letters_of
from batchocr.documents.audit.lines import ReadLine, by_block, in_reading_order, paragraphs, turns_to_try
from batchocr.documents.findings import LeftOut, PageComparison
from batchocr.pages.kinds import kind_of

MIN_LINE_SCORE: Final = 0.8
"""The least score of a line outside of all blocks: one that is less sure is often no text at all."""
_SURE_SCORE: Final = 0.93
"""The score above which a line is surely read, chosen on a few pages: lines of words that the second reader knows score
higher."""
_MIN_SCORE: Final = 0.55
"""The score below which a line is not read but guessed."""
_IN_ORDER: Final = 0.6
_FORMULA_LETTERS: Final = 60
"""The most letters that a formula may be read as."""
_MAX_WORK: Final = 400_000_000
_LETTERS_PER_HEIGHT: Final = 2.2
"""Letters of a line that take as much room as the line is high."""


def compare_page(blocks: Sequence[Block], lines: Sequence[ReadLine]) -> PageComparison:
    """Compare the blocks of a row with the lines that the second reader found on its page."""
    left_out: list[LeftOut] = []
    gaps: list[TextGap] = []
    characters = uncompared = 0
    within = by_block(lines, blocks)
    for index, block in enumerate(blocks):
        reason = _why_left_out(block)
        if reason is not None:
            left_out.append(reason)
            if reason != "formula":
                kind: LeftOut = "figure_line" if reason == "figure" else "script_line"
                left_out += [kind for line in within[index] if line.text]
            uncompared += len(letters_of(_uncompared(reason, block, within[index])).folded)
            continue
        gaps += _gaps_of(index, block, within[index], left_out)
        characters += len(letters_of(_plain(block)).folded)
    gaps += [put_together([_outside(line, None) for line in near]) for near in paragraphs(within[None])]
    strike_out(gaps)
    findings = tuple(judged_together(gaps))
    characters += sum(finding.characters for finding in findings if finding.kind == "omitted")
    return PageComparison(characters, uncompared, tuple(left_out), findings)


def _why_left_out(block: Block) -> LeftOut | None:
    role = kind_of(block.type).role
    if role in ("formula", "number"):
        return "formula"
    if role == "figure":
        return "figure"
    if block.content and not is_of_known_script(block.content):
        return "script"
    return None


def _uncompared(reason: LeftOut, block: Block, lines: Sequence[ReadLine]) -> str:
    """The text of a block that is left out, as far as one of the two can read it. Formulas are no text."""
    if reason == "figure":
        return "\n".join(line.text for line in lines if line.score >= MIN_LINE_SCORE)
    return _plain(block) if reason == "script" else ""


def _plain(block: Block) -> str:
    """The content without its HTML."""
    content = block.content or ""
    return "\n".join(cells_of(content)) if kind_of(block.type).role == "table" else content


def _outside(line: ReadLine, index: int | None) -> TextGap:
    letters = letters_of(line.text)
    sure = line.score >= MIN_LINE_SCORE
    return TextGap(index, "", letters.folded if sure else "", "", line.text, line.box, 0, sure, len(letters.folded))


def _gaps_of(index: int, block: Block, lines: Sequence[ReadLine], left_out: list[LeftOut]) -> list[TextGap]:
    text = _plain(block)
    if FORMULA in letters_of(text).folded:
        left_out.append("formula")
    left_out += ["unread" for line in lines if line.score < _MIN_SCORE]
    if kind_of(block.type).role == "table":
        text, lines = _without_equal(cells_of(block.content or ""), lines)
    mine = letters_of(text)
    sides: list[_Side] = []
    for quarter_turns in turns_to_try(block.angle):
        side = _Side(in_reading_order(lines, quarter_turns))
        if len(mine.folded) * len(side.letters.folded) > _MAX_WORK:
            left_out.append("long")
            return []
        side.similarity = Levenshtein.normalized_similarity(mine.folded, side.letters.folded)
        sides.append(side)
        if side.similarity >= _IN_ORDER:
            break
    best = max(sides, key=lambda side: side.similarity)
    if best.similarity >= _IN_ORDER or (mine.folded and len(lines) < 2):
        return list(_aligned(index, block, mine, best))
    return list(_line_by_line(index, block, mine, best.lines))


def _without_equal(cells: Sequence[str], lines: Sequence[ReadLine]) -> tuple[str, list[ReadLine]]:
    """The text of the cells, and the lines, that are not equal to one another."""
    waiting: dict[str, list[ReadLine]] = {}
    for line in lines:
        waiting.setdefault(letters_of(line.text).folded, []).append(line)
    rest = [cell for cell in cells if not ((same := waiting.get(letters_of(cell).folded)) and same.pop())]
    left = {id(line) for same in waiting.values() for line in same}
    return "\n".join(rest), [line for line in lines if id(line) in left]


class _Side:
    """The lines of a block as one text."""

    def __init__(self, lines: Sequence[ReadLine]) -> None:
        self.lines = lines
        self.similarity = 0.0
        """How similar the lines are to the block's text, from 0 to 1."""
        texts = [line.text if line.score >= _MIN_SCORE else UNREAD for line in lines]
        self.letters = letters_of("\n".join(texts))
        starts: list[int] = []
        for number, text in enumerate(texts):
            starts += [number] * (len(text) + 1)
        self.line_at = [starts[place] for place in self.letters.places]
        """The index of the line of each letter."""
        self.room = sum(_capacity(line.box) for line in lines if line.score < _MIN_SCORE)
        """How many letters the lines may hold that were not read."""

    def bbox(self, start: int, end: int) -> Box | None:
        boxes = [self.lines[number].box for number in set(self.line_at[start:end])]
        return around(boxes) if boxes else None

    def is_sure(self, start: int, end: int, shown: str) -> bool:
        """Whether the second reader is sure of the lines in this stretch, and doubts no word of what is shown of it."""
        words = set(shown.split())
        lines = [self.lines[number] for number in set(self.line_at[start:end])]
        return all(line.score >= _SURE_SCORE and words.isdisjoint(line.doubted) for line in lines)


def _capacity(box: Box) -> int:
    """How many letters a line may hold. Pages are higher than wide, which makes it an upper figure."""
    width, height = sorted((box[2] - box[0], box[3] - box[1]), reverse=True)
    return round(_LETTERS_PER_HEIGHT * width / max(height, 1e-6))


def _aligned(index: int, block: Block, mine: Letters, side: _Side) -> Iterator[TextGap]:
    """The gaps between a text and lines that are in its order."""
    for start, end, second_start, second_end, edits in _differences(mine.folded, side.letters.folded):
        text, second = mine.folded[start:end], side.letters.folded[second_start:second_end]
        shown, second_shown = mine.shown(start, end), side.letters.shown(second_start, second_end)
        yield TextGap(
            index,
            text.replace(FORMULA, ""),
            second.replace(UNREAD, ""),
            shown,
            second_shown,
            side.bbox(second_start, second_end) or block.bbox,
            room=side.room + text.count(FORMULA) * _FORMULA_LETTERS,
            is_sure=side.is_sure(second_start, second_end, second_shown),
            edits=edits,
        )


def _differences(one: str, other: str) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield where two texts differ: from and to in the one, from and to in the other, and how many letters."""
    pending: tuple[int, int, int, int, int] | None = None
    equal = 0
    for code in Levenshtein.opcodes(one, other):
        if code.tag == "equal":
            equal = code.src_end - code.src_start
            continue
        edits = max(code.src_end - code.src_start, code.dest_end - code.dest_start)
        if pending is not None and equal < MIN_EQUAL:
            pending = (pending[0], code.src_end, pending[2], code.dest_end, pending[4] + edits)
        else:
            if pending is not None:
                yield pending
            pending = (code.src_start, code.src_end, code.dest_start, code.dest_end, edits)
    if pending is not None:
        yield pending


def _line_by_line(index: int, block: Block, mine: Letters, lines: Sequence[ReadLine]) -> Iterator[TextGap]:
    """The gaps if the lines stand in another order: each line takes the stretch that is most like it."""
    left = [(0, len(mine.folded))]
    for line in sorted((line for line in lines if line.text), key=lambda line: -len(line.text)):
        side = _Side([line])
        found = [_best_place(side.letters.folded, mine.folded, *stretch) for stretch in left]
        score, first, last = max(found, key=lambda place: place[0], default=(0.0, 0, 0))
        if not score:
            yield _outside(line, index)
            continue
        start, end = left.pop(found.index((score, first, last)))
        left += [stretch for stretch in ((start, first), (last, end)) if stretch[0] < stretch[1]]
        yield from _aligned(index, block, mine.part(first, last), side)
    no_lines = _Side([])
    no_lines.room = _Side(lines).room
    for start, end in left:
        yield from _aligned(index, block, mine.part(start, end), no_lines)


def _best_place(letters: str, text: str, start: int, end: int) -> tuple[float, int, int]:
    """How much the letters are like the most similar place in a stretch of a text, 0 if like none, and where that place
    begins and ends."""
    if not letters or len(letters) > end - start + 3:
        return 0.0, start, end
    found = fuzz.partial_ratio_alignment(letters, text[start:end], score_cutoff=ALIKE)
    if found is None:
        return 0.0, start, end
    return found.score * len(letters), start + found.dest_start, start + found.dest_end
