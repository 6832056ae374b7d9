"""Pages set letter by letter, of which it is known what a person sees there, whatever their text layer says.

Written by hand, object by object, so that a font may claim other characters than it draws, and letters may be drawn
and not be seen, or be seen and not be there.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import accumulate, pairwise
from typing import Literal, TypeAlias

import pymupdf

from tests.support.pdf_files import deflated, pdf, stream

Box: TypeAlias = tuple[float, float, float, float]
Kind = Literal["base14", "type1", "truetype", "cid", "cid_truetype", "type3"]
End = Literal["space", "hyphen dropped", "nothing"]

LETTERS = "".join(map(chr, range(32, 127))) + "ﬁﬂ–—’“”éüß§"
"""What a font made here has glyphs for, if nothing else is said."""

_BASE14 = {"helv": b"Helvetica", "tiro": b"Times-Roman", "tiit": b"Times-Italic", "cour": b"Courier", "symb": b"Symbol"}
_TYPE3_EM = 64
"""Height and width of a bitmap letter, in px."""


@cache
def _face(name: str) -> pymupdf.Font:
    return pymupdf.Font(name)


@cache
def _advance(face: str, letter: str) -> float:
    """In em."""
    return float(_face(face).glyph_advance(ord(letter)))


@dataclass(frozen=True, eq=False)
class Font:
    """A font in a PDF: an object of its own for each instance.

    face: PyMuPDF's name of the letters' shapes. claims: what the ToUnicode map says instead of the truth, by letter:
    any number of characters, or None for no entry. mapped: whether there is a ToUnicode map at all. name: BaseFont, or
    the Name of a Type 3 font. letters: which it has. drawn_as: letters that have other shapes (Type 3 and Symbol only),
    which are what a person sees. undrawn: a letter for which a CID font has no shape. Of a CID TrueType font: advances:
    what its file says instead of the truth, in em, by letter; raised: how far its letters are drawn above their line.
    """

    kind: Kind = "type1"
    face: str = "tiro"
    claims: Mapping[str, str | None] = field(default_factory=dict)
    mapped: bool = True
    name: str | None = None
    letters: str = LETTERS
    drawn_as: Mapping[str, str] = field(default_factory=dict)
    undrawn: str = ""
    advances: Mapping[str, float] = field(default_factory=dict)
    raised: float = 0.0

    def width(self, text: str) -> float:
        """In em."""
        return sum(_advance(self.face, self.shape(letter)) for letter in text)

    def shape(self, letter: str) -> str:
        """The letter whose shape is drawn."""
        return self.drawn_as.get(letter, letter)

    def shown(self, text: str) -> bytes:
        """The string that draws the text."""
        if self.kind in ("cid", "cid_truetype"):
            return b"<" + b"".join(b"%04X" % self._gid(letter) for letter in text) + b">"
        return b"<" + b"".join(b"%02X" % self.code(letter) for letter in text) + b">"

    def code(self, letter: str) -> int:
        if self.kind in ("cid", "cid_truetype"):
            return self._gid(letter)
        if letter.isascii():
            return ord(letter)
        return 128 + [other for other in self.letters if not other.isascii()].index(letter)

    def objects(self, first: int) -> list[bytes]:
        """The font's objects, numbered from `first`; the first is the font."""
        if self.kind == "type3":
            return self._type3(first)
        if self.kind in ("cid", "cid_truetype"):
            return self._composite(first)
        return self._simple(first)

    def _gid(self, letter: str) -> int:
        if letter in self.undrawn:
            return 0
        gid = _face(self.face).has_glyph(ord(letter))
        assert gid, f"{self.face} cannot draw {letter!r}"
        return int(gid)

    def _base_name(self) -> bytes:
        return (self.name or {"cjk": "ABCDEF+Fallback"}.get(self.face, f"ABCDEF+{self.face.title()}")).encode()

    def _to_unicode(self) -> bytes:
        entries = []
        for letter in self.letters:
            said = self.claims.get(letter, letter)
            if said is not None:
                digits = 4 if self.kind in ("cid", "cid_truetype") else 2
                entries.append(f"<{self.code(letter):0{digits}X}> <{said.encode('utf-16-be').hex()}>")
        low, high = ("0000", "FFFF") if self.kind in ("cid", "cid_truetype") else ("00", "FF")
        chunks = [entries[at : at + 100] for at in range(0, len(entries), 100)]
        body = "\n".join(f"{len(chunk)} beginbfchar\n" + "\n".join(chunk) + "\nendbfchar" for chunk in chunks)
        return deflated(
            "/CIDInit /ProcSet findresource begin 12 dict begin begincmap /CMapName /X def /CMapType 2 def\n"
            f"1 begincodespacerange <{low}> <{high}> endcodespacerange\n{body}\n"
            "endcmap CMapName currentdict /CMap defineresource pop end end".encode()
        )

    def _descriptor(self, file: bytes, flags: int) -> bytes:
        font = _face(self.face)
        return (
            b"<</Type /FontDescriptor /FontName /%s /Flags %d /FontBBox [-200 -300 1200 1000] /ItalicAngle 0"
            b" /Ascent %d /Descent %d /CapHeight 700 /StemV 80 %s>>"
            % (self._base_name(), flags, 1000 * font.ascender, 1000 * font.descender, file)
        )

    def _simple(self, first: int) -> list[bytes]:
        to_unicode = b"/ToUnicode %d 0 R" % (first + 1) if self.mapped else b""
        widths = b" ".join(b"%d" % (1000 * self.width(letter)) for letter in self._by_code())
        last = 31 + len(self._by_code())
        shape = b"/FirstChar 32 /LastChar %d /Widths [%s]" % (last, widths)
        subtype = b"TrueType" if self.kind == "truetype" else b"Type1"
        name = _BASE14[self.face] if self.kind == "base14" else self._base_name()
        if self.kind == "base14":
            return [
                b"<</Type /Font /Subtype /Type1 /BaseFont /%s %s %s %s>>" % (name, self._encoding(), shape, to_unicode),
                self._to_unicode(),
            ]
        if self.kind == "truetype":
            data, file, flags, encoding = _truetype(self.face, self._by_code()), b"/FontFile2 %d 0 R", 4, b""
            entries = b"/Length1 %d" % len(data)
        else:
            data, file, flags, encoding = _face(self.face).buffer, b"/FontFile3 %d 0 R", 32, self._encoding()
            entries = b"/Subtype /Type1C"
        return [
            b"<</Type /Font /Subtype /%s /BaseFont /%s %s %s %s /FontDescriptor %d 0 R>>"
            % (subtype, name, encoding, shape, to_unicode, first + 2),
            self._to_unicode(),
            self._descriptor(file % (first + 3), flags),
            _compressed(data, entries),
        ]

    def _encoding(self) -> bytes:
        if self.face == "symb":
            return b""
        names = b" ".join(b"/" + _GLYPH_NAMES.get(letter, letter.encode()) for letter in self._by_code())
        return b"/Encoding <</Type /Encoding /Differences [32 %s]>>" % names

    def _by_code(self) -> list[str]:
        """The letter at each code from 32 on; spaces where there is none."""
        by_code = {self.code(letter): letter for letter in self.letters}
        return [by_code.get(code, " ") for code in range(32, max(by_code) + 1)]

    def _composite(self, first: int) -> list[bytes]:
        to_unicode = b"/ToUnicode %d 0 R" % (first + 1) if self.mapped else b""
        widths = b" ".join(b"%d [%d]" % (self._gid(letter), 1000 * self.width(letter)) for letter in self.letters)
        if self.kind == "cid":
            subtype, file, extra = b"CIDFontType0", b"/FontFile3 %d 0 R", b""
            data, entries = _face(self.face).buffer, b"/Subtype /CIDFontType0C"
        else:
            subtype, file, extra = b"CIDFontType2", b"/FontFile2 %d 0 R", b"/CIDToGIDMap /Identity"
            data = _truetype(self.face, self.letters, self.advances, self.raised)
            entries = b"/Length1 %d" % len(data)
        return [
            b"<</Type /Font /Subtype /Type0 /BaseFont /%s /Encoding /Identity-H /DescendantFonts [%d 0 R] %s>>"
            % (self._base_name(), first + 2, to_unicode),
            self._to_unicode(),
            b"<</Type /Font /Subtype /%s /BaseFont /%s /CIDSystemInfo <</Registry (Adobe) /Ordering (Identity)"
            b" /Supplement 0>> /W [%s] /FontDescriptor %d 0 R %s>>"
            % (subtype, self._base_name(), widths, first + 3, extra),
            self._descriptor(file % (first + 4), 4),
            _compressed(data, entries),
        ]

    def _type3(self, first: int) -> list[bytes]:
        """Letters as bitmaps, as TeX once made them."""
        letters = self._by_code()
        glyphs = [stream(_bitmap_glyph(self.face, self.shape(letter))) for letter in letters]
        numbers = b" ".join(b"/g%d %d 0 R" % (at, first + 2 + at) for at in range(len(letters)))
        names = b" ".join(b"/g%d" % at for at in range(len(letters)))
        widths = b" ".join(b"%g" % (_TYPE3_EM * self.width(letter)) for letter in letters)
        return [
            b"<</Type /Font /Subtype /Type3 /FontBBox [0 -20 %d %d] /FontMatrix [%g 0 0 %g 0 0] /FirstChar 32"
            b" /LastChar %d /Widths [%s] /CharProcs <<%s>> /Encoding <</Type /Encoding /Differences [32 %s]>>"
            b" /Resources <<>> %s %s>>"
            % (
                *(_TYPE3_EM, _TYPE3_EM, 1 / _TYPE3_EM, 1 / _TYPE3_EM, 31 + len(letters), widths, numbers, names),
                b"/ToUnicode %d 0 R" % (first + 1) if self.mapped else b"",
                b"/Name /%s" % self.name.encode() if self.name else b"",
            ),
            self._to_unicode(),
            *glyphs,
        ]


