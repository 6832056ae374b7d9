"""What other programs make of a table is welcome to whoever only reads it, and to nobody who has to rely on it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from batchocr.data import Block, PageResult
from batchocr.documents.assembly.assemble import open_table
from batchocr.errors import OutputError
from tests.support.documents import write_table
from tests.support.running import said_by

pytestmark = pytest.mark.usefixtures("quick_processes")

BLOCKS = (
    Block("text", (0.1, 0.1, 0.9, 0.2), 0, "Some text", confidence=0.9, min_logprob=-0.5, tokens=3),
    Block("image", (0.1, 0.3, 0.9, 0.5), None, None),
)
ROWS = [
    PageResult("a.pdf", 0, "ok", "d" * 64, 2, 100, 200, 72.0, markdown="Some text\n", blocks=BLOCKS, image_tokens=9),
    PageResult("a.pdf", 1, "ok", "d" * 64, 2, 100, 200, 72.0, markdown="\n", ink_outside=0.5),
    PageResult("b.pdf", None, "failed", error_kind="damaged", error_message="no PDF"),
]


def by_duckdb(path: Path, out: Path) -> None:
    form = "JSON" if out.suffix == ".jsonl" else "PARQUET"
    duckdb.sql(f"COPY (SELECT *, 1 AS mine FROM '{path}' WHERE source = 'a.pdf') TO '{out}' (FORMAT {form})")


def by_polars(path: Path, out: Path) -> None:
    frame = pl.read_parquet(path).filter(pl.col("source") == "a.pdf").with_columns(mine=pl.lit(1))
    frame.write_parquet(out) if out.suffix == ".parquet" else frame.write_ndjson(out)


def by_pandas(path: Path, out: Path) -> None:
    frame = pd.read_parquet(path)
    frame = frame[frame.source == "a.pdf"].assign(mine=1)
    frame.to_parquet(out) if out.suffix == ".parquet" else frame.to_json(out, orient="records", lines=True)


def by_pyarrow(path: Path, out: Path) -> None:
    """Keeps our metadata, the digest of the other file among it."""
    table = pq.read_table(path)
    pq.write_table(table.filter(pc.equal(table["source"], "a.pdf")), out)


MAKERS = [by_duckdb, by_polars, by_pandas, by_pyarrow]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write_table(tmp_path / "table.parquet", ROWS)


@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
@pytest.mark.parametrize("make", MAKERS)
def test_rows_that_another_program_filtered_are_read_as_they_were(
    table: Path, tmp_path: Path, make: Callable[[Path, Path], None], suffix: str
) -> None:
    if make is by_pyarrow and suffix == "jsonl":
        pytest.skip("pyarrow writes no JSON Lines")
    make(table, out := tmp_path / f"mine.{suffix}")
    opened = open_table(out)
    assert list(opened.rows()) == ROWS[:2]
    assert [document.source for document in opened.documents([])] == ["a.pdf"]


@pytest.mark.parametrize("make", MAKERS)
def test_the_commands_that_read_take_it_and_those_that_rely_on_it_do_not(
    table: Path, tmp_path: Path, make: Callable[[Path, Path], None]
) -> None:
    make(table, out := tmp_path / "mine.parquet")
    assert said_by("export", out, "--to", tmp_path / "texts")[0] in (0, 3)
    assert "Some text" in (tmp_path / "texts" / "a.md").read_text()
    assert said_by("view", out, "--out", tmp_path / "review.html")[0] in (0, 3)
    assert said_by("compare", out, out, "--max-change", "0")[0] == 0
    for arguments in (("verify", out, tmp_path), ("merge", out, "--out", tmp_path / "merged.parquet")):
        code, _, said = said_by(*arguments)
        assert code == 6
        assert "what another program made of a table, only view, export, compare and open_table take" in said


ROW = {"source": "a.pdf", "page_index": 0, "status": "ok", "doc_id": "d" * 64, "markdown": "x", "blocks": []}
BLOCK = {"type": "text", "bbox": [0.1, 0.1, 0.9, 0.2], "content": "half \ud83d of a smiley"}


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("blocks", "abc", "blocks: "),
        ("blocks", 5, "blocks: "),
        ("blocks", ["x"], "blocks.0: "),
        ("blocks", [BLOCK, None], "blocks.1: "),
        ("blocks", [[["a"]]], "blocks.0: "),
        ("blocks", [BLOCK | {"bbox": [0, 0, float("inf"), 1]}], "blocks.0.bbox.2: "),
        ("page_index", 10**30, "page_index: "),
        ("page_index", 2**31, "page_index: "),
        ("page_index", -1, "page_index: "),
        ("page_index", True, "page_index: "),
        ("page_index", float("inf"), "page_index: "),
        ("status", "great", "status: "),
        ("dpi", -5, "dpi: "),
        ("dpi", 1e-9, "dpi: "),
        ("width", -5, "width: "),
        ("height", 2**62, "height: "),
    ],
)
def test_a_row_that_is_none_is_named_with_its_column(tmp_path: Path, column: str, value: object, said: str) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text(json.dumps(ROW) + "\n" + json.dumps(ROW | {column: value}) + "\n")
    rows = open_table(path).rows()
    assert next(rows).source == "a.pdf"
    with pytest.raises(OutputError, match=f"mine.jsonl, row 2, is no row of a table of batchocr: {said}") as raised:
        next(rows)
    assert "\n" not in str(raised.value)


def test_what_no_file_can_hold_ends_no_export(tmp_path: Path) -> None:
    odd = ROW | {"source": "a\ud83d.pdf", "blocks": [BLOCK], "dpi": float("inf"), "page_count": 1}
    (tmp_path / "mine.jsonl").write_text(json.dumps(odd) + "\n" + json.dumps(ROW | {"source": "b.pdf"}) + "\n")
    to = tmp_path / "texts"
    code, _, said = said_by("export", tmp_path / "mine.jsonl", "--to", to, "--format", "md,mineru,chunks,html,docling")
    assert code == 0, said
    assert "half \\ud83d of a smiley" in next(to.glob("a*/*_content_list.json")).read_text().replace("\\\\", "\\")
    assert {path.suffix for path in to.glob("b*")} == {"", ".md", ".jsonl", ".html", ".json"}


@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
def test_another_byte_is_damage_and_another_size_is_not(tmp_path: Path, suffix: str) -> None:
    path = write_table(tmp_path / f"table.{suffix}", ROWS)
    sound = path.read_bytes()
    at = sound.index(b"Some text")
    path.write_bytes(sound[:at] + b"Same" + sound[at + 4 :])
    with pytest.raises(OutputError, match="damaged"):
        list(open_table(path).rows())
    if suffix == "jsonl":
        path.write_bytes(sound[: sound.index(b"\n") + 1])
        assert list(open_table(path).rows()) == ROWS[:1]
