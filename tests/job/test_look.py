"""What `batchocr inspect` sees of documents is what a run would read of them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pymupdf
import pytest
from PIL import Image

from batchocr.config import Config
from batchocr.data import Document, Failure
from batchocr.errors import PageError
from batchocr.job.survey.look import DocumentSeen, look_at, spread
from batchocr.pages.input.render import open_document
from batchocr.pages.input.sources import find_documents
from tests.conftest import ROOT
from tests.support.hostile import hanging_pdf

SAMPLE = ROOT / "sample_data" / "documents"
TEXT = "All that is to be read on this page is a line that comes again and again. "


def pdf(path: Path, *, pages: int = 1, password: str = "") -> Path:
    with pymupdf.open() as document:
        for _ in range(pages):
            document.new_page(width=400, height=600).insert_textbox((50, 50, 350, 300), TEXT * 8, fontsize=12)
        if password:
            document.save(path, encryption=pymupdf.PDF_ENCRYPT_AES_256, user_pw=password)
        else:
            document.save(path)
    return path


def seen_in(folder: Path, config: Config) -> dict[str, DocumentSeen]:
    seen = look_at(find_documents([str(folder)]).documents, config, workers=2)
    return {each.document.source: each for each in seen}


@pytest.mark.parametrize("name", ["article.pdf", "two-columns.pdf", "fax.tiff", "scanned-letter.png"])
def test_a_page_has_the_size_that_it_is_drawn_with(name: str) -> None:
    document = open_document(str(SAMPLE / name), password=None, dpi=200)
    seen, image = document.look(0), document.render(0).image
    assert abs(seen.width - image.width) <= 1 and abs(seen.height - image.height) <= 1
    assert bool(seen.characters) is name.endswith(".pdf")


def test_the_pages_of_a_tiff_are_looked_at_one_by_one(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (300 + 10 * number, 400), "white") for number in range(3)]
    frames[0].save(path := tmp_path / "a.tiff", save_all=True, append_images=frames[1:])
    seen = [open_document(str(path), password=None, dpi=200).look(index) for index in range(3)]
    assert [(page.width, page.height) for page in seen] == [(300, 400), (310, 400), (320, 400)]


def test_an_image_that_cannot_be_decoded_cannot_be_looked_at(tmp_path: Path) -> None:
    Image.new("RGB", (300, 400), "white").save(tmp_path / "a.png")
    data = (tmp_path / "a.png").read_bytes()
    (tmp_path / "a.png").write_bytes(data.replace(b"IDAT", b"IDAX", 1))
    with pytest.raises(PageError):
        open_document(str(tmp_path / "a.png"), password=None, dpi=200).look(0)


def test_a_page_that_is_only_claimed_cannot_be_looked_at(tmp_path: Path) -> None:
    data = (SAMPLE / "fax.tiff").read_bytes()
    (tmp_path / "cut.tiff").write_bytes(data[: len(data) * 2 // 3])
    document = open_document(str(tmp_path / "cut.tiff"), password=None, dpi=200)
    with pytest.raises(PageError):
        document.look(document.page_count - 1)


@pytest.mark.parametrize(
    ("count", "most", "expected"), [(3, 4, [0, 1, 2]), (4, 4, [0, 1, 2, 3]), (100, 3, [0, 49, 99])]
)
def test_a_sample_is_spread_from_the_first_to_the_last(count: int, most: int, expected: list[int]) -> None:
    assert spread(range(count), most) == expected


@pytest.mark.slow
def test_each_document_is_looked_at_whatever_the_others_are(tmp_path: Path) -> None:
    shutil.copy(pdf(tmp_path / "a.pdf", pages=120), tmp_path / "copy.pdf")
    pdf(tmp_path / "locked.pdf", password="secret")
    shutil.copy(tmp_path / "locked.pdf", tmp_path / "locked-too.pdf")
    (tmp_path / "torn.pdf").write_bytes(b"%PDF-1.7\nnothing")
    (tmp_path / "hangs.pdf").write_bytes(hanging_pdf())
    os.symlink("nowhere", tmp_path / "gone.png")
    found = seen_in(tmp_path, Config(page_timeout=1.5, pages="1-100"))
    kinds = {source: seen.problem.kind if seen.problem else None for source, seen in found.items()}
    assert kinds == {
        "a.pdf": None,
        "copy.pdf": None,
        "gone.png": "not_found",
        "hangs.pdf": kinds["hangs.pdf"],
        "locked.pdf": "encrypted",
        "locked-too.pdf": "encrypted",
        "torn.pdf": "damaged",
    }
    assert kinds["hangs.pdf"] in (None, "timeout")
    assert sorted((found[name].same, len(found[name].pages)) for name in ("a.pdf", "copy.pdf")) == [
        (False, 40),
        (True, 0),
    ]
    assert [(found[name].page_count, len(found[name].wanted)) for name in ("a.pdf", "copy.pdf")] == [(120, 100)] * 2
    assert sum(found[name].same for name in ("locked.pdf", "locked-too.pdf")) == 1


def test_what_is_known_to_be_missing_is_not_opened() -> None:
    problem = Failure("not_found", "it does not exist")
    seen = look_at([Document("a", "a", problem)], Config(), workers=1)
    assert [each.problem for each in seen] == [problem]
