"""PDFs that can be searched: invisible text where the words are, on pages that stay as they are."""

from __future__ import annotations

import hashlib
import io
import os
import time
import zlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pymupdf
import pypdfium2 as pdfium
import pytest
from PIL import Image, ImageDraw, ImageFont

from batchocr.config import Config
from batchocr.data import Additions, Block, PageResult, Status
from batchocr.documents.assembly.assemble import open_table
from batchocr.documents.export.export import Export, Exported
from batchocr.documents.export.folder import ExportFolder
from batchocr.documents.export.formats import FormatOptions
from batchocr.documents.export.names import Names
from batchocr.documents.export.placing import document as placing_document
from batchocr.errors import DamagedError, OutputError
from batchocr.pages.input.render import open_document
from batchocr.pages.searchable.font import add_stream
from batchocr.pages.searchable.pdf_text import TextWriter
from batchocr.pages.searchable.placed_text import BlockWords, PageText, PlacedLine, Word
from batchocr.pages.searchable.write import write_searchable
from batchocr.processes.source_files import SourceFiles
from tests.support.browser import chromium
from tests.support.documents import write_table
from tests.support.pdf_files import GREY, encoded, pdf, stream
from tests.support.pdfium_places import place_in_pdfium, places_in_pdfium

DPI = 150
TEXT = (
    "A sundial has one moving part, and that part is the sky. Nothing in it can be wound, lent, dropped or left on a "
    "train. The dial in our walled garden was set up by a schoolmaster who wished his pupils to be punctual."
)
BOX = (60, 100, 340, 180)
"""Of TEXT on a page of 400 × 500 pt."""


pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quick_processes")]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("documents")


@pytest.fixture(scope="module")
def sources(root: Path) -> Iterator[SourceFiles]:
    with SourceFiles([str(root)], Config(model="none", dpi=DPI, password="open sesame")) as found:
        yield found


class Desk:
    """Documents, what was read of them, and where they are exported to."""

    def __init__(self, to: Path, root: Path, sources: SourceFiles) -> None:
        self.to, self._root, self._sources = to, root, sources

    def export(
        self, data: bytes, *pages: list[Block], suffix: str = "pdf", status: Status = "ok", **options: object
    ) -> bytes:
        """The file that comes of a document with these blocks."""
        doc_id = hashlib.sha256(data).hexdigest()
        source = f"{doc_id[:8]}.{suffix}"
        path = self._root / source
        path.write_bytes(data)
        document = open_document(str(path), password="open sesame", dpi=DPI)
        rows = []
        for index, blocks in enumerate(pages):
            page = document.render(index)
            size = page.image.size
            rows.append(
                PageResult(
                    source, index, status, doc_id, len(pages), *size, page.dpi, markdown="", blocks=tuple(blocks)
                )
            )
        document.close()
        write_table(self.to / "t.parquet", rows)
        self.done = self.run("out", "pdf", **options)
        [file] = [path for path in (self.to / "out").iterdir() if path.name.startswith(doc_id[:8])]
        return file.read_bytes()

    def run(self, to: str, *formats: str, **options: object) -> Exported:
        table = open_table(self.to / "t.parquet")
        with ExportFolder(self.to / to) as folder:
            export = Export(table, folder, formats, FormatOptions(**options), self._sources)  # type: ignore[arg-type]
            return export.run(Names(row.source for row in table.rows()))


@pytest.fixture
def desk(tmp_path: Path, root: Path, sources: SourceFiles) -> Desk:
    return Desk(tmp_path, root, sources)


def typed() -> pymupdf.Document:
    """A PDF with a page on which TEXT stands in BOX."""
    document = pymupdf.open()
    document.new_page(width=400, height=500).insert_textbox(BOX, TEXT, fontsize=11, fontname="tiro")
    return document


def text_image() -> bytes:
    """The picture of that page."""
    with typed() as document:
        return bytes(document[0].get_pixmap(dpi=150).tobytes("png"))


def scan(*, rotation: int = 0, change: str = "") -> pymupdf.Document:
    """A PDF with the picture on its page, upright as it is shown."""
    document = pymupdf.open()
    width, height = (400, 500) if rotation in (0, 180) else (500, 400)
    page = document.new_page(width=width, height=height)
    page.insert_image(page.rect, stream=text_image(), rotate=rotation)
    page.set_rotation(rotation)
    if change:
        key, value = change.split(" ", 1)
        document.xref_set_key(page.xref, key, value)
    return document


