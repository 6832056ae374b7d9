"""Pages with fonts that claim other letters than they draw, or that are taken for others."""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import replace

from tests.support.drawn_text import CHINESE, LETTERS, Font, Part, Sheet
from tests.support.prose import BODY_SIZE, article, paragraph, set_lines, set_paragraph, set_within
from tests.support.set_pages import GREEK, LYING, Maker, exchanged, form_xobject, lie, swapped


def _claiming(
    claims: Mapping[str, str | None], kind: str = "type1", line: str = "", without: str = "", num_lines: int = 1
) -> Maker:
    """A page in a font of such claims. line: within the last blocks, so many; without: letters that occur nowhere
    else."""

    def make() -> Sheet:
        font = Font(kind, claims=claims)  # type: ignore[arg-type]
        sheet, y = article(font, num_blocks=7 - num_lines, without=without)
        for _ in range(num_lines - 1):
            _, y = set_within(sheet, y, lambda _: [Part(line, font)], font, BODY_SIZE, without=without)
        set_within(
            sheet,
            y,
            lambda _: [Part(line or "In 1876 a quiet expert, puzzle: Xavier; Kyoto", font)],
            font,
            without=without,
        )
        return sheet

    return make


_ROT13 = str.maketrans(
    string.ascii_lowercase + string.ascii_uppercase,
    "".join(letters[13:] + letters[:13] for letters in (string.ascii_lowercase, string.ascii_uppercase)),
)


_STYLED = {
    **{letter: chr(0x1D400 + at) for at, letter in enumerate(string.ascii_uppercase)},
    **{letter: chr(0x1D41A + at) for at, letter in enumerate(string.ascii_lowercase)},
    **{digit: chr(0x1D7CE + at) for at, digit in enumerate(string.digits)},
}
"""Mathematical bold: NFKC makes plain letters of them."""


