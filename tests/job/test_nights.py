"""A run over a finished table: it reads what is new, and leaves alone what is not."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pytest

import batchocr
from batchocr.data import PageResult
from batchocr.errors import OutputError
from batchocr.processes.worker import Worker
from batchocr.storage.checksums import checked_line
from batchocr.tables import parquet
from batchocr.tables.files import files_of, journal_path, record_path, report_path
from batchocr.tables.journal import Journal
from batchocr.tables.schema import SCHEMA_VERSION, RunMetadata, encode_metadata, metadata_to_json, to_json
from batchocr.tables.table import table_for
from tests.support.jobs import Job, started, wait_for_rows
from tests.support.running import draw_pdf, read_rows, said_by, texts
from tests.support.tables import put_table

pytestmark = pytest.mark.slow

TABLES = ["table.parquet", "table.jsonl"]
BOTH = pytest.mark.parametrize("name", TABLES)
PARQUET = pytest.mark.parametrize("name", [TABLES[0], pytest.param(TABLES[1], marks=pytest.mark.long)])


@pytest.fixture(scope="module")
def usual(model: Path) -> dict[str, Any]:
    return {"model": model, "dpi": 72, "workers": 1, "pages_in_flight": 4, "max_degraded_rate": 1}


@pytest.fixture(scope="module")
def first_day(tmp_path_factory: pytest.TempPathFactory, usual: dict[str, Any]) -> Path:
    """A folder with documents, and both tables beside it."""
    folder = tmp_path_factory.mktemp("nights") / "archive"
    (folder / "in").mkdir(parents=True)
    for name in ("b", "d", "f"):
        draw_pdf(folder / "in" / f"{name}.pdf", f"{name} one", f"{name} two")
    for name in TABLES:
        batchocr.run(folder / "in", out=folder / name, **usual)
    return folder.rename(folder.with_name("first day"))


@pytest.fixture
def archive(first_day: Path) -> Path:
    """The same in the place where they were read."""
    shutil.rmtree(first_day.parent / "archive", ignore_errors=True)
    return Path(shutil.copytree(first_day, first_day.parent / "archive"))


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The documents that workers were given, by name: each once to be opened, and once for each page."""
    names: Counter[str] = Counter()
    send = Worker.send

    def counting(worker: Worker, message: Any) -> None:
        if hasattr(message, "path"):
            names[Path(message.path).name] += 1
        send(worker, message)

    monkeypatch.setattr(Worker, "send", counting)
    return names


def state_of(out: Path) -> list[tuple[bytes, int, int]]:
    """Content, inode and time of the table and its metadata."""
    files = [path for path in (out, record_path(out)) if path.exists()]
    return [(path.read_bytes(), path.stat().st_ino, path.stat().st_mtime_ns) for path in files]


def anew(folder: Path, usual: dict[str, Any], **options: Any) -> list[PageResult]:
    """The rows of a run that has nothing to continue."""
    batchocr.run(folder / "in", out=folder / "anew.parquet", overwrite=True, **usual, **options)
    return read_rows(folder / "anew.parquet")


@BOTH
def test_with_nothing_new_no_file_is_opened_and_the_table_stays_as_it_is(
    archive: Path, usual: dict[str, Any], opened: Counter[str], name: str
) -> None:
    out = archive / name
    before = state_of(out)
    report_path(out).unlink()
    report = batchocr.run(archive / "in", out=out, **usual)
    assert state_of(out) == before
    assert report.nothing_to_do and report.items.found == 6
    assert (report.ink_outside.pages, report.exit_code) == (6, 0)
    assert not opened
    assert {path.name for path in archive.glob(f"{name}*")} <= {path.name for path in files_of(out, report_path(out))}
    assert report_path(out).exists() and not journal_path(out).exists()


@BOTH
def test_what_is_new_changed_and_gone_costs_itself_and_the_rows_are_those_of_a_run_from_the_start(
    archive: Path, usual: dict[str, Any], opened: Counter[str], name: str
) -> None:
    out = archive / name
    before = {(row.source, row.page_index): row for row in read_rows(out)}
    draw_pdf(archive / "in" / "c.pdf", "c one")
    draw_pdf(archive / "in" / "d.pdf", "changed", "d two", "d three")
    (archive / "in" / "f.pdf").unlink()
    report = batchocr.run(archive / "in", out=out, prune=True, **usual)
    assert (report.pages_read, report.items.already_done, report.rows_gone) == (4, 2, 2)
    assert opened == {"c.pdf": 2, "d.pdf": 4}
    rows = read_rows(out)
    assert texts(rows) == texts(anew(archive, usual))
    assert [row for row in rows if row.source == "b.pdf"] == [before["b.pdf", 0], before["b.pdf", 1]]


