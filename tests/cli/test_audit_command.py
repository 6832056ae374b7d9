"""`batchocr audit`, with the second reader itself, on pages small enough to be read at once."""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pymupdf
import pytest

from batchocr.config import Config
from batchocr.data import Block, Failure, PageResult, Reading
from batchocr.documents.audit.audit import audit_table
from batchocr.documents.audit.audit_table import AUDIT_SCHEMA, AuditedPage, AuditJournal, read_pages
from batchocr.documents.audit.sample import Choice, draw
from batchocr.errors import OutputError
from batchocr.processes.messages import Failed, Finished, ReadPage
from batchocr.tables import parquet
from batchocr.tables.files import journal_path, temporary_path
from batchocr.tables.opened import open_rows
from batchocr.tables.schema import RunMetadata, fingerprint_of_settings
from tests.support.running import children, raising, said_by

FIRST = "The ferry left at six and carried 1482 people."
SECOND = "Nobody asked the miller about the beehive."
DPI = 150


def make_table(folder: Path, contents: list[str]) -> Path:
    """A document with a page for each of the contents, on which FIRST and SECOND stand, and one without anything; and a
    table in which the pages say these contents."""
    document = pymupdf.open()
    for text in [f"{FIRST}\n{SECOND}"] * len(contents) + [""]:
        document.new_page(width=300, height=100).insert_text((20, 40), text, fontsize=11)
    path = folder / "report.pdf"
    document.save(path)
    doc_id = hashlib.sha256(path.read_bytes()).hexdigest()
    rows = [
        PageResult(
            *("report.pdf", number, "ok", doc_id),
            page_count=len(contents) + 1,
            width=625,
            height=209,
            dpi=DPI,
            markdown=content,
            blocks=(Block("text", (0.05, 0.2, 0.98, 0.65), 0, content),) if content else (),
        )
        for number, content in enumerate([*contents, ""])
    ]
    settings = {"dpi": str(DPI)}
    fingerprint = fingerprint_of_settings(settings)
    metadata = RunMetadata("0.1.0", "model", "fingerprint", fingerprint, settings, input_roots=(str(folder),))
    parquet.write(folder / "table.parquet", rows, metadata)
    return folder / "table.parquet"


@pytest.fixture
def second_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    # OpenCV changes it when it is imported; with another one, no process of a later test could be forked.
    monkeypatch.setenv("LD_LIBRARY_PATH", os.environ.get("LD_LIBRARY_PATH", ""))
    for name in ("rapidocr", "onnxruntime", "cv2"):
        pytest.importorskip(name, reason="the second reader is not installed: pip install '.[audit]'")


@pytest.mark.slow
@pytest.mark.usefixtures("second_reader")
def test_it_finds_what_a_table_omits_and_changes(tmp_path: Path) -> None:
    table = make_table(tmp_path, [f"{FIRST} {SECOND}", FIRST, f"{FIRST} {SECOND}".replace("1482", "1432")])
    before = table.read_bytes()
    out = tmp_path / "audit.parquet"
    given = ("audit", table, "--all", "--out", out, "--workers", "1", "--json", "--max-omitted", "0.1")
    code, shown, _ = said_by(*given)
    report = json.loads(shown)
    assert code == 3
    assert (report["pages_compared"], report["pages_empty"], report["pages_with_findings"]) == (3, 1, 2)
    assert report["omitted"]["low"] == report["omitted"]["estimate"] == report["omitted"]["high"]
    found = [[(finding.kind, finding.second_text) for finding in page.findings] for page in read_pages(out)]
    assert found == [[], [("omitted", SECOND)], [("number", "1482")], []]
    assert [page.outcome for page in read_pages(out)] == ["compared", "compared", "compared", "empty"]
    assert table.read_bytes() == before
    assert not journal_path(out).exists()
    written = out.read_bytes()
    assert said_by(*given)[:2] == (3, shown)  # a finished audit is shown again
    assert out.read_bytes() == written
    out.unlink()
    killer = threading.Thread(target=kill_workers, args=(children(),))
    killer.start()
    said_by(*given)
    killer.join()
    assert out.read_bytes() == written, "it is the same if it is made again and loses its workers"


