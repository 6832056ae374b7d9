"""Pages with letters that are there and not seen, that are seen and not there, or that other ink makes others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.support.drawn_text import Font, Part, Sheet, bitmap_letters
from tests.support.prose import article, set_within
from tests.support.set_pages import BRIDGE, LYING, PAID, WHITE_PIXEL, Maker, form_xobject, lie, victim


def _hidden_in_the_line(before: bytes, after: bytes, *, resource: tuple[str, str, bytes] | None = None) -> list[Maker]:
    """A digit that nobody sees: in a space wide enough; over a letter that is seen; close by one."""

    def makers(place: str) -> Maker:
        def parts(font: Font, sheet: Sheet, baseline: float) -> list[Part]:
            sheet.content.insert(0, b"q 1 g 0 0 400 760 re f Q")  # something to blend with
            if resource:
                sheet.use(*resource)
            hidden = Part("0", font, seen=[""], before=b"q " + before, after=after + b" Q", alone=True)
            if place == "in a gap":
                return [Part(PAID, font), hidden, Part(BRIDGE, font, gap=7)]
            if place == "over a letter":
                return [Part(PAID[:-1], font), hidden, Part("7" + BRIDGE, font)]
            if place == "half over a letter":
                return [Part(PAID[:-1], font), replace(hidden, gap=2.5), Part("7" + BRIDGE, font, gap=-2.5)]
            return [Part(PAID, font), replace(hidden, gap=-0.6), Part(BRIDGE, font, gap=5.5)]

        return victim(parts)

    return [makers(place) for place in _PLACES]


_PLACES = ("in a gap", "over a letter", "half over a letter", "close by a letter")


for _how, _made in {
    "of mode 3": _hidden_in_the_line(b"3 Tr", b"0 Tr"),
    "white on white": _hidden_in_the_line(b"1 g", b""),
    "nearly white": _hidden_in_the_line(b"0.985 g", b""),
    "with alpha 0": _hidden_in_the_line(b"/GS gs", b"", resource=("ExtGState", "GS", b"<</ca 0>>")),
    "with alpha 0.01": _hidden_in_the_line(b"/GS gs", b"", resource=("ExtGState", "GS", b"<</ca 0.01>>")),
    "blended away": _hidden_in_the_line(b"/GS gs", b"", resource=("ExtGState", "GS", b"<</BM /Lighten>>")),
    "clipped away": _hidden_in_the_line(b"0 0 1 1 re W n", b""),
    "clipped to nothing": _hidden_in_the_line(b"0 0 0 0 re W n", b""),
    "of mode 7": _hidden_in_the_line(b"7 Tr", b""),
    "an outline of no colour": _hidden_in_the_line(b"1 Tr 1 G", b""),
    "stroked with alpha 0": _hidden_in_the_line(b"1 Tr /GS gs", b"", resource=("ExtGState", "GS", b"<</CA 0>>")),
}.items():
    for _place, _maker in zip(_PLACES, _made, strict=True):
        LYING[f"a digit {_how}, {_place}"] = _maker


def _hidden_by_an_object(place: str, how: str) -> Maker:
    """The same by ways that need objects of their own."""

    def parts(font: Font, sheet: Sheet, baseline: float) -> list[Part]:
        x = 40 + 10 * font.width(PAID if place == "in a gap" else PAID[:-1])
        hidden, _ = sheet.piece(x + (1 if place == "in a gap" else 0), baseline, Part("0", font), 10.0)
        if how == "of an optional group that is off":
            group = sheet.add(b"<</Type /OCG /Name (off)>>")
            sheet.catalogue.append(b"/OCProperties <</OCGs [%s] /D <</OFF [%s]>>>>" % (group, group))
            sheet.use("Properties", "OC1", group)
            sheet.draw(b"/OC /OC1 BDC", hidden, b"EMC")
        elif how == "in a group of alpha 0":
            sheet.use("ExtGState", "GS", b"<</ca 0 /CA 0>>")
            sheet.use("XObject", "Fm", sheet.add(form_xobject(sheet, hidden, font, b"/Group <</S /Transparency>>")))
            sheet.draw(b"q /GS gs /Fm Do Q")
        else:
            mask = sheet.add(
                form_xobject(sheet, b"0 g 0 0 400 760 re f", font, b"/Group <</S /Transparency /CS /DeviceGray>>")
            )
            sheet.use("ExtGState", "GS", b"<</SMask <</S /Luminosity /G %s>>>>" % mask)
            sheet.draw(b"q /GS gs", hidden, b"Q")
        return [Part(PAID, font), Part(BRIDGE, font, gap=7 if place == "in a gap" else 0)]

    return victim(parts)


for _place in ("in a gap", "over a letter"):
    for _how in ("of an optional group that is off", "in a group of alpha 0", "under a soft mask"):
        LYING[f"a digit {_how}, {_place}"] = _hidden_by_an_object(_place, _how)


def _covered(cover: str, with_what: str) -> Maker:
    """The number drawn is covered, and another one is seen in its place, or none."""

    def parts(font: Font, sheet: Sheet, baseline: float) -> list[Part]:
        number = Part("1876", font, seen=list("2041") if with_what == "another number" else [""] * 4)
        x = 40 + 10 * font.width(PAID[:-3])
        box = (x - 0.3, baseline - 8, x + 20.3, baseline + 2.5)
        white = b"q 1 g %s re f Q" % sheet.box(box)
        if cover == "an image":
            sheet.use("XObject", "Im", sheet.add(WHITE_PIXEL))
            white = b"q 20.6 0 0 10.5 %g %g cm /Im Do Q" % (box[0], sheet.height - box[3])
        elif cover == "a large letter":
            square, drawn = Font("cid_truetype", "cjk", letters="■", name="ABCDEF+Squares"), b""
            for at in range(4):
                piece, _ = sheet.piece(box[0] - 4 + 6 * at, baseline + 1.8, Part("■", square), 14.0)
                drawn += piece
            white = b"q 1 g " + drawn + b" Q"
        elif cover == "a thick line":
            middle = sheet.height - (box[1] + box[3]) / 2
            white = b"q 1 G 10.5 w %g %g m %g %g l S Q" % (box[0], middle, box[2], middle)
        elif cover == "a shading":
            shading = b"<</ShadingType 2 /ColorSpace /DeviceGray /Coords [0 0 400 0] /Extend [true true] /Function"
            sheet.use("Shading", "Sh", shading + b" <</FunctionType 2 /Domain [0 1] /C0 [1] /C1 [1] /N 1>>>>")
            white = b"q %s re W n /Sh sh Q" % sheet.box(box)
        other = bitmap_letters("tiro", "2041", x, sheet.height - baseline, 10.0)
        after = white + b" " + (other if with_what == "another number" else b"")
        if cover == "an annotation":
            look = form_xobject(sheet, after, font)
            sheet.annotations.append(
                b"<</Type /Annot /Subtype /Stamp /F 4 /Rect [0 0 400 760] /AP <</N %s>>>>" % sheet.add(look)
            )
            after = b""
        return [Part(PAID[:-3], font), replace(number, after=after), Part(BRIDGE, font)]

    return victim(parts)


for _cover in ("a rectangle", "an image", "a large letter", "a thick line", "a shading", "an annotation"):
    for _what in ("another number", "nothing"):
        LYING[f"a number under {_cover} with {_what}"] = _covered(_cover, _what)


def _changed(
    operators: Callable[[float, float, float], bytes], drawn: str, seen: str, *, face: str = "tiro"
) -> dict[float, Maker]:
    """A letter made another by what is drawn upon it, by size of the text. operators: by the letter's left end and
    baseline, y upwards, and a factor."""

    def of_size(size: float) -> Maker:
        def make() -> Sheet:
            font = Font(face=face)
            sheet, y = article(font, num_blocks=6)
            x = 40 + size * font.width("The expert asked a ")

            def parts(baseline: float) -> list[Part]:
                after = operators(x, sheet.height - baseline, size / 10)
                letter = Part(drawn, font, seen=[seen], after=after)
                return [Part("The expert asked a ", font), letter, Part(" question of the", font)]

            set_within(sheet, y, parts, font, size)
            return sheet

        return make

    return {size: of_size(size) for size in (10.0, 7.0, 5.0)}


def _strokes(
    *segments: tuple[float, float, float, float], width: float = 0.8
) -> Callable[[float, float, float], bytes]:
    """Lines relative to the letter's origin, at 10 pt."""

    def operators(x: float, y: float, k: float) -> bytes:
        lines = b" ".join(
            b"%g %g m %g %g l S" % (x + k * a, y + k * b, x + k * c, y + k * d) for a, b, c, d in segments
        )
        return b" q %g w %s Q" % (k * width, lines)

    return operators


