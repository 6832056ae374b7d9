"""Pages with letters that are others by where they stand, how large they are, and what stands beside them."""

from __future__ import annotations

import string
from dataclasses import replace

from tests.support.drawn_text import LETTERS, Font, Part, SeenLetter, Sheet
from tests.support.prose import BODY_SIZE, article, broken, paragraph, set_lines, set_paragraph, set_within
from tests.support.set_pages import BRIDGE, GREEK, LYING, PAID, Maker, lie, victim, with_spaces


@lie
def doubled_letters() -> Sheet:
    """Bold by drawing twice, a little apart."""

    def parts(font: Font, sheet: Sheet, baseline: float) -> list[Part]:
        again = Part("The village paid 1876", font, seen=[""] * 21, alone=True, gap=0.35)
        return [again, Part("The village paid 1876", font, gap=-0.35), Part(BRIDGE, font)]

    return victim(parts)()


@lie
def a_block_drawn_twice_in_one_place() -> Sheet:
    font = Font()
    sheet, y = article(font, num_blocks=6)
    text = paragraph(77)
    set_paragraph(sheet, y, text, font)
    sheet.blocks.pop()
    set_paragraph(sheet, y, text, font)
    return sheet


@lie
def one_digit_drawn_over_another() -> Sheet:
    def parts(font: Font, sheet: Sheet, baseline: float) -> list[Part]:
        return [
            Part(PAID, font),
            Part("1", font, seen=["4"], alone=True),
            Part("4", font, seen=[""]),
            Part(BRIDGE, font),
        ]

    return victim(parts)()


@lie
def letters_made_of_two() -> Sheet:
    """An accent of its own, drawn over its letter, as TeX does."""

    def parts(font: Font, sheet: Sheet, baseline: float) -> list[Part]:
        accent = Part("’", font, seen=[""], gap=1, alone=True)
        return [Part("The Caf", font), accent, Part("e", font, seen=["é"], gap=-1), Part(" in Vienna", font)]

    return victim(parts)()


@lie
def spaces_within_a_word() -> Sheet:
    """Spaces that are taken back again, so that nobody sees them."""

    def parts(font: Font, sheet: Sheet, baseline: float) -> list[Part]:
        return [Part("The village now", font), Part(" ", font, seen=[""], alone=True), Part("here paid", font)]

    return victim(parts)()


@lie
def words_that_only_seem_to_be_together() -> Sheet:
    """A gap as wide as a space and no space in the file; elsewhere spaces are there."""

    def parts(font: Font, sheet: Sheet, baseline: float) -> list[Part]:
        return [Part("The village is now", font, seen=[*"The village is no", "w "]), Part("here", font, gap=2.6)]

    return victim(parts)()


def _set_apart(gap: float) -> Maker:
    def parts(font: Font, sheet: Sheet, baseline: float) -> list[Part]:
        return [Part("The ", font), *[Part(letter, font, gap=gap) for letter in "village"], Part(" paid for it", font)]

    return victim(parts)


LYING |= {f"letters set apart by {gap} pt": _set_apart(gap) for gap in (0.9, 1.3, 2.0, 2.6, 4.0)}


@lie
def a_title_with_letters_set_apart() -> Sheet:
    font = Font()
    sheet = Sheet()
    words = ["THE", "VILLAGE"]
    parts = [Part(letter, font, gap=(9.0 if at == 0 else 5.0) * (at + nth > 0)) for nth, word in enumerate(words)
             for at, letter in enumerate(word)]  # fmt: skip
    seen, y = set_lines(sheet, 40.0, [parts], 14.0, type="title")
    sheet.blocks[-1] = with_spaces(seen, [[len(word) for word in words]])
    article(font, sheet=sheet, y=y, num_blocks=6)
    return sheet


@lie
def letters_that_are_drawn_from_right_to_left() -> Sheet:
    """Each in its place: order in the file says nothing."""

    def parts(font: Font, sheet: Sheet, baseline: float) -> list[Part]:
        x = 40 + 10 * font.width("The village paid ")
        word = "1876"
        for at in reversed(range(len(word))):
            drawn, _ = sheet.piece(x + 10 * font.width(word[:at]), baseline, Part(word[at], font), 10.0)
            sheet.draw(drawn)
        return [Part("The village paid ", font), Part(word, font, drawn=False), Part(BRIDGE, font)]

    return victim(parts)()


