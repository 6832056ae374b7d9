"""Pages whose layer adds or hides text, runs in other directions, or whose lines or blocks are not what they seem."""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import replace

from tests.support.drawn_text import CHINESE, LETTERS, End, Font, Part, SeenLine, Sheet, bitmap_letters
from tests.support.prose import (
    BODY_SIZE,
    article,
    broken,
    filled,
    justified,
    paragraph,
    set_lines,
    set_paragraph,
    set_within,
)
from tests.support.set_pages import BRIDGE, LYING, WHITE_PIXEL, Maker, form_xobject, lie, victim


def _actual_text(said: str, drawn: str) -> Maker:
    def parts(font: Font, sheet: Sheet, baseline: float) -> list[Part]:
        before = b"/Span <</ActualText <FEFF%s>>> BDC" % said.encode("utf-16-be").hex().encode()
        return [Part("The village paid ", font), Part(drawn, font, before=before, after=b"EMC"), Part(BRIDGE, font)]

    return victim(parts)


LYING |= {
    "ActualText that says another number": _actual_text("2041", "1876"),
    "ActualText that is longer": _actual_text("not at all 2041", "1876"),
    "ActualText that is shorter": _actual_text("1", "1876"),
    "ActualText that is empty": _actual_text("", "1876"),
    "ActualText that is true": _actual_text("1876", "1876"),
}


@lie
def a_scan_with_wrong_text_behind_it() -> Sheet:
    """An OCR layer: invisible text over a picture of the page."""
    font = Font()
    sheet, y = Sheet(), 40.0
    sheet.draw(b"3 Tr")
    for seed in range(6):
        right, wrong = paragraph(seed, 330), paragraph(seed, 330).replace("e", "c").replace("1", "l")
        for line, said in zip(broken(right, font, 10, 320), broken(wrong, font, 10, 330), strict=False):
            y += 13.5
            sheet.draw(bitmap_letters("tiro", line, 40.0, sheet.height - y, 10.0))
            drawn, _ = sheet.piece(40.0, y, Part(said, font), 10.0)
            sheet.draw(drawn)
            _, letters = sheet.piece(40.0, y, Part(line, font), 10.0)
            sheet.blocks.append(sheet.set_block([SeenLine(tuple(letters))]))
            sheet.blocks.pop()
        y += 10
    return sheet


@lie
def text_behind_a_scan() -> Sheet:
    """Drawn in black first, wrongly; then the picture of the page covers it, with other text in the same place."""
    font = Font()
    sheet, y = Sheet(), 40.0
    pictures = []
    for seed in range(6):
        for line in broken(paragraph(seed, 330), font, 10, 320):
            y += 13.5
            _, letters = sheet.piece(40.0, y, Part(line, font), 10.0)
            wrong, _ = sheet.piece(40.0, y, Part(line.replace("e", "c").replace("1", "7"), font), 10.0)
            sheet.draw(wrong)
            pictures.append(bitmap_letters("tiro", line, 40.0, sheet.height - y, 10.0))
            sheet.set_block([SeenLine(tuple(letters))])
        y += 10
    sheet.use("XObject", "Im", sheet.add(WHITE_PIXEL))
    sheet.draw(b"q 400 0 0 760 0 0 cm /Im Do Q", *pictures)
    return sheet


@lie
def text_upon_a_picture_of_the_page() -> Sheet:
    """The picture first, with lines of its own between those of the text."""
    font = Font()
    sheet = Sheet()
    sheet.use("XObject", "Im", sheet.add(WHITE_PIXEL))
    sheet.draw(b"q 400 0 0 760 0 0 cm /Im Do Q")
    article(font, sheet=sheet)
    return sheet


@lie
def text_beyond_the_page() -> Sheet:
    """A line runs over the page's edge; only some of it is seen."""
    font = Font()
    sheet, y = article(font, sheet=Sheet(margin=60), num_blocks=6)
    text = "Before the summer the teacher measured water and never a careful reader"
    x, letters = 200.0, []
    for letter in text:
        width = 10 * font.width(letter)
        letters.append(letter if x + width <= 400 else "")
        x += width
    set_lines(sheet, y, [[Part(text, font, seen=letters)]], 10.0, x=200.0)
    return sheet


