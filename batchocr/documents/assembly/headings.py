"""The level of each heading: from the outline, else from its number, else from the size of its letters."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from statistics import median
from typing import Final

from batchocr.data import OutlineEntry, PageResult
from batchocr.documents.assembly.joining import Draft
from batchocr.documents.assembly.numbering import depths, parse_number
from batchocr.documents.assembly.outline import Heading, outline_levels
from batchocr.pages.searchable.letters import advance

_SAME_SIZE: Final = 1.12
"""The factor within which sizes count as equal: boxes are not exact."""
_LOWEST: Final = 6
_SEEN: Final = 300
"""Characters of a heading that are looked at."""
_A4: Final = (595.0, 842.0)

_OF_ONE_PART: Final = re.compile(
    r"(?:abstract|summary|executive summary|introduction|conclusions?|references|bibliography|literature cited"
    r"|acknowledge?ments?|(?:table of )?contents|appendix|appendices|glossary|index|preface|foreword|epilogue|prologue"
    r"|(?:data|code) availability.*|(?:author )?contributions?|(?:competing|conflicts? of) interests?|funding"
    r"|supplementary (?:material|information)s?|zusammenfassung|einleitung|literatur(?:verzeichnis)?"
    r"|inhalt(?:sverzeichnis)?|résumé|references bibliographiques|resumen|referencias"
    r"|摘\s*要|参考文献|參考文獻|致\s*谢|附\s*录|目\s*录|引言|前言"
    r"|绪论|结论|结\s*语)[:：.]?",
    re.IGNORECASE,
)
"""Headings that often have no number although others of their level have one. They have the highest level below the
title."""

_CONTENTS: Final = re.compile(
    r"(?:(?:table of )?contents|目\s*[录錄次](?:\s*contents?)?|inhalt(?:sverzeichnis)?|sommaire|índice)[:：.]?",
    re.IGNORECASE,
)
_LAST_TITLE_PAGE: Final = 2
"""The last page, from 0, that may have a document's title: covers and forewords may stand before it."""


def set_levels(drafts: Sequence[tuple[Draft, PageResult]], outline: Sequence[OutlineEntry]) -> None:
    """Give each heading its level. drafts: the headings, each with the row of its page, in reading order."""
    headings = [_heading(draft, row) for draft, row in drafts]
    for (draft, _), level in zip(drafts, heading_levels(headings, letter_sizes(headings), outline), strict=True):
        draft.level = level


def heading_levels(
    headings: Sequence[Heading], sizes: Sequence[float], outline: Sequence[OutlineEntry] = ()
) -> list[int]:
    """The levels of headings in reading order, from 1. sizes: of their letters, in any unit.

    What the outline names has its level there. Numbered ones stand below the document's title, or as the outline has
    others of their depth; the rest stand with those of their size.
    """
    numbers = [parse_number(heading.text) for heading in headings]
    depth_of = depths(numbers)
    levels = outline_levels(headings, outline)
    title = _find_title(headings, sizes, depth_of, levels)
    if title is not None:
        for at, heading in enumerate(headings):
            if heading.text == headings[title].text:  # a half-title, or the title on a page of its own
                levels[at] = levels[at] or levels[title] or 1
    top = _level_of_depth_1(depth_of, levels, title)
    levels = [
        level if level is not None or depth is None else max(1, top + depth - 1)
        for level, depth in zip(levels, depth_of, strict=True)
    ]
    sizes = list(sizes)
    for at, number in enumerate(numbers[:-1]):  # "Chapter 3", and what it is called in a block of its own
        if number and not number.rest and headings[at].page_index == headings[at + 1].page_index:
            levels[at + 1] = levels[at + 1] or levels[at]
            sizes[at] = max(sizes[at : at + 2])
    return _by_size(headings, sizes, levels, title, has_numbers=any(depth_of))


def _find_title(
    headings: Sequence[Heading],
    sizes: Sequence[float],
    depth_of: Sequence[int | None],
    levels: Sequence[int | None],
) -> int | None:
    """Which heading is the title of the document: the largest on the first page with headings, if it is larger than
    all parts of the document, or is the first and as large."""
    others = [not _OF_ONE_PART.fullmatch(heading.text.strip()) for heading in headings]
    first_page = [
        at
        for at, heading in enumerate(headings)
        if heading.page_index == headings[0].page_index <= _LAST_TITLE_PAGE and depth_of[at] is None and others[at]
    ]
    if not first_page:
        return None
    title = max(first_page, key=lambda at: (sizes[at], -at))
    if levels[title] is not None:
        return title if levels.count(levels[title]) == 1 and levels[title] == 1 else None
    parts = [size for at, size in enumerate(sizes) if at != title and (depth_of[at] == 1 or levels[at] == 1)] or [
        size for at, size in enumerate(sizes) if at != title and others[at]
    ]
    largest = median(parts) if parts and any(depth_of) else max(parts, default=0.0)
    needed = largest / _SAME_SIZE if title == first_page[0] else largest * _SAME_SIZE
    return title if sizes[title] >= needed else None


def _level_of_depth_1(depth_of: Sequence[int | None], levels: Sequence[int | None], title: int | None) -> int:
    """The level of the highest numbered headings."""
    tops = Counter(
        level - depth + 1
        for level, depth in zip(levels, depth_of, strict=True)
        if level is not None and depth is not None
    )
    if tops:
        return tops.most_common(1)[0][0]
    return 1 if title is None else 1 + (levels[title] or 1)