def _white_patch(a: float, b: float, c: float, d: float) -> Callable[[float, float, float], bytes]:
    """A white rectangle relative to the letter's origin, at 10 pt."""
    return lambda x, y, k: b" q 1 g %g %g %g %g re f Q" % (x + k * a, y + k * b, k * (c - a), k * (d - b))


for _name, _sizes in {
    "dots drawn over a u": _changed(_strokes((1.2, 6, 2, 6), (3, 6, 3.8, 6)), "u", "ü"),
    "an accent drawn over an e": _changed(_strokes((2, 5.6, 3.2, 7)), "e", "é"),
    "a bar drawn through an o": _changed(_strokes((0.5, -0.5, 4.5, 5.2), width=0.5), "o", "ø"),
    "a bar drawn across a c": _changed(_strokes((0.8, 2.6, 4, 2.6), width=0.4), "c", "e"),
    "a stem drawn down a hyphen": _changed(_strokes((1.6, 0.8, 1.6, 4)), "-", "+"),
    "a bar drawn under an F": _changed(_strokes((0.3, 0.3, 5.3, 0.3)), "F", "E"),
    "a tail drawn on an O": _changed(_strokes((4, 2, 6.5, -1)), "O", "Q"),
    "a tail drawn on a point": _changed(_strokes((1.4, 0.3, 0.9, -1.2), width=0.45), ".", ","),
    "a point drawn behind a letter": _changed(_strokes((4.5, 0.4, 5.2, 0.4)), "a", "a."),
    "a slash drawn through a 0": _changed(_strokes((1.4, 0.8, 3.6, 6), width=0.4), "0", "ø"),
    "a c closed to an o": _changed(_strokes((4.0, 1.2, 4.0, 3.6), width=0.6), "c", "o"),
    "a u closed to an o": _changed(_strokes((1, 4.4, 4, 4.4), width=0.5), "u", "o"),
    "an n with a longer stem": _changed(_strokes((1.0, 4, 1.0, 6.6), width=0.7), "n", "h"),
    "a tail drawn on a C": _changed(_strokes((5.9, 0.4, 5.9, 3), width=0.6), "C", "G"),
    "a leg drawn on a P": _changed(_strokes((2.5, 3.3, 5.3, 0.2), width=0.7), "P", "R"),
    "a 3 closed to an 8": _changed(_strokes((0.6, 1.3, 0.6, 2.6), (0.6, 4.2, 0.6, 5.6), width=0.6), "3", "8"),
    "a 1 crossed to a t": _changed(_strokes((0.3, 4.3, 2.6, 4.3), width=0.4), "l", "t"),
    "the foot of an E covered": _changed(_white_patch(2.6, -0.5, 6.5, 1.6), "E", "F"),
    "the tail of a Q covered": _changed(_white_patch(0, -2.5, 7.5, -0.15), "Q", "O"),
    "the tail of a comma covered": _changed(_white_patch(-0.2, -2, 2.5, -0.1), ",", "."),
    "the dot of an i covered": _changed(_white_patch(0, 5.2, 3, 7.5), "i", "ı"),
    "the hook of a G covered": _changed(_white_patch(4, 0.8, 7.2, 4), "G", "C"),
    "the bar of an e covered": _changed(_white_patch(1.1, 2.35, 3.2, 3.0), "e", "c"),
    "a point covered": _changed(_white_patch(-0.2, -0.5, 2.7, 2), ".", ""),
    "a hyphen covered": _changed(_white_patch(-0.2, 1, 3.5, 4), "-", ""),
}.items():
    for _size, _maker in _sizes.items():
        LYING[f"{_name}, {_size:g} pt"] = _maker


