"""Which pages of each document to read: `1-10,15,r3-r1`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from batchocr.errors import UsageError

_PAGE = "(r?)([1-9][0-9]{0,8})"
_PART = re.compile(f"{_PAGE}(?:-{_PAGE})?")


@dataclass(frozen=True, slots=True)
class PageSpec:
    """Ranges of pages, both ends included. An end is counted from 1 at the first page, or from -1 at the last."""

    ranges: tuple[tuple[int, int], ...]

    def pages(self, page_count: int) -> list[int]:
        """Return the 0-based indices of these pages, ascending, each once; those that do not exist are left out."""
        chosen: set[int] = set()
        for first, last in self.ranges:
            start = _index(first, page_count)
            stop = _index(last, page_count) + 1
            chosen.update(range(max(start, 0), min(stop, page_count)))
        return sorted(chosen)


def parse_page_spec(spec: str) -> PageSpec:
    """Return the pages that `spec` names. Raises UsageError, which quotes the part that cannot be read."""
    return PageSpec(tuple(_parse_part(part.strip()) for part in spec.split(",")))


def _parse_part(part: str) -> tuple[int, int]:
    match = _PART.fullmatch(part)
    if match is None:
        raise UsageError(
            f"--pages: {part!r} is no page or range of pages; pages count from 1, r1 is the last: 1-10,15,r3-r1"
        )
    first = _end(match[1], match[2])
    last = first if match[4] is None else _end(match[3], match[4])
    if (first < 0) == (last < 0) and first > last:
        raise UsageError(f"--pages: {part!r} runs backwards; the earlier page comes first: 1-10, r3-r1")
    return first, last


def _end(from_last: str, number: str) -> int:
    return -int(number) if from_last else int(number)


def _index(end: int, page_count: int) -> int:
    return page_count + end if end < 0 else end - 1