def _instead(drawn: str, seen: str, *, face: str = "tiro", **placed: float) -> Maker:
    """A letter that is another one by where it stands and how large it is; elsewhere it is what it claims to be."""

    def make() -> Sheet:
        font = Font(face=face)
        sheet, y = article(font, num_blocks=5)
        letter = Part(drawn, font, seen=[seen], **placed)  # type: ignore[arg-type]
        usual = [Part(f"The letters {drawn} and {drawn}{drawn} and {drawn} of", font)]
        _, y = set_within(sheet, y, lambda _: usual, font, BODY_SIZE)
        set_within(sheet, y, lambda _: [Part("The village", font), letter, Part("s paid for it", font)], font)
        return sheet

    return make


LYING |= {
    "a comma raised to an apostrophe": _instead(",", "’", rise=5.5),
    "an apostrophe lowered to a comma": _instead("’", ",", rise=-5.5),
    "a hyphen lowered to an underline": _instead("-", "_", rise=-3.0),
    "a hyphen raised to a macron": _instead("-", "¯", rise=4.0),
    "a point raised": _instead(".", "·", rise=2.5),
    "a small o raised to degrees": _instead("o", "°", rise=3.5, size=6.0),
    "a comma raised above the line": _instead(",", "’", rise=7.8),
    "an apostrophe lowered below the line": _instead("’", ",", rise=-7.8),
    "an o raised above the line": _instead("o", "°", rise=7.8),
    "an O squeezed to a naught": _instead("O", "0", stretch=0.66),
    "an O squeezed a little": _instead("O", "0", stretch=0.8),
    "a naught stretched to an O": _instead("0", "O", stretch=1.45),
    "a hyphen stretched to a dash": _instead("-", "–", stretch=1.5),
    "a dash squeezed to a hyphen": _instead("–", "-", stretch=0.667),
    "a dash stretched to a longer one": _instead("–", "—", stretch=1.55),
    "a capital as small as a small letter": _instead("S", "s", size=6.8),
    "a capital O as small as a small letter": _instead("O", "o", size=6.6, face="helv"),
    "a small letter as large as a capital": _instead("s", "S", size=14.7),
    "a small o as large as a naught": _instead("o", "0", size=14.0),
    "an l cut to the height of a 1": _instead("l", "ı", size=6.5, face="helv"),
}


def _two_make_one(first: Part, second: Part, *, face: str = "tiro") -> Maker:
    """Two letters in one place make a third."""

    def parts(font: Font, sheet: Sheet, baseline: float) -> list[Part]:
        pair = replace(first, font=font, alone=True), replace(second, font=font)
        return [Part("The village ", font), *pair, Part(" paid for the bridge", font)]

    return victim(parts, font=Font(face=face))


_ANY = Font()


LYING |= {
    "two points make a colon": _two_make_one(Part(".", _ANY, seen=[""], rise=3.8), Part(".", _ANY, seen=[":"])),
    "two hyphens make an equals sign": _two_make_one(Part("-", _ANY, seen=[""], rise=1.7), Part("-", _ANY, seen=["="])),
    "a c and an l make a d": _two_make_one(
        Part("c", _ANY, seen=[""]), Part("l", _ANY, seen=["d"], gap=3.6), face="helv"
    ),
    "two v make a w": _two_make_one(Part("v", _ANY, seen=[""]), Part("v", _ANY, seen=["w"], gap=3.9), face="helv"),
    "an l and a V make an N": _two_make_one(
        Part("l", _ANY, seen=[""]), Part("V", _ANY, seen=["N"], gap=0.75), face="helv"
    ),
    "an I and a bar make a cross": _two_make_one(Part("I", _ANY, seen=[""]), Part("-", _ANY, seen=["+"])),
    "a stroke through an O": _two_make_one(Part("O", _ANY, seen=["Ø"]), Part("/", _ANY, seen=[""], gap=2.0)),
}