@lie
def text_in_the_margin_that_is_cropped() -> Sheet:
    """Lines above the page's edge, close to it."""
    font = Font()
    sheet = Sheet(margin=60)
    drawn, _ = sheet.piece(40.0, -2.0, Part("not seen by anybody 1876", font), 10.0)
    sheet.draw(drawn)
    article(font, sheet=sheet, y=3.0)
    return sheet


@lie
def a_form_field_in_the_line() -> Sheet:
    """Its value is seen in a gap of the line."""

    def parts(font: Font, sheet: Sheet, baseline: float) -> list[Part]:
        x, y = 40 + 10 * font.width("The village paid "), sheet.height - baseline
        content = b"BT /F0 10 Tf 1 0 0 1 0 2.5 Tm (1876) Tj ET"
        look = sheet.add(form_xobject(sheet, content, font, size=(22, 12)))
        field = sheet.add(
            b"<</Type /Annot /Subtype /Widget /FT /Tx /T (a) /V (1876) /F 4 /Rect [%g %g %g %g] /AP <</N %s>>>>"
            % (x, y - 2.5, x + 22, y + 9.5, look)
        )
        sheet.annotations.append(field)
        sheet.catalogue.append(b"/AcroForm <</Fields [%s]>>" % field)
        return [Part("The village paid ", font), Part("1876", font, drawn=False), Part(" for the bridge", font)]

    return victim(parts)()


@lie
def a_comment_upon_the_line() -> Sheet:
    """A text box that stands where a number was."""

    def parts(font: Font, sheet: Sheet, baseline: float) -> list[Part]:
        x, y = 40 + 10 * font.width("The village paid "), sheet.height - baseline
        content = b"1 g 0 0 22 12 re f 0 g BT /F0 10 Tf 1 0 0 1 0 2.5 Tm (2041) Tj ET"
        look = sheet.add(form_xobject(sheet, content, font, size=(22, 12)))
        sheet.annotations.append(
            b"<</Type /Annot /Subtype /FreeText /F 4 /Rect [%g %g %g %g] /Contents (2041) /AP <</N %s>>>>"
            % (x, y - 2.5, x + 22, y + 9.5, look)
        )
        return [Part("The village paid ", font), Part("1876", font, seen=list("2041")), Part(" for the bridge", font)]

    return victim(parts)()


@lie
def a_watermark_across() -> Sheet:
    font, large = Font(), Font(face="helv", name="ABCDEF+Mark")
    sheet, _ = article(font)
    drawn, _ = sheet.piece(30.0, 300.0, Part("DRAFT", large), 110.0)
    sheet.content.insert(0, b"q 0.9 g " + drawn + b" Q")
    return sheet


@lie
def stamped_letters_of_the_same_size() -> Sheet:
    """Text of another layer set between the letters of a line, in light grey."""

    def parts(font: Font, sheet: Sheet, baseline: float) -> list[Part]:
        stamp = Part("COPY COPY COPY", font, seen=[""] * 14, alone=True, before=b"0.85 g", after=b"0 g", gap=2.2)
        return [stamp, Part("The village paid 1876 for the bridge", font, gap=-2.2)]

    return victim(parts)()


def _turned_page(turn: int, rotate: int) -> Maker:
    return lambda: article(Font(), sheet=Sheet(turn=turn, rotate=rotate, margin=10))[0]


for _turn in (90, 180, 270):
    for _rotate in (0, 90):
        LYING[f"all turned by {_turn}, stored with Rotate {_rotate}"] = _turned_page(_turn, _rotate)


