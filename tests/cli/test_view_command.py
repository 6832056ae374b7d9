"""`batchocr view`: what is asked for is checked, what came of it is said, and nobody else's file is replaced."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from batchocr.config import Config
from tests.support.review_pages import METADATA, WhitePages, block, failed, row, saved
from tests.support.running import draw_pdf, said_by


class Files(WhitePages):
    """What the command makes in place of SourceFiles; it remembers with what."""

    made: ClassVar[list[tuple[Sequence[str], Config]]] = []

    def __init__(self, roots: Sequence[str], config: Config) -> None:
        super().__init__(gone=["gone.pdf"])
        self.made.append((roots, config))

    def __enter__(self) -> Files:
        return self

    def __exit__(self, *_: object) -> None:
        pass


@pytest.fixture
def no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batchocr.processes.source_files.SourceFiles", Files)
    Files.made.clear()


@pytest.mark.slow
def test_pages_are_drawn_as_they_were_read(tmp_path: Path) -> None:
    document = draw_pdf(tmp_path / "a.pdf", "one", "two", "three")
    doc_id = hashlib.sha256(document.read_bytes()).hexdigest()
    size = {"doc_id": doc_id, "page_count": 3, "width": 417, "height": 556, "dpi": 200.0}
    metadata = replace(METADATA, input_roots=(str(tmp_path),))
    table = saved(tmp_path, [row("a.pdf", index, block("text", "a"), **size) for index in range(3)], metadata)
    code, said, _ = said_by("view", table.parts[0].path, "--out", tmp_path / "review.html", "--pages", "r1")
    assert (code, said.count("\n")) == (0, 1)
    assert said.startswith(f"{tmp_path}/review.html: 1 page, ")
    assert 'id="picture-0">UklGR' in (tmp_path / "review.html").read_text()  # RIFF, as a WebP begins


@pytest.mark.usefixtures("no_worker")
def test_it_says_where_the_file_is_and_how_much_is_in_it(tmp_path: Path) -> None:
    table = saved(tmp_path, [*(row(f"{number}.pdf", 0) for number in range(8)), *map(failed, ("f.pdf", "g.pdf"))])
    out, a, b = tmp_path / "review.html", tmp_path / "a", tmp_path / "b.pdf"
    a.mkdir()
    b.touch()
    code, said, _ = said_by(
        "view", table.parts[0].path, "-o", out, "--sample", "3", "--sort", "random", "--input", a, "--input", b
    )
    assert (code, said) == (0, f"{out}: 3 pages, taken at random of 10 rows, {out.stat().st_size / 1e6:.1f} MB\n")
    [(roots, config)] = Files.made
    assert (roots, config.dpi) == ([str(a), str(b)], 200)
    assert said_by("view", table.parts[0].path, "-o", out, "--quiet") == (0, "", "")
    code, said, _ = said_by("view", table.parts[0].path, "-o", out, "--json")
    assert (code, json.loads(said)) == (
        0,
        {
            "path": str(out),
            "size_bytes": out.stat().st_size,
            "pages": 8,
            "documents_without_pages": 2,
            "rows": 10,
            "rows_asked_for": 10,
            "without_picture": 0,
        },
    )


@pytest.mark.usefixtures("no_worker")
def test_pages_without_their_picture_are_told_and_exit_with_3(tmp_path: Path) -> None:
    table = saved(tmp_path, [row("gone.pdf", 0), row("here.pdf", 0), failed("broken.pdf")])
    code, _, log = said_by("view", table.parts[0].path, "-o", tmp_path / "review.html")
    assert (code, "no picture of 1 of 2 pages" in log, "--input says where" in log) == (3, True, True)


@pytest.mark.usefixtures("no_worker")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--sample", "0"), "1<=x<=200"),
        (("--sample", "201"), "1<=x<=200"),
        (("--sample", "3", "--pages", "1"), "give one of them"),
        (("--pages", "x"), "no page or range"),
        (("--pages", "7"), "none of these pages"),
        (("--sort", "best"), "'best' is not one of 'worst', 'order', 'random'"),
        (("--out", "s3://bucket/review.html"), "and copy it to an object store afterwards"),
        (("--input", "nowhere/*.pdf"), "--input 'nowhere/*.pdf': there is no such folder or file"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, options: tuple[str, ...], message: str) -> None:
    table = saved(tmp_path, [row("a.pdf", 0, page_count=1)])
    code, _, log = said_by("view", table.parts[0].path, "-o", tmp_path / "review.html", *options)
    assert (code, message in log) == (2, True)
    assert not (tmp_path / "review.html").exists()


@pytest.mark.usefixtures("no_worker")
def test_a_file_of_somebody_else_stays(tmp_path: Path) -> None:
    table = saved(tmp_path, [row("a.pdf", 0)]).parts[0].path
    before = table.read_bytes()
    for out, message in (
        (table, "choose another --out"),
        (tmp_path / "no folder" / "review.html", "No such file or directory"),
        (tmp_path, "Is a directory"),
    ):
        code, _, log = said_by("view", table, "-o", out)
        assert (code, message in log) == (6, True)
    assert table.read_bytes() == before
