"""From files to pixels: PDFs, images of every mode, and everything that is broken."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pymupdf
import pytest
from PIL import Image

from batchocr.errors import ChangedError, DamagedError, EncryptedError, NotFoundError, UnreadableError, UnsupportedError
from batchocr.pages.input import pdf
from batchocr.pages.input.render import fingerprint, one_version
from tests.pages.rendering import RED, WHITE, opened, pixels, render, written
from tests.support.pdf_files import pdf as raw_pdf


def pdf_bytes(*sizes: tuple[float, float], draw: Callable[[pymupdf.Page], object] | None = None) -> bytes:
    """A PDF with one page of each size, in pt."""
    document = pymupdf.open()
    for width, height in sizes:
        page = document.new_page(width=width, height=height)
        if draw is not None:
            draw(page)
    data: bytes = document.tobytes()
    return data


def with_tree(tree: bytes, *kids: bytes) -> bytes:
    """A PDF by the fields of its page tree, and of the pages in that, which are objects 3, 4, …"""
    pages = (b"<</Type /Page /Parent 2 0 R %s>>" % kid for kid in kids)
    return raw_pdf(b"<</Type /Catalog /Pages 2 0 R>>", b"<</Type /Pages %s>>" % tree, *pages)


def test_a_pdf_page_is_drawn_at_the_resolution_asked_for(tmp_path: Path) -> None:
    path = written(
        tmp_path / "a.pdf", pdf_bytes((100, 50), draw=lambda page: page.draw_rect((50, 0, 100, 50), fill=(1, 0, 0)))
    )
    page = render(path, dpi=144)
    assert (page.image.mode, page.image.size, page.dpi) == ("RGB", (200, 100), 144)
    assert page.image.getpixel((10, 10)) == WHITE
    assert page.image.getpixel((150, 50)) == RED


@pytest.mark.parametrize(
    ("in_the_file", "typed"),
    [
        ("Gr\u00fc\u00dfe", "Gru\u0308\u00dfe"),
        ("a b", "a\u00a0b"),
        ("IX", "\u2168"),
        ("ab", "a\u00adb"),
        ("a\u00adb", "a\u00adb"),
    ],
)
def test_a_password_opens_a_pdf_however_its_letters_are_composed(tmp_path: Path, in_the_file: str, typed: str) -> None:
    with pymupdf.open() as document:
        document.new_page(width=50, height=50)
        document.save(tmp_path / "a.pdf", encryption=pymupdf.PDF_ENCRYPT_AES_256, user_pw=in_the_file, owner_pw="other")
    with closing(opened(tmp_path / "a.pdf", password=typed)) as document:
        assert document.page_count == 1


@pytest.mark.parametrize(("in_the_file", "typed"), [("GrÃ¼n", "Grün"), ("å¯ƒç€†", "密码"), ("Grün", "Grün")])
def test_a_password_in_utf8_opens_a_pdf_of_an_old_cipher_too(tmp_path: Path, in_the_file: str, typed: str) -> None:
    with pymupdf.open(stream=pdf_bytes((100, 50))) as document:
        document.save(tmp_path / "a.pdf", encryption=pymupdf.PDF_ENCRYPT_RC4_128, user_pw=in_the_file, owner_pw="other")
    assert render(tmp_path / "a.pdf", password=typed).image.size == (100, 50)


def test_a_rotated_page_is_upright(tmp_path: Path) -> None:
    path = written(tmp_path / "a.pdf", pdf_bytes((100, 50), draw=lambda page: page.set_rotation(90)))
    assert render(path).image.size == (50, 100)


def test_annotations_are_drawn(tmp_path: Path) -> None:
    def annotate(page: pymupdf.Page) -> None:
        annotation = page.add_rect_annot((20, 20, 80, 80))
        annotation.set_colors(stroke=(1, 0, 0), fill=(1, 0, 0))
        annotation.update()

    path = written(tmp_path / "a.pdf", pdf_bytes((100, 100), draw=annotate))
    assert render(path).image.getpixel((50, 50)) == RED


@pytest.mark.parametrize(("size", "expected"), [((36_000, 18_000), (3500, 1750)), ((100, 36_000), (10, 3500))])
def test_a_huge_page_is_capped_and_says_so(tmp_path: Path, size: tuple[int, int], expected: tuple[int, int]) -> None:
    page = render(written(tmp_path / "a.pdf", pdf_bytes(size)), dpi=200)
    assert page.image.size == expected
    assert page.dpi == pytest.approx(3500 / 36_000 * 72)


SENTENCE = "The pump in the bay was replaced on 14 March and runs at 1,450 revolutions. "


def sheet(font_size: int) -> pymupdf.Document:
    """An A0 sheet of text, which is drawn at 75 dpi."""
    document = pymupdf.open()
    page = document.new_page(width=2384, height=3370)
    for left in range(100, 2200, 60 * font_size):
        column = pymupdf.Rect(left, 150, min(2300, left + 58 * font_size), 1400)
        page.insert_textbox(column, SENTENCE * 30, fontsize=font_size)
    return document


def scanned(document: pymupdf.Document) -> pymupdf.Document:
    """The same sheet without letters of its own."""
    scan = pymupdf.open()
    page = scan.new_page(width=2384, height=3370)
    page.insert_image(page.rect, stream=document[0].get_pixmap(dpi=100, colorspace=pymupdf.csGRAY).tobytes("png"))
    return scan


@pytest.mark.parametrize("made", [sheet, pytest.param(lambda size: scanned(sheet(size)), id="scanned")])
@pytest.mark.parametrize(("font_size", "height"), [(9, 9), (24, None)])
def test_a_sheet_that_is_drawn_too_small_to_be_read_says_so(
    tmp_path: Path, made: Callable[[int], pymupdf.Document], font_size: int, height: int | None
) -> None:
    made(font_size).save(tmp_path / "a.pdf")
    page = render(tmp_path / "a.pdf", dpi=200)
    assert (page.image.height, page.lost) == (3500, None)
    if height is None:
        assert page.doubt is None
    else:
        said = (
            f"the page was drawn at 75 dpi, to be 3,500 px long, and its letters are about {height} px high: they may"
        )
        assert page.doubt == f"{said} be misread; cut it into parts"


@pytest.mark.parametrize(("size", "dpi"), [((595, 842), 72), ((2384, 3370), 72)])
def test_only_a_page_that_is_drawn_smaller_than_asked_for_is_doubted(
    tmp_path: Path, size: tuple[int, int], dpi: int
) -> None:
    document = pymupdf.open()
    document.new_page(width=size[0], height=size[1]).insert_text((100, 100), SENTENCE, fontsize=8)
    document.save(tmp_path / "a.pdf")
    assert render(tmp_path / "a.pdf", dpi=dpi).doubt is None


def test_a_large_drawing_without_letters_is_not_doubted(tmp_path: Path) -> None:
    document = pymupdf.open()
    page = document.new_page(width=2384, height=3370)
    page.draw_circle((900, 900), 500)
    page.draw_line((0, 0), (900, 2000))
    document.save(tmp_path / "a.pdf")
    assert render(tmp_path / "a.pdf", dpi=200).doubt is None


def test_a_page_without_any_width_is_damaged(tmp_path: Path) -> None:
    path = written(tmp_path / "a.pdf", with_tree(b"/Count 1 /Kids [3 0 R]", b"/MediaBox [0 0 2 100000000]"))
    with pytest.raises(DamagedError, match=r"^the page is too thin to be drawn: 0 × 3500 px"):
        render(path)


def test_what_libraries_say_about_a_failed_allocation_is_known_and_no_words_that_are_quoted_from_the_file() -> None:
    for words in (
        *("malloc (123 bytes) failed", "code=2: calloc (3 x 5 bytes) failed (overflow)"),
        *("Insufficient memory (case 4)", "out of memory"),
        "jbig2dec warning: failed to allocate image data buffer (stride=1, height=2) (segment 0)",
        *("openjpeg error: Not enough memory to decode tile", "Size of tile data exceeds system limits"),
    ):
        assert pdf._OUT_OF_MEMORY.search(f"unknown filter name (x)\n{words}\n"), words
    for words in (
        *("unknown filter name (out of memory)", "cannot find XObject resource 'out of memory'"),
        *("unknown colorspace: Not enough memory", "cannot find font resource part 'malloc of 1 failed'"),
    ):
        assert not pdf._OUT_OF_MEMORY.search(f"some warning\n{words}"), words


@pytest.mark.parametrize(
    ("asked_for", "sound", "wrong"), [("secret", ["secret"], [None, "no"]), ("", [None, "no"], [])]
)
def test_an_encrypted_pdf_opens_with_its_password_and_without_if_it_asks_only_for_the_right_to_edit(
    tmp_path: Path, asked_for: str, sound: list[str | None], wrong: list[str | None]
) -> None:
    path = encrypted_pdf(tmp_path, user_password=asked_for)
    for password in sound:
        assert render(path, password=password).image.size == (100, 50)
    for password in wrong:
        with pytest.raises(EncryptedError, match="password"):
            opened(path, password=password)


def encrypted_pdf(folder: Path, *, user_password: str) -> Path:
    document = pymupdf.open(stream=pdf_bytes((100, 50)))
    path = folder / "encrypted.pdf"
    document.save(path, encryption=pymupdf.PDF_ENCRYPT_AES_256, owner_pw="owner", user_pw=user_password)
    return path


def test_a_small_file_that_uses_one_page_over_and_over_has_a_page_for_every_three_bytes_and_says_so(
    tmp_path: Path,
) -> None:
    nodes = b"/Type /Pages /Count 200 /Kids [%s]" % (b"3 0 R " * 200)
    data = with_tree(b"/Count 40000 /Kids [%s]" % (b"4 0 R " * 200), b"/MediaBox [0 0 100 50]", nodes)
    # MuPDF refuses more pages than objects: one more object, with a high number, and never used.
    data = data.replace(b"trailer", b"50000 1\n0000000000 00000 f \ntrailer").replace(b"/Size 5", b"/Size 50001")
    path = written(tmp_path / "a.pdf", data)
    with closing(opened(path)) as found:
        assert found.page_count - 1 == os.path.getsize(path) // 3 + 100 < 2000
        assert found.render(found.page_count - 2).image.size == (100, 50)
        said = f"the document claims 40,000 pages, which is {40_001 - found.page_count:,} more than it can have"
        with pytest.raises(DamagedError, match=f"^this page and all behind it are left out: {said}$"):
            found.render(found.page_count - 1)


def test_an_absurd_number_of_pages_is_damage(tmp_path: Path) -> None:
    path = written(tmp_path / "a.pdf", with_tree(b"/Count 2000000000 /Kids [3 0 R]", b"/MediaBox [0 0 100 50]"))
    with pytest.raises(DamagedError, match="number of pages"):
        opened(path)


def test_damage_is_not_reported_on_stderr(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(DamagedError):
        opened(written(tmp_path / "a.pdf", b"%PDF-1.7\nnonsense"))
    assert capfd.readouterr() == ("", "")


def test_a_page_larger_than_memory_is_out_of_memory(tmp_path: Path) -> None:
    path = written(tmp_path / "a.pdf", pdf_bytes((3000, 3000)))
    script = (
        "import resource, sys\n"
        "from batchocr.errors import PageError\n"
        "from batchocr.pages.input.render import open_document\n"
        "document = open_document(sys.argv[1], password=None, dpi=72)\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + 20_000_000,) * 2)\n"
        "try:\n"
        "    document.render(0)\n"
        "except PageError as error:\n"
        "    sys.stdout.write(error.error_kind)\n"
    )
    child = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True, timeout=60, check=True)
    assert child.stdout == "out_of_memory"


# --- Which kind of file ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("before", [b"", b"HTTP/1.1 200 OK\r\n\r\n"])
@pytest.mark.parametrize("name", ["a.pdf", "a.png", "noname"])
def test_a_pdf_is_known_by_its_content_also_if_its_header_comes_later(tmp_path: Path, name: str, before: bytes) -> None:
    assert render(written(tmp_path / name, before + pdf_bytes((100, 50)))).dpi == 72


def test_a_pdf_without_header_is_read_where_it_can_be(tmp_path: Path) -> None:
    data = pdf_bytes((100, 50)).split(b"\n", 1)[1]
    assert render(written(tmp_path / "a.PDF", data)).image.size == (100, 50)


def test_an_image_named_pdf_is_an_image(tmp_path: Path) -> None:
    path = tmp_path / "a.pdf"
    Image.new("RGB", (4, 3), RED).save(path, "PNG")
    assert pixels(render(path)) == [RED] * 12


@pytest.mark.parametrize(
    "content", [b"just words\n" * 500, b"<!DOCTYPE html><html><body>words</body></html>", b"\0" * 99]
)
def test_what_is_only_named_pdf_is_unsupported(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(UnsupportedError, match="the file is not a PDF"):
        opened(written(tmp_path / "a.pdf", content))


@pytest.mark.parametrize(
    "content", [b"just words", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", b"PK\3\4", b"\0"]
)
def test_formats_that_are_not_read_are_unsupported_whatever_the_name(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(UnsupportedError, match="neither a PDF nor an image"):
        opened(written(tmp_path / "a.png", content))


@pytest.mark.parametrize("name", ["a.7z", "a.pdf", "a"])
@pytest.mark.parametrize(
    "content",
    [bz2.compress(b"x"), lzma.compress(b"x"), gzip.compress(b"x"), b"7z\xbc\xaf\x27\x1c\0\4", b"Rar!\x1a\7\1\0"],
    ids=["bzip2", "xz", "gzip", "7-Zip", "RAR"],
)
def test_archives_that_are_not_read_are_said_to_be_archives(tmp_path: Path, name: str, content: bytes) -> None:
    with pytest.raises(UnsupportedError, match=r"a kind that is not read; those that are: \.zip .*\.tar\.gz"):
        opened(written(tmp_path / name, content))


@pytest.mark.parametrize("name", ["a.pdf", "a.png", "a"])
def test_an_empty_file_is_damaged(tmp_path: Path, name: str) -> None:
    with pytest.raises(DamagedError, match="0 bytes"):
        opened(written(tmp_path / name, b""))


@pytest.mark.parametrize("path", ["missing.pdf", "file.pdf/inside.pdf"])
def test_a_file_that_is_gone_is_not_found(tmp_path: Path, path: str) -> None:
    written(tmp_path / "file.pdf", pdf_bytes((100, 50)))
    with pytest.raises(NotFoundError):
        opened(tmp_path / path)
    with pytest.raises(NotFoundError):
        fingerprint(str(tmp_path / path))


def test_a_folder_and_a_pipe_are_unreadable_rather_than_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.pdf")
    for path in (tmp_path, tmp_path / "pipe.pdf"):
        with pytest.raises(UnreadableError):
            opened(path)


@pytest.mark.parametrize("name", [b"odd\xff", b"a b\nc", "日本語".encode()])
def test_any_file_name_can_be_opened(tmp_path: Path, name: bytes) -> None:
    pdf = written(tmp_path / os.fsdecode(name + b".pdf"), pdf_bytes((100, 50)))
    assert render(pdf).image.size == (100, 50)
    png = tmp_path / os.fsdecode(name + b".png")
    Image.new("RGB", (4, 3)).save(png)
    assert render(png).image.size == (4, 3)


@pytest.mark.parametrize("moment", ["before", "during"])
@pytest.mark.parametrize("change", ["replaced", "written to", "touched"])
def test_what_is_read_while_a_file_changes_is_of_no_version(tmp_path: Path, moment: str, change: str) -> None:
    path = written(tmp_path / "a.bin", b"some bytes")
    _, size, mtime_ns = fingerprint(str(path))

    def alter() -> None:
        match change:
            case "replaced":
                os.utime(written(tmp_path / "b.bin", b"more bytes"), ns=(1, mtime_ns + 1))
                os.replace(tmp_path / "b.bin", path)
            case "written to":
                written(path, b"some bytes and more")
                os.utime(path, ns=(1, mtime_ns))
            case "touched":
                os.utime(path, ns=(1, mtime_ns + 1))

    if moment == "before":
        alter()
    with pytest.raises(ChangedError, match="changed while it was read"), one_version(str(path), size, mtime_ns):
        assert moment == "during"
        alter()
        raise DamagedError("half of it is another file's")


def test_what_is_read_of_a_file_that_stays_is_of_its_version(tmp_path: Path) -> None:
    path = written(tmp_path / "a.bin", b"some bytes")
    _, size, mtime_ns = fingerprint(str(path))
    with one_version(str(path), size, mtime_ns):
        pass
    with pytest.raises(DamagedError, match="its own fault"), one_version(str(path), size, mtime_ns):
        raise DamagedError("its own fault")
    with pytest.raises(NotFoundError), one_version(str(path), size, mtime_ns):
        path.unlink()


def test_a_fingerprint_is_hash_size_and_time(tmp_path: Path) -> None:
    path = written(tmp_path / "a.bin", b"some bytes")
    os.utime(path, ns=(1, 1_700_000_000_123_456_789))
    assert fingerprint(str(path)) == (hashlib.sha256(b"some bytes").hexdigest(), 10, path.stat().st_mtime_ns)
