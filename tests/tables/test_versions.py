"""Tables and journals of version 6 are read. Those of earlier versions are refused by every command, and the message
says what to do. No run goes on from either, and `--overwrite` replaces them."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import batchocr
from batchocr.data import PageResult
from batchocr.errors import OutputMismatchError
from batchocr.storage.checksums import checked_line
from batchocr.tables.files import journal_path, record_path
from batchocr.tables.journal import Journal
from batchocr.tables.schema import (
    PAGE_SCHEMA,
    RunMetadata,
    encode_metadata,
    fingerprint_of_settings,
    metadata_to_json,
    require_same_settings,
    to_json,
    to_row,
)
from batchocr.tables.table import table_for
from tests.support.documents import METADATA, text_row
from tests.support.running import draw_pdf, said_by
from tests.support.tables import put_table

pytestmark = pytest.mark.usefixtures("quick_processes")

VERSION_6 = Path(__file__).parent / "version_6"
"""What the last batchocr with columns of version 6 has left: three tables of the same three documents, each with the
journal of a run that was killed once it had read a fourth; and two journals of runs that were killed before there was a
table."""
IN_TABLE = ["a.pdf 0 ok", "a.pdf 1 ok", "b.pdf 0 ok", "c.pdf None failed"]
IN_JOURNAL = ["d.pdf 0 ok", "d.pdf 1 ok"]
BEGUN = ["c.pdf None failed", "a.pdf 0 ok", "a.pdf 1 ok"]

VERSION_5 = replace(METADATA, schema_version=5)
ROW = text_row("a.pdf", 0)
SINCE = ("file_bytes", "file_mtime_ns")
"""Columns that version 5 lacks."""


@pytest.fixture
def left(tmp_path: Path) -> Path:
    """A copy of what version 6 has left."""
    return shutil.copytree(VERSION_6, tmp_path / "left")


def in_short(rows: Iterable[PageResult]) -> list[str]:
    return [f"{row.source} {row.page_index} {row.status}" for row in rows]


@pytest.mark.parametrize("name", ["t.parquet", "t.jsonl", "t"])
def test_a_table_of_version_6_and_the_journal_of_a_run_that_continues_it_are_read(left: Path, name: str) -> None:
    table, unfinished = batchocr.open_table(left / name), batchocr.open_table(left / name, partial=True)
    assert in_short(table.rows()) == IN_TABLE
    assert in_short(unfinished.rows()) == IN_TABLE + IN_JOURNAL
    assert [*table.rows()] == [*batchocr.open_table(left / "t.parquet").rows()]
    code, _, said = said_by("merge", left / name, "--out", left / "merged.parquet")
    assert (code, in_short(batchocr.open_table(left / "merged.parquet").rows())) == (0, IN_TABLE), said


@pytest.mark.parametrize("name", ["begun.parquet", "begun"])
def test_the_journal_of_a_first_run_of_version_6_is_read(left: Path, name: str) -> None:
    assert in_short(batchocr.open_table(left / name, partial=True).rows()) == BEGUN
    assert said_by("export", left / name, "--partial", "--to", left / "texts")[0] == 0


@pytest.mark.parametrize("name", ["t.parquet", "t.jsonl", "t/", "begun.parquet", "begun/"])
def test_a_run_into_what_version_6_has_left_says_why_not_and_replaces_it_with_overwrite(
    left: Path, name: str, model: Path
) -> None:
    (left / "in").mkdir()
    draw_pdf(left / "in" / "new.pdf", "new")
    run = ("run", left / "in", "--out", f"{left}/{name}", "--model", model, "--device", "cpu", "--workers", "1")
    before = {path: path.read_bytes() for path in left.rglob("*") if path.is_file()}
    code, _, said = said_by(*run)
    assert code == 6
    assert "protocol mineru 2.0.7 r16 there" in said
    assert "continue it with the version that began it, choose another --out, or start over with --overwrite" in said
    assert {path: path.read_bytes() for path in left.rglob("*") if path.is_file()} == before
    code, _, said = said_by(*run, "--overwrite")
    assert (code, in_short(batchocr.open_table(left / name).rows())) == (0, ["new.pdf 0 ok"]), said
    if name.endswith("/"):
        beside = [path.name for path in (left / name).iterdir() if path.suffix != ".parquet"]
        assert beside == [".batchocr"]


@pytest.mark.parametrize(
    ("model", "remedy"),
    [("m" * 64, "continue it with the version that began it"), ("o" * 64, r"\): run with the same")],
)
def test_only_who_names_the_same_model_is_told_that_the_version_is_another(model: str, remedy: str) -> None:
    def of(model: str, **settings: str) -> RunMetadata:
        fingerprint = fingerprint_of_settings({"model_fingerprint": model, **settings})
        return replace(METADATA, model_fingerprint=model, settings=settings, settings_fingerprint=fingerprint)

    found, now = of("m" * 64, protocol="r1", dpi="200"), of(model, protocol="r2", dpi="300")
    with pytest.raises(OutputMismatchError, match=remedy):
        require_same_settings("t.parquet", found, now)


def write_version_5(out: Path, kept_in: str) -> None:
    """What a run of version 5 has left: a table, or the journal of one."""
    line = json.loads(to_json(ROW))
    line = json.dumps(
        {name: value for name, value in line.items() if name not in SINCE}, separators=(",", ":")
    ).encode()
    if kept_in == "journal":
        row = checked_line(b'{"result":%s,"size":9,"mtime_ns":1}' % line)
        journal_path(out).write_bytes(checked_line(metadata_to_json(VERSION_5)) + row)
    elif out.suffix == ".jsonl":
        out.write_bytes(line + b"\n")
        keys = b',"bytes":%d,"sha256":"%s"}' % (len(line) + 1, hashlib.sha256(line + b"\n").hexdigest().encode())
        record_path(out).write_bytes(checked_line(metadata_to_json(VERSION_5)[:-1] + keys))
    else:
        write_parquet_of_version_5(out)


def write_parquet_of_version_5(out: Path) -> None:
    """A table without these columns, which has a digest of the whole and none of its footer."""
    schema = pa.schema([field for field in PAGE_SCHEMA if field.name not in SINCE])
    with pq.ParquetWriter(out, schema.with_metadata(encode_metadata(VERSION_5))) as writer:
        writer.write_table(pa.Table.from_pylist([to_row(ROW)], schema=schema))
        writer.add_key_value_metadata({"batchocr.sha256": "0" * 64})
    data = out.read_bytes()
    out.write_bytes(data.replace(b"0" * 64, hashlib.sha256(data).hexdigest().encode()))


@pytest.mark.parametrize(
    ("name", "kept_in"),
    [("t.parquet", "table"), ("t.jsonl", "table"), ("t.parquet", "journal"), ("t.jsonl", "journal")],
)
def test_what_version_5_has_left_is_refused_by_every_command_and_stays_as_it_is(
    tmp_path: Path, name: str, kept_in: str, model: Path
) -> None:
    out = tmp_path / name
    (tmp_path / "in").mkdir()
    draw_pdf(tmp_path / "in" / "a.pdf", "a")
    write_version_5(out, kept_in)
    before = {path: path.read_bytes() for path in tmp_path.glob("t.*")}
    commands: list[tuple[str | Path, ...]] = [
        ("run", tmp_path / "in", "--out", out, "--model", model, "--device", "cpu", "--workers", "1"),
        ("export", out, "--to", tmp_path / "texts", *(["--partial"] if kept_in == "journal" else [])),
    ]
    commands += [("verify", out, tmp_path / "in")] if kept_in == "table" else []
    for command in commands:
        code, _, said = said_by(*command)
        assert code == 6
        assert "written by batchocr 0.1.0 with columns of version 5, and this one reads versions 6 to 8" in said
        assert "read the documents again with `batchocr run --overwrite`, or use the batchocr that wrote it" in said
    assert {path: path.read_bytes() for path in tmp_path.glob("t.*")} == before


@pytest.mark.parametrize("kept_in", ["table", "journal"])
@pytest.mark.parametrize("name", ["t.parquet", "t.jsonl"])
def test_what_version_5_has_left_is_replaced_with_overwrite(tmp_path: Path, name: str, kept_in: str) -> None:
    out = tmp_path / name
    write_version_5(out, kept_in)
    with Journal.open(out, METADATA, resume=True, overwrite=True) as journal:
        journal.append(ROW)
        put_table(out, [ROW], journal.metadata)
        journal.remove()
    assert list(table_for(out).read_rows(out)) == [ROW]


@pytest.mark.parametrize("version", [5, 9])
def test_a_journal_of_a_version_that_is_not_read_is_not_continued(tmp_path: Path, version: int) -> None:
    out = tmp_path / "t.parquet"
    with Journal.open(out, replace(METADATA, schema_version=version), resume=True, overwrite=False) as journal:
        journal.append(ROW)
    with pytest.raises(OutputMismatchError, match=rf"t\.parquet\.journal was written .* of version {version},"):
        Journal.open(out, METADATA, resume=True, overwrite=False)
