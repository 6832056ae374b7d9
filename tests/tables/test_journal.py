"""The journal: what is in it after a run was killed, refused or resumed, or a write was torn."""

from __future__ import annotations

import os
import resource
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from batchocr.data import Block, PageResult
from batchocr.errors import OutputError, OutputMismatchError
from batchocr.tables import parquet
from batchocr.tables.files import journal_path, record_path
from batchocr.tables.journal import Journal, unfinished_rows
from batchocr.tables.known import KnownRows
from batchocr.tables.layout import tag_of
from batchocr.tables.schema import SCHEMA_VERSION, RunMetadata
from tests.support.documents import METADATA
from tests.support.jobs import FULL
from tests.support.tables import put_table

BLOCK = Block("text", (0.1, 0.2, 0.5, 1.0), 0, "Ünïcode\n\u2028 and \x00", confidence=0.9, finish_reason="stop")
FIRST = PageResult("a.pdf", 0, "ok", "d1", 2, 1700, 2200, 200.0, markdown="Ünïcode", blocks=(BLOCK,), output_tokens=7)
SECOND = PageResult("a.pdf", 1, "failed", "d1", 2, error_kind="timeout", error_message="took longer than 60 s")
THIRD = PageResult("b/c.png", None, "failed", error_kind="damaged", error_message="no image")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "results.parquet"


def open_journal(
    out: Path, metadata: RunMetadata = METADATA, *, resume: bool = True, overwrite: bool = False
) -> Journal:
    return Journal.open(out, metadata, resume=resume, overwrite=overwrite, there=tag_of(out))


def write_journal(out: Path, *results: PageResult, metadata: RunMetadata = METADATA) -> Path:
    with open_journal(out, metadata) as journal:
        for result in results:
            journal.append(result)
    return journal_path(out)


@pytest.mark.parametrize(
    ("earlier", "later", "kept"),
    [
        (SECOND, replace(FIRST, page_index=1), "ok"),
        (replace(FIRST, page_index=1), SECOND, "ok"),
        (replace(FIRST, page_index=1, status="degraded"), SECOND, "degraded"),
        (replace(FIRST, page_index=1), replace(SECOND, doc_id="d2"), "failed"),
        (replace(FIRST, page_index=1), replace(FIRST, page_index=1, status="degraded"), "degraded"),
    ],
)
def test_a_later_row_counts_unless_it_is_a_failure_after_a_success_of_the_same_file(
    out: Path, earlier: PageResult, later: PageResult, kept: str
) -> None:
    write_journal(out, earlier, later)
    with open_journal(out) as journal:
        assert journal.read("a.pdf", 1).status == kept


@pytest.mark.slow
def test_a_torn_last_line_is_dropped_wherever_it_was_torn(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda descriptor: None)  # of which there are thousands here
    results = [replace(FIRST, blocks=()), SECOND]
    path = write_journal(out, *results)
    whole = path.read_bytes()
    for length in range(0, len(whole) + 1, 1 if FULL else 7):
        path.write_bytes(whole[:length])
        finished = max(0, whole[:length].count(b"\n") - 1)
        with open_journal(out) as journal:
            assert len(journal.known.rows("a.pdf")) == finished
            journal.append(THIRD)
        with open_journal(out) as journal:
            assert journal.read("b/c.png", None) == THIRD
            assert [journal.read("a.pdf", i) for i in range(finished)] == results[:finished]


def test_zeros_left_by_a_power_loss_are_dropped(out: Path) -> None:
    path = write_journal(out, FIRST)
    whole = path.read_bytes()
    path.write_bytes(whole + bytes(5000))
    with open_journal(out) as journal:
        assert journal.read("a.pdf", 0) == FIRST
    assert path.read_bytes() == whole


def flipped(data: bytes, position: int, bit: int = 0) -> bytes:
    return data[:position] + bytes([data[position] ^ 1 << bit]) + data[position + 1 :]