@PARQUET
def test_a_touched_file_is_hashed_until_the_table_is_written_for_another_reason(
    archive: Path, usual: dict[str, Any], opened: Counter[str], name: str
) -> None:
    out, touched = archive / name, archive / "in" / "d.pdf"
    os.utime(touched, ns=(1, 1))
    before = state_of(out)
    for _ in range(2):
        assert batchocr.run(archive / "in", out=out, **usual).nothing_to_do
        assert opened.pop("d.pdf") == 1 and not opened
    assert state_of(out) == before
    draw_pdf(archive / "in" / "a.pdf", "a one")
    assert batchocr.run(archive / "in", out=out, **usual).pages_read == 1
    assert {row.file_mtime_ns for row in read_rows(out) if row.source == "d.pdf"} == {1}
    opened.clear()
    assert batchocr.run(archive / "in", out=out, **usual).nothing_to_do
    assert not opened


def as_version_6(out: Path) -> None:
    """Make the table one of the version before, whose metadata have less."""
    metadata = table_for(out).read_metadata(out)
    assert metadata is not None
    earlier = replace(metadata, schema_version=6)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(parquet, "encode_metadata", lambda metadata: keys_of_version_6(encode_metadata(metadata)))
        put_table(out, read_rows(out), earlier)
    if out.suffix == ".jsonl":
        content = out.read_bytes()
        said = b',"bytes":%d,"sha256":"%s"}' % (len(content), hashlib.sha256(content).hexdigest().encode())
        record_path(out).write_bytes(checked_line(json_of_version_6(earlier)[:-1] + said))


OF_VERSION_6 = (
    *("batchocr_version", "model", "model_fingerprint", "settings_fingerprint", "settings", "schema_version"),
    *("model_revision", "input_roots", "selection", "containers"),
)
"""What its metadata have."""


def json_of_version_6(metadata: RunMetadata) -> bytes:
    values = json.loads(metadata_to_json(metadata))
    return json.dumps({name: values[name] for name in OF_VERSION_6}, separators=(",", ":")).encode()


def keys_of_version_6(encoded: dict[bytes, bytes]) -> dict[bytes, bytes]:
    return {key: encoded[key] for key in (f"batchocr.{name}".encode() for name in OF_VERSION_6)}


@BOTH
def test_a_table_of_the_version_before_stays_as_it_is_until_there_is_something_new(
    archive: Path, usual: dict[str, Any], opened: Counter[str], name: str
) -> None:
    out = archive / name
    as_version_6(out)
    before, rows = state_of(out), read_rows(out)
    assert batchocr.run(archive / "in", out=out, **usual).nothing_to_do
    assert not opened and state_of(out) == before
    draw_pdf(archive / "in" / "c.pdf", "c one")
    assert batchocr.run(archive / "in", out=out, **usual).pages_read == 1
    assert opened == {"c.pdf": 2}
    assert [row for row in read_rows(out) if row.source != "c.pdf"] == rows
    assert table_for(out).read_metadata(out).schema_version == SCHEMA_VERSION
    for command in (("verify", out, archive / "in"), ("export", out, "--to", archive / "texts")):
        assert said_by(*command)[0] == 0


@pytest.mark.long
@PARQUET
def test_other_pages_are_read_beside_those_that_are_there(
    archive: Path, usual: dict[str, Any], opened: Counter[str], name: str
) -> None:
    out = archive / name
    batchocr.run(archive / "in", out=out, overwrite=True, pages="1", **usual)
    opened.clear()
    assert batchocr.run(archive / "in", out=out, pages="1", **usual).nothing_to_do
    assert not opened
    report = batchocr.run(archive / "in", out=out, pages="r1", **usual)
    assert (report.pages_read, report.rows_not_asked) == (3, 3)
    assert texts(read_rows(out)) == texts(anew(archive, usual))
    assert batchocr.run(archive / "in", out=out, pages="2", **usual).nothing_to_do
    assert table_for(out).read_metadata(out).selection == {"pages": "1,r1,2"}
    before = state_of(out)
    assert batchocr.run(archive / "in", out=out, pages="2", **usual).nothing_to_do
    assert state_of(out) == before