def _clipped_letter(drawn: str, seen: str, box: tuple[float, float, float, float]) -> Maker:
    def parts(font: Font, sheet: Sheet, baseline: float) -> list[Part]:
        x, y = 40 + 10 * font.width("The expert asked a "), sheet.height - baseline
        a, b, c, d = box
        clip = b"q %g %g %g %g re W n" % (x + a, y + b, c - a, d - b)
        return [
            Part("The expert asked a ", font),
            Part(drawn, font, seen=[seen], before=clip, after=b"Q"),
            Part(" question", font),
        ]

    return victim(parts)


LYING |= {
    "a Q clipped to an O": _clipped_letter("Q", "O", (-1, -0.15, 9, 8)),
    "an E clipped to an F": _clipped_letter("E", "F", (-1, 1.0, 9, 8)),
    "an i clipped of its dot": _clipped_letter("i", "ı", (-1, -1, 4, 5.0)),
    "a w clipped to a v": _clipped_letter("w", "v", (-1, -1, 4.4, 8)),
}


def _by_matrix(drawn: str, seen: str, matrix: str) -> Maker:
    """A letter drawn mirrored or turned in its place. matrix: of a, b, c, d and the origin's shift in em."""

    def parts(font: Font, sheet: Sheet, baseline: float) -> list[Part]:
        x, y = 40 + 10 * font.width("The expert asked a "), sheet.height - baseline
        width = 10 * font.width(drawn)
        a, b, c, d, dx, dy = (float(number) for number in matrix.split())
        operators = b"BT %s 10 Tf %g %g %g %g %g %g Tm %s Tj ET" % (
            *(sheet.font_name(font), a, b, c, d, x + dx * width, y + dy * 10, font.shown(drawn)),
        )
        sheet.draw(operators)
        instead = Part(drawn, font, seen=[seen], drawn=False)
        return [Part("The expert asked a ", font), instead, Part(" question", font)]

    return victim(parts)