def shares(box: tuple[float, ...], width: float = 400, height: float = 500) -> tuple[float, float, float, float]:
    return box[0] / width, box[1] / height, box[2] / width, box[3] / height


def paragraph(text: str = TEXT, box: tuple[float, ...] = BOX, angle: int = 0) -> Block:
    return Block("text", shares(box), angle, text)


def true_box(word: str) -> pymupdf.Rect:
    """Where the word is on the page, in pt."""
    with typed() as document:
        return document[0].search_for(word)[0]


def overlap(one: pymupdf.Rect, other: pymupdf.Rect) -> float:
    both = pymupdf.Rect(one)
    both.intersect(other)
    return float(abs(both.get_area()) / (abs(one.get_area()) + abs(other.get_area()) - abs(both.get_area())))


def found(made: bytes, word: str) -> pymupdf.Rect:
    """Where MuPDF finds the word on the first page as it is shown."""
    with pymupdf.open("pdf", made) as document:
        page = document[0]
        [place] = page.search_for(word)
        return place * page.rotation_matrix


@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
def test_a_word_is_found_where_it_is_on_a_turned_page(desk: Desk, rotation: int) -> None:
    made = desk.export(scan(rotation=rotation).tobytes(), [paragraph()])
    for word in ("sundial", "schoolmaster", "punctual"):
        assert overlap(found(made, word), true_box(word)) > 0.5


@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
def test_a_heading_is_found_where_it_is_on_a_turned_page_whose_box_begins_elsewhere(desk: Desk, rotation: int) -> None:
    """Its word and its bookmark, as PDFium has them."""
    document = scan(rotation=rotation)
    x1, y1 = (500, 600) if rotation in (0, 180) else (600, 500)
    document.xref_set_key(document[0].xref, "MediaBox", f"[100 100 {x1} {y1}]")
    content = document[0].get_contents()[0]
    document.update_stream(content, b"1 0 0 1 100 100 cm " + document.xref_stream(content))
    heading = Block("title", shares(BOX), 0, TEXT)
    made = pdfium.PdfDocument(desk.export(document.tobytes(), [heading]))
    [(x, y), *_] = places_in_pdfium(made[0])
    first = true_box("sundial")
    assert abs(x * 400 - BOX[0]) < 20 and abs(y * 500 - (first.y0 + first.y1) / 2) < 6
    [bookmark] = made.get_toc()
    left, top, _ = bookmark.get_dest().get_view()[1]
    assert abs(place_in_pdfium(made[0], left, top)[1] - BOX[1] / 500) < 0.01


def test_a_crop_box_and_a_unit_of_the_user_move_no_word(desk: Desk) -> None:
    document = scan(change="UserUnit 2.5")
    document.xref_set_key(document[0].xref, "CropBox", "[20 30 380 480]")
    cropped = (BOX[0] - 20, BOX[1] - 20, BOX[2] - 20, BOX[3] - 20)
    made = desk.export(document.tobytes(), [Block("text", shares(cropped, 360, 450), 0, TEXT)])
    place = found(made, "schoolmaster") / 2.5 + (20, 20, 20, 20)
    assert overlap(place, true_box("schoolmaster")) > 0.5


def test_the_page_looks_as_before_its_bytes_are_kept_and_the_text_is_in_order(desk: Desk) -> None:
    before = scan().tobytes()
    made = desk.export(before, [paragraph()])
    assert made.startswith(before)
    with pymupdf.open("pdf", before) as old, pymupdf.open("pdf", made) as new:
        assert old[0].get_pixmap().samples == new[0].get_pixmap().samples
        assert {span["type"] for span in new[0].get_texttrace()} == {3}
        assert " ".join(new[0].get_text().split()) == TEXT