def test_a_row_whose_line_was_changed_is_not_there_and_those_beside_it_are(
    out: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_journal(out, THIRD, FIRST, SECOND)
    whole = path.read_bytes()
    line = whole.splitlines(keepends=True)[2]
    damaged = flipped(whole, whole.index(line) + line.index(b"\xc3\x9cn"))
    path.write_bytes(damaged)
    with open_journal(out) as journal:
        assert journal.known.find("a.pdf", 0) is None
        assert [journal.read(r.source, r.page_index) for r in (SECOND, THIRD)] == [SECOND, THIRD]
        journal.append(FIRST)
    assert "is damaged in 1 line, first in line 3: what is there is read again" in caplog.text
    assert path.read_bytes().startswith(damaged)
    with open_journal(out) as journal:
        assert [journal.read(r.source, r.page_index) for r in (FIRST, SECOND, THIRD)] == [FIRST, SECOND, THIRD]


def test_lines_that_are_no_rows_of_this_journal_count_as_damaged(out: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write_journal(out, FIRST, SECOND)
    header, first, second = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([header, first[:40] + b"\n", bytes(4096) + b"\n", header, second]))
    with open_journal(out) as journal:
        assert journal.known.rows("a.pdf")[0].page_index == 1
        assert journal.read("a.pdf", 1) == SECOND
    assert "in 3 lines, first in line 2" in caplog.text


def test_a_row_that_is_damaged_while_it_is_in_the_index_is_not_read_back(out: Path) -> None:
    with open_journal(out) as journal:
        journal.append(FIRST)
        whole = journal.path.read_bytes()
        journal.path.write_bytes(flipped(whole, whole.index(b"0.2,")))
        with pytest.raises(OutputError, match=r"is damaged at byte \d+: run again to read that page again"):
            journal.read("a.pdf", 0)


def test_a_journal_whose_first_line_lost_its_end_is_not_taken_for_a_torn_one(out: Path) -> None:
    path = write_journal(out, replace(FIRST, markdown="x" * (2 << 20)))
    damaged = flipped(path.read_bytes(), path.read_bytes().index(b"\n"))
    path.write_bytes(damaged)
    with pytest.raises(OutputError, match=r"not a journal|damaged in its first line"):
        open_journal(out)
    assert path.read_bytes() == damaged


def test_a_second_run_at_once_is_refused(out: Path) -> None:
    with open_journal(out) as journal:
        with pytest.raises(OutputError, match="another run"):
            open_journal(out)
        with pytest.raises(OutputError, match="another run"):
            open_journal(out, overwrite=True)
        journal.append(FIRST)
        assert journal.read("a.pdf", 0) == FIRST


def test_other_settings_are_refused_and_what_differs_is_named(out: Path) -> None:
    path = write_journal(out, FIRST)
    before = path.read_bytes()
    other = replace(METADATA, settings_fingerprint="b" * 64, settings={"dpi": "300"})
    with pytest.raises(OutputMismatchError, match=r"dpi 200 there, 300 here.*--overwrite") as caught:
        open_journal(out, other)
    assert caught.value.exit_code == 6
    assert path.read_bytes() == before


def test_the_commits_of_two_models_are_named_in_full_and_do_not_matter_by_themselves(out: Path) -> None:
    write_journal(out, FIRST)
    pinned = replace(METADATA, model_revision="c" * 40)
    with open_journal(out, pinned) as journal:
        assert journal.read("a.pdf", 0) == FIRST
    other = replace(pinned, settings_fingerprint="b" * 64, model_fingerprint="e" * 64)
    with pytest.raises(OutputMismatchError, match=rf"model revision not set there, {'c' * 40} here"):
        open_journal(out, other)


def test_rows_of_another_revision_of_the_protocol_are_refused_and_the_cache_is_named(out: Path) -> None:
    earlier = replace(METADATA, settings={**METADATA.settings, "protocol": "r1"}, settings_fingerprint="c" * 64)
    write_journal(out, FIRST, metadata=earlier)
    with pytest.raises(OutputMismatchError, match=r"protocol r1 there.* with --cache no answer is asked for twice"):
        open_journal(out)


def test_the_schema_version_before_goes_on_and_so_does_another_version_of_batchocr(out: Path) -> None:
    write_journal(out, FIRST, metadata=replace(METADATA, schema_version=SCHEMA_VERSION - 1))
    with open_journal(out, replace(METADATA, batchocr_version="0.2.0")) as journal:
        assert journal.read("a.pdf", 0) == FIRST


def test_without_resume_an_unfinished_journal_is_refused(out: Path) -> None:
    write_journal(out, FIRST)
    with pytest.raises(OutputMismatchError, match="unfinished"):
        open_journal(out, resume=False)


@pytest.mark.parametrize("name", ["results.parquet", "results.jsonl"])
def test_the_rows_of_a_finished_table_begin_the_next_journal(tmp_path: Path, name: str) -> None:
    out = tmp_path / name
    put_table(out, [FIRST, SECOND, THIRD], METADATA)
    with open_journal(out) as journal:
        assert [journal.read(r.source, r.page_index) for r in (FIRST, SECOND, THIRD)] == [FIRST, SECOND, THIRD]
        assert {(row.doc_id, row.version) for row in journal.known.rows("a.pdf")} == {("d1", (None, None))}


def test_a_table_of_other_settings_is_refused_and_leaves_no_journal(out: Path) -> None:
    parquet.write(out, [FIRST], replace(METADATA, settings_fingerprint="b" * 64))
    with pytest.raises(OutputMismatchError, match="settings"):
        open_journal(out)
    assert not journal_path(out).exists()
    assert list(parquet.read_rows(out)) == [FIRST]


def test_a_file_of_someone_else_is_never_taken_over(out: Path) -> None:
    out.write_text("my thesis")
    with pytest.raises(OutputMismatchError, match="not written by batchocr"):
        open_journal(out)
    assert out.read_text() == "my thesis"
    assert not journal_path(out).exists()


def test_a_file_of_someone_else_in_the_place_of_the_table_is_not_replaced_by_a_run_that_continues(out: Path) -> None:
    write_journal(out, FIRST)
    out.write_text("my thesis")
    with pytest.raises(OutputMismatchError, match=r"results\.parquet was not written by batchocr"):
        open_journal(out)
    assert out.read_text() == "my thesis" and journal_path(out).exists()


@pytest.mark.parametrize("overwrite", [False, True])
def test_metadata_of_someone_else_are_never_taken_over(tmp_path: Path, overwrite: bool) -> None:
    out = tmp_path / "results.jsonl"
    record_path(out).write_text("my thesis")
    with pytest.raises(OutputMismatchError, match=r"results\.jsonl\.meta\.json was not written by batchocr"):
        open_journal(out, overwrite=overwrite)
    assert list(tmp_path.iterdir()) == [record_path(out)]
    put_table(out, [FIRST], METADATA)
    out.unlink()
    open_journal(out, overwrite=overwrite).close()  # those of a table that is gone


@pytest.mark.parametrize("text", ["my diary, no line end", "my diary\nsecond line\n"])
def test_a_journal_of_someone_else_is_never_taken_over(out: Path, text: str) -> None:
    journal_path(out).write_text(text)
    with pytest.raises(OutputMismatchError, match="not a journal of batchocr"):
        open_journal(out)
    with pytest.raises(OutputMismatchError, match=r"results\.parquet\.journal was not written by batchocr"):
        open_journal(out, overwrite=True)
    assert journal_path(out).read_text() == text


def test_overwrite_begins_with_nothing_leaves_the_old_table_and_goes_on_without_being_told_again(out: Path) -> None:
    other = replace(METADATA, settings_fingerprint="b" * 64)
    parquet.write(out, [THIRD], other)
    write_journal(out, SECOND, metadata=other)
    with open_journal(out, overwrite=True) as journal:
        assert journal.known.rows("a.pdf") == ()
        journal.append(FIRST)
    assert list(parquet.read_rows(out)) == [THIRD]
    with open_journal(out) as journal:
        assert journal.read("a.pdf", 0) == FIRST
        assert journal.known.rows("b/c.png") == ()


def test_a_damaged_table_begins_no_journal(tmp_path: Path) -> None:
    out = tmp_path / "results.jsonl"
    put_table(out, [FIRST, SECOND], METADATA)
    out.write_bytes(out.read_bytes()[:-10])
    with pytest.raises(OutputError, match=r"is not the table that .* was written for"):
        open_journal(out)
    assert [path.name for path in tmp_path.iterdir() if "journal" in path.name] == []


def test_a_disk_that_fills_up_costs_only_the_row_that_no_longer_fits(out: Path) -> None:
    with open_journal(out) as journal:
        journal.append(FIRST)
        before = journal_path(out).read_bytes()
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 30, limits[1]))  # to a writer, this is a full disk
        try:
            with pytest.raises(OutputError, match="cannot write"):
                journal.append(SECOND)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert journal_path(out).read_bytes() == before
        assert journal.known.find("a.pdf", 1) is None
        journal.append(THIRD)
        assert journal.read("b/c.png", None) == THIRD