def test_rows_behind_the_limit_stay_also_if_their_file_has_changed(archive: Path, usual: dict[str, Any]) -> None:
    out = archive / "table.parquet"
    before = state_of(out)
    draw_pdf(archive / "in" / "f.pdf", "other")
    report = batchocr.run(archive / "in", out=out, limit=3, **usual)
    assert (report.items.found, report.items.already_done, report.rows_not_asked) == (3, 3, 3)
    assert [content for content, _, _ in state_of(out)] == [content for content, _, _ in before]


@PARQUET
def test_a_new_copy_and_a_renamed_document_take_their_rows_from_the_table(
    archive: Path, usual: dict[str, Any], name: str
) -> None:
    out = archive / name
    shutil.copy(archive / "in" / "d.pdf", archive / "in" / "a.pdf")
    (archive / "in" / "f.pdf").rename(archive / "in" / "g.pdf")
    report = batchocr.run(archive / "in", out=out, prune=True, **usual)
    assert (report.pages_read, report.saved.pages) == (0, 4)
    rows = read_rows(out)
    assert [(row.source, row.attempts) for row in rows[::2]] == [("a.pdf", 0), ("b.pdf", 1), ("d.pdf", 1), ("g.pdf", 0)]
    assert [row.markdown for row in rows[:2]] == [row.markdown for row in rows[4:6]]
    assert rows[0].file_mtime_ns == (archive / "in" / "a.pdf").stat().st_mtime_ns


KILLED_AT = {
    "after the table is in its place": "batchocr.tables.journal.Journal.remove",
    "before its report is written": "batchocr.job.output_job.write_report",
    "before the table takes its place": "batchocr.tables.atomic._replace",
    "between a table and its metadata": "batchocr.tables.jsonl._write_metadata",
}


@PARQUET
@pytest.mark.parametrize(
    "moment",
    [
        "after the table is in its place",
        pytest.param("before its report is written", marks=pytest.mark.long),
        pytest.param("before the table takes its place", marks=pytest.mark.long),
        "between a table and its metadata",
    ],
)
def test_a_kill_at_the_end_of_a_night_costs_nothing_but_the_report(
    archive: Path, usual: dict[str, Any], opened: Counter[str], name: str, moment: str
) -> None:
    out = archive / name
    place, _, function = KILLED_AT[moment].rpartition(".")
    if "metadata" in moment and name == TABLES[0]:
        pytest.skip("a Parquet table holds its metadata")
    draw_pdf(archive / "in" / "d.pdf", "worse")
    die = f"import os, signal, {place.removesuffix('.Journal')}\n"
    if function == "_replace":
        die += f"rename, out = os.rename, {str(out)!r}\n"
        die += "os.replace = lambda old, new: os.kill(os.getpid(), 9) if str(new) == out else rename(old, new)"
    else:
        die += f"{place}.{function} = lambda *_: os.kill(os.getpid(), 9)"
    job = Job(usual["model"], archive / "in", [])
    with started(job, out, "--workers", "1", before=die) as process:
        process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert journal_path(out).exists()
    written = out.read_bytes()
    report = batchocr.run(archive / "in", out=out, **usual)
    assert (report.pages_read, report.items.found, report.worse_pages) == (0, 5, 1)
    assert not opened
    assert not journal_path(out).exists()
    assert (out.read_bytes() == written) is ("before the table" not in moment)
    assert texts(read_rows(out)) == texts(anew(archive, usual))
    assert batchocr.run(archive / "in", out=out, **usual).worse_pages == 0


def unfinished(archive: Path, usual: dict[str, Any]) -> tuple[Path, RunMetadata]:
    """A journal over the table, of a run that has read a document more: a.pdf, of one page."""
    out = archive / "table.parquet"
    metadata = parquet.read_metadata(out)
    assert metadata is not None
    draw_pdf(archive / "in" / "a.pdf", "a one")
    [row] = batchocr.process(archive / "in" / "a.pdf", **usual)
    with Journal.open(out, metadata, resume=True, overwrite=False) as journal:
        journal.append(replace(row, source="a.pdf"))
    return out, metadata