@pytest.mark.parametrize("suffix", ["pdf", "png"])
def test_the_same_words_make_the_same_file_and_others_another_version_of_it(
    tmp_path: Path, root: Path, sources: SourceFiles, suffix: str
) -> None:
    data = scan().tobytes() if suffix == "pdf" else text_image()
    texts = TEXT, TEXT, TEXT.replace("school", "church")
    made = []
    for number, text in enumerate(texts):
        (folder := tmp_path / str(number)).mkdir()
        made.append(Desk(folder, root, sources).export(data, [paragraph(text)], suffix=suffix))
    assert made[0] == made[1]
    before, after = (pymupdf.open("pdf", each).xref_get_key(-1, "ID")[1] for each in made[1:])
    assert before != after
    assert suffix != "pdf" or before.split("><")[0] == after.split("><")[0]


def test_a_block_that_is_turned_is_read_along_its_lines(desk: Desk) -> None:
    turned = Image.open(io.BytesIO(text_image())).rotate(270, expand=True)  # clockwise: its text runs down
    box = (500 - BOX[3], BOX[0], 500 - BOX[1], BOX[2])
    file = encoded(turned, "PNG", dpi=(150, 150))
    made = desk.export(file, [Block("text", shares(box, 500, 400), 90, TEXT)], suffix="png")
    true = true_box("schoolmaster")
    expected = pymupdf.Rect(500 - true.y1, true.x0, 500 - true.y0, true.x1)
    assert overlap(found(made, "schoolmaster"), expected) > 0.5


def test_text_of_its_own_is_left_alone_unless_forced_and_a_scan_with_a_stamp_is_not(desk: Desk) -> None:
    own = typed().tobytes()
    assert desk.export(own, [paragraph()]) == own
    with pymupdf.open("pdf", desk.export(own, [paragraph()], force_text=True)) as document:
        assert document[0].get_text().count("schoolmaster") == 2
    document = scan()
    document[0].insert_text((300, 30), "Exhibit 7")
    stamp = Block("header", (0.7, 0.03, 0.95, 0.07), 0, "Exhibit 7")
    made = desk.export(document.tobytes(), [stamp, paragraph()])
    with pymupdf.open("pdf", made) as document:
        assert len(document[0].search_for("Exhibit 7")) == len(document[0].search_for("schoolmaster")) == 1


HIDDEN = (
    b"BT 3 Tr /helv 11 Tf 14 TL 60 380 Td (A sumdia1 has \\(one) Tj (moving part) ' 1 0 (in a garben) \" "
    b"[( set u) 9 <70>] TJ 0 Tr ET "
)


def with_hidden_letters(*, content: bytes = b"", form: bytes = b"") -> pymupdf.Document:
    """A scan with an earlier OCR's text in its content, or in a form that this shows."""
    document = scan()
    page = document[0]
    page.insert_font("helv")
    number, fonts = add_stream(document, content), page_value(page, "Resources")
    fonts = document.xref_object(int(fonts.split()[0])) if fonts.endswith("R") else fonts
    shown = add_stream(document, form, f"<</Type/XObject/Subtype/Form/BBox[0 0 400 500]/Resources {fonts}>>")
    document.xref_set_key(page.xref, "Resources", fonts)
    document.xref_set_key(page.xref, "Resources/XObject/Earlier", f"{shown} 0 R")
    document.xref_set_key(page.xref, "Contents", f"[{page.get_contents()[0]} 0 R {number} 0 R]")
    return document


def test_an_earlier_ocr_is_replaced_if_the_page_has_no_other_letters(desk: Desk) -> None:
    before = with_hidden_letters(content=HIDDEN)
    before[0].add_redact_annot((60, 300, 200, 320), fill=(0, 0, 0))
    before[0].insert_link(
        {"kind": pymupdf.LINK_URI, "from": pymupdf.Rect(60, 100, 200, 120), "uri": "https://a.example"}
    )
    data = before.tobytes()
    made = desk.export(data, [paragraph()])
    with pymupdf.open("pdf", data) as old, pymupdf.open("pdf", made) as new:
        assert "sumdia1" in old[0].get_text() and "part" in old[0].get_text() and "garben" in old[0].get_text()
        assert " ".join(new[0].get_text().split()) == TEXT
        assert old[0].get_pixmap(dpi=150).samples == new[0].get_pixmap(dpi=150).samples
        assert [note.type for note in new[0].annots()] == [note.type for note in old[0].annots()]
        assert [link["uri"] for link in new[0].get_links()] == ["https://a.example"]
    assert made.startswith(data) and desk.done.hidden_lines == 0