def _within(hidden: str, seen: str, *, face: str = "helv", gap: float = 0.0, rise: float = 0.0) -> Maker:
    """A letter drawn within the ink of another, so that it changes nothing."""

    def parts(font: Font, sheet: Sheet, baseline: float) -> list[Part]:
        inside = Part(hidden, font, seen=[""], alone=True, gap=gap, rise=rise)
        return [Part("The village ", font), inside, Part(seen, font, gap=-gap), Part(" paid for the bridge", font)]

    return victim(parts, font=Font(face=face))


LYING |= {
    "a letter twice in one place": _within("e", "e"),
    "a narrow letter twice in one place": _within("l", "l"),
    "an i twice in one place": _within("i", "i", face="tiro"),
    "a point twice in one place": _within(".", ".", face="tiro"),
    "a point within a semicolon": _within(".", ";"),
    "a comma within a semicolon": _within(",", ";", face="tiro"),
    "a dotless i within a j": _within("I", "T", gap=1.65),
    "a word twice in one place": victim(
        lambda font, sheet, baseline: [
            Part("The village ", font),
            Part("paid", font, seen=[""] * 4, alone=True),
            Part("paid for the bridge", font),
        ]
    ),
    "an l within a b": _within("l", "b"),
    "an l within an h": _within("l", "h"),
    "an F within an E": _within("F", "E"),
    "an I within an H": _within("I", "H"),
    "a P within a B": _within("P", "B"),
    "a point within a colon": _within(".", ":"),
    "a hyphen within a plus": _within("-", "+", gap=1.2),
    "an l within a b, in Courier": _within("l", "b", face="cour"),
    "a point within an M": _within(".", "M", gap=-0.1),
    "a point within the foot of an I": _within(".", "I", face="cour", gap=0.1),
}


LYING["letters without advances"] = lambda: article(Font("cid_truetype", "cjk", advances=dict.fromkeys(LETTERS, 0.0)))[
    0
]


@lie
def spaces_as_narrow_as_none() -> Sheet:
    def parts(font: Font, sheet: Sheet, baseline: float) -> list[Part]:
        return [Part("The village now", font), Part(" ", font, seen=[""]), Part("here paid", font, gap=-2.3)]

    return victim(parts)()


@lie
def thousands_set_apart_by_a_gap() -> Sheet:
    """No space in the file."""

    def parts(font: Font, sheet: Sheet, baseline: float) -> list[Part]:
        return [Part("The village paid 1", font, seen=[*"The village paid ", "1 "]), Part("876", font, gap=1.7),
                Part(BRIDGE, font)]  # fmt: skip

    return victim(parts)()


@lie
def entries_with_a_wide_gap() -> Sheet:
    font = Font()
    sheet, y = article(font, num_blocks=6)
    rows = [("Total of the village", "1876"), ("Bridge", "2041"), ("Market and river", "53")]
    lines = []
    for left, right in rows:
        y += 13.5
        before = sheet.line(40, y, [Part(left, font)], 10.0)
        behind = sheet.line(250, y, [Part(right, font)], 10.0)
        lines.append(
            replace(before, letters=(*before.letters, SeenLetter(" ", behind.letters[0].box), *behind.letters))
        )
    sheet.set_block(lines)
    return sheet


@lie
def text_that_looks_like_markup() -> Sheet:
    font = Font()
    sheet, y = article(font, num_blocks=5)
    for text in (
        r"Use \[ x \] and \( y \) of the writer, <nl> & [Non-Text] *a* _b_ $c$ and \frac12 \quad_a, <b>bold</b>",
        "[Non-Text]",
        "<|box_start|>",
        "# The village, 12. and - so on",
    ):
        _, y = set_paragraph(sheet, y, text, font)
    return sheet


@lie
def black_text_over_a_black_half() -> Sheet:
    """The last words are on black, where nobody sees them."""
    font = Font()
    sheet, y = article(font, num_blocks=6)
    text = "The village paid 1876 for the bridge"
    edge = 40 + 10 * font.width("The village paid 18")
    seen = [letter if at < len("The village paid 18") else "" for at, letter in enumerate(text)]
    sheet.draw(b"%g %g 150 16 re f" % (edge, sheet.height - y - 13))
    set_lines(sheet, y, [[Part(text, font, seen=seen)]], 10.0)
    return sheet


