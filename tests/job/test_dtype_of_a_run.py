"""A run that is continued keeps the data type of its rows, on whatever CPU; the journal or the table says which."""

from __future__ import annotations

import os
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
from tests.support.running import QUICK_MODEL, draw_pdf

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


def test_a_checkpoint_says_in_which_dtype_most_of_it_is_stored(sample_data: Path) -> None:
    assert stored_dtype(QUICK_MODEL) == "float32"
    assert stored_dtype(sample_data / "model") == "bfloat16"