LYING |= {
    "Type 3": lambda: article(Font("type3"))[0],
    "all letters swapped": _claiming({a: a.translate(_ROT13) for a in string.ascii_letters}),
    "upper for lower case": _claiming({a: a.swapcase() for a in string.ascii_letters}),
    "upper case only": _claiming({a: a.upper() for a in string.ascii_lowercase}),
    "one pair swapped": _claiming(swapped("ea")),
    "a rare pair swapped": _claiming(swapped("qz")),
    "a pair swapped that occurs once": _claiming(swapped("q%"), line="A quiet house, 48% of it", without="qQ"),
    "digits swapped": _claiming(swapped("1738")),
    "digits moved on": _claiming({digit: str((int(digit) + 1) % 10) for digit in string.digits}),
    "two letters that claim to be one": _claiming({"I": "l"}),
    "a rare letter that claims to be a frequent one": _claiming({"z": "s"}),
    "neighbours swapped": _claiming(swapped("12"), line="There are 12 houses and 12 tables", without="12", num_lines=4),
    "neighbours swapped, once": _claiming(swapped("12"), line="There are 12 houses", without="12"),
    "three neighbours moved on": _claiming(
        {"1": "2", "2": "3", "3": "1"}, line="There are 123 houses and 123 tables", without="123", num_lines=4
    ),
    "a doubled letter between others": _claiming(
        {"8": "6", "6": "8"}, line="All 868 and 686 of it", without="86", num_lines=4
    ),
    "neighbours swapped at the ends of words": _claiming(
        swapped("XZ"), line="There was XZ and XZ", without="XxZz", num_lines=4
    ),
    "letters that only occur doubled": _claiming(swapped("2f"), line="Of 22 offices ff", without="2f", num_lines=4),
    "the first and the last letter of a line": _claiming(swapped("§%"), line="§ A village of 12%", num_lines=4),
    "a chain of letters moved on": _claiming(
        {"1": "2", "2": "3", "3": "4", "4": "5", "5": "1"}, line="See 12345 or 12345.", without="12345", num_lines=4
    ),
    "a letter and its neighbour swapped as one pair": _claiming(
        {"q": "u", "u": "q"}, line="A quiet quartz square, quickly equal", without="qu", num_lines=4
    ),
    "a point for a comma": _claiming(swapped(".,")),
    "a colon for a semicolon": _claiming(swapped(":;")),
    "Cyrillic letters that look alike": _claiming({"a": "а", "e": "е", "o": "о", "p": "р", "c": "с"}),
    "one Cyrillic letter": _claiming({"x": "х"}),
    "Greek question mark": _claiming({";": "\u037e"}),
    "private codes": _claiming({a: chr(0xE000 + ord(a)) for a in LETTERS}),
    "one private code": _claiming({"z": "\ue07a"}),
    "control characters": _claiming({"z": "\x01", "q": "\x7f", "x": "\x85"}),
    "replacement characters": _claiming({"z": "\ufffd"}),
    "noncharacters": _claiming({"z": "\uffff"}),
    "mathematical letters": _claiming(_STYLED),
    "wide letters": _claiming({chr(a): chr(a + 0xFEE0) for a in range(33, 127)}),
    "one wide letter": _claiming({"z": "ｚ"}),
    "superscript digits": _claiming({"2": "²", "3": "³", "1": "¹"}),
    "fractions": _claiming({"7": "½"}),
    "long s": _claiming({"s": "ſ"}),
    "Kelvin": _claiming({"K": "\u212a"}),
    "ellipsis": _claiming({".": "…"}),
    "Roman numerals": _claiming({"I": "Ⅰ", "V": "Ⅴ"}),
    "ligature for a letter": _claiming({"f": "ﬁ"}),
    "dashes for hyphens": _claiming({"-": "–"}, line="A well-known half-open house, pages 12-48, - and so on"),
    "hyphens for dashes": _claiming({"–": "-"}, line="The pages 12–48 – and 305–2041 – of it"),
    "minus for hyphen": _claiming({"-": "\u2212"}, line="A well-known half-open house, pages 12-48, - and so on"),
    "soft hyphens": _claiming({"-": "\u00ad"}, line="A well-known half-open house, pages 12-48, - and so on"),
    "hyphens that cannot be broken": _claiming({"-": "\u2011"}, line="A well-known half-open house, pages 12-48"),
    "primes for quotes": _claiming({"’": "′", "”": "″"}, line="The reader’s book is 12” wide and the writer’s 48”"),
    "straight quotes for curly ones": _claiming(
        {"’": "'", "“": '"', "”": '"'}, line="The reader’s “book” and the writer’s “letter”"
    ),
    "quotes turned": _claiming({"“": "”", "”": "“"}, line="The reader’s “book” and the writer’s “letter”"),
    "accents dropped": _claiming({"é": "e", "ü": "u", "ß": "B"}, line="Café, über, Straße, Café, über, Straße"),
    "accents in two characters": _claiming({"é": "e\u0301", "ü": "u\u0308"}, line="Café, über, Straße, Café, über"),
    "a wrong accent in two characters": _claiming({"é": "e\u0300"}, line="Café and Café and Café"),
    "an accent on every letter": _claiming({"z": "z\u0323"}),
    "nothing for sharp s": _claiming({"ß": "ss"}, line="Straße, Straße, Straße"),
    "ligatures that lost a letter": _claiming({"ﬁ": "f"}, line="The ﬁrst ﬁre is ﬁxed"),
    "ligatures swapped": _claiming({"ﬁ": "fl", "ﬂ": "fi"}, line="The ﬁrst ﬁre and the ﬂood"),
    "one letter that claims to be two": _claiming({"7": "70"}),
    "one letter that claims to be two, once": _claiming({"7": "70"}, line="It has 7 gardens", without="7"),
    "one letter that claims to be a word": _claiming({"x": "not x"}),
    "one letter that claims to be itself and a space": _claiming({"5": "5 "}, line="There are 151 of it and 252"),
    "letters that claim to be nothing": _claiming({"z": ""}),
    "a letter that claims to be a space": _claiming({"7": " "}),
    "a point that claims to be a space": _claiming({".": " "}),
    "a letter that claims to be a hard space": _claiming({"7": "\u00a0"}),
    "a letter that claims to be of no width": _claiming({"7": "\u200b"}),
    "a letter that claims to be a joiner": _claiming({"7": "\u2060"}),
    "a letter that claims to be a byte order mark": _claiming({"7": "\ufeff"}),
    "a letter that claims to be a soft hyphen": _claiming({"7": "\u00ad"}),
    "a letter that claims to be a combining accent": _claiming({"7": "\u0301"}),
    "a letter that claims to be a tab": _claiming({"7": "\t"}),
    "a letter that claims to be a line feed": _claiming({"7": "\n"}),
    "a letter that claims to be a variation selector": _claiming({"7": "\ufe0f"}),
    "a letter that turns the text around": _claiming({"7": "\u202e"}),
    "a space that claims to be a letter": _claiming({" ": "e"}),
    "a space that claims to be a hyphen": _claiming({" ": "-"}),
    "a space that claims to be nothing": _claiming({" ": "\u200b"}),
    "a CID font without a map": lambda: article(Font("cid", mapped=False))[0],
    "a CID TrueType font without a map": lambda: article(Font("cid_truetype", "cjk", mapped=False))[0],
    "a map in part": _claiming(dict.fromkeys("etaoin")),
    "a map in part of a CID font": _claiming(dict.fromkeys("etaoin"), "cid"),
    "a map of a CID font without one rare letter": _claiming({"z": None}, "cid"),
    "a rare pair swapped in a CID font": _claiming(swapped("qz"), "cid"),
    "a rare pair swapped in Type 3": _claiming(swapped("qz"), "type3"),
    "digits swapped in Type 3": _claiming(swapped("1738"), "type3"),
    "Type 3 without a map": lambda: article(Font("type3", mapped=False))[0],
    "private codes in a CID font": _claiming({a: chr(0xE000 + ord(a)) for a in LETTERS}, "cid"),
    "Hebrew for Latin letters": _claiming({a: chr(0x5D0 + ord(a) - 97) for a in string.ascii_lowercase}),
    "one Hebrew letter": _claiming({"z": "\u05d0"}),
    "Chinese for Latin letters": _claiming(dict(zip(string.ascii_lowercase, CHINESE, strict=False))),
}


