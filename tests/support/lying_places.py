"""Pages as large as real ones, whose letters, spaces and line ends are not where the file says.

Large, so that many lines are not asked about: what is wrong with a page is in one of these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from tests.support.drawn_text import Box, End, Font, Part, SeenBlock, SeenLine, Sheet
from tests.support.prose import BODY_SIZE, broken, filled, justified, paragraph, set_lines
from tests.support.set_pages import LYING, Maker

_WIDTH = 680.0
_PAPER = (760.0, 1250.0)


def _text(
    sheet: Sheet, y: float, font: Font, seeds: Sequence[int], size: float = BODY_SIZE, without: str = ""
) -> float:
    """Set a block for each seed. Returns where the next can begin."""
    for seed in seeds:
        lines = broken(paragraph(seed, round(7200 / size), without), font, size, _WIDTH)
        _, y = set_lines(sheet, y, [[Part(line, font)] for line in lines], size)
    return y


def _within(
    sheet: Sheet, y: float, font: Font, parts: Callable[[float], Sequence[Part]], seed: int, size: float = BODY_SIZE,
) -> None:  # fmt: skip
    """Set a block of full lines, of which one begins with these parts. parts: given the line's baseline."""
    before = broken(paragraph(seed, round(7200 / size)), font, size, _WIDTH)[:3]
    words = paragraph(seed + 1, round(7200 / size)).split(" ")
    lines: list[Sequence[Part]] = [justified(line.split(" "), font, size, _WIDTH) for line in before]
    lines.append(filled(parts(y + size + 1.35 * size * len(lines)), font, size, _WIDTH, words))
    after = broken(" ".join(words), font, size, _WIDTH)
    lines += [justified(line.split(" "), font, size, _WIDTH) for line in after[:-1]]
    set_lines(sheet, y, [*lines, [Part(after[-1], font)]], size)


def _file_font(name: str = "ABCDEF+Fallback", *, narrower: str = "", by: float = 0.0, raised: float = 0.0) -> Font:
    """A font whose file says of one letter that it is narrower, by so many ems, than it is and than it is set."""
    advances = {narrower: Font("cid_truetype", "cjk").width(narrower) - by} if narrower else {}
    return Font("cid_truetype", "cjk", name=name, advances=advances, raised=raised)


def _narrow_everywhere(letter: str, by: float, seed: int) -> Maker:
    def make() -> Sheet:
        sheet = Sheet(*_PAPER)
        _text(sheet, 40.0, _file_font(narrower=letter, by=by), range(seed, seed + 14))
        return sheet

    return make


def _narrow_at_the_ends(letter: str, by: float, drawn: Sequence[str], seed: int) -> Maker:
    """In one font with this letter at the ends of lines alone; in the last block within. drawn: what is, and seen."""

    def make() -> Sheet:
        sheet, font, lying = Sheet(*_PAPER), _file_font(), _file_font("ABCDEG+Fallback", narrower=letter, by=by)
        y = _text(sheet, 40.0, font, range(seed, seed + 7), without=letter)
        for other in range(seed + 10, seed + 14):
            lines = broken(paragraph(other, 900, letter), lying, BODY_SIZE, _WIDTH - 30)
            ends = [[Part(f"{line} ja{letter}", lying)] for line in lines[:-1]]
            _, y = set_lines(sheet, y, [*ends, [Part(lines[-1], lying)]])
        first, second = drawn
        spaced = [*first[:-1], f"{first[-1]} "] if by < 0 else list(first)
        parts = [Part(first, lying, seen=spaced), Part(second, lying, gap=max(0.0, -by * BODY_SIZE))]
        _within(sheet, y, font, lambda _: parts, seed + 20)
        return sheet

    return make


def _in_one_block(
    parts: Callable[[Sheet, Font, float], Sequence[Part]], font: Font, seed: int, size: float = BODY_SIZE,
    *, before: bytes = b"", down: float = 0.0,
) -> Maker:  # fmt: skip
    """down: by how many pt, as it matters where letters are on the grid of pixels."""

    def make() -> Sheet:
        sheet = Sheet(*_PAPER)
        sheet.draw(before)
        y = _text(sheet, 40.0, font, range(seed, seed + 11), size)
        _within(sheet, y + size + down, font, partial(parts, sheet, font), seed + 20, size)
        return sheet

    return make