def _compressed(data: bytes, entries: bytes) -> bytes:
    return deflated(data).replace(b"<<", b"<<" + entries + b" ", 1)


_GLYPH_NAMES = dict(
    zip(
        " !\"#$%&'()*+,-./0123456789:;<=>?@[\\]^_`{|}~ﬁﬂ–—’“”éüß§²³",
        b"space exclam quotedbl numbersign dollar percent ampersand quotesingle parenleft parenright asterisk "
        b"plus comma hyphen period slash zero one two three four five six seven eight nine colon semicolon "
        b"less equal greater question at bracketleft backslash bracketright asciicircum underscore grave "
        b"braceleft bar braceright asciitilde fi fl endash emdash quoteright quotedblleft quotedblright eacute "
        b"udieresis germandbls section twosuperior threesuperior".split(),
        strict=True,
    )
)
"""Adobe's; a letter's name is itself."""


@cache
def _subset(face: str) -> bytes:
    """The face's font file without the letters that no test uses; glyph ids stay."""
    with pymupdf.open() as document:
        page = document.new_page()
        page.insert_font(fontname="F", fontbuffer=_face(face).buffer)
        page.insert_text((50, 50), LETTERS + CHINESE + "■", fontname="F")
        document.subset_fonts()
        return bytes(document.extract_font(document.get_page_fonts(0)[0][0])[3])