@pytest.mark.parametrize(
    ("hidden", "status"), [({"form": HIDDEN, "content": b"q /Earlier Do Q"}, "ok"), ({"content": HIDDEN}, "degraded")]
)
def test_an_earlier_ocr_stays_in_a_form_and_where_the_page_was_read_in_part(
    desk: Desk, hidden: dict[str, bytes], status: Status
) -> None:
    made = desk.export(with_hidden_letters(**hidden).tobytes(), [paragraph()], status=status)
    with pymupdf.open("pdf", made) as document:
        assert "sumdia1" in document[0].get_text() and document[0].search_for("punctual")
    assert desk.done.hidden_lines > 0


@pytest.mark.parametrize(
    ("other", "kept"),
    [
        (b"BT /helv 11 Tf 1 0 0 1 60 40 Tm (Exhibit 7) Tj ET", "Exhibit 7"),
        (b"BT 0 Tr /helv 9 Tf 1 0 0 1 -99 40 Tm (Slug) Tj ET", ""),
        (b"BT 3 Tr /helv 3 Tf 1 0 0 1 60 40 Tm 3 TL %s ET" % (b"(what we have no words for) ' " * 12), "no words for"),
    ],
    ids=["a visible letter", "a letter beside the page", "more letters than ours"],
)
def test_an_earlier_ocr_stays_beside_other_letters_and_the_lines_that_it_has_are_counted(
    desk: Desk, other: bytes, kept: str
) -> None:
    made = desk.export(with_hidden_letters(content=HIDDEN + other).tobytes(), [paragraph()])
    with pymupdf.open("pdf", made) as document:
        text = document[0].get_text()
        assert "sumdia1" in text and kept in text
        assert "wound" not in text and "sundial" in text, "only lines without letters are given text"
    assert 0 < desk.done.hidden_lines < 5


def test_text_behind_a_picture_stays_and_is_not_called_invisible(desk: Desk) -> None:
    with pymupdf.open() as document:
        page = document.new_page(width=400, height=500)
        page.insert_text((60, 112), "A sumdia1 has ome")
        page.insert_image(page.rect, stream=text_image())
        made = desk.export(document.tobytes(), [paragraph()])
    with pymupdf.open("pdf", made) as document:
        assert "sumdia1" in document[0].get_text() and document[0].search_for("punctual")
    assert desk.done.hidden_lines == 0


def test_encryption_and_permissions_stay(desk: Desk) -> None:
    options = {"encryption": pymupdf.PDF_ENCRYPT_AES_256, "permissions": pymupdf.PDF_PERM_PRINT}
    locked = scan().tobytes(owner_pw="owner", user_pw="open sesame", **options)
    with pymupdf.open("pdf", desk.export(locked, [paragraph()])) as document:
        assert document.needs_pass and document.authenticate("open sesame")
        assert document.permissions & pymupdf.PDF_PERM_PRINT and not document.permissions & pymupdf.PDF_PERM_MODIFY
        assert document[0].search_for("schoolmaster")


def rc4(key: bytes, data: bytes) -> bytes:
    state, i, j, out = list(range(256)), 0, 0, bytearray()
    for index in range(256):
        j = (j + state[index] + key[index % len(key)]) % 256
        state[index], state[j] = state[j], state[index]
    j = 0
    for byte in data:
        i = (i + 1) % 256
        j = (j + state[i]) % 256
        state[i], state[j] = state[j], state[i]
        out.append(byte ^ state[(state[i] + state[j]) % 256])
    return bytes(out)


