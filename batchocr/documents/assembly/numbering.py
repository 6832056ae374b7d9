"""How deep a heading is by its number: `2.1`, `Chapter 3`, `Appendix B`, `A.2`, `IV.`, 第三章."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, Literal

Style = Literal[
    "part", "chapter", "appendix", "section", "number", "letter", "bare letter", "roman", "chinese", "(chinese)", "item"
]

_SEEN: Final = 200
"""Characters of a heading that are looked at."""

_NAME: Final = (
    r"(?P<name>\d{1,3}(?:\.\d{1,3}){0,5}|[IVXLC]{1,7}|[A-Z]|one|two|three|four|five|six|seven|eight|nine|ten|eleven"
    r"|twelve)(?!\w)[.:)]?"
)
_HAN: Final = "0-9０-９一二三四五六七八九十百零〇两"
_PATTERNS: Final[Sequence[tuple[Style, re.Pattern[str]]]] = (
    ("part", re.compile(rf"(?:part|teil|partie|parte)\s+{_NAME}|第[{_HAN}]{{1,5}}[部篇编編卷]", re.IGNORECASE)),
    (
        "chapter",
        re.compile(rf"(?:chapter|kapitel|chapitre|cap[ií]tulo|capitolo)\s+{_NAME}|第[{_HAN}]{{1,5}}章", re.IGNORECASE),
    ),
    (
        "appendix",
        re.compile(
            rf"(?:appendix|annexe?|anhang|anexo|appendice)\s+{_NAME}|附[录錄]\s*[A-Z0-9一二三四五六七八九十]",
            re.IGNORECASE,
        ),
    ),
    ("section", re.compile(rf"(?:section|abschnitt|sección|§)\s*{_NAME}|第[{_HAN}]{{1,5}}[节節]", re.IGNORECASE)),
    ("number", re.compile(r"(?P<name>\d{1,3}(?:\.\d{1,3}){1,5})(?!\.?\d)[.:)]?(?:\s|$|(?=[^\W\d]))")),
    ("number", re.compile(r"(?P<name>\d{1,2})(?:[.:、](?!\d)|\s+(?=[^\W\da-z])|$)")),
    ("letter", re.compile(r"(?P<name>[A-Z](?:\.\d{1,3}){1,5})(?!\d)[.:)]?(?:\s|$)")),
    ("roman", re.compile(r"(?P<name>(?=[IVXL])L?X{0,3}(?:IX|IV|V?I{0,3}))(?:[.:)]\s|[.:]?$)")),
    ("roman", re.compile(r"(?P<name>(?=[IVXL]{2})L?X{0,3}(?:IX|IV|V?I{0,3}))\s+(?=[A-Z])")),
    ("letter", re.compile(r"(?P<name>[A-Z])[.:)]\s")),
    ("bare letter", re.compile(r"(?P<name>[A-Z])\s+(?=[A-Z0-9])")),
    ("chinese", re.compile(r"[一二三四五六七八九十]{1,3}[、.．]")),
    ("(chinese)", re.compile(r"[(（][一二三四五六七八九十]{1,3}[)）]")),
    ("item", re.compile(r"\(?(?:\d{1,2}|[a-z]|[ivx]{1,5})\)\s")),
)


@dataclass(frozen=True, slots=True)
class Number:
    """The number that a heading begins with."""

    style: Style
    name: str
    """The number as written, such as `2.1`, `B` or `IV`; empty for a Chinese one."""
    rest: str
    """The heading without its number."""

    @property
    def num_parts(self) -> int:
        """How many parts the number has: 1 for `2`, 2 for `2.1` and `A.1`."""
        return self.name.count(".") + 1


def parse_number(heading: str) -> Number | None:
    """The number that a heading begins with; None if with none."""
    text = heading[:_SEEN].strip()
    for style, pattern in _PATTERNS:
        if found := pattern.match(text):
            name = found.groupdict().get("name") or ""
            if style == "section" and "." in name:
                style = "number"
            return Number(style, name, text[found.end() :].strip(" \t\n.:—–-"))
    return None


def depths(numbers: Sequence[Number | None]) -> list[int | None]:
    """How deep the heading of each number is in a document with all of these: 1 is the highest; None without one.

    A number such as `2.1` tells its depth itself. In a document without such numbers, `II.`, `B.`, `3.` and `c)` are
    nested in the order in which each style first appears.
    """
    settled = _settled(numbers)
    first = _depths_of_styles([number for number in settled if number])
    has_parts = any(number.num_parts > 1 for number in settled if number)
    found: list[int | None] = []
    above = 0
    for number in settled:
        depth = first[number.style] + number.num_parts - 1 if number else None
        if number and number.style in ("(chinese)", "item") and has_parts:
            depth = 1 + above  # in a document with numbers such as 2.1 these stand below them
        elif depth is not None:
            above = depth
        found.append(depth)
    return found


def _depths_of_styles(numbers: Sequence[Number]) -> dict[Style, int]:
    """How deep a number of one part is, for each style that is there."""
    styles = list(dict.fromkeys(number.style for number in numbers))
    top = 2 if "part" in styles else 1
    below_chapter = top + 1 if "chapter" in styles else top
    depths: dict[Style, int] = {"part": 1, "chapter": top, "appendix": top, "section": below_chapter}
    nested = [style for style in styles if style not in depths]
    if any(number.num_parts > 1 for number in numbers):
        is_restarted = any(number.style == "number" and number.num_parts == 1 for number in numbers)
        return depths | dict.fromkeys(nested, below_chapter if is_restarted else top)
    if _has_appendices(numbers):
        nested.remove("letter")
    below = top + len({"chapter", "section"}.intersection(styles))
    depths |= {style: below + rank for rank, style in enumerate(nested)}
    depths.setdefault("letter", below)
    return depths


def _has_appendices(numbers: Sequence[Number]) -> bool:
    """Whether the letters are those of appendices: they come after the last of several numbers."""
    styles = [number.style for number in numbers]
    if "letter" not in styles or "roman" in styles or styles.count("number") < 2:
        return False
    return "number" not in styles[styles.index("letter") :]


def _are_running(numbers: Sequence[Number | None]) -> bool:
    """Whether most of the plain numbers follow each other, or begin anew: those of pages, beside entries of a table of
    contents, do not. A few say nothing."""
    plain = [int(number.name) for number in numbers if number and number.style == "number" and number.name.isdigit()]
    num_following = sum(after == 1 or after - before in (0, 1) for before, after in pairwise(plain))
    return len(plain) < 3 or 2 * num_following >= len(plain) - 1


def _settled(numbers: Sequence[Number | None]) -> list[Number | None]:
    """The numbers with ambiguous styles decided by the others: `I.` may be a Roman numeral or a letter, `A` a letter or
    an article, `13` the number of a page."""
    romans = any(number and number.style == "roman" and len(number.name) > 1 for number in numbers)
    with_parts = {number.name[0] for number in numbers if number and number.style == "letter" and number.num_parts > 1}
    bare = {number.name for number in numbers if number and number.style == "bare letter"}
    are_running = _are_running(numbers)
    settled: list[Number | None] = []
    before = ""
    for number in numbers:
        if number and number.style == "number" and number.num_parts == 1 and not are_running:
            number = None
        if number and number.style == "roman" and len(number.name) == 1:
            is_next = before == chr(ord(number.name) - 1)
            if is_next or not (romans or number.name == "I"):
                number = replace(number, style="letter")
        elif number and number.style == "bare letter":
            around = {chr(ord(number.name) - 1), chr(ord(number.name) + 1)}
            number = replace(number, style="letter") if number.name in with_parts or around & bare else None
        if number and len(number.name) == 1:
            before = number.name
        settled.append(number)
    return settled