def _truetype(
    face: str, by_code: Sequence[str], advances: Mapping[str, float] | None = None, raised: float = 0.0
) -> bytes:
    """A TrueType file whose character map is that of a Macintosh: codes from 32 to glyphs."""
    data = _subset(face)
    gids = [_face(face).has_glyph(ord(letter)) for letter in by_code]
    tables = {}
    for at in range(12, 12 + 16 * struct.unpack_from(">H", data, 4)[0], 16):
        tag, _, offset, length = struct.unpack_from(">4sLLL", data, at)
        tables[tag] = data[offset : offset + length]
    entries = struct.pack(f">HHHHH{len(gids)}H", 6, 10 + 2 * len(gids), 0, 32, len(gids), *gids)
    tables[b"cmap"] = struct.pack(">HHHHL", 0, 1, 1, 0, 12) + entries
    em = struct.unpack_from(">H", tables[b"head"], 18)[0]
    metrics = bytearray(tables[b"hmtx"])
    for letter, advance in (advances or {}).items():
        struct.pack_into(">H", metrics, 4 * _face(face).has_glyph(ord(letter)), round(em * advance))
    tables[b"hmtx"] = bytes(metrics)
    if raised:
        _raise(tables, gids, round(em * raised))
    offset = 12 + 16 * len(tables)
    head, body = struct.pack(">LHHHH", 0x00010000, len(tables), 0, 0, 0), b""
    for tag, table in sorted(tables.items()):
        head += struct.pack(">4sLLL", tag, 0, offset + len(body), len(table))
        body += table + bytes(-len(table) % 4)
    return head + body