def _chain(claims: dict[str, str], claimed: str, seen: str, seed: int) -> Maker:
    """Lines that read right although letters say others; and one in which they do not. claimed: of those lines."""

    def make() -> Sheet:
        sheet, font = Sheet(*_PAPER), Font(claims=claims)
        without = "".join(claims)
        y = _text(sheet, 40.0, font, range(seed, seed + 10), without=without)
        for at in range(3):
            _within(sheet, y, font, lambda _: [_ligatures(claimed, font)], seed + 20 + at)
            y = sheet.blocks[-1].box[3] + BODY_SIZE
        _within(sheet, y, font, lambda _: [_ligatures(seen, font)], seed + 30)
        return sheet

    return make


def _ligatures(text: str, font: Font) -> Part:
    return Part(text, font, seen=[{"ﬁ": "fi"}.get(letter, letter) for letter in text])


def _line_ends(ends: Sequence[tuple[str, str]], seed: int) -> Maker:
    """Blocks, each with a line that ends so, and goes on so without a space."""

    def make() -> Sheet:
        sheet, font = Sheet(*_PAPER), Font()
        y = _text(sheet, 40.0, font, range(seed, seed + 9))
        for at, (text, further) in enumerate(ends):
            words = paragraph(seed + 40 + at, 900).split(" ")
            line = filled(
                [Part(words.pop(0), font)], font, BODY_SIZE, _WIDTH - font.width(f" {text}") * BODY_SIZE, words
            )
            after = filled([Part(further, font)], font, BODY_SIZE, _WIDTH, words)
            lines: list[tuple[Sequence[Part], End]] = [([*line, Part(f" {text}", font)], "nothing"), (after, "space")]
            lines += [([Part(rest, font)], "space") for rest in broken(" ".join(words), font, BODY_SIZE, _WIDTH)]
            _set(sheet, y, lines)
            y = sheet.blocks[-1].box[3] + BODY_SIZE
        return sheet

    return make


def _set(sheet: Sheet, y: float, lines: Sequence[tuple[Sequence[Part], End]]) -> None:
    seen: list[SeenLine] = []
    for parts, end in lines:
        y += 1.35 * BODY_SIZE
        seen.append(sheet.line(40, y, parts, BODY_SIZE, end))
    sheet.set_block(seen)


def _broken_anywhere(width: float, seed: int) -> Maker:
    """The last block's lines end where there is no room for another letter."""

    def make() -> Sheet:
        sheet, font = Sheet(*_PAPER), Font()
        y = _text(sheet, 40.0, font, range(seed, seed + 11))
        text, lines = paragraph(seed + 20, 700), []
        while text:
            length = next(n for n in range(len(text), 0, -1) if font.width(text[:n].strip()) * BODY_SIZE <= width)
            end: End = "space" if text[length - 1 : length + 1].strip() != text[length - 1 : length + 1] else "nothing"
            lines.append(([Part(text[:length].strip(), font)], end))
            text = text[length:].lstrip()
        _set(sheet, y, lines)
        return sheet

    return make


def _pale_point(sheet: Sheet, font: Font, baseline: float, size: float) -> Sequence[Part]:
    """Drawn as a square upon four pixels."""
    side, px = size / 10, 72 / 200
    x, y = 40 + size * font.width("It was 12") + 0.12 * size, sheet.height - baseline + side / 2
    left, below = round(x / px) * px - side / 2, round(y / px) * px - side / 2
    square = b"%.5f %.5f %g %g re f" % (left, below, side, side)
    return [Part("It was 12", font), Part(".", font, drawn=False, after=square), Part("48 that morning", font)]


