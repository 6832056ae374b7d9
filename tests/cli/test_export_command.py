"""`batchocr export`: what it is told, what it says, and its exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from batchocr.data import PageResult
from batchocr.documents.export.formats import FORMATS
from batchocr.pages.input.folders import EXPORT_RECORD
from batchocr.pages.input.sources import find_documents
from batchocr.tables.journal import Journal
from tests.support.documents import METADATA, block, draw, rows_of, text_row, write_table
from tests.support.running import said_by

pytestmark = pytest.mark.slow


ALL = ",".join(FORMATS)
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run `batchocr export` in the test's folder; returns its exit code, what it printed, and what it logged."""
    monkeypatch.chdir(tmp_path)
    return partial(said_by, "export")


@pytest.fixture
def rows(tmp_path: Path) -> list[PageResult]:
    figure = block("image", None, (0.2, 0.25, 0.6, 0.5))
    read = rows_of(draw(tmp_path / "in/a.pdf"), "a.pdf", [block("text", "One."), figure])
    return [*read, text_row("b\x1b[31m.pdf", 0, block("text", "Two."))]


def test_documents_are_exported_in_each_format_and_counted(run: Run, rows: list[PageResult], tmp_path: Path) -> None:
    table = write_table(tmp_path / "t.parquet", rows)
    asked = (table, "--input", "in", "--to", "out", "--format", "md,mineru")
    code, printed, _ = run(*asked, "--json")
    assert code == 0
    assert json.loads(printed) == {
        **dict.fromkeys(
            (
                "up_to_date",
                "without_pages",
                "without_text",
                "refused",
                "vanished",
                "unclear_blocks",
                "signed",
                "hidden_lines",
                "exit_code",
            ),
            0,
        ),
        **dict.fromkeys(("documents", "pages", "written"), 2),
        "missing_figures": {},
    }
    assert "2 documents of 2 pages in out (md, mineru): 0 written, 2 as before" in run(*asked)[2]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        *(EXPORT_RECORD, "a", "a.images", "a.md", "b_[31m", "b_[31m.md"),
    ]


def test_figures_without_a_file_are_counted_and_the_exit_code_is_3(
    run: Run, rows: list[PageResult], tmp_path: Path
) -> None:
    table = write_table(tmp_path / "t.jsonl", rows)
    code, _, said = run(table, "--to", "out")
    assert code == 3
    assert "1 figure could not be cut out, with a mark in place of each: 1 not_found (say with --input" in said
    assert run(table, "--to", "out", "--input", "in/a.pdf")[0] == 0


def test_a_document_that_the_run_could_not_read_is_no_error_of_the_export_and_told_once(
    run: Run, rows: list[PageResult], tmp_path: Path
) -> None:
    failed = PageResult("gone.pdf", None, "failed", error_kind="damaged", error_message="gone.pdf is damaged")
    table = write_table(tmp_path / "t.parquet", [rows[0], failed])
    for formats, has_files in ((ALL, True), ("pdf,hocr,alto", False)):
        asked = (table, "--to", f"out-{has_files}", "--input", "in", "--format", formats)
        code, printed, _ = run(*asked, "--json")
        counts = json.loads(printed)
        assert (code, counts["without_pages"], counts["refused"], counts["written"]) == (0, 1, 0, 1 + has_files)
        assert bool([*Path(f"out-{has_files}").glob("gone*")]) == has_files
        said = run(*asked)[2]
        assert (said.count("1 document without a page that could be read"), "error" in said) == (1, False)


def test_a_document_without_text_has_no_row_in_a_dataset_and_is_told(run: Run, tmp_path: Path) -> None:
    rows = [text_row("a.pdf", 0, block("text", "One.")), text_row("b.pdf", 0, block("image", None))]
    table = write_table(tmp_path / "t.parquet", rows)
    asked = (table, "--to", "out", "--input", tmp_path, "--format", "dolma")
    assert "1 document without text: no row in the dataset" in run(*asked)[2]
    assert json.loads(run(*asked, "--json")[1])["without_text"] == 1
    assert "without text" not in run(*asked[:-1], "md")[2]


