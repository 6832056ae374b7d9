"""A run that is continued keeps the data type of its rows, on whatever CPU; the journal or the table says which."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

import batchocr
from batchocr.engine import start
from batchocr.errors import OutputMismatchError
from batchocr.job import session as sessions
from batchocr.planning import dtype as dtypes
from batchocr.planning.checkpoint_files import stored_dtype
from batchocr.tables import parquet
from batchocr.tables.earlier import dtype_of, metadata_of_rows
from batchocr.tables.journal import Journal
from batchocr.tables.schema import RunMetadata
from batchocr.tables.table import table_for
from tests.support.documents import block, rows_of
from tests.support.running import QUICK_MODEL, draw_pdf, said_by

pytestmark = pytest.mark.slow


def set_cpu(monkeypatch: pytest.MonkeyPatch, speedup: float | None) -> None:
    """Pretend that the quick model is a large one stored in bfloat16, on a CPU with, or without, fast units."""
    for asks in (dtypes, start):
        monkeypatch.setattr(asks, "multiplies_bfloat16", lambda: speedup is not None)
    monkeypatch.setattr(start, "bfloat16_speedup", lambda: speedup)
    monkeypatch.setattr(dtypes, "_LARGE_MODEL", 0)
    monkeypatch.setattr(sessions, "stored_dtype", lambda folder: "bfloat16")


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    folder = tmp_path / "documents"
    folder.mkdir()
    draw_pdf(folder / "a.pdf", "one", "two")
    return folder


@pytest.mark.parametrize(
    ("kept_in", "first", "second"),
    [
        pytest.param("journal", None, 3.0, marks=pytest.mark.long),
        pytest.param("journal", 3.0, None, marks=pytest.mark.long),
        ("table", 3.0, 1.0),
        pytest.param("lines", None, 3.0, marks=pytest.mark.long),
    ],
)
def test_a_run_is_continued_in_the_dtype_of_its_rows(
    tmp_path: Path,
    model: Path,
    documents: Path,
    monkeypatch: pytest.MonkeyPatch,
    kept_in: str,
    first: float | None,
    second: float | None,
) -> None:
    out = tmp_path / ("table.jsonl" if kept_in == "lines" else "table.parquet")

    def run(**options: object) -> str:
        report = batchocr.run(documents, out=out, model=model, device="cpu", workers=1, **options)
        return str(report.settings["dtype"])

    set_cpu(monkeypatch, first)
    begun_in = "float32" if first is None else "bfloat16"
    assert run() == begun_in
    if kept_in == "journal":
        rows, metadata = list(parquet.read_rows(out)), parquet.read_metadata(out)
        assert metadata is not None
        out.unlink()
        with Journal.open(out, metadata, resume=True, overwrite=False) as begun:
            for row in rows[:1]:
                begun.append(row)
    assert dtype_of(metadata_of_rows(out)) == begun_in

    set_cpu(monkeypatch, second)
    assert run() == begun_in
    other = "bfloat16" if begun_in == "float32" else "float32"
    with pytest.raises(OutputMismatchError, match=f"dtype {begun_in} there, {other} here"):
        run(dtype=other)
    assert run(overwrite=True) == ("bfloat16" if second == 3.0 else "float32")


def test_what_is_no_output_has_no_dtype(tmp_path: Path) -> None:
    (tmp_path / "folder.parquet").mkdir()
    (tmp_path / "other.parquet").write_bytes(b"something else")
    os.mkfifo(tmp_path / "pipe.parquet")
    os.mkfifo(tmp_path / "pipe.jsonl.journal")
    (tmp_path / "torn.parquet.journal").write_bytes(b'{"batchocr_ver')
    (tmp_path / "link.parquet").symlink_to("nowhere")
    for name in ("none", "folder", "other", "pipe", "torn", "link"):
        assert metadata_of_rows(tmp_path / f"{name}.parquet") is None
    assert metadata_of_rows(tmp_path / "pipe.jsonl") is None


IN_INT8 = RunMetadata("0.1.0", "acme/reader", "f" * 64, "a" * 64, {"dtype": "int8", "dpi": "200"})


@pytest.mark.parametrize("kept_in", ["journal", "table", "lines"])
def test_what_was_begun_in_int8_is_not_continued_and_the_message_says_what_to_do(
    tmp_path: Path, model: Path, documents: Path, kept_in: str
) -> None:
    out = tmp_path / ("table.jsonl" if kept_in == "lines" else "table.parquet")
    rows = rows_of(documents / "a.pdf", "a.pdf", [], [])
    if kept_in == "journal":
        with Journal.open(out, IN_INT8, resume=True, overwrite=False) as begun:
            begun.append(rows[0])
    else:
        table_for(out).write(out, rows, IN_INT8)
    before = {path: path.read_bytes() for path in tmp_path.glob("table.*")}
    code, _, log = said_by("run", documents, "--out", out, "--model", model, "--device", "cpu", "--workers", "1")
    assert code == 6
    assert "dtype int8 there, float32 here" in log
    assert "int8 is no longer offered; continue it with the version that began it, choose another --out, or" in log
    assert {path: path.read_bytes() for path in tmp_path.glob("table.*")} == before


def test_a_table_of_int8_can_be_read(tmp_path: Path, documents: Path) -> None:
    out = tmp_path / "table.parquet"
    rows = rows_of(documents / "a.pdf", "a.pdf", [block("text", "One")], [block("text", "Two")])
    table_for(out).write(out, rows, replace(IN_INT8, input_roots=(str(documents),)))
    for arguments in (
        ("verify", out, documents),
        ("export", out, "--to", tmp_path / "texts"),
        ("view", out, "--out", tmp_path / "review.html"),
        ("compare", out, out),
        ("merge", out, "--out", tmp_path / "merged.parquet"),
    ):
        code, _, log = said_by(*arguments)
        assert code == 0, log
    assert table_for(out).read_metadata(tmp_path / "merged.parquet").settings["dtype"] == "int8"


def test_a_checkpoint_says_in_which_dtype_most_of_it_is_stored(sample_data: Path) -> None:
    assert stored_dtype(QUICK_MODEL) == "float32"
    assert stored_dtype(sample_data / "model") == "bfloat16"