def _covered_bar(sheet: Sheet, font: Font, baseline: float, size: float) -> Sequence[Part]:
    """By a white rectangle."""
    x, y, k = 40 + size * font.width("The expert asked a "), sheet.height - baseline, size / 10
    white = b"q 1 g %g %g %g %g re f Q" % (x + 1.1 * k, y + 2.35 * k, 2.1 * k, 0.65 * k)
    return [Part("The expert asked a ", font), Part("e", font, seen=["c"], after=white), Part(" question of the", font)]


def _higher(block: SeenBlock, by: float) -> SeenBlock:
    def moved(box: Box) -> Box:
        return (box[0], box[1] - by, box[2], box[3] - by)

    lines = [replace(line, letters=tuple(replace(a, box=moved(a.box)) for a in line.letters)) for line in block.lines]
    return replace(block, box=(*moved(block.box)[:3], block.box[3]), lines=tuple(lines))


def _word_of_the_next_line(seed: int) -> Maker:
    """A font draws its letters a line higher. In one line it draws a word, which the file has in the next."""

    def make() -> Sheet:
        sheet, font, high = Sheet(*_PAPER), _file_font(), _file_font("ABCDEG+Fallback", raised=1.35)
        y = _text(sheet, 40.0, font, range(seed, seed + 6))
        start = len(sheet.blocks)
        y = _text(sheet, y + 20, high, range(seed + 10, seed + 15))
        up = 1.35 * BODY_SIZE
        sheet.blocks[start:] = [_higher(block, up) for block in sheet.blocks[start:]]

        words, before = paragraph(seed + 21, 900).split(" "), "The village paid "
        lines = [[Part(line, font)] for line in broken(paragraph(seed + 20, 900), font, BODY_SIZE, _WIDTH)[:4]]
        lines.append(filled([Part(before, font), Part("it", font, drawn=False)], font, BODY_SIZE, _WIDTH, words))
        set_lines(sheet, y, [*lines, [Part("The village was", font)]])
        baseline = y + BODY_SIZE + 5 * up
        drawn, _ = sheet.piece(40 + BODY_SIZE * font.width(before), baseline, Part("it", high), BODY_SIZE)
        sheet.draw(drawn)
        return sheet

    return make


LYING |= {
    "a rare letter that is narrower than set": _narrow_everywhere("j", 0.2, 0),
    "a digit that is narrower than set": _narrow_everywhere("5", 0.25, 0),
    "a letter that is narrower than set, within a word": _narrow_at_the_ends(
        "z", 0.2, ["the az", "eas that"], 0
    ),
    "a letter that is wider than set, where words part": _narrow_at_the_ends(
        "z", -0.25, ["the jaz", "bank that"], 0
    ),
    "dashes at the beginnings of lines": _line_ends(
        [("the house", "–and not"), ("pages 12", "–48 of a"), ("the well", "-known")], 0
    ),
    "apostrophes at the ends of lines": _line_ends([("of dell’", "uomo and"), ("it’", "s of")], 0),
    "marks parted from their words": _line_ends(
        [("of 12", "% of it"), ("the $", "12 of"), ("see (", "the river) and")], 0
    ),
    "initials over lines": _line_ends([("the U.", "S. and"), ("at 3 P.", "M. of")], 0),
    "lines that end anywhere": _broken_anywhere(_WIDTH, 0),
    "narrow lines that end anywhere": _broken_anywhere(150.0, 0),
    "a letter that says half of the ligature behind it": _chain(
        {"ﬁ": "i", "X": "Xf"}, "The Xﬁne and Xﬁt", "The X and ﬁt", 2000
    ),
    "a pale point that is drawn as a square": _in_one_block(
        lambda sheet, font, baseline: _pale_point(sheet, font, baseline, 4.6), Font(), 0, 4.6, before=b"0.745 g"
    ),
    "the bar of an e covered in small print": _in_one_block(
        lambda sheet, font, baseline: _covered_bar(sheet, font, baseline, 5.0), Font(), 0, 5.0, down=0.09
    ),
    "letters that are a line higher than their baseline": _word_of_the_next_line(0),
}  # fmt: skip
