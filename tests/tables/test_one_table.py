"""A folder of parts is one table: what is not as a run left it is refused by name, by every command that takes rows."""

from __future__ import annotations

import hashlib
import json
import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow.parquet as pq
import pytest

import batchocr
from batchocr.data import PageResult
from batchocr.errors import OutputError
from batchocr.storage.checksums import checked_line
from batchocr.tables import jsonl, parquet
from batchocr.tables.output import Output
from batchocr.tables.parts import open_table
from batchocr.tables.place import DiskPlace
from batchocr.tables.record import Record
from batchocr.tables.schema import metadata_to_json
from tests.support.documents import METADATA, text_row, write_table
from tests.support.nights import NAMES, NIGHT, PRUNING, Archive
from tests.support.running import raising, said_by

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quick_processes")]

FOLDER = NAMES[2]
NEW = "part-000009-0123456789abcdef.parquet"
OPEN_FILES = 120
OF_THE_FILE = (b"batchocr.sha256", b"batchocr.footer_sha256", b"batchocr.bytes")
WHAT_TO_DO = re.compile(r"restore|remove|move it|again|start over|--overwrite|name another")


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Archive:
    return Archive(tmp_path_factory.mktemp("archive"), model, None)


@pytest.fixture(scope="module")
def whole(archive: Archive, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that two nights have left, as `now`; as `before`, that of the day before. The first night has replaced
    the part with d.pdf, the second one has not."""
    night = archive.night(FOLDER, PRUNING)
    both = tmp_path_factory.mktemp("whole")
    shutil.copytree(night.out, both / "before")
    with night.machine("one") as machine:
        night.run(machine)
        aside = (archive.documents / "h.pdf").rename(both / "h.pdf")
        night.run(machine)
    shutil.move(aside, archive.documents)
    shutil.copytree(night.out, both / "now")
    return both


@pytest.fixture
def out(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole / "now", tmp_path / "table"))


def parts(out: Path) -> list[Path]:
    return sorted(out.glob("part-*.parquet"))


def rows_of(out: str | Path) -> list[PageResult]:
    return list(batchocr.open_table(out).rows())


def lose(part: Path, _: Path) -> None:
    part.unlink()


def double(part: Path, _: Path) -> None:
    shutil.copy(part, part.with_name(NEW))


def add_a_foreign_one(part: Path, _: Path) -> None:
    write_table(part.with_name(NEW), [text_row("foreign.pdf", 0)])


def add_an_empty_one(part: Path, _: Path) -> None:
    part.with_name(NEW).touch()


def swap(part: Path, _: Path) -> None:
    other = next(other for other in parts(part.parent) if other != part)
    aside = part.rename(part.with_name("aside"))
    other.rename(part)
    aside.rename(other)


def replace_by_an_older_one(part: Path, before: Path) -> None:
    shutil.copy(before / part.name, part)


def write_anew(part: Path, _: Path) -> None:
    pq.write_table(pq.read_table(part), part)


def cut(part: Path, _: Path) -> None:
    os.truncate(part, 6000)


def empty(part: Path, _: Path) -> None:
    os.truncate(part, 0)


def replace_by_a_pipe(part: Path, _: Path) -> None:
    part.unlink()
    os.mkfifo(part)


def replace_by_a_folder(part: Path, _: Path) -> None:
    part.unlink()
    part.mkdir()


DAMAGES = (lose, double, add_a_foreign_one, swap, replace_by_an_older_one, write_anew)
LESS_USUAL = (add_an_empty_one, cut, empty, replace_by_a_pipe, replace_by_a_folder)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("damage", [*DAMAGES, *(pytest.param(each, marks=pytest.mark.long) for each in LESS_USUAL)])
def test_a_part_that_is_not_as_the_last_run_left_it_is_refused_by_every_command(
    archive: Archive, whole: Path, out: Path, tmp_path: Path, damage: Callable[[Path, Path], None]
) -> None:
    [part] = [part for part in parts(out) if "d.pdf" in pq.read_table(part)["source"].to_pylist()]
    assert part.read_bytes() != (whole / "before" / part.name).read_bytes()
    damage(part, whole / "before")
    taken = {}
    for command in (
        ("export", out, "--to", tmp_path / "texts"),
        ("view", out, "--out", tmp_path / "view.html"),
        ("merge", out, "--out", tmp_path / "merged.parquet"),
        ("compare", out, whole / "now"),
        ("verify", out, archive.documents),
    ):
        code, _, said = said_by(*command)
        refused = [line for line in said.splitlines() if "part-" in line and WHAT_TO_DO.search(line)]
        if code != 6 or not refused:
            taken[command[0]] = (code, said)
    assert taken == {}
    with pytest.raises(OutputError):
        rows_of(out)


def test_a_part_that_takes_its_name_while_a_reader_looks_for_it_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, rows = tmp_path / "table", [text_row("a.pdf", 0, doc_id=version * 64) for version in "ab"]
    out.mkdir()
    for row in rows:
        output, there = Output(out), open_table(out)
        output.prepare()
        output.begin()
        with monkeypatch.context() as patched, suppress(OutputError):
            patched.setattr(DiskPlace, "copy", raising(OutputError()) if there else DiskPlace.copy)
            output.commit([row], METADATA, rows_per_part=4, earlier=there)
    looks = parquet.open_table

    def look_as_it_moves(path: Path, **more: Any) -> parquet.ParquetTable | None:
        found = looks(path, **more)
        monkeypatch.setattr(parquet, "open_table", looks)
        other = Output(out)
        other.begin()
        other.settle(open_table(out))
        return found

    monkeypatch.setattr(parquet, "open_table", look_as_it_moves)
    assert rows_of(out) == rows[1:]


@pytest.mark.parametrize("is_link", [True, False])
def test_nothing_is_done_in_a_hidden_folder_that_is_somebody_elses(tmp_path: Path, is_link: bool) -> None:
    table, out = write_table(tmp_path / "table.parquet", [text_row("a.pdf", 0)]), tmp_path / "table"
    out.mkdir()
    theirs = tmp_path / "theirs" if is_link else out / ".batchocr"
    theirs.mkdir()
    theirs.chmod(0o777)
    (theirs / "work.tmp").touch()
    if is_link:
        (out / ".batchocr").symlink_to(theirs)
    code, _, said = said_by("merge", table, "--out", out)
    assert (code, "remove it" in said, os.listdir(theirs)) == (6, True, ["work.tmp"])


def test_no_file_outside_the_folder_is_removed_because_a_record_or_a_link_says_so(tmp_path: Path) -> None:
    table, out = write_table(tmp_path / "table.parquet", [text_row("a.pdf", 0)]), tmp_path / "table"
    out.mkdir()
    said_by("merge", table, "--out", out)
    record = out / ".batchocr" / "table.json"
    said = json.loads(record.read_bytes())
    del said["crc32"]
    said["record"]["removed"] = ["../table.parquet"]
    record.write_bytes(checked_line(json.dumps(said, separators=(",", ":")).encode()))
    with pytest.raises(OutputError, match="no part of a table"):
        rows_of(out)

    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "file").touch()
    (out / ".batchocr" / "new").rmdir()
    (out / ".batchocr" / "new").symlink_to(tmp_path / "theirs")
    code, _, told = said_by("merge", table, "--out", out, "--overwrite")
    assert (code, "remove it" in told, os.listdir(tmp_path / "theirs")) == (6, True, ["file"])


def test_what_a_killed_run_has_staged_of_a_table_in_json_lines_goes_with_the_next_commit(tmp_path: Path) -> None:
    out = write_table(tmp_path / "table.jsonl", [text_row("a.pdf", 0)])
    for name in ("table.jsonl.00000002.0123456789abcdef.new", "table.jsonl.00000001.0123456789abcdef.new.0123.tmp"):
        (tmp_path / name).touch()
    others = ["00000001.new", "other.jsonl.00000001.0123456789abcdef.new", "table.jsonl.00000001.txt"]
    for name in others:
        (tmp_path / name).touch()
    write_table(out, [text_row("b.pdf", 0)])
    assert sorted(os.listdir(tmp_path)) == sorted([*others, "table.jsonl", "table.jsonl.meta.json"])


@pytest.mark.parametrize("name", ["table.jsonl", "table/"])
def test_a_merge_that_was_killed_after_its_commit_is_finished_by_one_that_finds_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    rows = [text_row("a.pdf", 0)]
    order = ("merge", write_table(tmp_path / "rows.parquet", rows), "--out", f"{tmp_path}/{name}")
    with monkeypatch.context() as patched:
        patched.setattr(DiskPlace, "copy", raising(OutputError("killed")))
        assert said_by(*order)[0] == 6
    assert not [*tmp_path.glob("table.jsonl"), *tmp_path.glob("table/*.parquet")]
    assert rows_of(f"{tmp_path}/{name}") == rows
    (tmp_path / "table.jsonl.0123456789abcdef.tmp").touch()
    code, _, said = said_by(*order)
    assert (code, "exists already" in said) == (6, True)
    assert [*tmp_path.glob("table.jsonl"), *tmp_path.glob("table/*.parquet")]
    assert not [*tmp_path.rglob("*.new"), *tmp_path.glob(f"{name}.*.tmp")]


def test_a_table_in_json_lines_that_has_not_taken_its_name_is_not_taken_for_that_of_before_if_both_are_as_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = write_table(tmp_path / "table.jsonl", [text_row("a.pdf", 0)])
    with monkeypatch.context() as patched, suppress(OutputError):
        patched.setattr(DiskPlace, "copy", raising(OutputError("killed")))
        write_table(out, [text_row("b.pdf", 0)])
    assert rows_of(out) == [text_row("b.pdf", 0)]


def test_a_table_in_json_lines_that_takes_its_name_or_is_replaced_while_a_reader_looks_for_it_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, rows = tmp_path / "table.jsonl", [text_row("a.pdf", 0), text_row("longer.pdf", 0)]
    with monkeypatch.context() as patched, suppress(OutputError):
        patched.setattr(DiskPlace, "copy", raising(OutputError("killed")))
        write_table(out, rows[:1])
    opens, reads = jsonl.JsonLinesTable, jsonl.read_record

    def open_as_it_moves(*arguments: Any, **more: Any) -> jsonl.JsonLinesTable:
        monkeypatch.setattr(jsonl, "JsonLinesTable", opens)
        next(tmp_path.glob("*.new")).rename(out)
        return opens(*arguments, **more)

    monkeypatch.setattr(jsonl, "JsonLinesTable", open_as_it_moves)
    assert list(jsonl.read_rows(out)) == rows[:1]

    def read_before_it_is_replaced(path: Path) -> Record | None:
        monkeypatch.setattr(jsonl, "read_record", reads)
        record = reads(path)
        write_table(out, rows)
        return record

    monkeypatch.setattr(jsonl, "read_record", read_before_it_is_replaced)
    assert not jsonl.is_derived(out)


def test_with_all_parts_lost_a_table_is_not_an_empty_one(out: Path, tmp_path: Path) -> None:
    for part in parts(out):
        part.unlink()
    assert said_by("export", out, "--to", tmp_path / "texts")[0] == 6
    with pytest.raises(OutputError):
        rows_of(out)


def test_parts_without_their_record_are_read_and_one_warning_says_that_nothing_was_checked(
    out: Path, tmp_path: Path
) -> None:
    (tmp_path / "copied").mkdir()
    for part in parts(out):
        shutil.copy(part, tmp_path / "copied")
    usual = [line for line in said_by("export", out, "--to", tmp_path / "1")[2].splitlines() if "warning" in line]
    code, _, said = said_by("export", tmp_path / "copied", "--to", tmp_path / "2")
    [warning] = [line for line in said.splitlines() if "warning" in line and line not in usual]
    assert (code, "copied" in warning, "check" in warning) == (0, True, True)
    assert rows_of(tmp_path / "copied") == rows_of(out)


@pytest.mark.parametrize("left", [0, 5])
def test_a_record_that_is_cut_is_damaged_and_not_missing(out: Path, tmp_path: Path, left: int) -> None:
    os.truncate(out / ".batchocr" / "table.json", left)
    code, _, said = said_by("export", out, "--to", tmp_path / "texts")
    assert (code, "table.json is damaged" in said, "warning" in said) == (6, True, False)


def test_a_table_in_json_lines_may_be_copied_and_renamed_with_its_record(tmp_path: Path) -> None:
    first, second = ([text_row(f"{name}.pdf", 0)] for name in "ab")
    write_table(tmp_path / "a.jsonl", first)
    for suffix in (".jsonl", ".jsonl.meta.json"):
        shutil.copy(tmp_path / f"a{suffix}", tmp_path / f"copied{suffix}")
    write_table(tmp_path / "a.jsonl", second)
    assert rows_of(tmp_path / "copied.jsonl") == first
    for suffix in (".jsonl", ".jsonl.meta.json"):
        shutil.move(tmp_path / f"a{suffix}", tmp_path / f"renamed{suffix}")
    code, _, said = said_by("merge", tmp_path / "renamed.jsonl", "--out", tmp_path / "merged.jsonl")
    assert (code, rows_of(tmp_path / "merged.jsonl")) == (0, second), said


@pytest.mark.parametrize("name", ["UPPER.JSONL", "\udcff.jsonl", "\udcff.parquet", "\udcff/"])
def test_any_name_of_a_table_is_one(tmp_path: Path, name: str) -> None:
    rows = [text_row("a.pdf", 0)]
    code, _, said = said_by("merge", write_table(tmp_path / "table.parquet", rows), "--out", f"{tmp_path}/{name}")
    assert (code, rows_of(f"{tmp_path}/{name}")) == (0, rows), said


def test_a_name_that_is_too_long_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="too long"):
        Output(tmp_path / f"{'n' * 210}.jsonl").prepare()


def as_before_there_was_a_record(out: Path, *, without: str | None = None) -> None:
    """Make it what an earlier version has left, whose parts have one column fewer if that is said."""
    metadata = batchocr.open_table(out).metadata
    assert metadata is not None
    shutil.rmtree(out / ".batchocr", ignore_errors=True)
    (out / "table.json").write_bytes(checked_line(metadata_to_json(metadata)))
    for part in parts(out) if without else []:
        table = pq.read_table(part).drop_columns([without])
        said = {name: value for name, value in table.schema.metadata.items() if name not in OF_THE_FILE}
        with pq.ParquetWriter(part, table.schema.with_metadata(said)) as writer:
            writer.write_table(table.replace_schema_metadata(said))
            writer.add_key_value_metadata({"batchocr.sha256": "0" * 64})
        data = part.read_bytes()
        part.write_bytes(data.replace(b"0" * 64, hashlib.sha256(data).hexdigest().encode()))


def test_the_folder_of_an_earlier_version_is_read_with_one_warning_and_continued(archive: Archive) -> None:
    night = archive.night(FOLDER, PRUNING)
    before = rows_of(night.out)
    as_before_there_was_a_record(Path(night.out))
    assert rows_of(night.out) == before
    _, _, said = said_by("merge", night.out, "--out", night.folder / "merged.parquet")
    assert len([line for line in said.splitlines() if "check" in line and "warning" in line]) == 1
    with night.machine("one") as machine:
        night.run(machine)
    assert not [*night.check_end()]
    _, _, said = said_by("merge", night.out, "--out", night.folder / "again.parquet")
    assert "check" not in said


def test_a_folder_without_a_record_in_which_a_document_is_in_two_parts_is_not_continued(archive: Archive) -> None:
    night = archive.night(FOLDER, PRUNING)
    as_before_there_was_a_record(Path(night.out))
    double(parts(Path(night.out))[0], Path(night.out))
    with night.machine("one") as machine:
        end = night.run(machine)
    assert (end.code, "b.pdf is in two of them" in end.said) == (6, True), end.said


def test_what_a_killed_run_of_an_earlier_version_was_writing_is_not_somebody_elses(tmp_path: Path) -> None:
    (tmp_path / "table").mkdir()
    for name in ("table.journal", "table.json.0123456789abcdef.tmp"):
        (tmp_path / "table" / name).touch()
    Output(tmp_path / "table").prepare()


def test_parts_have_one_schema_also_after_a_version_that_has_a_column_more(archive: Archive) -> None:
    night = archive.night(FOLDER, NIGHT)
    as_before_there_was_a_record(Path(night.out), without="layout_min_logprob")
    with night.machine("one") as machine:
        night.run(machine)
    assert not [*night.check_end()]
    schemas = [pq.read_schema(part).remove_metadata() for part in parts(Path(night.out))]
    assert len(schemas) > 2 and all(schema.equals(schemas[0]) for schema in schemas)
    found = duckdb.sql(f"select layout_min_logprob from '{night.out}*.parquet'").fetchall()
    assert len(found) == pl.scan_parquet(f"{night.out}*.parquet").collect().height == len(night.expected.after)


@contextmanager
def few_open_files() -> Iterator[None]:
    """Inside, this process may open few files more than it has open."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES + len(os.listdir("/proc/self/fd")), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.long
def test_more_parts_than_files_may_be_open_are_written(tmp_path: Path) -> None:
    rows = [text_row(f"{number:04}.pdf", 0) for number in range(2 * OPEN_FILES)]
    table, out = write_table(tmp_path / "table.parquet", rows), tmp_path / "parts"
    out.mkdir()
    with few_open_files():
        code, _, said = said_by("merge", table, "--out", out, "--rows-per-part", "1")
    assert (code, len(parts(out))) == (0, len(rows)), said
    assert rows_of(out) == rows


def test_more_parts_than_files_may_ever_be_open_are_read_and_files_are_left_for_what_is_made_of_them(
    tmp_path: Path,
) -> None:
    table = write_table(tmp_path / "table.parquet", [text_row(f"{number:04}.pdf", 0) for number in range(80)])
    said_by("merge", table, "--out", f"{tmp_path}/parts/", "--rows-per-part", "1")
    merge = [sys.executable, "-m", "batchocr", "merge", tmp_path / "parts", "--out", tmp_path / "again.parquet"]
    done = subprocess.run(["prlimit", "--nofile=64:64", *merge], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert rows_of(tmp_path / "again.parquet") == rows_of(table)