def test_partial_shows_the_table_with_what_was_read_since(archive: Path, usual: dict[str, Any]) -> None:
    before = read_rows(archive / "table.parquet")
    out, metadata = unfinished(archive, usual)
    with Journal.open(out, metadata, resume=True, overwrite=False) as journal:
        journal.append(again := replace(before[2], markdown="read again"))
        rows = list(batchocr.open_table(out, partial=True).rows())
    assert [row.source for row in rows] == ["b.pdf", "b.pdf", "d.pdf", "d.pdf", "f.pdf", "f.pdf", "a.pdf"]
    assert rows[:6] == [*before[:2], again, *before[3:]]
    assert list(batchocr.open_table(out).rows()) == before


def test_a_table_that_is_deleted_during_an_unfinished_run_is_read_again(
    archive: Path, usual: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    out, _ = unfinished(archive, usual)
    out.unlink()
    assert batchocr.run(archive / "in", out=out, **usual).pages_read == 6
    assert "was deleted since the unfinished run began: what only that had is read again" in caplog.text
    assert texts(read_rows(out)) == texts(anew(archive, usual))


@pytest.mark.long
def test_another_table_that_takes_its_place_is_continued_in_its_stead(
    archive: Path, usual: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    out, metadata = unfinished(archive, usual)
    parquet.write(out, read_rows(out)[:3], metadata)
    assert batchocr.run(archive / "in", out=out, **usual).pages_read == 3
    assert "which was replaced" in caplog.text
    assert texts(read_rows(out)) == texts(anew(archive, usual))


@pytest.mark.parametrize("at", [0.5, -300])
def test_a_table_that_is_damaged_meanwhile_is_refused(archive: Path, usual: dict[str, Any], at: float) -> None:
    out, _ = unfinished(archive, usual)
    content = bytearray(out.read_bytes())
    content[int(at * len(content)) if 0 < at < 1 else int(at)] ^= 1
    out.write_bytes(content)
    with pytest.raises(OutputError, match=r"damaged"):
        batchocr.run(archive / "in", out=out, **usual)
    assert out.read_bytes() == content and journal_path(out).exists()


def test_overwrite_continues_nothing_also_after_a_kill(archive: Path, usual: dict[str, Any]) -> None:
    out = archive / "table.parquet"
    job = Job(usual["model"], archive / "in", [])
    with started(job, out, "--overwrite") as process:
        wait_for_rows(process, out, 1)
    assert len(read_rows(out)) == 6
    report = batchocr.run(archive / "in", out=out, **usual)
    assert report.pages_read + report.items.already_done == 6
    assert report.pages_read >= 1


def readers() -> Iterator[Callable[[Path], int]]:
    """How many rows others see."""
    yield lambda path: duckdb.sql(f"select count(*) from '{path}'").fetchall()[0][0]
    yield lambda path: pl.read_parquet(path).height
    yield lambda path: len(pd.read_parquet(path))


def test_others_read_the_table_while_a_run_is_at_work(archive: Path, usual: dict[str, Any]) -> None:
    out = archive / "table.parquet"
    draw_pdf(archive / "in" / "c.pdf", *map(str, range(20)))
    with started(Job(usual["model"], archive / "in", []), out) as process:
        wait_for_rows(process, out, 1)
        assert [read(out) for read in readers()] == [6, 6, 6]


def test_a_journal_of_the_version_before_is_continued(archive: Path, usual: dict[str, Any]) -> None:
    out = archive / "table.parquet"
    rows, metadata = read_rows(out), parquet.read_metadata(out)
    assert metadata is not None
    out.unlink()
    header = json_of_version_6(replace(metadata, schema_version=6))[:-1] + b',"continues":""}'
    journal_path(out).write_bytes(b"".join(map(checked_line, [header, *map(to_json, rows[:4])])))
    assert said_by("export", out, "--partial", "--to", archive / "texts")[0] == 0
    report = batchocr.run(archive / "in", out=out, **usual)
    assert (report.pages_read, report.items.already_done) == (2, 4)
    assert texts(read_rows(out)) == texts(rows)
    assert read_rows(out)[:4] == rows[:4]
