"""Write the documents of `sample_data/documents/`: run `python sample_data/make_documents.py`.

All words and drawings are ours. The bytes are the same on every run with the same PyMuPDF and Pillow, except those of
`encrypted.pdf`, whose keys are random. Lengths are in PDF points; y grows downwards.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from pathlib import Path

import documents_text as text
import pymupdf
from PIL import Image, ImageChops, ImageFilter

DOCUMENTS = Path(__file__).parent / "documents"
PASSWORD = "batchocr"
A4 = pymupdf.paper_rect("a4")
MARGIN = 72.0
ROMAN, BOLD, ITALIC, SANS, TYPED = (pymupdf.Font(name) for name in ("tiro", "tibo", "tiit", "hebo", "cour"))
DATE = "D:20240401090000Z"


class Sheet:
    """A page being set from top to bottom. `y` is the baseline of the next line."""

    def __init__(self, document: pymupdf.Document, *, top: float = 100.0) -> None:
        self.page = document.new_page(width=A4.width, height=A4.height)
        self.writer = pymupdf.TextWriter(self.page.rect)
        self.y = top

    def text(self, x: float, y: float, words: str, font: pymupdf.Font = ROMAN, size: float = 10.5) -> float:
        """Set words starting at x and return the x where they end."""
        self.writer.append((x, y), words, font=font, fontsize=size)
        return x + font.text_length(words, fontsize=size)

    def aligned(self, y: float, words: str, font: pymupdf.Font, size: float, *, share: float) -> None:
        """Set words between the margins: share 0 is flush left, 0.5 centred, 1 flush right."""
        free = A4.width - 2 * MARGIN - font.text_length(words, fontsize=size)
        self.text(MARGIN + share * free, y, words, font, size)

    def heading(self, words: str, size: float = 13.0) -> None:
        self.y += size
        self.text(MARGIN, self.y, words, BOLD, size)
        self.y += size + 6

    def paragraph(
        self,
        words: str,
        *,
        x: float = MARGIN,
        width: float = A4.width - 2 * MARGIN,
        font: pymupdf.Font = ROMAN,
        size: float = 10.5,
        justify: bool = True,
        continues: bool = False,
    ) -> None:
        """Set a paragraph below the last one. continues: it ends elsewhere, so its last line here is full too."""
        lines = break_lines(words, width, font, size)
        for number, line in enumerate(lines):
            full = justify and (continues or number < len(lines) - 1)
            gap = font.text_length(" ", fontsize=size)
            if full and len(line) > 1:
                gap = (width - sum(font.text_length(word, fontsize=size) for word in line)) / (len(line) - 1)
            place = x
            for word in line:
                place = self.text(place, self.y, word, font, size) + gap
            self.y += size * 1.34
        self.y += size * 0.6

    def rule(self, x0: float, y0: float, x1: float, y1: float, width: float = 0.6) -> None:
        self.page.draw_line((x0, y0), (x1, y1), width=width)

    def close(self) -> pymupdf.Page:
        self.writer.write_text(self.page)
        return self.page


def break_lines(words: str, width: float, font: pymupdf.Font, size: float) -> list[list[str]]:
    """The words of each line, as many per line as fit."""
    lines: list[list[str]] = [[]]
    for word in words.split():
        if lines[-1] and font.text_length(" ".join([*lines[-1], word]), fontsize=size) > width:
            lines.append([])
        lines[-1].append(word)
    return lines


def save(document: pymupdf.Document, name: str, **options: object) -> Path:
    """Write a document with fixed dates and no random ID, its fonts reduced to the characters in use."""
    document.subset_fonts()
    document.set_metadata({"producer": "batchocr sample data", "creationDate": DATE, "modDate": DATE})
    path = DOCUMENTS / name
    document.save(path, garbage=4, deflate=True, no_new_id=True, **options)
    return path


def draw_running_lines(sheet: Sheet, header: str, footer: str, number: int) -> None:
    sheet.text(MARGIN, 50, header, SANS, 8)
    sheet.rule(MARGIN, 56, A4.width - MARGIN, 56)
    sheet.text(MARGIN, 802, footer, ITALIC, 8.5)
    sheet.aligned(802, str(number), ROMAN, 9.5, share=1.0)


def set_formula(sheet: Sheet, number: str) -> None:
    """Set tan θ = sin φ · tan(360° · t / 24), centred, with its number at the right margin."""
    sheet.y += 16
    baseline, size = sheet.y, 13.0
    x = 208.0
    for words, font in (("tan ", ROMAN), ("θ", ITALIC), ("  =  sin ", ROMAN), ("φ", ITALIC), ("  ·  tan", ROMAN)):
        x = sheet.text(x, baseline, words, font, size)
    x = sheet.text(x + 3, baseline + 4, "(", ROMAN, 25)
    sheet.text(x + 3, baseline - 7, "360°", ROMAN, 12)
    sheet.rule(x + 2, baseline - 3, x + 30, baseline - 3, 0.7)
    sheet.text(x + 10, baseline + 9, "24", ROMAN, 12)
    x = sheet.text(x + 35, baseline, "t", ITALIC, size)
    sheet.text(x + 2, baseline + 4, ")", ROMAN, 25)
    sheet.aligned(baseline, number, ROMAN, 10.5, share=1.0)
    sheet.y += 34


def draw_sundial(sheet: Sheet, caption: str, *, latitude: float = 52.0, radius: float = 118.0) -> None:
    """Draw a horizontal sundial from above, its hour lines placed by the formula, with a caption below."""
    foot = pymupdf.Point(A4.width / 2, sheet.y + radius + 22)
    page = sheet.page
    page.draw_rect((foot.x - radius - 26, sheet.y, foot.x + radius + 26, foot.y + 14), width=1.1)
    page.draw_sector(foot, foot + pymupdf.Point(radius * 0.86, 0), 180, fullSector=False, width=0.8)
    page.draw_sector(foot, foot + pymupdf.Point(radius * 0.22, 0), 180, fullSector=False, width=0.8)
    for hour, numeral in enumerate(("VI", "VII", "VIII", "IX", "X", "XI", "XII", "I", "II", "III", "IIII", "V", "VI")):
        hour_angle = math.radians(15 * (hour - 6))
        theta = math.atan2(math.sin(math.radians(latitude)) * math.sin(hour_angle), math.cos(hour_angle))
        toward = pymupdf.Point(math.sin(theta), -math.cos(theta))
        sheet.rule(*(foot + toward * (radius * 0.22)), *(foot + toward * (radius * 0.86)), 1.3 if hour == 6 else 0.7)
        place = foot + toward * (radius * 0.96)
        sheet.text(place.x - ROMAN.text_length(numeral, 9) / 2, place.y + 3, numeral, ROMAN, 9)
    tip = foot - pymupdf.Point(0, radius * 0.62)
    page.draw_polyline(
        [foot - pymupdf.Point(5, 0), tip, foot + pymupdf.Point(5, 0), foot - pymupdf.Point(5, 0)],
        fill=(0.45, 0.45, 0.45),
        width=0.5,
    )
    sheet.y = foot.y + 34
    sheet.aligned(sheet.y, caption, ITALIC, 9.5, share=0.5)
    sheet.y += 26


def draw_table(sheet: Sheet, rows: list[tuple[str, ...]], widths: tuple[float, ...]) -> None:
    """Draw a fully ruled table, centred, with a bold first row."""
    left = (A4.width - sum(widths)) / 2
    top, height = sheet.y, 19.0
    for number, row in enumerate(rows):
        x = left
        for words, width in zip(row, widths, strict=True):
            sheet.text(x + 7, top + number * height + 13, words, ROMAN if number else BOLD, 9.5)
            x += width
    bottom = top + len(rows) * height
    for number in range(len(rows) + 1):
        sheet.rule(left, top + number * height, left + sum(widths), top + number * height)
    for column in range(len(widths) + 1):
        x = left + sum(widths[:column])
        sheet.rule(x, top, x, bottom)
    sheet.y = bottom + 16


def make_article() -> None:
    """Two pages: title, headings, lists, a formula, a figure, a table, and a paragraph that crosses the page break."""
    document = pymupdf.open()
    first = Sheet(document)
    draw_running_lines(first, "THE WALLED GARDEN QUARTERLY", "Volume 12, spring number", 17)
    first.text(MARGIN, first.y, "How a Sundial Keeps Its Appointments", BOLD, 21)
    first.text(MARGIN, first.y + 22, "Orla Fennimore", ITALIC, 11.5)
    first.y += 38
    heading, *paragraphs = text.ARTICLE_OPENING
    first.heading(heading)
    first.paragraph(paragraphs[0])
    first.heading(paragraphs[1])
    first.paragraph(paragraphs[2])
    set_formula(first, "(1)")
    first.paragraph(paragraphs[3])
    draw_sundial(first, "Figure 1. The hour lines of a horizontal dial at 52 degrees north.")
    first.paragraph(paragraphs[4], continues=True)
    first.close()

    second = Sheet(document, top=86)
    draw_running_lines(second, "THE WALLED GARDEN QUARTERLY", "Volume 12, spring number", 18)
    carried_over, heading, before_table, note, list_heading, list_opening, building, ending, footnote = (
        text.ARTICLE_CLOSING
    )
    second.paragraph(carried_over)
    second.heading(heading)
    second.paragraph(before_table)
    second.aligned(second.y + 4, "Table 1. Minutes by which the sun is ahead of the clock.", ITALIC, 9.5, share=0.5)
    second.y += 14
    draw_table(second, text.ARTICLE_TABLE, (92.0, 92.0, 190.0))
    second.aligned(second.y - 2, note, ROMAN, 8.5, share=0.5)
    second.y += 8
    second.heading(list_heading)
    second.paragraph(list_opening)
    for item in text.ARTICLE_LIST:
        second.text(MARGIN + 12, second.y, "•")
        second.paragraph(item, x=MARGIN + 26, width=A4.width - 2 * MARGIN - 26, justify=False)
    second.paragraph(building)
    second.paragraph(ending)
    second.rule(MARGIN, 758, MARGIN + 110, 758)
    second.text(MARGIN, 771, footnote, ROMAN, 8.5)
    second.close()
    save(document, "article.pdf")


def make_two_columns() -> None:
    document = pymupdf.open()
    sheet = Sheet(document)
    draw_running_lines(sheet, "THE HARBOUR LANTERN", "Printed at the old ropewalk", 3)
    sheet.aligned(104, "A Bench for Watching Clouds", BOLD, 24, share=0.5)
    sheet.aligned(124, "by Tobias Merriwick, who has the time", ITALIC, 11, share=0.5)
    sheet.rule(MARGIN, 138, A4.width - MARGIN, 138)
    width = (A4.width - 2 * MARGIN - 22) / 2
    for column, parts in enumerate((text.COLUMNS_LEFT, text.COLUMNS_RIGHT)):
        x, sheet.y = MARGIN + column * (width + 22), 164.0
        for number, (kind, words) in enumerate(parts):
            if kind == "heading":
                sheet.text(x, sheet.y + 6, words, BOLD, 12)
                sheet.y += 24
            else:
                carried_on = column == 0 and number == len(parts) - 1
                sheet.paragraph(words, x=x, width=width, size=10.5, continues=carried_on)
    sheet.rule(A4.width / 2, 152, A4.width / 2, 770, 0.4)
    sheet.close()
    save(document, "two-columns.pdf")


def render_grey(pages: Iterable[pymupdf.Page], dpi: int) -> list[Image.Image]:
    pixmaps = [page.get_pixmap(dpi=dpi, colorspace=pymupdf.csGRAY) for page in pages]
    return [Image.frombytes("L", (pixmap.width, pixmap.height), pixmap.samples) for pixmap in pixmaps]


def make_scanned_letter() -> None:
    """A typed letter as a flatbed scanner saw it: greyish paper, a little askew, soft, grainy; 16 levels of grey."""
    sheet = Sheet(pymupdf.open(), top=92)
    for words in text.LETTER:
        sheet.paragraph(words, x=70, width=462, font=TYPED, size=12, justify=False)
    [page] = render_grey([sheet.close()], dpi=150)
    page = page.rotate(0.6, Image.Resampling.BICUBIC, fillcolor=255).filter(ImageFilter.GaussianBlur(0.6))
    chance = random.Random(12)
    paper = Image.linear_gradient("L").resize(page.size).point(lambda shade: 236 - shade // 14)
    grain = Image.frombytes("L", page.size, chance.randbytes(page.width * page.height))
    scan = ImageChops.multiply(page, paper).point(lambda shade: 40 + shade * 215 // 255)
    scan = ImageChops.subtract(scan, grain.point(lambda value: value // 20))
    for _ in range(300):
        scan.putpixel((chance.randrange(scan.width), chance.randrange(scan.height)), chance.randrange(70, 180))
    levels = scan.point(lambda shade: shade // 16)
    levels.putpalette([17 * level for level in range(16) for _ in "rgb"])
    levels.save(DOCUMENTS / "scanned-letter.png", bits=4, optimize=True, dpi=(150, 150))


def make_fax() -> None:
    """Three pages of black and white dots, each with the line that a fax machine prints at the top."""
    document = pymupdf.open()
    for number, (title, paragraphs) in enumerate(text.FAX_PAGES, start=1):
        sheet = Sheet(document, top=110)
        sender = f"14-MAR 09:41   WILLOWBRIDGE CHOIR   TO: ALL SINGERS   P.{number}/{len(text.FAX_PAGES)}"
        sheet.text(40, 30, sender, TYPED, 9)
        sheet.text(MARGIN, 84, title, SANS, 17)
        sheet.rule(MARGIN, 92, A4.width - MARGIN, 92, 1.4)
        for words in paragraphs:
            sheet.paragraph(words, size=15, justify=False)
        sheet.close()
    pages = [page.point(lambda shade: 255 * (shade > 150)).convert("1") for page in render_grey(document, dpi=200)]
    first, *others = pages
    first.save(DOCUMENTS / "fax.tiff", save_all=True, append_images=others, compression="group4", dpi=(200, 200))


def make_encrypted() -> None:
    document = pymupdf.open()
    sheet = Sheet(document)
    title, *paragraphs = text.RECIPE
    sheet.heading(title, size=18)
    for words in paragraphs:
        sheet.paragraph(words, size=12)
    sheet.close()
    save(document, "encrypted.pdf", encryption=pymupdf.PDF_ENCRYPT_AES_256, user_pw=PASSWORD, owner_pw=PASSWORD * 2)


def make_broken() -> None:
    """A PDF that ends inside the dictionary of its last stream, where MuPDF's repair gives up."""
    document = pymupdf.open()
    sheet = Sheet(document)
    sheet.paragraph("This page was lost on its way, and nobody remembers what it said.")
    sheet.close()
    path = save(document, "broken.pdf")
    whole = path.read_bytes()
    path.write_bytes(whole[: whole.rindex(b"/Filter")])


def main() -> None:
    DOCUMENTS.mkdir(exist_ok=True)
    for make in (make_article, make_two_columns, make_scanned_letter, make_fax, make_encrypted, make_broken):
        make()
    for path in sorted(DOCUMENTS.iterdir()):
        print(f"{path.stat().st_size:8d}  {path.name}")


if __name__ == "__main__":
    main()