@lie
def letters_one_below_the_other() -> Sheet:
    """Columns from right to left, each from top to bottom."""
    font = Font("cid_truetype", "cjk", letters=CHINESE)
    sheet = Sheet()
    for x in (300.0, 280.0, 260.0, 240.0):
        letters = []
        for at in range(18):
            drawn, seen = sheet.piece(x, 60.0 + 14 * at, Part(CHINESE[(at * 7 + int(x)) % len(CHINESE)], font), 12.0)
            sheet.draw(drawn)
            letters += seen
        sheet.set_block([SeenLine(tuple(letters), "nothing")])
    return sheet


@lie
def columns_of_letters_in_one_block() -> Sheet:
    font = Font("cid_truetype", "cjk", letters=CHINESE)
    sheet = Sheet()
    lines = []
    for x in (300.0, 280.0, 260.0, 240.0):
        letters = []
        for at in range(18):
            drawn, seen = sheet.piece(x, 60.0 + 14 * at, Part(CHINESE[(at * 7 + int(x)) % len(CHINESE)], font), 12.0)
            sheet.draw(drawn)
            letters += seen
        lines.append(SeenLine(tuple(letters), "nothing"))
    sheet.set_block(lines)
    return sheet


@lie
def chinese_lines() -> Sheet:
    """No spaces where lines end."""
    font = Font("cid_truetype", "cjk", letters=CHINESE)
    sheet = Sheet()
    for top in (40.0, 140.0, 240.0, 340.0):
        lines = []
        for row in range(5):
            text = "".join(CHINESE[(at * 7 + row * 3 + int(top)) % len(CHINESE)] for at in range(26))
            lines.append(sheet.line(40.0, top + 16 * row + 12, [Part(text, font)], 12.0, "nothing"))
        sheet.set_block(lines)
    return sheet


@lie
def from_right_to_left() -> Sheet:
    """Hebrew by its map, and for a person; what the letters look like makes no difference here."""
    letters = string.ascii_lowercase[:22]
    hebrew = {a: chr(0x5D0 + at) for at, a in enumerate(letters)}
    font = Font("cid", claims=hebrew, letters=letters + " ")
    sheet, y = Sheet(), 40.0
    for seed in range(6):
        lines = []
        for line in broken("".join(a for a in paragraph(seed, 330).lower() if a in letters + " "), font, 10, 300):
            y += 13.5
            seen = sheet.line(40, y, [Part(line, font, seen=[hebrew.get(a, a) for a in line])], 10)
            lines.append(replace(seen, letters=seen.letters[::-1]))
        sheet.set_block(lines)
        y += 10
    return sheet


@lie
def slanted_lines() -> Sheet:
    font = Font()
    sheet, _ = article(font, num_blocks=3)
    sheet.draw(b"q 0.9962 0.0872 -0.0872 0.9962 0 0 cm")
    drawn, _ = sheet.piece(80.0, 420.0, Part("The village paid 1876 for the bridge", font), 10.0)
    sheet.draw(drawn, b"Q")
    return sheet


def _ends(ends: Sequence[tuple[str, End, str]], font: Font | None = None) -> Maker:
    """Blocks, each with one line that ends so. ends: what the line ends with, how it goes on, and with what."""

    def make() -> Sheet:
        here = font or Font()
        sheet, y = article(here, num_blocks=7 - len(ends))
        size, width = BODY_SIZE, 320.0
        for at, (text, end, further) in enumerate(ends):
            words = paragraph(40 + at, 560).split(" ")
            room = width - size * here.width(f" {text}")
            lines: list[tuple[Sequence[Part], End]] = []
            for _ in range(2):
                lines.append((filled([Part(words.pop(0), here)], here, size, width, words), "space"))
            parts = filled([Part(words.pop(0), here)], here, size, room, words)
            lines.append(([*parts, Part(f" {text}", here)], end))
            lines.append((filled([Part(further, here)], here, size, width, words), "space"))
            lines += [([Part(line, here)], "space") for line in broken(" ".join(words), here, size, width)]
            seen = []
            for line, how in lines:
                y += 1.35 * size
                seen.append(sheet.line(40, y, line, size, how))
            sheet.set_block(seen)
            y += size
        return sheet

    return make


