"""A folder of everything that goes wrong, through the command: each item has its row, and the rest is read."""

from __future__ import annotations

import json
import os
import re
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

import pymupdf
import pytest

import batchocr
from batchocr import PageResult
from batchocr.errors import NoInputError, OutputError
from tests.support.pdf_files import DCT, JPEG, pdf, scan
from tests.support.running import draw_pdf, read_rows, run_command

pytestmark = pytest.mark.slow

CATALOGUE = b"<</Type /Catalog /Pages 2 0 R>>"
ODD_NAME = "two words\nand a line, naïve Ω 漢字.pdf"


@dataclass(frozen=True)
class Ended:
    exit_code: int
    stderr: str
    rows: dict[tuple[str, int | None], PageResult]
    report: dict[str, object]


@pytest.fixture(scope="module")
def ended(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    base = tmp_path_factory.mktemp("bad")
    fill(base / "docs")
    draw_pdf(make_folder(base / "more") / "sound.pdf", "of the same name in another input")
    out = base / "table.parquet"
    # "docs/sound.pdf" is named a second time; "docs/missing.pdf" does not exist.
    inputs = ("docs", "docs/sound.pdf", "more", "docs/missing.pdf")
    # Bounds may be as large as one likes.
    bounds = ("--limit", "1000000000000", "--page-timeout", "1e12", "--stop-after", "1000000000000h")
    done = run_command(*inputs, "--out", out, "--model", model, "--dpi", "72", "--workers", "2", *bounds, cwd=base)
    rows = read_rows(out)
    by_key = {(row.source, row.page_index): row for row in rows}
    assert len(by_key) == len(rows)
    return Ended(done.returncode, done.stderr, by_key, json.loads(Path(f"{out}.report.json").read_text()))


def fill(docs: Path) -> None:
    sound = draw_pdf(make_folder(docs) / "sound.pdf", "read me", "and me")
    make_folder(docs / "empty")
    (docs / "no-pages.pdf").write_bytes(pdf(CATALOGUE, b"<</Type /Pages /Kids [] /Count 0>>"))
    (docs / "pages-lost.pdf").write_bytes(pdf(CATALOGUE))
    (docs / "half-an-image.pdf").write_bytes(scan(DCT, JPEG[: len(JPEG) // 2]))
    (docs / "no-image.pdf").write_bytes(scan(DCT, b""))
    (docs / "truncated.pdf").write_bytes(sound.read_bytes()[:300])
    (docs / "no-bytes.pdf").write_bytes(b"")
    (docs / "text.pdf").write_text("Dear Sir or Madam,\n")
    (docs / "bomb.png").write_bytes(empty_png(50_000, 50_000))
    draw_pdf(docs / ODD_NAME, "odd name")
    draw_pdf(make_folder(docs / "1") / "same.pdf", "first of the name")
    draw_pdf(make_folder(docs / "2") / "same.pdf", "second of the name")
    (docs / os.fsdecode(b"caf\xe9.pdf")).write_bytes(sound.read_bytes())
    (docs / "loop").symlink_to(docs, target_is_directory=True)
    (docs / "self.pdf").symlink_to("self.pdf")
    with pymupdf.open() as document:
        document.new_page(width=36_000, height=24_000).insert_text((9_000, 9_000), "large", fontsize=3_000)
        document.save(docs / "large.pdf")


def make_folder(path: Path) -> Path:
    path.mkdir(parents=True)
    return path


def empty_png(width: int, height: int) -> bytes:
    """A PNG that claims this size, with data for one row at most."""
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(b"\0" * width)),
        (b"IEND", b""),
    )
    framed = (
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(framed)


def test_sound_documents_are_read_whatever_lies_beside_them(ended: Ended) -> None:
    read = {key for key, row in ended.rows.items() if row.status == "ok"}
    assert read == {
        ("sound.pdf", 0),
        ("sound.pdf", 1),
        ("more/sound.pdf", 0),
        ("1/same.pdf", 0),
        ("2/same.pdf", 0),
        (ODD_NAME, 0),
        ("caf\\udce9.pdf", 0),
        ("caf\\udce9.pdf", 1),
        ("large.pdf", 0),
    }
    assert all(ended.rows[key].blocks for key in read)


def test_a_page_of_36000_points_is_drawn_within_the_limit(ended: Ended) -> None:
    row = ended.rows["large.pdf", 0]
    assert (row.width, row.height) == (3500, 2334)
    assert row.dpi == pytest.approx(7, abs=0.01)


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("truncated.pdf", "damaged"),
        ("no-bytes.pdf", "damaged"),
        ("pages-lost.pdf", "damaged"),
        ("text.pdf", "unsupported"),
        ("bomb.png", "too_large"),
        ("self.pdf", "unreadable"),
        ("docs/missing.pdf", "not_found"),
    ],
)
def test_a_document_that_cannot_be_read_has_a_row_that_says_why(ended: Ended, source: str, kind: str) -> None:
    row = ended.rows[source, None]
    assert (row.status, row.error_kind) == ("failed", kind)
    assert row.error_message


def test_a_document_without_pages_is_skipped(ended: Ended) -> None:
    row = ended.rows["no-pages.pdf", None]
    assert (row.status, row.page_count, row.error_kind) == ("skipped", 0, None)


def test_a_page_that_lost_something_is_degraded_and_one_that_lost_all_failed(ended: Ended) -> None:
    part, none = ended.rows["half-an-image.pdf", 0], ended.rows["no-image.pdf", 0]
    assert (part.status, part.error_kind) == ("degraded", None)
    assert part.error_message is not None
    assert "MuPDF says: premature end of file in jpeg" in part.error_message
    assert (none.status, none.error_kind, none.markdown) == ("failed", "damaged", None)


def test_there_is_a_row_for_each_thing_and_no_more(ended: Ended) -> None:
    assert len(ended.rows) == 9 + 1 + 8 + 1
    items = ended.report["items"]
    counts = {"ok": 9, "degraded": 1, "failed": 8, "skipped": 1, "not_reached": 0, "already_done": 0}
    assert items == {"found": 19} | counts
    assert ended.report["ledger_adds_up"]


def test_the_exit_code_says_that_documents_failed(ended: Ended) -> None:
    assert ended.exit_code == 3
    assert "8 of 18 rows failed" in ended.stderr
    assert len(re.findall(r" failed \(\w+\): ", ended.stderr)) == 8, "each of them has a line that says why"


def test_an_empty_folder_or_a_glob_without_a_match_alone_is_exit_code_4(model: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "empty", tmp_path / "*.pdf"):
        with pytest.raises(NoInputError, match="no document to read") as refusal:
            batchocr.run(path, out=tmp_path / "table.parquet", model=model)
        assert refusal.value.exit_code == 4
    assert os.listdir(tmp_path) == ["empty"]


def test_an_output_that_cannot_be_written_is_exit_code_6_before_anything_is_read(model: Path, tmp_path: Path) -> None:
    document = draw_pdf(tmp_path / "sound.pdf", "sound")
    (tmp_path / "folder.parquet").mkdir()
    for out in (tmp_path / "none" / "table.parquet", document / "table.parquet", tmp_path / "folder.parquet"):
        with pytest.raises(OutputError, match="cannot write") as refusal:
            batchocr.run(document, out=out, model=model)
        assert refusal.value.exit_code == 6


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_an_output_in_a_folder_that_is_not_writable_is_exit_code_6(model: Path, tmp_path: Path) -> None:
    document = draw_pdf(tmp_path / "sound.pdf", "sound")
    make_folder(tmp_path / "closed").chmod(0o500)
    with pytest.raises(OutputError, match="Permission denied"):
        batchocr.run(document, out=tmp_path / "closed" / "table.parquet", model=model)