def test_rows_are_synced_within_seconds_though_no_further_row_comes(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, synced = [0.0], []
    monkeypatch.setattr("batchocr.tables.journal.time", SimpleNamespace(monotonic=lambda: now_s[0]))
    monkeypatch.setattr("os.fsync", lambda descriptor: synced.append((now_s[0], os.fstat(descriptor).st_size)))
    with open_journal(out) as journal:
        journal.append(FIRST)
        synced.clear()
        for now_s[0] in (0.5, 2.5, 3.5, 4.0):
            journal.tick()
        assert synced == [(3.5, journal_path(out).stat().st_size)]


def test_a_journal_that_is_removed_meanwhile_is_noticed(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batchocr.tables.journal._SYNC_INTERVAL_S", 0.0)
    with open_journal(out) as journal:
        journal.append(FIRST)
        journal_path(out).unlink()
        with pytest.raises(OutputError, match="was removed or replaced"):
            journal.tick()


@pytest.mark.parametrize("name", ["results.parquet", "results.jsonl"])
def test_a_run_that_overwrites_goes_on_if_it_was_killed_before_its_table_took_the_place_of_another_and_all_was_copied(
    tmp_path: Path, name: str
) -> None:
    out, other = tmp_path / name, replace(METADATA, settings_fingerprint="b" * 64)
    put_table(out, [SECOND], METADATA)
    with open_journal(out, other, overwrite=True) as journal:
        journal.append(FIRST)
        journal.end("0" * 64)
    for file in [*tmp_path.iterdir()]:
        shutil.copy(file, tmp_path / "copied")
        (tmp_path / "copied").replace(file)
    with open_journal(out, other) as journal:
        assert journal.earlier is None
        assert journal.read("a.pdf", 0) == FIRST
        assert journal.known.find("a.pdf", 1) is None
    assert list(unfinished_rows(out)) == [FIRST]


def test_of_a_document_of_the_table_all_rows_are_looked_up_once_not_once_a_page(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parquet.write(out, [replace(FIRST, page_index=page, page_count=50) for page in range(50)], METADATA)
    sources: list[str] = []
    rows = KnownRows.rows
    monkeypatch.setattr(KnownRows, "rows", lambda self, source: sources.append(source) or rows(self, source))
    with open_journal(out) as journal:
        assert [journal.read("a.pdf", page).page_index for page in range(50)] == list(range(50))
    assert sources == ["a.pdf"]
