"""What a set page is, the two lists of them, and what they are made of."""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tests.support.drawn_text import Font, Part, SeenBlock, Sheet
from tests.support.prose import article, set_within


@dataclass(frozen=True)
class SetPage:
    """A PDF of one page. blocks: what is seen on it, in pt of the page as shown, which is so wide and high."""

    name: str
    pdf: bytes
    blocks: Sequence[SeenBlock]
    width: float
    height: float


Maker = Callable[[], Sheet]


HONEST: dict[str, Maker] = {}
"""Pages whose layer can be used, for most of their blocks at least."""


LYING: dict[str, Maker] = {}
"""Pages whose layer must not be used where it lies. Nothing is said of the rest of it."""


def set_page(name: str) -> SetPage:
    return as_set_page((HONEST | LYING)[name](), name)


def as_set_page(sheet: Sheet, name: str) -> SetPage:
    pdf, blocks = sheet.finished()
    width, height = (sheet.width, sheet.height) if sheet.turn % 180 == 0 else (sheet.height, sheet.width)
    return SetPage(name, pdf, blocks, width, height)


def honest(make: Maker) -> Maker:
    HONEST[make.__name__.strip("_").replace("_", " ")] = make
    return make


def lie(make: Maker) -> Maker:
    LYING[make.__name__.strip("_").replace("_", " ")] = make
    return make


def with_spaces(block: SeenBlock, words: Sequence[Sequence[int]]) -> SeenBlock:
    """The block with a space seen after each word. words: of each line, the words' lengths."""
    lines = []
    for line, lengths in zip(block.lines, words, strict=True):
        letters, at = list(line.letters), 0
        for length in lengths[:-1]:
            at += length
            letters[at - 1] = replace(letters[at - 1], text=letters[at - 1].text + " ")
        lines.append(replace(line, letters=tuple(letters)))
    return replace(block, lines=tuple(lines))


def exchanged(pairs: str) -> dict[str, str]:
    """`abcd`: a for b, b for a, c for d, d for c."""
    return dict(zip(pairs, "".join(pairs[at : at + 2][::-1] for at in range(0, len(pairs), 2)), strict=True))


def swapped(pairs: str) -> dict[str, str | None]:
    return {**exchanged(pairs)}


def victim(parts: Callable[[Font, Sheet, float], Sequence[Part]], *, font: Font | None = None) -> Maker:
    """An honest page with one block of which a line begins so. parts: of the font, the page and the line's baseline."""

    def make() -> Sheet:
        here = font or Font()
        sheet, y = article(here, num_blocks=4 if here.face == "cour" else 6)
        set_within(sheet, y, lambda baseline: parts(here, sheet, baseline), here)
        return sheet

    return make


PAID, BRIDGE = "The village paid 187", " for the bridge"


GREEK = dict(zip(string.ascii_lowercase, "αβχδεφγηιϕκλμνοπθρστυϖωξψζ", strict=True))
"""What Symbol has at the codes of letters."""


def form_xobject(
    sheet: Sheet, content: bytes, font: Font, entries: bytes = b"", size: tuple[int, int] = (400, 760)
) -> bytes:
    """A form, by default as large as the page, whose fonts are the page's."""
    named = sheet.reference(font)
    return (
        b"<</Type /XObject /Subtype /Form /BBox [0 0 %d %d] /Resources <</Font <<%s>>>> %s /Length %d>> stream\n%s"
        b"\nendstream" % (*size, named, entries, len(content), content)
    )


WHITE_PIXEL = (
    b"<</Type /XObject /Subtype /Image /Width 1 /Height 1 /ColorSpace /DeviceGray /BitsPerComponent 8"
    b" /Length 1>> stream\n\xff\nendstream"
)
