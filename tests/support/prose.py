"""Plain text for pages made by a script: sentences of common words, drawn by lot from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

from tests.support.drawn_text import Font, Part, SeenBlock, SeenLine, Sheet

_TEXT = (
    "the a of in on with from over under between after before when while because which river water bridge "
    "stone wooden house garden window table letter paper book reader writer teacher student village market "
    "summer winter evening morning quiet bright narrow ancient modern simple careful honest public private "
    "early later never always often seldom quickly slowly walked opened closed carried measured found "
    "described printed asked answered remembered followed crossed built Quebec Zurich Xavier Jakarta Kyoto "
    "Vienna Oxford Utah Lisbon jazz quartz oxygen puzzle index zebra jury equal expert square fixed 1876 2041 "
    "53 96"
)
_WORDS = _TEXT.split(" ")
"""Every letter and digit, rare ones more often than elsewhere, so that most occur twice on a page."""

BODY_SIZE = 8.0
"""Of the text of a whole page, so that there is enough of it for an audit to be worth its questions."""


def sentences(seed: int, without: str = "") -> Iterator[str]:
    """without: letters that do not occur."""
    lot = random.Random(seed)
    possible = [word for word in _WORDS if not set(without) & set(word + word.capitalize())]
    while True:
        words = lot.choices(possible, k=lot.randint(7, 14))
        if lot.random() < 0.4:
            words[lot.randrange(2, len(words) - 1)] += ","
        yield " ".join([words[0].capitalize(), *words[1:]]) + lot.choice("....?!;:")


def paragraph(seed: int, num_letters: int = 580, without: str = "") -> str:
    text = ""
    for sentence in sentences(seed, without):
        text = f"{text} {sentence}".strip()
        if len(text) >= num_letters:
            return text
    raise AssertionError("there is always another sentence")


def broken(text: str, font: Font, size: float, width: float) -> list[str]:
    """The text in lines."""
    lines = [""]
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and font.width(longer) * size > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def set_paragraph(
    sheet: Sheet, y: float, text: str, font: Font, size: float = BODY_SIZE, *, x: float = 40.0, width: float = 320.0
) -> tuple[SeenBlock, float]:
    """Set a block of text. y: of its upper edge. Returns the block, and where the next can begin."""
    lines = [[Part(line, font)] for line in broken(text, font, size, width)]
    return set_lines(sheet, y, lines, size, x=x)


def justified(words: Sequence[str], font: Font, size: float, width: float) -> list[Part]:
    """The words, so far apart that the line is full."""
    free = width - font.width(" ".join(words)) * size
    gap = free / max(1, len(words) - 1)
    last = len(words) - 1
    return [Part(word + " " * (at < last), font, gap=gap * (at > 0)) for at, word in enumerate(words)]


def filled(parts: Sequence[Part], font: Font, size: float, width: float, words: list[str]) -> list[Part]:
    """The parts as the beginning of a full line. words: that follow; those used are taken out of the list."""
    used = sum(part.gap + (0 if part.alone else part.width(size)) for part in parts)
    here: list[str] = []
    while font.width(" ".join(["", *here, words[0]])) * size + used <= width:
        here.append(words.pop(0))
    space = Part(" ", font)
    return [*parts, space, *justified(here, font, size, width - used - font.width(" ") * size)] if here else [*parts]


def set_within(
    sheet: Sheet, y: float, parts: Callable[[float], Sequence[Part]], font: Font, size: float = 10.0, without: str = ""
) -> tuple[SeenBlock, float]:
    """Set a block of full lines, the fourth of which begins with these parts. parts: given the line's baseline."""
    width = 320.0
    before = broken(paragraph(98, 400, without), font, size, width)[:3]
    words = paragraph(99, 300, without).split(" ")
    lines: list[Sequence[Part]] = [justified(line.split(" "), font, size, width) for line in before]
    lines.append(filled(parts(y + size + 1.35 * size * len(lines)), font, size, width, words))
    after = broken(" ".join(words), font, size, width)
    lines += [justified(line.split(" "), font, size, width) for line in after[:-1]]
    return set_lines(sheet, y, [*lines, [Part(after[-1], font)]], size)


def set_lines(
    sheet: Sheet,
    y: float,
    lines: Sequence[Sequence[Part]],
    size: float = BODY_SIZE,
    *,
    x: float = 40.0,
    type: str = "text",
) -> tuple[SeenBlock, float]:
    seen: list[SeenLine] = []
    for parts in lines:
        seen.append(sheet.line(x, y + size, parts, size))
        y += 1.35 * size
    return sheet.set_block(seen, type), y + size


def article(
    font: Font, *, seed: int = 0, sheet: Sheet | None = None, num_blocks: int = 7, y: float = 40.0, without: str = ""
) -> tuple[Sheet, float]:
    """A page of blocks of text in one font. Returns it, and where another block can begin."""
    sheet = sheet or Sheet()
    for at in range(num_blocks):
        _, y = set_paragraph(sheet, y, paragraph(100 * seed + at, without=without), font)
    return sheet, y