def locked_without_id() -> bytes:
    """A scan under 40-bit RC4 and the empty password, without an ID. Source: PDF 1.7, section 7.6."""
    padding = bytes.fromhex("28bf4e5e4e758a4164004e56fffa01082e2e00b6d0683e802f0ca9fe6453697a")
    owner, permissions = bytes(range(32)), -44
    key = hashlib.md5(padding + owner + permissions.to_bytes(4, "little", signed=True)).digest()[:5]

    def of_object(number: int, data: bytes) -> bytes:
        return rc4(hashlib.md5(key + number.to_bytes(3, "little") + bytes(2)).digest()[:10], data)

    picture = zlib.compress(Image.open(io.BytesIO(text_image())).convert("L").tobytes())
    lock = f"/V 1/R 2/O<{owner.hex()}>/U<{rc4(key, padding).hex()}>/P {permissions}"
    made = pdf(
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 400 500]/Contents 4 0 R/Resources<</XObject<</I 5 0 R>>>>>>",
        stream(of_object(4, b"q 400 0 0 500 0 0 cm /I Do Q")),
        stream(of_object(5, picture), b"/Subtype/Image/Width 834/Height 1042/Filter/FlateDecode" + GREY),
        f"<</Filter/Standard{lock}>>".encode(),
    )
    return made.replace(b"trailer <<", b"trailer <</Encrypt 6 0 R ")


def test_an_encrypted_document_without_an_id_can_still_be_opened(desk: Desk) -> None:
    """Its key depends on the first string of the ID, or on there being none."""
    made = desk.export(locked_without_id(), [paragraph()])
    with pymupdf.open("pdf", made) as document:
        assert document.xref_get_key(-1, "Encrypt")[0] == "xref"
        assert not document.needs_pass and document[0].search_for("schoolmaster")


@pytest.mark.parametrize(
    ("field", "flags"),
    [("{sig}/FT/Sig", "/SigFlags 0"), ("{sig}/FT 1 0 R", ""), ("/FT/Sig/Kids[<<{sig}>>]", "/SigFlags 3")],
)
def test_a_document_with_a_signed_field_is_copied_and_counted(desk: Desk, field: str, flags: str) -> None:
    document = scan()
    signature = "/V<</Type/Sig/Filter/Adobe.PPKLite/Contents<00>/ByteRange[0 1 2 3]>>"
    fields = f"[<</T(s){field.format(sig=signature)}>>]"
    document.xref_set_key(document.pdf_catalog(), "AcroForm", f"<</Fields {fields}{flags}>>")
    signed = document.tobytes()
    assert desk.export(signed, [paragraph()]) == signed
    assert desk.done.signed == 1


def test_a_field_that_nobody_has_signed_yet_does_not_count(desk: Desk) -> None:
    document = scan()
    field = document.get_new_xref()
    document.update_object(field, "<</FT/Sig/T(s)>>")
    document.xref_set_key(document.pdf_catalog(), "AcroForm", f"<</Fields[{field} 0 R]/SigFlags 1>>")
    with pymupdf.open("pdf", desk.export(document.tobytes(), [paragraph()])) as made:
        assert made[0].search_for("schoolmaster")
    assert desk.done.signed == 0


