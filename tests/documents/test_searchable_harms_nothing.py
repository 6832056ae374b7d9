"""Whatever a PDF has, a searchable one of it has too, looks the same, and has our words over their ink.

The rows are made up: a block of words for each row of ink on the page as it was drawn.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pymupdf
import pypdfium2 as pdfium
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image, ImageDraw, ImageFont

from batchocr.data import Additions, Block, OutlineEntry, PageResult
from batchocr.documents.export.placing.ink import ink_rows, marks_in
from batchocr.documents.export.placing.page import page_words
from batchocr.errors import PageError
from batchocr.pages.input.render import open_document
from batchocr.pages.searchable.placed_text import PageText, line_of
from batchocr.pages.searchable.write import write_searchable
from tests.support.jobs import FULL
from tests.support.pdf_files import GREY, deflated, pdf, stream
from tests.support.pdfium_places import places_in_pdfium

pytestmark = pytest.mark.slow

DPI = 100
WORDS = (
    "amber birch cedar dune elder fern grove hazel iris juniper kelp larch moss nettle oak poppy quince reed sage thyme"
)
OURS = "Glyphless"


def page_text(number: int, image: Image.Image) -> PageText:
    """Made-up words on each row of ink."""
    rows = [row for row in ink_rows(marks_in(image)) if row.height > 3 and row.right - row.left > 2 * row.height]
    boxes = [
        (row.left / image.width, row.top / image.height, row.right / image.width, row.bottom / image.height)
        for row in rows
    ]
    blocks = tuple(Block("text", box, 0, WORDS) for box in boxes)
    row = PageResult("a.pdf", number, "ok", "0", 1, *image.size, float(DPI), markdown="", blocks=blocks)
    return PageText(number, *image.size, float(DPI), tuple(page_words(row, image)))


def exported(path: Path, folder: Path, **additions: object) -> tuple[bytes, dict[int, PageText]]:
    """The PDF that can be searched, and the words that were to be added. Raises PageError."""
    document = open_document(str(path), password=None, dpi=DPI)
    texts = {}
    for number in range(document.page_count):
        try:
            texts[number] = page_text(number, document.render(number).image)
        except PageError:
            continue
    (folder / "text").write_bytes(b"".join(map(line_of, texts.values())))
    outline = (OutlineEntry(1, "Begin", min(texts, default=0), 0.25),) if texts else ()
    steps = write_searchable(
        document,
        str(path),
        Additions(outline, **additions),  # type: ignore[arg-type]
        text_path=str(folder / "text"),
        to_path=str(folder / "made"),
    )
    for _ in steps:
        pass
    return (folder / "made").read_bytes(), texts


@dataclass(frozen=True)
class Seen:
    """A page as MuPDF has it. letters: with their places; invisible ones apart. ours: whether it has words of ours."""

    look: bytes
    letters: Counter[tuple[object, ...]]
    invisible: Counter[tuple[object, ...]]
    others: tuple[str, ...]
    content: bytes
    ours: bool

    @classmethod
    def of(cls, page: pymupdf.Page) -> Seen:
        links = [(link["kind"], *link["from"], link.get("uri"), link.get("page")) for link in page.get_links()]
        notes = [(note.type, *note.rect, *note.info.values(), note.flags) for note in page.annots()]
        fields = [(field.field_name, field.field_type, field.field_value, *field.rect) for field in page.widgets()]
        others = [
            repr(value) for value in (page.rect, page.rotation, page.mediabox, page.cropbox, links, notes, fields)
        ]
        scale = min(150 / 72, 5000 / max(page.rect))
        look = page.get_pixmap(matrix=pymupdf.Matrix(scale, scale)).samples
        content = page.read_contents()
        letters: tuple[Counter[tuple[object, ...]], ...] = (Counter(), Counter())
        spans = page.get_texttrace()  # last, for it turns the page
        for span in spans:
            if span["font"] != OURS:
                found = ((letter[0], *(round(x) for x in letter[3])) for letter in span["chars"])
                letters[span["type"] == 3].update(found)
        return cls(look, *letters, tuple(others), content, any(span["font"] == OURS for span in spans))


def assert_nothing_is_lost(before: bytes, after: bytes) -> tuple[int, int]:
    """Compare all pages. Returns how many were given text, and of how many the invisible letters were replaced."""
    num_given = num_replaced = 0
    with pymupdf.open("pdf", before) as old, pymupdf.open("pdf", after) as new:
        old.is_encrypted = new.is_encrypted = False  # if only their attachments are, which nobody opens here
        assert old.embfile_names() == new.embfile_names()
        assert not old.get_toc() or old.get_toc() == new.get_toc()
        for number in range(old.page_count):
            try:
                one = Seen.of(old[number])
            except Exception:  # noqa: BLE001  nothing can be said of it
                continue
            other = Seen.of(new[number])
            assert one.look == other.look
            assert one.letters == other.letters
            assert one.others == other.others
            num_given += other.ours
            if one.invisible != other.invisible:
                assert not other.invisible and other.ours
                num_replaced += 1
            else:
                assert other.content.endswith(one.content)
    return num_given, num_replaced


def assert_words_are_over_their_ink(made: bytes, texts: dict[int, PageText]) -> int:
    """That PDFium has our letters where they were to be. Returns how many it has."""
    num_letters = 0
    for number, text in texts.items():
        boxes = [word.box for block in text.blocks for line in block.lines for word in line.words]
        try:
            page = pdfium.PdfDocument(made)[number]
        except pdfium.PdfiumError:  # it takes fewer files than MuPDF does
            continue
        places = list(places_in_pdfium(page))
        num_letters += len(places)
        for x, y in places:
            assert any(x0 - 0.01 < x < x1 + 0.01 and y0 - 0.01 < y < y1 + 0.01 for x0, y0, x1, y1 in boxes), (
                number,
                x,
                y,
            )
    return num_letters


_AT = "1 0 0 1 40 {y} Tm"
PIECES = {
    "visible": f"BT /F1 12 Tf {_AT} (Visible words of a contract) Tj ET",
    "white": f"BT 1 g /F1 12 Tf {_AT} (White words on white paper) Tj ET",
    "without ink": f"/None gs BT /F1 12 Tf {_AT} (Words without any ink) Tj ET",
    "hidden": f"BT /F1 12 Tf 3 Tr {_AT} [(Hidden \\(words\\)) -20 <6f66>] TJ ( an (OCR\\051) Tj ET",
    "hidden, next lines": f"BT /F1 12 Tf 14 TL 3 Tr {_AT} (Hidden one)' 1 2 (Hidden two)\" ET",
    "hidden and visible": f"BT /F1 12 Tf 14 TL 3 Tr {_AT} (Hidden) Tj 0 Tr (Visible behind it)' ET",
    "hidden over a picture": f"q 200 0 0 20 40 {{y}} cm /Picture Do Q BT 3 Tr /F1 12 Tf {_AT} (Read fron a scam) Tj ET",
    "clip": f"BT /F1 20 Tf 7 Tr {_AT} (CLIPPED) Tj ET 0.3 g 30 {{y}} 200 9 re f",
    "picture": "200 0 0 20 40 {y} cm /Picture Do",
    "text under a picture": f"BT /F1 12 Tf {_AT} (Words under it) Tj ET 200 0 0 20 40 {{y}} cm /Picture Do",
    "text over a picture": f"q 200 0 0 20 40 {{y}} cm /Picture Do Q BT /F1 9 Tf {_AT} (Exhibit 7) Tj ET",
    "multiplied": f"BT /F1 12 Tf {_AT} (Seen through it) Tj ET /Multiply gs 200 0 0 20 40 {{y}} cm /Picture Do",
    "transparent": f"BT /F1 12 Tf {_AT} (Seen through it) Tj ET 200 0 0 20 40 {{y}} cm /Glass Do",
    "form": "1 0 0 1 40 {y} cm /Visible Do",
    "hidden form": "1 0 0 1 40 {y} cm /Hidden Do",
    "string that looks like text": "/Span <</ActualText (a\\) \\(b\\) Tj)>> BDC 0.5 g 40 {y} 100 9 re f EMC % (c) Tj\n",
    "picture within": "20 0 0 9 40 {y} cm BI /W 8 /H 8 /BPC 1 /CS /G ID (a) Tj<> EI",
    "left open": "q 0.9 0 0 0.9 20 0 cm",
}
"""Content of a page, each in a place of its own. Hidden is what has render mode 3."""

WITHOUT_VISIBLE_LETTERS = ["hidden", "hidden, next lines", "hidden form", "hidden over a picture", "picture"]

ANNOTATIONS = {
    "link": "/Subtype /Link /A <</S /URI /URI (https://example.org)>>",
    "note": "/Subtype /Text /Contents (Mind this)",
    "stamp": "/Subtype /FreeText /Contents (PAID) /DA (/F1 12 Tf 0 g)",
    "mark": "/Subtype /Highlight /QuadPoints [60 460 180 460 60 440 180 440] /C [1 1 0]",
    "redaction": "/Subtype /Redact /IC [0 0 0] /QuadPoints [60 460 180 460 60 440 180 440]",
    "field": "/Subtype /Widget /FT /Tx /T (name) /V (Fennimore) /DA (/F1 12 Tf 0 g)",
    "signature": "/Subtype /Widget /FT /Sig /T (sign) /F 4",
    "signed": "/Subtype /Widget /FT /Sig /T (signed) /F 4 /V <</Type /Sig /Contents <00> /ByteRange [0 9 9 9]>>",
}


@st.composite
def documents(draw: st.DrawFn) -> bytes:
    """A PDF of one page, with a few of these pieces and annotations, turned, with boxes and units of its own."""
    x, y = draw(st.sampled_from([(0, 0), (100, 200), (-50, -900)]))
    kinds = draw(st.sampled_from([sorted(PIECES), WITHOUT_VISIBLE_LETTERS]))
    pieces = draw(st.lists(st.sampled_from(kinds), min_size=2, max_size=7))
    drawn = [f"q {PIECES[piece].format(y=440 - 60 * index)} Q" for index, piece in enumerate(pieces)]
    content = f"1 0 0 1 {x} {y} cm " + "\n".join(drawn)
    annotations = draw(st.lists(st.sampled_from(sorted(ANNOTATIONS)), unique=True, max_size=3))
    crop = draw(st.sampled_from(["", f"/CropBox [{x + 20} {y + 10} {x + 390} {y + 480}]"]))
    turned = draw(st.sampled_from([0, 90, 180, 270]))
    unit = draw(st.sampled_from(["", "/UserUnit 2.5"]))
    fields = " ".join(f"{11 + index} 0 R" for index in range(len(annotations)))
    return pdf(
        f"<</Type /Catalog /Pages 2 0 R /AcroForm <</Fields [{fields}] /DR <<{FONT}>>>>>>".encode(),
        b"<</Type /Pages /Kids [3 0 R] /Count 1>>",
        f"<</Type /Page /Parent 2 0 R /MediaBox [{x} {y} {x + 400} {y + 500}] {crop} /Rotate {turned} {unit} /Contents "
        f"4 0 R /Annots [{fields}] /Resources <<{FONT} /XObject <</Picture 5 0 R /Glass 6 0 R /Visible 8 0 R /Hidden "
        "9 0 R>> /ExtGState <</Multiply <</BM /Multiply>> /None <</ca 0>>>>>>>>".encode(),
        deflated(content.encode()),
        deflated(LINE.tobytes(), b"/Subtype /Image /Width 400 /Height 40 " + GREY),
        deflated(bytes(100), b"/Subtype /Image /Width 10 /Height 10 /SMask 7 0 R " + GREY),
        deflated(bytes(99) + b"\x80", b"/Subtype /Image /Width 10 /Height 10 " + GREY),
        stream(b"BT /F1 12 Tf (Words of a form) Tj ET", FORM),
        stream(b"BT /F1 12 Tf 3 Tr (Hidden in a form) Tj ET", FORM),
        b"null",
        *(
            f"<</Type /Annot /Rect [{x + 60} {y + 440} {x + 180} {y + 460}] {ANNOTATIONS[name]}>>".encode()
            for name in annotations
        ),
    )


FONT = "/Font <</F1 <</Type /Font /Subtype /Type1 /BaseFont /Helvetica>>>>"
FORM = f"/Type /XObject /Subtype /Form /BBox [0 0 300 30] /Resources <<{FONT}>>".encode()
LINE = Image.new("L", (400, 40), 255)
ImageDraw.Draw(LINE).text((5, 2), "Read from a scan", font=ImageFont.load_default(30), fill=0)


@settings(max_examples=100 if FULL else 15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=documents(), force_text=st.booleans())
def test_nothing_that_a_page_has_is_lost_or_moved(data: bytes, force_text: bool, tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(data)
    made, texts = exported(tmp_path / "a.pdf", tmp_path, force_text=force_text)
    _, num_replaced = assert_nothing_is_lost(data, made)
    assert not (force_text and num_replaced)
    assert made.startswith(data) and (made == data or b"/T (signed)" not in data)
    assert_words_are_over_their_ink(made, texts)


@pytest.mark.long
@pytest.mark.parametrize("force_text", [False, True])
def test_no_document_of_the_corpus_loses_anything(corpus: Path, tmp_path: Path, force_text: bool) -> None:
    counts: Counter[str] = Counter()
    for path in sorted(corpus.rglob("*.pdf")):
        try:
            made, texts = exported(path, tmp_path, force_text=force_text)
        except PageError:
            continue
        num_given, num_replaced = assert_nothing_is_lost(path.read_bytes(), made)
        counts["given"] += num_given
        counts["replaced"] += num_replaced
        counts["letters"] += assert_words_are_over_their_ink(made, texts)
    assert counts["given"] > 30 and counts["letters"] > 10_000 and bool(counts["replaced"]) is not force_text, counts