@lie
def superscripts() -> Sheet:
    def parts(font: Font, sheet: Sheet, baseline: float) -> list[Part]:
        note = Part("12", font, seen=[r"\(^{1", r"2}\)"], size=6, rise=3.5)
        return [Part("The village paid", font), note, Part(" for 48 m", font),
                Part("2", font, seen=[r"\(^{2}\)"], size=6.5, rise=3.5), Part(" of stone", font)]  # fmt: skip

    return victim(parts)()


@lie
def superscripts_of_full_size() -> Sheet:
    def parts(font: Font, sheet: Sheet, baseline: float) -> list[Part]:
        return [Part("The village paid 10", font), Part("7", font, seen=[r"\(^{7}\)"], rise=3.0), Part(" for it", font)]

    return victim(parts)()


@lie
def small_superscripts_on_the_line() -> Sheet:
    """Numbers of notes in small digits, not raised much."""

    def parts(font: Font, sheet: Sheet, baseline: float) -> list[Part]:
        return [Part("The village paid 48", font), Part("7", font, seen=[r"\(^{7}\)"], size=5.5, rise=1.2),
                Part(" for it", font)]  # fmt: skip

    return victim(parts)()


@lie
def subscripts() -> Sheet:
    def parts(font: Font, sheet: Sheet, baseline: float) -> list[Part]:
        return [Part("The river is H", font), Part("2", font, seen=[r"\(_{2}\)"], size=6.5, rise=-1.8),
                Part("O and stone", font)]  # fmt: skip

    return victim(parts)()


@lie
def a_superscript_at_the_end() -> Sheet:
    """The last letter of a block whose lines are all of one size."""
    font = Font()
    sheet, y = article(font, num_blocks=6)
    lines = [[Part(line, font)] for line in broken(paragraph(99), font, BODY_SIZE, 310.0)]
    lines[-1].append(Part("7", font, seen=[r"\(^{7}\)"], size=6, rise=3.5))
    set_lines(sheet, y, lines)
    return sheet


@lie
def formulas_within_text() -> Sheet:
    symbols = Font("base14", "symb", letters=string.ascii_lowercase + " ", drawn_as=GREEK, mapped=False)
    italic = Font(face="tiit", name="ABCDEG+CMMI10")

    def parts(font: Font, sheet: Sheet, baseline: float) -> list[Part]:
        equation = [Part("x", italic, seen=[r"\(x"]), Part(" = ", font), Part("a", symbols, seen=[r"\alpha\)"])]
        return [Part("The river, where ", font), *equation, Part(" and ", font), Part("y", italic, seen=[r"\(y\)"])]

    return victim(parts)()


@lie
def italic_variables_in_a_font_of_words() -> Sheet:
    """Each letter alone is a variable, which the model writes as a formula."""
    font, italic = Font(name="ABCDEF+Roman"), Font(face="tiit", name="ABCDEG+Italic")
    sheet, y = article(font, num_blocks=3)
    for seed in range(2):
        _, y = set_paragraph(sheet, y, paragraph(50 + seed), italic)
    variables = [Part("where ", font), Part("x", italic, seen=[r"\(x\)"]), Part(" and ", font),
                 Part("y", italic, seen=[r"\(y\)"]), Part(" are equal", font)]  # fmt: skip
    set_within(sheet, y, lambda _: variables, font)
    return sheet


@lie
def small_capitals_made_of_large_ones() -> Sheet:
    def parts(font: Font, sheet: Sheet, baseline: float) -> list[Part]:
        return [Part("T", font), Part("HE VILLAGE OF ", font, size=7.8), Part("O", font), Part("XFORD", font, size=7.8)]

    return victim(parts)()


@lie
def small_capitals_that_claim_to_be_small_letters() -> Sheet:
    """Drawn as capitals in a font of their own, whose map says small letters."""
    capitals = Font(name="ABCDEF+SmallCaps", claims={a: a.lower() for a in string.ascii_uppercase})
    sheet, y = article(Font(name="ABCDEF+Text"), num_blocks=5)
    set_paragraph(sheet, y, paragraph(5).upper(), capitals, 7.5)
    return sheet