def kill_workers(before: list[psutil.Process]) -> None:
    """Kill the two that an audit with one worker has: it opens documents, and reads."""
    while len(started := set(children()).difference(before)) < 2:
        time.sleep(0.05)
    time.sleep(0.5)
    for worker in started:
        worker.kill()


@pytest.mark.slow
@pytest.mark.usefixtures("second_reader")
def test_documents_that_are_gone_are_said_to_be(tmp_path: Path) -> None:
    table = make_table(tmp_path, [FIRST])
    (tmp_path / "report.pdf").unlink()
    code, _, log = said_by("audit", table, "--all", "--out", tmp_path / "audit.parquet", "--workers", "1")
    assert (code, "2 pages could not be drawn again" in log) == (3, True)
    assert [page.outcome for page in read_pages(tmp_path / "audit.parquet")] == ["unreadable"] * 2


def test_without_the_extra_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batchocr.pages.protocol.second_reader.find_spec", lambda name: None)
    table = make_table(tmp_path, [FIRST])
    said = "batchocr: error: an audit needs its second reader: pip install '.[audit]' in a clone of batchocr\n"
    assert said_by("audit", table, "--out", tmp_path / "audit.parquet") == (2, "", said)


def test_what_is_no_audit_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batchocr.documents.audit.audit.require_second_reader", lambda: "rapidocr 0")
    table = make_table(tmp_path, [FIRST])
    before = table.read_bytes()
    assert said_by("audit", table, "--out", table)[0] == 6
    assert table.read_bytes() == before
    assert not journal_path(table).exists()