def test_without_input_the_documents_are_where_the_run_found_them(
    run: Run, rows: list[PageResult], tmp_path: Path
) -> None:
    metadata = replace(METADATA, input_roots=(str(tmp_path / "in"),))
    assert run(write_table(tmp_path / "t.parquet", rows, metadata), "--to", "out")[0] == 0


@pytest.mark.parametrize("to", ["in", "in/texts", "texts"])
def test_the_next_run_finds_the_documents_that_this_one_did(
    run: Run, rows: list[PageResult], tmp_path: Path, to: str
) -> None:
    assert run(write_table(tmp_path / "t.parquet", rows[:1]), "--input", "in", "--to", to, "--format", ALL)[0] == 0
    assert len([*Path(to).rglob("*.png"), *Path(to).rglob("*.jpg")]) == 3
    found = find_documents(["."])
    assert [document.source for document in found.documents] == ["in/a.pdf"]
    assert found.skipped["cut by an export"] == 4


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--to", "out", "--page-names", "../{stem}.md"), "give a path within DIR that has {stem}"),
        (("--to", ""), "--to is empty: say where to write"),
        (("--to", "out", "--input", "in", "--input", "gone"), "--input 'gone': there is no such folder or file"),
        *(
            (("--to", "out", "--format", of), "one or more of md, mineru, chunks, docling, html")
            for of in ("", "md,docx", "MD")
        ),
    ],
)
def test_a_place_or_format_that_cannot_be_meant_is_wrong_usage(
    run: Run, rows: list[PageResult], tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    table = write_table(tmp_path / "t.jsonl", rows)
    before = sorted(tmp_path.iterdir())
    code, _, error = run(table, *arguments)
    assert (code, said in error) == (2, True)
    assert sorted(tmp_path.iterdir()) == before


def test_a_folder_that_cannot_be_written_gives_exit_code_6(run: Run, rows: list[PageResult], tmp_path: Path) -> None:
    table = write_table(tmp_path / "t.jsonl", rows)
    (tmp_path / "file").write_text("mine")
    for to, why in (("file", "File exists"), ("file/out", "Not a directory"), ("file/out/below", "Not a directory")):
        code, _, said = run(table, "--to", to)
        assert (code, f"cannot write {to}: {why}" in said) == (6, True)
    assert (tmp_path / "file").read_text() == "mine"


def test_what_a_run_that_goes_on_has_read_is_exported_and_later_the_rest(
    run: Run, rows: list[PageResult], tmp_path: Path
) -> None:
    out = tmp_path / "t.parquet"
    with Journal.open(out, METADATA, resume=True, overwrite=False) as journal:
        journal.append(rows[0])
        assert run(out, "--to", "out", "--input", "in")[0] == 6
        assert run(out, "--to", "out", "--input", "in", "--partial")[0] == 0
        journal.append(rows[1])
        assert "1 written, 1 as before" in run(out, "--to", "out", "--input", "in", "--partial")[2]


def test_ctrl_c_leaves_whole_files_and_the_next_run_does_the_rest(tmp_path: Path, rows: list[PageResult]) -> None:
    rows = [replace(rows[0], source=f"{number:04}/a.pdf") for number in range(2000)]
    table = write_table(tmp_path / "t.parquet", rows)
    where = ("--to", tmp_path / "out", "--input", tmp_path / "in/a.pdf")
    command = [sys.executable, "-m", "batchocr", "export", table, *where, "--workers", "2"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
        while not list((tmp_path / "out").glob("*/*.md")) and running.poll() is None:
            time.sleep(0.02)
        os.kill(running.pid, signal.SIGINT)
        said = running.communicate(timeout=30)[1]
    assert (running.returncode, "stopped before the end" in said, "Traceback" in said) == (130, True, False), said
    written = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*.*") if path.is_file()}
    assert {path.suffix for path in written} == {".md", ".png", ".sqlite"}
    assert 0 < len(written) < 4000
    assert len(set(written.values())) == 3