@pytest.mark.parametrize("suffix", ["pdf", "png"])
def test_no_room_for_temporary_files_ends_the_export_and_names_tmpdir(
    desk: Desk, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = scan().tobytes() if suffix == "pdf" else text_image()
    path_of = placing_document._path_of
    full = lambda file: path_of(file) if os.fstat(file.fileno()).st_size else "/dev/full"  # noqa: E731
    monkeypatch.setattr(placing_document, "_path_of", full)
    with pytest.raises(OutputError, match=r"No space left on device.*TMPDIR"):
        desk.export(data, [paragraph()], suffix=suffix)


def test_a_font_of_the_page_that_has_our_name_is_not_replaced(desk: Desk) -> None:
    document = scan()
    page = document[0]
    page.insert_text((60, 40), "Exhibit 7", fontname="helv")
    [(helv, *_)] = page.get_fonts()
    names = [f"Glyphless{number}" for number in range(200)]
    document.xref_set_key(page.xref, "Resources", document.xref_object(int(page_value(page, "Resources").split()[0])))
    document.xref_set_key(page.xref, "Resources/Font", f"<<{' '.join(f'/{name} {helv} 0 R' for name in names)}>>")
    number = page.get_contents()[-1]
    document.update_stream(number, document.xref_stream(number).replace(b"/helv", b"/Glyphless0"))
    before = document.tobytes()
    made = desk.export(before, [paragraph()])
    with pymupdf.open("pdf", before) as old, pymupdf.open("pdf", made) as new:
        assert "Exhibit 7" in old[0].get_text() and "Exhibit 7" in new[0].get_text()
        assert new[0].search_for("schoolmaster")
        assert old[0].get_pixmap(dpi=150).samples == new[0].get_pixmap(dpi=150).samples


def page_value(page: pymupdf.Page, key: str) -> str:
    return str(page.parent.xref_get_key(page.xref, key)[1])


def test_what_a_viewer_is_to_show_first_stays(desk: Desk) -> None:
    document = scan()
    document.embfile_add("a.txt", b"notes")
    document.xref_set_key(document.pdf_catalog(), "PageMode", "/FullScreen")
    data = document.tobytes().replace(b"/UseAttachments", b"/FullScreen    ")  # what PyMuPDF makes of it
    with pymupdf.open("pdf", desk.export(data, [paragraph()])) as made:
        assert made.xref_get_key(made.pdf_catalog(), "PageMode")[1] == "/FullScreen"
        assert made.embfile_names() == ["a.txt"] and made[0].search_for("schoolmaster")


def test_doubled_letters_stay_two_in_a_high_box() -> None:
    """MuPDF takes two of the same letter that nearly cover each other for one in bold."""
    box = (0.1, 0.1, 0.9, 0.6)
    page = PageText(0, 800, 1000, None, (BlockWords(0, "text", box, 0, None, (PlacedLine(box, (Word(TEXT, box),)),)),))
    with pymupdf.open() as document:
        document.new_page(width=400, height=500)
        list(TextWriter(document, Additions()).write([page]))
        assert " ".join(pymupdf.open("pdf", document.tobytes())[0].get_text().split()) == TEXT


def test_a_form_keeps_its_fields(desk: Desk) -> None:
    document = scan()
    field = pymupdf.Widget()
    field.field_name, field.field_type, field.field_value = "name", pymupdf.PDF_WIDGET_TYPE_TEXT, "Fennimore"
    field.rect = pymupdf.Rect(60, 300, 200, 320)
    document[0].add_widget(field)
    with pymupdf.open("pdf", desk.export(document.tobytes(), [paragraph()])) as made:
        assert [widget.field_value for widget in made[0].widgets()] == ["Fennimore"]


def test_headings_become_the_outline_and_the_language_is_set(desk: Desk) -> None:
    heading = Block("title", shares((60, 60, 200, 80)), 0, "Of sundials")
    made = desk.export(scan().tobytes(), [heading, paragraph()], language="en-GB")
    with pymupdf.open("pdf", made) as document:
        assert document.get_toc() == [[1, "Of sundials", 1]]
        assert document.xref_get_key(document.pdf_catalog(), "Lang")[1] == "en-GB"


@pytest.mark.parametrize(
    "text", ["東京都の天気は晴れです。", "Здравствуй, мир", "𠮷野家で𝔄 food", "καλημέρα κόσμε", "שלום עולם טוב"]
)
def test_every_script_can_be_searched(desk: Desk, text: str) -> None:
    made = desk.export(scan().tobytes(), [paragraph(text, box=(60, 100, 340, 115))])
    with pymupdf.open("pdf", made) as document:
        assert " ".join(document[0].get_text().split()) == text
        assert document[0].search_for(text[-4:])
    assert len(made) < len(scan().tobytes()) + 4000


@pytest.mark.parametrize(
    ("format", "mode", "options"),
    [
        ("JPEG", "RGB", {"quality": 85}),
        ("JPEG", "L", {"quality": 85}),
        ("PNG", "RGB", {}),
        ("PNG", "L", {}),
        ("PNG", "P", {}),
        ("PNG", "1", {}),
        ("TIFF", "1", {"compression": "group4"}),
    ],
)
def test_an_image_is_the_page_of_a_pdf_that_is_hardly_larger(
    desk: Desk, format: str, mode: str, options: dict[str, object]
) -> None:
    image = Image.open(io.BytesIO(text_image())).convert(mode)
    file = encoded(image, format, dpi=(150, 150), **options)
    made = desk.export(file, [paragraph()], suffix=format.lower())
    assert len(made) < (1.25 if mode == "P" else 1.05) * len(file) + 5000
    with pymupdf.open("pdf", made) as document:
        page = document[0]
        assert (round(page.rect.width), round(page.rect.height)) == (400, 500)
        assert difference(page.get_pixmap(dpi=150).pil_image(), image) <= 8
        assert overlap(page.search_for("schoolmaster")[0], true_box("schoolmaster")) > 0.5


def difference(one: Image.Image, other: Image.Image) -> float:
    """How far pictures are from each other: the most by which the mean levels of 4 × 5 parts differ."""
    parts = [image.convert("L").resize((4, 5), Image.Resampling.BOX).tobytes() for image in (one, other)]
    return max(abs(a - b) for a, b in zip(*parts, strict=True))


SCAN = Image.open(io.BytesIO(text_image())).convert("L")
HALF = SCAN.resize((SCAN.width, SCAN.height // 2))
BEHIND_ITS_PREVIEW = SCAN.copy()
BEHIND_ITS_PREVIEW.encoderinfo = {"tiffinfo": {254: 0}}
AS_READ = {
    "a fax": encoded(HALF.convert("1"), "TIFF", compression="group4", dpi=(150, 75)),
    "a fax on its side": encoded(
        HALF.convert("1").rotate(90, expand=True), "TIFF", compression="group4", dpi=(75, 150), tiffinfo={274: 6}
    ),
    "half.png": encoded(HALF, "PNG", dpi=(150, 75)),
    "half.jpeg": encoded(HALF, "JPEG", dpi=(150, 75)),
    "half.tiff": encoded(HALF, "TIFF", dpi=(150, 75)),
    "twelve bits": encoded(SCAN.convert("I").point(lambda level: level * 16).convert("I;16"), "PNG", dpi=(150, 150)),
    "a large scan": encoded(SCAN.resize((2816, 3520)), "TIFF", compression="tiff_lzw", dpi=(506.88, 506.88)),
    "a preview first": encoded(
        *(HALF, "TIFF"), tiffinfo={254: 1}, save_all=True, append_images=[BEHIND_ITS_PREVIEW], dpi=(150, 150)
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("name", AS_READ)
def test_an_image_has_the_shape_and_the_brightness_that_it_was_read_in(desk: Desk, name: str) -> None:
    with pymupdf.open("pdf", desk.export(AS_READ[name], [paragraph()], suffix="png")) as document:
        [page] = document
        assert (round(page.rect.width), round(page.rect.height)) == (400, 500)
        assert difference(page.get_pixmap(dpi=150).pil_image(), SCAN) <= 8
        assert overlap(page.search_for("schoolmaster")[0], true_box("schoolmaster")) > 0.5


@pytest.mark.parametrize(("format", "mode"), [("PNG", "RGB"), ("JPEG", "RGB"), ("BMP", "1"), ("TIFF", "1")])
def test_what_is_left_of_a_damaged_image_stays(desk: Desk, tmp_path: Path, format: str, mode: str) -> None:
    whole = encoded(SCAN.convert(mode), format)
    (tmp_path / "a").write_bytes(whole[: len(whole) * 7 // 10])
    with closing(open_document(str(tmp_path / "a"), password=None, dpi=DPI)) as read:
        page = read.render(0)
    assert page.lost is not None
    with pymupdf.open("pdf", desk.export((tmp_path / "a").read_bytes(), [paragraph()], suffix="png")) as document:
        shown = document[0].get_pixmap(dpi=DPI).pil_image()
    assert difference(shown, page.image) <= 8


def test_a_jpeg_that_cannot_be_read_stays_for_viewers_that_can(tmp_path: Path) -> None:
    path, text_path, to_path = (str(tmp_path / name) for name in ("a.jpg", "text", "a.pdf"))
    data = encoded(SCAN, "JPEG", progressive=True)
    data = data[: data.rindex(b"\xff\xda") + 5]  # the first scans are whole, but we draw nothing of them
    Path(path).write_bytes(data)
    Path(text_path).touch()
    with closing(open_document(path, password=None, dpi=DPI)) as document:
        with pytest.raises(DamagedError):
            document.render(0)
        list(write_searchable(document, path, Additions(), text_path=text_path, to_path=to_path))
    with pymupdf.open(to_path) as made:
        [(number, *_)] = made[0].get_images()
        assert made.xref_stream_raw(number) == data


def test_an_image_that_its_file_says_is_turned_is_upright(desk: Desk) -> None:
    turned = Image.open(io.BytesIO(text_image())).convert("L").rotate(90, expand=True)
    exif = Image.Exif()
    exif[274] = 6
    made = desk.export(encoded(turned, "JPEG", dpi=(150, 150), exif=exif), [paragraph()], suffix="jpg")
    assert overlap(found(made, "schoolmaster"), true_box("schoolmaster")) > 0.5
    with pymupdf.open("pdf", made) as document:
        shown = document[0].get_pixmap(dpi=150).pil_image()
    assert difference(shown, Image.open(io.BytesIO(text_image()))) <= 8


def test_every_picture_of_a_tiff_is_a_page(desk: Desk) -> None:
    pictures = [Image.new("1", (300, 400), 1) for _ in range(3)]
    for number, picture in enumerate(pictures):
        ImageDraw.Draw(picture).text((50, 50), f"Number {number}", font=ImageFont.load_default(40), fill=0)
    file = encoded(pictures[0], "TIFF", save_all=True, append_images=pictures[1:], compression="group4")
    pages = [[Block("text", (0.1, 0.1, 0.9, 0.3), 0, f"Number {number}")] for number in range(3)]
    with pymupdf.open("pdf", desk.export(file, *pages, suffix="tiff")) as document:
        assert [page.get_text().strip() for page in document] == ["Number 0", "Number 1", "Number 2"]


def test_a_document_that_is_gone_is_refused_and_named(desk: Desk, root: Path) -> None:
    data = scan(change="Note (gone)").tobytes()
    desk.export(data, [paragraph()])
    (root / f"{hashlib.sha256(data).hexdigest()[:8]}.pdf").unlink()
    done = desk.run("elsewhere", "pdf", "hocr")
    assert (done.refused, done.exit_code) == (1, 3)
    assert not [path for path in (desk.to / "elsewhere").iterdir() if path.suffix in (".pdf", ".hocr")]


@pytest.mark.parametrize("angle", [0, 90, 180, 270])
def test_pdfium_as_in_chromium_finds_text_in_every_direction(angle: int) -> None:
    box = (0.1, 0.1, 0.15, 0.4) if angle in (90, 270) else (0.1, 0.1, 0.4, 0.15)
    line = PlacedLine(box, (Word("Schoolmaster", box),))
    page = PageText(0, 800, 1000, None, (BlockWords(0, "text", box, angle, None, (line,)),))
    with pymupdf.open() as document:
        document.new_page(width=400, height=500)
        list(TextWriter(document, Additions()).write([page]))
        made = document.tobytes()
    assert pdfium.PdfDocument(made)[0].get_textpage().get_text_range() == "Schoolmaster"


def test_what_is_selected_in_a_browser_is_the_text(desk: Desk, tmp_path: Path) -> None:
    """In the viewer that Chromium has itself: all of the page, copied and pasted elsewhere."""
    file = tmp_path / "made.pdf"
    file.write_bytes(desk.export(scan().tobytes(), [paragraph()]))
    with chromium() as browser:
        context = browser.new_context(viewport={"width": 900, "height": 1100})
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        viewer, clipboard = context.new_page(), context.new_page()
        viewer.goto(file.as_uri() + "#toolbar=0&navpanes=0&view=FitH")
        copied, deadline = "", time.monotonic() + 30
        while not copied and time.monotonic() < deadline:  # until the viewer has drawn the page
            viewer.bring_to_front()
            viewer.mouse.click(450, 700)
            viewer.keyboard.press("Control+a")
            viewer.keyboard.press("Control+c")
            clipboard.bring_to_front()
            clipboard.set_content("<textarea></textarea>")
            clipboard.focus("textarea")
            clipboard.keyboard.press("Control+v")
            copied = clipboard.input_value("textarea")
    assert " ".join(copied.split()) == TEXT


def test_a_page_that_is_drawn_in_another_shape_than_it_was_read_in_is_left_as_it_is(desk: Desk) -> None:
    """Its crop box lies beside the page: the run has read the whole sheet, and MuPDF draws an empty letter."""
    data = scan(change="CropBox [1000 1000 1400 1500]").tobytes()
    assert desk.export(data, [paragraph()]) == data
