"""Pages whose text layer says what is seen."""

from __future__ import annotations

from dataclasses import replace

from tests.support.drawn_text import LETTERS, Font, Part, SeenLine, Sheet
from tests.support.prose import BODY_SIZE, article, broken, paragraph, set_lines, set_paragraph
from tests.support.set_pages import HONEST, Maker, honest, with_spaces


def _of_kind(kind: str, face: str, **options: object) -> Maker:
    return lambda: article(Font(kind, face, **options))[0]  # type: ignore[arg-type]


HONEST |= {
    "a standard font": _of_kind("base14", "helv", letters=LETTERS[:95]),
    "a standard font without a map": _of_kind("base14", "tiro", letters=LETTERS[:95], mapped=False),
    "Type 1": _of_kind("type1", "tiro"),
    "Type 1 without a map": _of_kind("type1", "tiro", mapped=False),
    "TrueType": _of_kind("truetype", "cjk", letters=LETTERS[:95]),
    "CID": _of_kind("cid", "tiro"),
    "CID TrueType": _of_kind("cid_truetype", "cjk"),
    "a typewriter": lambda: article(Font(face="cour"), sheet=Sheet(height=860.0), num_blocks=7)[0],
}


for _rotate, _turn in ((90, 0), (180, 0), (270, 0)):
    HONEST[f"stored with Rotate {_rotate}"] = lambda rotate=_rotate: article(  # type: ignore[misc]
        Font(), sheet=Sheet(rotate=rotate, margin=30)
    )[0]


@honest
def in_other_units() -> Sheet:
    return article(Font(), sheet=Sheet(unit=1.5, margin=17))[0]


@honest
def several_fonts_in_a_line() -> Sheet:
    roman, italic = Font(name="ABCDEF+Roman"), Font(face="tiit", name="ABCDEG+Italic")
    sheet, y = article(roman, sheet=Sheet(height=1150.0), num_blocks=4)
    for seed in range(3):
        _, y = set_paragraph(sheet, y, paragraph(50 + seed, 800), italic)
    for seed in range(2):
        lines: list[list[Part]] = []
        line: list[Part] = []
        words, used = paragraph(7 + seed, 1000).split(" "), 0.0
        for at, word in enumerate(words):
            part = Part(f"{word} ", italic if at % 3 == 0 else roman)
            width = part.font.width(part.text) * BODY_SIZE
            if used + width > 320.0:
                lines, line, used = [*lines, line], [], 0.0
            line, used = [*line, part], used + width
        _, y = set_lines(sheet, y, [*lines, line])
    return sheet


@honest
def two_columns_in_order() -> Sheet:
    sheet, font = Sheet(width=560.0), Font()
    for x in (40.0, 300.0):
        y = 40.0
        for seed in range(6):
            _, y = set_paragraph(sheet, y, paragraph(int(x) + seed), font, x=x, width=220.0)
    return sheet


@honest
def two_columns_whose_layer_runs_across() -> Sheet:
    """Line by line over both columns, as some writers do: by their centres, letters are where they belong."""
    sheet, font = Sheet(width=560.0), Font()
    y = 40.0
    for seed in range(6):
        seen: list[list[SeenLine]] = [[], []]
        columns = [broken(paragraph(20 * seed + at, 400), font, BODY_SIZE, 220.0) for at in range(2)]
        for left, right in zip(*columns, strict=False):
            y += 10.8
            seen[0].append(sheet.line(40.0, y, [Part(left, font)], BODY_SIZE))
            seen[1].append(sheet.line(300.0, y, [Part(right, font)], BODY_SIZE))
        y += 16
        for lines in seen:
            sheet.set_block(lines)
    return sheet


@honest
def columns_that_are_close() -> Sheet:
    sheet, font = Sheet(width=560.0), Font(face="helv")
    for x in (40.0, 285.0):
        y = 40.0
        for seed in range(5):
            _, y = set_paragraph(sheet, y, paragraph(int(x) + seed), font, x=x, width=235.0)
    return sheet


@honest
def ligatures() -> Sheet:
    font, sheet, y = Font(), Sheet(), 40.0
    for seed in range(5):
        words = paragraph(seed, 700).split(" ")
        words[5::9] = [("ﬁnd", "ﬂow")[at % 2] for at in range(len(words[5::9]))]
        lines = []
        for line in broken(" ".join(words), font, BODY_SIZE, 320.0):
            lines.append([Part(line, font, seen=[{"ﬁ": "fi", "ﬂ": "fl"}.get(letter, letter) for letter in line])])
        _, y = set_lines(sheet, y, lines)
    return sheet


@honest
def ligatures_as_two_letters() -> Sheet:
    font = Font("cid", claims={"ﬁ": "fi", "ﬂ": "fl"})
    sheet, y = article(font, num_blocks=5)
    text = "The ﬁrst ﬁre and ﬂood: ﬁnd a ﬂeet"
    parts = [Part(text, font, seen=[{"ﬁ": "fi", "ﬂ": "fl"}.get(letter, letter) for letter in text])]
    set_lines(sheet, y, [parts] * 6)
    return sheet