LYING |= {
    "a b upside down": _by_matrix("b", "p", "1 0 0 -1 0 0.45"),
    "a b in the mirror": _by_matrix("b", "d", "-1 0 0 1 1 0"),
    "a 6 turned around": _by_matrix("6", "9", "-1 0 0 -1 1 0.66"),
    "an n turned around": _by_matrix("n", "u", "-1 0 0 -1 1 0.45"),
    "an N on its side": _by_matrix("N", "Z", "0 1 -1 0 1 0"),
    "a 1 as flat as a hyphen": _by_matrix("l", "-", "1 0 0 0.08 0 0.2"),
}


@lie
def a_word_that_is_drawn_as_a_picture() -> Sheet:
    """There is no character for it."""

    def parts(font: Font, sheet: Sheet, baseline: float) -> list[Part]:
        x = 40 + 10 * font.width("The village did")
        picture = bitmap_letters("tiro", " not", x, sheet.height - baseline, 10.0)
        return [
            Part("The village did", font),
            Part(" not", font, drawn=False, after=picture),
            Part(" pay for it", font),
        ]

    return victim(parts)()


@lie
def a_digit_that_is_drawn_as_a_picture() -> Sheet:
    def parts(font: Font, sheet: Sheet, baseline: float) -> list[Part]:
        x = 40 + 10 * font.width("The village paid 18")
        picture = bitmap_letters("tiro", "7", x, sheet.height - baseline, 10.0)
        return [Part("The village paid 18", font), Part("7", font, drawn=False, after=picture), Part(BRIDGE, font)]

    return victim(parts)()


@lie
def a_minus_that_is_drawn_as_a_line() -> Sheet:
    def parts(font: Font, sheet: Sheet, baseline: float) -> list[Part]:
        x, y = 40 + 10 * font.width("It was "), sheet.height - baseline + 2.6
        minus = b"q 0.6 w %g %g m %g %g l S Q" % (x + 0.5, y, x + 2.8, y)
        return [Part("It was ", font), Part("-", font, drawn=False, after=minus), Part("12 that morning", font)]

    return victim(parts)()


@lie
def a_point_that_is_drawn_as_a_square() -> Sheet:
    def parts(font: Font, sheet: Sheet, baseline: float) -> list[Part]:
        x, y = 40 + 10 * font.width("It was 12"), sheet.height - baseline
        point = b"%g %g 1 1 re f" % (x + 0.7, y)
        return [Part("It was 12", font), Part(".", font, drawn=False, after=point), Part("48 that morning", font)]

    return victim(parts)()


@lie
def a_line_that_is_struck_out() -> Sheet:
    """What is struck out is still seen; the model may read it. No lie, if it is read so."""

    def parts(font: Font, sheet: Sheet, baseline: float) -> list[Part]:
        y = sheet.height - baseline + 2.5
        return [Part("The village paid 1876", font, after=b"q 0.5 w 40 %g m 140 %g l S Q" % (y, y))]

    return victim(parts)()