LYING |= {
    "words divided at the ends of lines": _ends(
        [("the wa-", "hyphen dropped", "ter of"), ("and remem-", "hyphen dropped", "bered the"),
         ("a pub-", "hyphen dropped", "lic"), ("Ox-", "hyphen dropped", "ford")]
    ),
    "hyphens that stay at the ends of lines": _ends(
        [("a well-", "nothing", "known book"), ("half-", "nothing", "open"), ("a by-", "nothing", "product")]
    ),
    "dashes at the ends of lines": _ends([("and the –", "space", "or not"), ("on pages 12–", "nothing", "48 of a")]),
    "hyphens that hang": _ends([("the pre-", "space", "and postwar"), ("of 12-", "nothing", "48 of it")]),
    "a hyphen that stands alone": _ends([("and then -", "space", "not"), ("- and -", "space", "so")]),
    "addresses over lines": _ends(
        [("http://www.example.org/the/", "nothing", "bridge.html"), ("http://example.org/of-", "nothing", "stone.html"),
         ("http://www.exam", "nothing", "ple.org/stone"), ("writer@example.", "nothing", "org for")]
    ),
    "soft hyphens at the ends of lines": _ends(
        [("a well-", "nothing", "known book"), ("mea-", "hyphen dropped", "sured it")], Font(claims={"-": "\u00ad"})
    ),
    "numbers over lines": _ends([("of 1,876,", "nothing", "304 and"), ("12.", "nothing", "48 of")]),
}  # fmt: skip


@lie
def a_block_that_cuts_its_last_line() -> Sheet:
    """The layout's box ends in the middle of a line."""
    font = Font()
    sheet, _ = article(font)
    for at in (1, 3):
        block = sheet.blocks[at]
        x0, y0, x1, y1 = block.box
        sheet.blocks[at] = replace(block, box=(x0, y0 + 5, x1 - 60, y1 - 7))
    return sheet


@lie
def blocks_that_overlap() -> Sheet:
    font = Font()
    sheet, _ = article(font)
    for at in (1, 3):
        x0, y0, x1, y1 = sheet.blocks[at].box
        sheet.blocks[at] = replace(sheet.blocks[at], box=(x0, y0, x1, y1 + 25))
    return sheet


@lie
def one_block_over_two_columns_that_are_close() -> Sheet:
    sheet, font = article(Font(), sheet=Sheet(width=560.0), num_blocks=5)[0], Font()
    seen = []
    for x, seed in ((40.0, 1), (271.0, 2)):
        y = 560.0
        for line in broken(paragraph(seed, 700), font, BODY_SIZE, 220.0):
            y += 10.8
            seen.append(sheet.line(x, y, justified(line.split(" "), font, BODY_SIZE, 220.0), BODY_SIZE))
    sheet.set_block(seen)
    return sheet


@lie
def one_block_over_two_columns() -> Sheet:
    """The layout took two columns for one block; the model reads it as it likes: column by column."""
    sheet, font = Sheet(width=560.0), Font()
    for x in (40.0, 300.0):
        y = 40.0
        for seed in range(4):
            _, y = set_paragraph(sheet, y, paragraph(int(x) + seed), font, x=x, width=220.0)
    left, right = sheet.blocks[3], sheet.blocks[7]
    box = (left.box[0], min(left.box[1], right.box[1]), right.box[2], max(left.box[3], right.box[3]))
    sheet.blocks[3] = replace(left, box=box, lines=left.lines + right.lines)
    del sheet.blocks[7]
    return sheet


@lie
def raised_digits_that_claim_to_be_usual_ones() -> Sheet:
    """Glyphs of their own for superscripts."""
    font = Font(letters=LETTERS + "²³", claims={"²": "2", "³": "3"})
    sheet, y = article(font, num_blocks=6)
    seen = [{"²": r"\(^{2}\)", "³": r"\(^{3}\)"}.get(letter, letter) for letter in "The 48 m² and 96 m³ of it"]
    set_within(sheet, y, lambda _: [Part("The 48 m² and 96 m³ of it", font, seen=seen)], font)
    return sheet