@honest
def words_without_spaces_between() -> Sheet:
    """Words are set apart by moving on, as TeX does; there is no space in the file."""
    font, sheet, y = Font(), Sheet(height=1000.0), 40.0
    for seed in range(7):
        lines = []
        for line in broken(paragraph(seed, 800), font, BODY_SIZE, 300.0):
            words = line.split(" ")
            parts = [Part(words[0], font)]
            for word in words[1:]:
                parts += [Part(word, font, gap=2.0 + 0.6 * (seed % 3))]
            lines.append(parts)
        seen, y = set_lines(sheet, y, lines)
        sheet.blocks[-1] = with_spaces(seen, [[len(part.text) for part in parts] for parts in lines])
    return sheet


@honest
def full_lines() -> Sheet:
    font, sheet, y = Font(), Sheet(), 40.0
    for seed in range(5):
        lines = []
        for line in broken(paragraph(seed, 800), font, BODY_SIZE, 320.0):
            words = line.split(" ")
            extra = (320.0 - BODY_SIZE * font.width(line)) / max(1, len(words) - 1)
            spread = extra if extra < 6 else 0.0
            lines.append(
                [Part(word + " " * (at < len(words) - 1), font, gap=spread * (at > 0)) for at, word in enumerate(words)]
            )
        _, y = set_lines(sheet, y, lines)
    return sheet


@honest
def kerned() -> Sheet:
    """Letters moved by a few hundredths of their size here and there."""
    font, sheet, y = Font(), Sheet(), 40.0
    for seed in range(5):
        lines = []
        for line in broken(paragraph(seed, 800), font, BODY_SIZE, 300.0):
            lines.append([Part(letter, font, gap=(-0.3, 0.2, 0, 0)[at % 4]) for at, letter in enumerate(line)])
        _, y = set_lines(sheet, y, lines)
    return sheet


@honest
def words_out_of_order() -> Sheet:
    """The last word of each line is drawn first."""
    font, sheet, y = Font(), Sheet(), 40.0
    for seed in range(5):
        seen = []
        for line in broken(paragraph(seed, 800), font, BODY_SIZE, 320.0):
            first, _, last = line.rpartition(" ")
            y += 10.8
            behind = sheet.line(40 + BODY_SIZE * font.width(f"{first} "), y, [Part(last, font)], BODY_SIZE)
            before = sheet.line(40, y, [Part(f"{first} ", font)], BODY_SIZE)
            seen.append(replace(before, letters=before.letters + behind.letters))
        sheet.set_block(seen)
        y += 10
    return sheet


@honest
def lines_out_of_order() -> Sheet:
    font, sheet, y = Font(), Sheet(), 40.0
    for seed in range(5):
        lines = broken(paragraph(seed, 800), font, BODY_SIZE, 320.0)
        seen = [
            sheet.line(40, y + 10.8 * (at + 1), [Part(lines[at], font)], BODY_SIZE)
            for at in reversed(range(len(lines)))
        ]
        sheet.set_block(seen[::-1])
        y += 10.8 * len(lines) + 10
    return sheet


@honest
def blue_and_grey_text() -> Sheet:
    font = Font()
    sheet = Sheet()
    y = 40.0
    for seed, colour in enumerate((b"0 0 1 rg", b"0.3 g", b"0.6 0 0 rg", b"0 g", b"0 0 1 rg")):
        sheet.draw(colour)
        _, y = set_paragraph(sheet, y, paragraph(seed, 800), font)
    return sheet


@honest
def hyphens_within_words() -> Sheet:
    font = Font()
    sheet, y = article(font, num_blocks=5)
    for _ in range(2):
        text = "A well-known half-open stone-built house, a by-product - and 12-48 letters of the writer. " * 5
        _, y = set_paragraph(sheet, y, text.strip(), font)
    return sheet


@honest
def typographic_quotes_and_dashes() -> Sheet:
    font = Font()
    sheet, y = article(font, num_blocks=5)
    for _ in range(2):
        text = "The reader’s “book” – the writer’s “letter” — pages 12–48 of “quartz” in a garden. " * 5
        _, y = set_paragraph(sheet, y, text.strip(), font)
    return sheet


@honest
def titles_headers_and_numbers() -> Sheet:
    font, bold = Font(name="AAAAAA+Text"), Font(face="tibo", name="AAAAAB+Bold")
    sheet = Sheet()
    set_lines(sheet, 20.0, [[Part("The history of bridges", font)]], 8.0, type="header")
    _, y = set_lines(sheet, 50.0, [[Part("An ancient village, its market and river", bold)]], 15.0, type="title")
    article(font, sheet=sheet, y=y, num_blocks=6)
    set_lines(sheet, 655.0, [[Part("48", font)]], 8.0, x=195.0, type="page_number")
    return sheet


@honest
def white_on_black() -> Sheet:
    """Every other block on a dark ground."""
    font, sheet, y = Font(), Sheet(height=1000.0), 40.0
    for seed in range(7):
        lines = broken(paragraph(seed, 800), font, BODY_SIZE, 320.0)
        height = 1.35 * BODY_SIZE * len(lines)
        if seed % 2:
            sheet.draw(b"q 0 0 0.3 rg %s re f Q 1 g" % sheet.box((30, y - 4, 370, y + height + 4)))
        _, y = set_lines(sheet, y, [[Part(line, font)] for line in lines])
        sheet.draw(b"0 g")
    return sheet