def _raise(tables: dict[bytes, bytes], gids: Sequence[int], by: int) -> None:
    """Draw these glyphs higher, by so many of the file's units: each becomes one that is made of its old self."""
    offsets = struct.unpack(f">{len(tables[b'loca']) // 4}L", tables[b"loca"])
    glyphs = [tables[b"glyf"][start:end] for start, end in pairwise(offsets)]
    for gid in {gid for gid in gids if glyphs[gid]}:
        x0, y0, x1, y1 = struct.unpack_from(">4h", glyphs[gid], 2)
        glyphs.append(glyphs[gid])
        moved = struct.pack(">5hHHhh", -1, x0, y0 + by, x1, y1 + by, 3, len(glyphs) - 1, 0, by)
        glyphs[gid] = moved + bytes(-len(moved) % 4)
    tables[b"loca"] = struct.pack(f">{len(glyphs) + 1}L", *accumulate(map(len, glyphs), initial=0))
    tables[b"glyf"] = b"".join(glyphs)
    tables[b"maxp"] = tables[b"maxp"][:4] + struct.pack(">H", len(glyphs)) + tables[b"maxp"][6:]
    tables[b"hmtx"] += bytes(2 * (len(glyphs) + 1 - len(offsets)))


def bitmap_letters(face: str, text: str, x: float, y: float, size: float) -> bytes:
    """Operators that draw the text as images. x, y: of its origin, y upwards."""
    operators = []
    for letter in text:
        scale = size / _TYPE3_EM
        operators.append(b"q %g 0 0 %g %g %g cm %s Q" % (scale, scale, x, y, _bitmap(face, letter)))
        x += size * _advance(face, letter)
    return b"\n".join(operators)


def _bitmap_glyph(face: str, letter: str) -> bytes:
    """The letter as a Type 3 glyph."""
    em = _TYPE3_EM
    width = em * _advance(face, letter)
    return b"%g 0 %g %g %g %g d1 %s" % (width, -em / 4, -em / 2, 1.75 * em, 1.5 * em, _bitmap(face, letter))