@pytest.mark.parametrize("is_finished", [True, False])
def test_an_audit_of_another_table_or_choice_is_not_taken_for_this_one(
    is_finished: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("batchocr.documents.audit.audit.require_second_reader", lambda: "rapidocr 0")
    table, out = make_table(tmp_path, [FIRST]), tmp_path / "audit.parquet"
    (tmp_path / "report.pdf").unlink()
    if is_finished:
        assert said_by("audit", table, "--out", out)[0] == said_by("audit", table, "--out", out)[0] == 3
    else:
        with monkeypatch.context() as killed, pytest.raises(KeyboardInterrupt):
            killed.setattr(AuditJournal, "finish", raising(KeyboardInterrupt()))
            audit_table(open_rows(table), out, Choice("sample", 200), roots=(), config=Config())
    kept = (out if is_finished else journal_path(out)).read_bytes()
    code, _, log = said_by("audit", table, "--out", out, "--seed", "1")
    assert (code, "belongs to an audit with another seed" in log) == (6, True)
    make_table(tmp_path, [SECOND])
    code, _, log = said_by("audit", table, "--out", out)
    assert (code, "belongs to an audit with another table" in log) == (6, True)
    assert (out if is_finished else journal_path(out)).read_bytes() == kept
    if is_finished:
        code, shown, log = said_by("view", table, "--audit", out, "--out", f"{out}.html")
        assert (code, "1 page, " in shown, "no more: 1 page of the audit" in log) == (0, True, True)


class LinesPool:
    """A second reader that finds the same lines on every page, but for those that take too long. asked: which pages."""

    def __init__(self, lines: list[Block]) -> None:
        self.lines = tuple(lines)
        self.hanging: set[int] = set()
        self.asked: list[int] = []

    def __call__(self, *_: object) -> LinesPool:
        return self

    def __enter__(self) -> LinesPool:
        return self

    def __exit__(self, *_: object) -> None: ...

    def map(self, tasks: Iterable[ReadPage], _timeout_s: float) -> Iterator[tuple[None, Finished | Failed]]:
        for task in tasks:
            self.asked.append(task.page_index)
            if task.page_index in self.hanging:
                yield None, Failed(task.task_id, Failure("timeout", "took longer than 600 s"))
            else:
                yield None, Finished(task.task_id, Reading("", self.lines, 0, 0, width=625, height=209, dpi=DPI))


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> LinesPool:
    first, second = (
        Block("line", (0.06, y, 0.9, y + 0.1), None, text, confidence=1.0) for y, text in ((0.3, FIRST), (0.5, SECOND))
    )
    pool = LinesPool([first, second])
    monkeypatch.setattr("batchocr.documents.audit.audit.require_second_reader", lambda: "rapidocr 0")
    monkeypatch.setattr("batchocr.documents.audit.audit.WorkerPool", pool)
    return pool


def test_pages_that_were_unreadable_are_tried_again_and_no_others(reader: LinesPool, tmp_path: Path) -> None:
    table, out = make_table(tmp_path, [f"{FIRST} {SECOND}"] * 2), tmp_path / "audit.parquet"
    reader.hanging = {1}
    code, _, log = said_by("audit", table, "--out", out)
    assert (code, "the same command tries them again" in log) == (3, True)
    reader.hanging = set()
    reader.asked.clear()
    assert said_by("audit", table, "--out", out)[0] == 0
    assert [page.outcome for page in read_pages(out)] == ["compared"] * 3
    finished = out.stat()
    assert said_by("audit", table, "--out", out)[0] == 0
    assert reader.asked == [1]
    assert out.stat() == finished, "a finished audit is shown, and not written again"
    assert not journal_path(out).exists()


def test_documents_are_looked_for_again_where_they_are_said_to_be(reader: LinesPool, tmp_path: Path) -> None:
    table, out, moved = make_table(tmp_path, [FIRST]), tmp_path / "audit.parquet", tmp_path / "moved"
    moved.mkdir()
    (tmp_path / "report.pdf").rename(moved / "report.pdf")
    assert said_by("audit", table, "--out", out)[0] == 3
    assert said_by("audit", table, "--out", out, "--input", moved)[0] == 0
    assert [page.outcome for page in read_pages(out)] == ["compared"] * 2


def swallow(table: Path) -> None:
    """Have every page of the table say that it shows a picture and nothing else."""
    stored = open_rows(table)
    block = Block("image", (0.0, 0.0, 1.0, 1.0), 0, None)
    rows = [replace(row, blocks=(block,), markdown="![image](#block-0)") for row in stored.rows()]
    parquet.write(table, rows, stored.metadata)


def test_text_within_figures_is_counted_and_is_no_empty_page(reader: LinesPool, tmp_path: Path) -> None:
    table, out = make_table(tmp_path, [FIRST]), tmp_path / "audit.parquet"
    swallow(table)
    code, shown, _ = said_by("audit", table, "--out", out, "--json")
    report = json.loads(shown)
    assert (code, report["pages_empty"], report["pages_uncompared"]) == (0, 0, 2)
    assert report["left_out"] == {"figure": 2, "figure_line": 4}
    assert report["omitted"]["estimate"] is None
    [first, _] = read_pages(out)
    assert (first.outcome, first.left_out) == ("uncompared", ("figure", "figure_line", "figure_line"))
    shown = said_by("audit", table, "--out", out)[1]
    assert "uncompared 2 pages with text, none of which could be compared\n" in shown
    assert "left out   4 lines in figures, 2 figures\n" in shown
    one = said_by("audit", table, "--sample", "1", "--out", tmp_path / "one.parquet")[1]
    assert "left out   2 lines in figures, 1 figure\n" in one


@pytest.mark.parametrize(
    ("command", "limits"), [("audit", ["--max-omitted", "--max-different"]), ("compare", ["--max-change"])]
)
def test_limits_have_a_heading_of_their_own_in_the_help(command: str, limits: list[str]) -> None:
    sections = said_by(command, "--help")[1].split("\n\n")
    [of_limits] = [section for section in sections if section.startswith("Limits:\n")]
    assert re.findall(r"^  (--\S+)", of_limits, re.MULTILINE) == limits


@pytest.mark.parametrize("limit", ["--max-omitted", "--max-different"])
@pytest.mark.parametrize("share", ["nan", "1.1", "-0.1", "half"])
def test_a_limit_that_is_no_share_is_refused(limit: str, share: str, tmp_path: Path) -> None:
    code, _, log = said_by("audit", tmp_path / "t.parquet", "--out", tmp_path / "audit.parquet", f"{limit}={share}")
    assert (code, f"'{share}' is no share" in log) == (2, True)


@pytest.mark.parametrize("limit", ["--max-omitted", "--max-different"])
def test_a_limit_is_not_met_where_nothing_was_compared(limit: str, reader: LinesPool, tmp_path: Path) -> None:
    table = make_table(tmp_path, [])
    reader.lines = ()
    code, shown, log = said_by("audit", table, "--out", tmp_path / "audit.parquet", limit, "1")
    assert (code, "empty      1 page " in shown) == (3, True)
    assert log == f"batchocr: warning: nothing was compared, which proves nothing: {limit} cannot be met\n"


@pytest.mark.parametrize("limit", ["--max-omitted", "--max-different"])
def test_a_limit_is_not_met_where_most_letters_could_not_be_compared(
    limit: str, reader: LinesPool, tmp_path: Path
) -> None:
    table, out = make_table(tmp_path, [FIRST, FIRST]), tmp_path / "audit.parquet"
    stored = open_rows(table)
    figure = Block("image", (0.0, 0.0, 1.0, 1.0), 0, None)
    first, *others = stored.rows()
    parquet.write(table, [first, *(replace(row, blocks=(figure,)) for row in others)], stored.metadata)
    code, shown, log = said_by("audit", table, "--all", "--out", out, limit, "1")
    assert (code, "compared   1 page of 3 that were read, 72 letters" in shown) == (3, True)
    assert f"more than the 72 that could, which proves nothing: {limit} cannot be met" in log


@pytest.mark.parametrize(
    ("line", "outcome"),
    [
        (Block("line", (0.1, 0.1, 0.9, 0.2), None, "7", confidence=0.99), "uncompared"),
        (Block("line", (0.1, 0.1, 0.9, 0.2), None, FIRST, confidence=0.6), "uncompared"),
        (Block("ink", (0.1, 0.1, 0.9, 0.2), None, ""), "empty"),
    ],
)
def test_only_a_page_on_which_no_line_was_found_is_empty(
    line: Block, outcome: str, reader: LinesPool, tmp_path: Path
) -> None:
    reader.lines = (line,)
    out = tmp_path / "audit.parquet"
    said_by("audit", make_table(tmp_path, []), "--out", out)
    assert [page.outcome for page in read_pages(out)] == [outcome]


@pytest.mark.parametrize("text", ["my diary, no line end", "my diary\nsecond line\n", '{"batchocr_version":"0.1'])
def test_a_journal_that_is_not_of_an_audit_is_never_taken_over(text: str, tmp_path: Path) -> None:
    out = tmp_path / "audit.parquet"
    journal_path(out).write_text(text)
    with pytest.raises(OutputError, match=r"audit\.parquet\.journal is not of an audit, or is damaged: it is left as"):
        AuditJournal(out, {"table": "t"})
    assert journal_path(out).read_text() == text
    assert not out.exists()


def test_a_journal_that_was_torn_in_its_first_line_is_begun_again(tmp_path: Path) -> None:
    out, settings = tmp_path / "audit.parquet", {"table": "t"}
    AuditJournal(out, settings).close()
    journal_path(out).write_bytes(journal_path(out).read_bytes()[:-5])
    journal = AuditJournal(out, settings)
    journal.append(page(1))
    journal.close()
    again = AuditJournal(out, settings)
    assert set(again.pages) == {1}
    again.close()


def test_a_file_that_takes_the_place_of_the_journal_is_not_removed(tmp_path: Path) -> None:
    out = tmp_path / "audit.parquet"
    journal = AuditJournal(out, {"table": "t"})
    journal_path(out).unlink()
    journal_path(out).write_text("my diary")
    journal.append(page(1))
    journal.finish()
    journal.close()
    assert list(read_pages(out)) == [page(1)]
    assert journal_path(out).read_text() == "my diary"


def test_what_another_audit_is_writing_is_not_removed(reader: LinesPool, tmp_path: Path) -> None:
    table, out = make_table(tmp_path, []), tmp_path / "audit.parquet"
    journal, unfinished = AuditJournal(out, {"table": "t"}), temporary_path(out)
    unfinished.touch()
    assert said_by("audit", table, "--out", out)[0] == 6
    assert unfinished.exists()
    journal.close()


def page(position: int) -> AuditedPage:
    return AuditedPage(position, "a.pdf", position, "id", "", "compared", characters=100)


def test_an_audit_that_is_killed_while_it_tries_pages_again_keeps_what_it_had(tmp_path: Path) -> None:
    out, settings = tmp_path / "audit.parquet", {"table": "t"}
    first = AuditJournal(out, settings)
    unreadable = [replace(page(number), outcome="unreadable") for number in (1, 2)]
    for each in unreadable:
        first.append(each)
    first.finish()
    first.close()
    killed = AuditJournal(out, settings)
    killed.append(page(2))
    killed.close()
    assert list(read_pages(out)) == unreadable
    again = AuditJournal(out, settings)
    assert again.finish() == [unreadable[0], page(2)]
    again.close()
    assert list(read_pages(out)) == [unreadable[0], page(2)]
    assert not journal_path(out).exists()


def test_a_killed_audit_loses_no_finished_page(tmp_path: Path) -> None:
    out, settings = tmp_path / "audit.parquet", {"table": "t"}
    journal = AuditJournal(out, settings)
    journal.append(page(3))
    journal.append(page(1))
    journal.close()
    with open(journal_path(out), "ab") as file:
        file.write(b'{"position":2,"source":"a.p')  # torn, as by kill -9
    again = AuditJournal(out, settings)
    assert set(again.pages) == {1, 3}
    again.append(page(2))
    again.finish()
    again.close()
    assert list(read_pages(out)) == [page(1), page(2), page(3)]
    assert not journal_path(out).exists()


def test_a_sample_is_the_same_whatever_the_order_of_the_table() -> None:
    rows = [PageResult("a.pdf", number, "ok", width=1, height=1) for number in range(100)]
    rows[7] = PageResult("a.pdf", 7, "failed")

    def drawn(given: list[PageResult], seed: int = 0) -> set[int | None]:
        return {given[position].page_index for position in draw(given, Choice("sample", 20, seed)).positions}

    assert drawn(rows) == drawn(rows[::-1])
    assert len(drawn(rows)) == 20
    assert 7 not in drawn(rows)
    assert drawn(rows) != drawn(rows, seed=1)
    assert draw(rows, Choice("all")).num_readable == 99


def test_the_table_of_an_audit_has_these_columns() -> None:
    assert [
        (column.name, str(column.type), column.nullable) for column in AUDIT_SCHEMA if column.name != "findings"
    ] == [
        ("position", "int64", False),
        ("source", "string", False),
        ("page_index", "int64", False),
        ("doc_id", "string", True),
        ("text_hash", "string", False),
        ("outcome", "string", False),
        ("message", "string", True),
        *((name, "int64", False) for name in ("characters", "uncompared", "omitted", "invented", "different")),
        ("weight", "double", False),
        ("left_out", "list<item: string>", False),
    ]
    findings = AUDIT_SCHEMA.field("findings")
    assert not findings.nullable and str(findings.type) == (
        "list<item: struct<kind: string not null, block: int64, bbox: list<item: double> not null, "
        "text: string not null, second_text: string not null, characters: int64 not null, "
        "weight: double not null> not null>"
    )