def _two_fonts(kind: str, names: tuple[str | None, str | None], claims: Mapping[str, str | None]) -> Maker:
    """Half of the page in an honest font, its last blocks in another one, of the same shapes, that lies."""

    def make() -> Sheet:
        honest = Font(kind, name=names[0])  # type: ignore[arg-type]
        lying = Font(kind, name=names[1], claims=claims)  # type: ignore[arg-type]
        sheet, y = article(honest, num_blocks=3)
        article(lying, sheet=sheet, y=y, num_blocks=4, seed=2)
        return sheet

    return make


def _other_shapes(kind: str, names: tuple[str | None, str | None]) -> Maker:
    """The last block's font has other shapes at the same glyph ids, and claims what the honest one claims."""

    def make() -> Sheet:
        honest = Font(kind, name=names[0])  # type: ignore[arg-type]
        other = Font(kind, name=names[1], drawn_as=exchanged("qzea1738"))  # type: ignore[arg-type]
        sheet, y = article(honest, num_blocks=6)
        set_paragraph(sheet, y, paragraph(99), other)
        return sheet

    return make


for _names, _of in (
    (("ABCDEF+Same", "ABCDEF+Same"), "of one name"),
    (("ABCDEF+Same", "GHIJKL+Same"), "of one name but for the subset"),
    (("Same", "Same"), "of one name without a subset"),
):
    for _kind in ("type1", "cid"):
        LYING[f"two {_kind} fonts {_of}, one map lies"] = _two_fonts(_kind, _names, swapped("eaqz1738"))
        LYING[f"two {_kind} fonts {_of}, one map lies about one letter"] = _two_fonts(_kind, _names, swapped("z7"))
    LYING[f"two Type 3 fonts {_of}, one map lies"] = _two_fonts("type3", _names, swapped("eaqz1738"))


LYING["two Type 3 fonts without a name, the same ids are other letters"] = _other_shapes("type3", (None, None))


LYING["two Type 3 fonts of one name, the same ids are other letters"] = _other_shapes("type3", ("Same", "Same"))


def _in_a_form(names: tuple[str, str], *, inline: bool) -> Maker:
    """The font that lies is named in a form only."""

    def make() -> Sheet:
        honest = Font(name=names[0])
        lying = Font("type3", drawn_as=exchanged("eaqz1738"), name=names[1])
        sheet, y = article(honest, num_blocks=6)
        start = len(sheet.content)
        set_paragraph(sheet, y, paragraph(99), lying)
        content = b"\n".join(sheet.content[start:])
        del sheet.content[start:]
        sheet.use("XObject", "Fm", sheet.add(form_xobject(sheet, content, lying)))
        if not inline:
            sheet.hidden_fonts.append(lying)
        sheet.draw(b"/Fm Do")
        return sheet

    return make


LYING["a font of one name in a form"] = _in_a_form(("ABCDEF+Same", "ABCDEF+Same"), inline=False)


LYING["a font of another name in a form"] = _in_a_form(("ABCDEF+Same", "ABCDEG+Other"), inline=False)


@lie
def a_symbol_font_that_claims_letters() -> Sheet:
    symbols = Font("base14", "symb", letters=string.ascii_lowercase + " ", drawn_as=GREEK)
    sheet, y = article(Font(), num_blocks=6)
    set_lines(sheet, y, [[Part("abba gadebe mapele lapape wedada badabe pagade lampe", symbols)]])
    return sheet


@lie
def letters_that_the_font_does_not_have() -> Sheet:
    """A font that draws nothing for one of its letters."""
    font = Font("cid", undrawn="z")
    sheet, _ = article(font, num_blocks=6)
    for at, block in enumerate(sheet.blocks):
        lines = tuple(
            replace(line, letters=tuple(replace(a, text=a.text.replace("z", " ")) for a in line.letters))
            for line in block.lines
        )
        sheet.blocks[at] = replace(block, lines=lines)
    return sheet