@cache
def _bitmap(face: str, letter: str) -> bytes:
    """Operators that draw the letter as an image of bits, so large that its em is _TYPE3_EM."""
    em = _TYPE3_EM
    with pymupdf.open() as document:
        page = document.new_page(width=2 * em, height=2 * em)
        writer = pymupdf.TextWriter(page.rect)
        writer.append((em / 4, 1.5 * em), letter, _face(face), em)
        writer.write_text(page)
        picture = page.get_pixmap(colorspace=pymupdf.csGRAY)
    rows = b""
    for y in range(picture.height):
        row = picture.samples[y * picture.stride : y * picture.stride + picture.width]
        bits = "".join("0" if grey < 128 else "1" for grey in row)
        rows += int(bits, 2).to_bytes(picture.width // 8, "big")
    return b"q %d 0 0 %d %g %g cm BI /W %d /H %d /IM true /BPC 1 /F /AHx ID %s> EI Q" % (
        *(2 * em, 2 * em, -em / 4, -em / 2, 2 * em, 2 * em, rows.hex().encode()),
    )


CHINESE = "的一是不了在人有我他这中大来上国个到说们"


# --- what is drawn, and what is seen ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """A piece of a line. text: what is drawn, by glyph. seen: what a person sees of it, if that is something else: one
    string for each letter drawn. gap: pt left out before it. size, rise: in pt. before, after: operators around it.
    alone: drawn without moving on. drawn: if not, it is only seen, because something else is drawn there.
    stretch: how much wider than usual."""

    text: str
    font: Font
    seen: Sequence[str] | None = None
    gap: float = 0.0
    size: float | None = None
    rise: float = 0.0
    before: bytes = b""
    after: bytes = b""
    alone: bool = False
    drawn: bool = True
    stretch: float = 1.0

    def width(self, size: float) -> float:
        """In pt. size: of the line."""
        return self.font.width(self.text) * (self.size or size) * self.stretch


@dataclass(frozen=True)
class SeenLetter:
    """text: what a person sees, "" for nothing. box: of the glyph, from the font's descender to its ascender."""

    text: str
    box: Box


@dataclass(frozen=True)
class SeenLine:
    letters: tuple[SeenLetter, ...]
    end: End = "space"


@dataclass(frozen=True)
class SeenBlock:
    """A block as a layout that never errs finds it. box: in pt of the page shown; angle: clockwise."""

    type: str
    box: Box
    lines: tuple[SeenLine, ...]
    angle: int = 0

    @property
    def text(self) -> str:
        """As a model that never errs reads it."""
        return joined(self.lines)


def joined(lines: Sequence[SeenLine]) -> str:
    text = ""
    for at, line in enumerate(lines):
        text += " ".join("".join(letter.text for letter in line.letters).split())
        if at < len(lines) - 1:
            text = text.removesuffix("-") if line.end == "hyphen dropped" else text
            text += " " if line.end == "space" else ""
    return text


@dataclass(frozen=True)
class Sheet:
    """A page to be, measured as it is shown: pt from its top left corner.

    turn: degrees clockwise by which all of it is turned. rotate: the page's /Rotate. margin: pt around the crop box.
    unit: /UserUnit. hidden_fonts: those that are in no resources of the page itself.
    """

    width: float = 400.0
    height: float = 760.0
    turn: int = 0
    rotate: int = 0
    margin: float = 0.0
    unit: float = 1.0
    blocks: list[SeenBlock] = field(default_factory=list)
    content: list[bytes] = field(default_factory=list)
    fonts: dict[Font, bytes] = field(default_factory=dict)
    hidden_fonts: list[Font] = field(default_factory=list)
    objects: list[bytes] = field(default_factory=list)
    resources: dict[str, dict[str, bytes]] = field(default_factory=dict)
    annotations: list[bytes] = field(default_factory=list)
    catalogue: list[bytes] = field(default_factory=list)

    def draw(self, *operators: bytes) -> None:
        self.content.extend(operators)

    def add(self, body: bytes) -> bytes:
        """Add an object. Returns a reference to it."""
        self.objects.append(body)
        return b"%d 0 R" % (_FIRST_OBJECT + len(self.objects) - 1)

    def use(self, category: str, name: str, value: bytes) -> None:
        """Name a resource, as `/GS1` in `ExtGState`."""
        self.resources.setdefault(category, {})[name] = value

    def font_name(self, font: Font) -> bytes:
        if font not in self.fonts:
            first = _FIRST_OBJECT + len(self.objects)
            self.objects.extend(font.objects(first))
            self.fonts[font] = b"/F%d %d 0 R" % (len(self.fonts), first)
        return self.fonts[font].split()[0]

    def reference(self, font: Font) -> bytes:
        """The font's entry in resources."""
        self.font_name(font)
        return self.fonts[font]

    def box(self, box: Box) -> bytes:
        """Operands of `re`."""
        x0, y0, x1, y1 = box
        return b"%g %g %g %g" % (x0, self.height - y1, x1 - x0, y1 - y0)

    def line(self, x: float, baseline: float, parts: Sequence[Part], size: float, end: End = "space") -> SeenLine:
        """Draw a line. Returns what is seen of it."""
        letters: list[SeenLetter] = []
        for part in parts:
            x += part.gap
            drawn, seen = self.piece(x, baseline, part, part.size or size)
            self.draw(drawn if part.drawn else part.before + part.after)
            letters += seen
            x += 0.0 if part.alone else part.width(size)
        return SeenLine(tuple(letters), end)

    def piece(self, x: float, baseline: float, part: Part, size: float) -> tuple[bytes, list[SeenLetter]]:
        """The operators of one piece, and what is seen of it."""
        where = b"%g 0 0 1 %.4f %.4f Tm" % (part.stretch, x, self.height - baseline + part.rise)
        drawn = b"%s BT %s %g Tf %s %s Tj ET %s" % (
            *(part.before, self.font_name(part.font), size, where, part.font.shown(part.text), part.after),
        )
        face, letters = _face(part.font.face), []
        top, bottom = baseline - part.rise - face.ascender * size, baseline - part.rise - face.descender * size
        for letter, seen in zip(
            part.text, part.seen if part.seen is not None else map(part.font.shape, part.text), strict=True
        ):
            width = part.font.width(letter) * size * part.stretch
            letters.append(SeenLetter(seen, (x, top, x + width, bottom)))
            x += width
        return drawn, letters

    def set_block(self, lines: Sequence[SeenLine], type: str = "text", angle: int = 0) -> SeenBlock:
        """A block around these lines."""
        boxes = [letter.box for line in lines for letter in line.letters if letter.text.strip()]
        box = (
            min(box[0] for box in boxes) - 2,
            min(box[1] for box in boxes) - 1,
            max(box[2] for box in boxes) + 2,
            max(box[3] for box in boxes) + 1,
        )
        self.blocks.append(SeenBlock(type, box, tuple(lines), angle))
        return self.blocks[-1]

    def finished(self) -> tuple[bytes, list[SeenBlock]]:
        """The PDF, and its blocks on the page as it is shown."""
        width, height = (self.width, self.height) if self.turn % 180 == 0 else (self.height, self.width)
        assert all(block.box[3] <= self.height for block in self.blocks), "there is more than the page has room for"
        blocks = [_turned(block, self.turn, self.width, self.height) for block in self.blocks]
        return self._pdf(width, height), blocks

    def _pdf(self, width: float, height: float) -> bytes:
        """width, height: as shown."""
        turn = (self.turn - self.rotate) % 360  # of the content on the page as it is stored
        stored = (width, height) if self.rotate % 180 == 0 else (height, width)
        w, h = self.width, self.height
        turning = {
            0: (1, 0, 0, 1, 0, 0),
            90: (0, -1, 1, 0, 0, w),
            180: (-1, 0, 0, -1, w, h),
            270: (0, 1, -1, 0, h, 0),
        }[turn]
        m = self.margin
        content = b"1 0 0 1 %g %g cm %g %g %g %g %g %g cm\n" % (m, m, *turning) + b"\n".join(self.content)
        named = [reference for font, reference in self.fonts.items() if font not in self.hidden_fonts]
        resources = [b"/Font <<%s>>" % b" ".join(named)]
        for category, entries in self.resources.items():
            inner = b" ".join(b"/%s %s" % (name.encode(), value) for name, value in entries.items())
            resources.append(b"/%s <<%s>>" % (category.encode(), inner))
        page = (
            b"<</Type /Page /Parent 2 0 R /MediaBox [0 0 %g %g] /CropBox [%g %g %g %g] /Rotate %d /UserUnit %g"
            b" /Contents 4 0 R /Resources <<%s>> /Annots [%s]>>"
            % (
                *(stored[0] + 2 * m, stored[1] + 2 * m, m, m, m + stored[0], m + stored[1], self.rotate, self.unit),
                *(b" ".join(resources), b" ".join(self.annotations)),
            )
        )
        return pdf(
            b"<</Type /Catalog /Pages 2 0 R %s>>" % b" ".join(self.catalogue),
            b"<</Type /Pages /Kids [3 0 R] /Count 1>>",
            page,
            deflated(content),
            *self.objects,
        )


_FIRST_OBJECT = 5


def _turned(block: SeenBlock, turn: int, width: float, height: float) -> SeenBlock:
    """The block where it is when the page, so wide and high before, has been turned clockwise."""

    def of(box: Box) -> Box:
        x0, y0, x1, y1 = box
        if turn == 90:
            return (height - y1, x0, height - y0, x1)
        if turn == 180:
            return (width - x1, height - y1, width - x0, height - y0)
        return (y0, width - x1, y1, width - x0) if turn == 270 else box

    lines = tuple(
        replace(line, letters=tuple(replace(letter, box=of(letter.box)) for letter in line.letters))
        for line in block.lines
    )
    return replace(block, box=of(block.box), lines=lines, angle=(block.angle + turn) % 360)
