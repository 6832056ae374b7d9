"""Where a block and the lines in it differ, and what that amounts to."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rapidfuzz import fuzz

from batchocr.data import Box, around
from batchocr.documents.audit.letters import numbers_of, words_of
from batchocr.documents.findings import AuditFinding, FindingKind

MIN_RUN: Final = 10
"""The number of letters from which on text counts as omitted or invented: two words."""
MIN_WORD_EDITS: Final = 4
"""The number of letters of a word that have to differ for a finding; the second reader confuses up to three of a hard
one."""
ALIKE: Final = 75.0
"""The similarity in percent from which on a stretch is the same as another, elsewhere on the page."""
MIN_EQUAL: Final = 4
"""The fewest letters between two differences that do not agree by chance."""
_NUMBER_WEIGHT: Final = 10.0
_MOVED: Final = 0.7
"""The share of a stretch, by the letters of its words, from which on it is the same as what is missing elsewhere."""


@dataclass(slots=True)
class TextGap:
    """Where a block and its lines differ."""

    block: int | None
    text: str
    """The letters of the block."""
    second: str
    """The letters of the lines."""
    shown: str
    """The block's side in whole words."""
    second_shown: str
    """The lines' side in whole words."""
    bbox: Box
    room: int
    """How many letters of the text may stand for what could not be compared: formulas, lines that were not read."""
    is_sure: bool
    edits: int
    """How many letters have to be changed, added or taken away."""


def strike_out(gaps: Sequence[TextGap]) -> None:
    """Take out of the gaps what one gap has as text and another as a line: that is on the page, in another place."""
    for second in sorted(gaps, key=lambda gap: -len(gap.second)):
        if len(second.second) < MIN_EQUAL:
            continue
        for gap in sorted(gaps, key=lambda gap: -len(gap.text)):
            if gap is second or len(gap.text) < MIN_EQUAL or not second.second:
                continue
            if gap.block == second.block and gap.second and second.text and len(second.second) < MIN_RUN:
                continue  # two words that have changed places
            _strike(gap, second)


def _strike(gap: TextGap, second: TextGap) -> None:
    short, long = sorted((gap.text, second.second), key=len)
    if len(short) < MIN_EQUAL:
        return
    found = fuzz.partial_ratio_alignment(short, long, score_cutoff=ALIKE if len(short) >= MIN_RUN else 99.0)
    if found is None:
        return
    rest = long[: found.dest_start] + long[found.dest_end :]
    if short == gap.text and len(gap.text) <= len(second.second):
        gap.text, second.second = "", rest
    else:
        gap.text, second.second = rest, ""
    for changed in (gap, second):
        changed.edits = max(len(changed.text), len(changed.second))


def put_together(gaps: Sequence[TextGap], room: int = 0) -> TextGap:
    """Several gaps without text as one."""
    second = "".join(gap.second for gap in gaps)
    shown = " ".join(gap.second_shown for gap in gaps if gap.is_sure)
    return TextGap(gaps[0].block, "", second, "", shown, around([gap.bbox for gap in gaps]), room, True, len(second))


def _short_put_together(gaps: Sequence[TextGap]) -> Iterator[TextGap]:
    """Yield the gaps. Gaps of a block that have no text and are too short to be text omitted are put together: a table
    may lack rows of short cells, a list every other item."""
    short: dict[int, list[TextGap]] = defaultdict(list)
    for gap in gaps:
        if gap.block is None or gap.text or gap.room or not gap.is_sure or not 0 < len(gap.second) < MIN_RUN:
            yield gap
        else:
            short[gap.block].append(gap)
    for block, parts in short.items():
        yield put_together(parts, room=max(gap.room for gap in gaps if gap.block == block))


def _judged(gap: TextGap) -> AuditFinding | None:
    """What a gap amounts to; None if it is nothing that the second reader could be sure of."""
    text, second = len(gap.text), len(gap.second)
    if second - text >= MIN_RUN and second >= 2 * text and second - text > gap.room:
        return _finding("omitted", gap, second - text)
    if text - second >= MIN_RUN and text >= 2 * second:
        invented = text - second - gap.room
        return _finding("invented", gap, invented) if invented >= MIN_RUN else None
    if not gap.is_sure or gap.room or not (text and second):
        return None
    if _is_other_number(gap):
        return _finding("number", gap, gap.edits, _NUMBER_WEIGHT)
    if gap.edits >= MIN_WORD_EDITS and gap.edits > max(text, second) / 2:
        return _finding("different", gap, gap.edits)
    return None


def _finding(kind: FindingKind, gap: TextGap, characters: int, weight: float = 1.0) -> AuditFinding:
    """The finding that is made of a gap. weight: of each of its characters."""
    return AuditFinding(kind, gap.block, gap.bbox, gap.shown, gap.second_shown, characters, weight * characters)


def judged_together(gaps: Sequence[TextGap]) -> Iterator[AuditFinding]:
    """Yield what the gaps amount to, but for words and figures that the other side has in another place."""
    gaps = list(_short_put_together(gaps))
    numbers = Counter(number for gap in gaps for number in numbers_of(gap.shown))
    second_numbers = Counter(number for gap in gaps for number in numbers_of(gap.second_shown))
    words = {word for gap in gaps for word in words_of(gap.shown)}
    second_words = {word for gap in gaps for word in words_of(gap.second_shown)}
    for gap in gaps:
        finding = _judged(gap)
        match finding and finding.kind:
            case "number":
                moved = all(numbers[number] <= second_numbers[number] for number in numbers_of(gap.shown))
            case "omitted":
                moved = _share_among(gap.second_shown, words) >= _MOVED
            case "invented":
                moved = _share_among(gap.shown, second_words) >= _MOVED
            case "different" if min(len(gap.shown), len(gap.second_shown)) >= 2 * MIN_RUN:
                shares = _share_among(gap.shown, second_words), _share_among(gap.second_shown, words)
                moved = min(shares) >= _MOVED
            case _:
                moved = False
        if finding is not None and not moved:
            yield finding


def _share_among(shown: str, words: set[str]) -> float:
    """The share of letters in words that are among these."""
    own = words_of(shown)
    return sum(len(word) for word in own if word in words) / max(1, sum(map(len, own)))


def _is_other_number(gap: TextGap) -> bool:
    """Whether figures differ, and nothing else that the second reader confuses with figures."""
    numbers, seconds = numbers_of(gap.shown), numbers_of(gap.second_shown)
    changed = any(character.isdigit() for character in gap.text + gap.second)
    return changed and bool(numbers and seconds) and numbers != seconds