def _by_size(
    headings: Sequence[Heading],
    sizes: Sequence[float],
    known: Sequence[int | None],
    title: int | None,
    *,
    has_numbers: bool,
) -> list[int]:
    """The level of each heading: where it is not known, by its size, and at most one below the heading above it; the
    highest, if there is none above it."""
    anchors = _size_of_levels(sizes, known, title)
    smallest = min(anchors.values(), default=math.inf)
    smaller = [size for size, level in zip(sizes, known, strict=True) if level is None and size * _SAME_SIZE < smallest]
    lowest = max(anchors, default=0 if title is None else 1)
    anchors |= _size_of_clusters(smaller, lowest + 1)
    top = min(anchors, default=1)
    levels: list[int] = []
    above: list[tuple[int, int]] = []  # what the next heading may stand below: the level of the size, and the one given
    highest = 1 if title is None else 2
    contents_page: int | None = None
    for heading, size, level in zip(headings, sizes, known, strict=True):
        if contents_page not in (None, heading.page_index):
            above.clear()  # entries of a table of contents have nothing below them
            contents_page = None
        if _CONTENTS.fullmatch(heading.text.strip()):
            contents_page = heading.page_index
        of_size = level if level is not None else _nearest_level(size, anchors)
        if level is None and has_numbers and _OF_ONE_PART.fullmatch(heading.text.strip()):
            of_size = top if size * _SAME_SIZE >= anchors[top] else of_size
        while above and above[-1][0] >= of_size:
            above.pop()
        if level is None:
            level = min(of_size, 1 + above[-1][1] if above else highest)
        above.append((of_size, level))
        levels.append(level)
    return levels


def _size_of_levels(sizes: Sequence[float], levels: Sequence[int | None], title: int | None) -> dict[int, float]:
    """The usual size of each level that is known; the title's own is no other heading's."""
    of_level: dict[int, list[float]] = {}
    for at, (size, level) in enumerate(zip(sizes, levels, strict=True)):
        if level is not None and at != title:
            of_level.setdefault(level, []).append(size)
    return {level: median(of_level[level]) for level in of_level}


def _size_of_clusters(sizes: Sequence[float], first_level: int) -> dict[int, float]:
    """Sizes as levels, the largest as `first_level`; sizes that differ little are one level."""
    clusters: list[list[float]] = []
    for size in sorted(sizes, reverse=True):
        if clusters and size * _SAME_SIZE >= clusters[-1][0]:
            clusters[-1].append(size)
        else:
            clusters.append([size])
    return {level: median(cluster) for level, cluster in enumerate(clusters[:_LOWEST], start=first_level)}


def _nearest_level(size: float, anchors: dict[int, float]) -> int:
    """The level of letters of this size; if there is none, the one below the next larger."""
    if size <= 0:
        return max(anchors)
    distances = {level: abs(math.log(size / anchor)) for level, anchor in anchors.items() if anchor > 0}
    nearest = min(distances, key=lambda level: (round(distances[level], 2), level), default=min(anchors))
    if distances.get(nearest, 0.0) < math.log(_SAME_SIZE):
        return nearest
    return max((level + 1 for level, anchor in anchors.items() if anchor > size), default=min(anchors))


def _heading(draft: Draft, row: PageResult) -> Heading:
    """The heading as it is compared; its box is in points, or in pixels of a page that has no size in points."""
    x0, y0, x1, y1 = draft.places[0].bbox
    scale = 72 / max(row.dpi, 1.0) if row.dpi else 1.0
    width = max(0.0, x1 - x0) * (row.width or _A4[0]) * scale
    height = max(0.0, y1 - y0) * (row.height or _A4[1]) * scale
    if row.blocks[draft.places[0].block].angle in (90, 270):
        width, height = height, width
    return Heading("".join(draft.texts)[:_SEEN], draft.places[0].page_index, y0, width, height)


_LINE_PITCH: Final = 1.2
"""The distance from one line to the next, in em."""
_TOO_WIDE: Final = 1.4
"""How much wider than its lines a text may be estimated, as fonts differ."""
_MAX_LINES: Final = 10
_DISAGREEMENT: Final = 1.3
"""The size by width is used only if it differs by less than this factor from the size by height."""
_USUAL_HEIGHTS: Final = (0.6, 1.5)
"""The usual heights of a box around one line, in em: from that of the ink to that of the font."""

_LATEX_COMMAND: Final = re.compile(r"\\[A-Za-z]+|\\.|[{}^_$]")


def letter_sizes(headings: Sequence[Heading]) -> list[float]:
    """The size of the letters of each heading, in the unit of its box; 0 if there is no telling.

    Whether the layout draws boxes around the ink or around whole lines is estimated from the texts of one line, whose
    width tells their size too.
    """
    ems = [sum(map(advance, _LATEX_COMMAND.sub("", heading.text))) / 1000 for heading in headings]  # on one line
    counts = [_num_lines(em, heading) for em, heading in zip(ems, headings, strict=True)]
    seen = [
        heading.height * em / heading.width
        for heading, em, count in zip(headings, ems, counts, strict=True)
        if count == 1 and em >= 3 and heading.width > 0
    ]
    low, high = _USUAL_HEIGHTS
    line_height = min(max(median(seen), low), high) if seen else 1.0
    sizes = []
    for heading, em, count in zip(headings, ems, counts, strict=True):
        by_height = heading.height / (_LINE_PITCH * (count - 1) + line_height)
        by_width = heading.width / em if count == 1 and em >= 3 else by_height
        is_believable = by_height / _DISAGREEMENT <= by_width <= by_height * _DISAGREEMENT
        sizes.append((by_height * by_width) ** 0.5 if is_believable else by_height)
    return sizes


def _num_lines(em: float, heading: Heading) -> int:
    """The smallest number of lines in which the text fits into its box."""
    for count in range(1, _MAX_LINES):
        size = heading.height / (_LINE_PITCH * (count - 1) + 1)
        if em * size <= _TOO_WIDE * count * heading.width:
            return count
    return _MAX_LINES
