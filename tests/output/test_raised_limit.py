"""An output that goes on with a higher --max-new-tokens: what the lower one cut is read again, and nothing else."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from batchocr.data import Block, FinishReason, PageResult
from batchocr.errors import OutputError, OutputMismatchError
from batchocr.output import jsonl, parquet
from batchocr.output.files import journal_path
from batchocr.output.journal import Entry, Journal
from batchocr.output.raised_limit import lower_limit, was_cut
from batchocr.output.schema import SCHEMA_VERSION, RunFacts, fingerprint_of_settings


def facts(max_new_tokens: int, **others: str) -> RunFacts:
    settings = {"dpi": "200", "max_new_tokens": str(max_new_tokens), **others}
    return RunFacts("0.1.0", "acme/reader", "f" * 64, fingerprint_of_settings(settings), settings)


def block(finish_reason: FinishReason | None, output_tokens: int | None, kind: str = "text") -> Block:
    return Block(kind, (0.0, 0.0, 1.0, 1.0), 0, "text", output_tokens=output_tokens, finish_reason=finish_reason)


def row(page_index: int, *blocks: Block, message: str | None = None, status: str = "degraded") -> PageResult:
    whole = PageResult("a.pdf", page_index, "ok", "d1", 9, markdown="text", blocks=blocks)
    return whole if message is None else replace(whole, status=status, error_message=message)


SOUND = row(0, block("stop", 100))
CUT = row(1, block("length", 100), message="block 0 hit the token limit")
LOOPED = row(2, block("repetition", 64), message="block 0 looped")
TABLE = row(3, block("repetition", 130, "table"), message="block 0 looped")
LAYOUT = row(4, message="the layout hit its token limit")
JOINED = row(5, block(None, None, "equation"), message="block 0 hit the token limit; block 4 looped")
FAILED = PageResult("a.pdf", 6, "failed", "d1", 9, error_kind="timeout", error_message="took longer than 60 s")
ROWS = [SOUND, CUT, LOOPED, TABLE, LAYOUT, JOINED, FAILED]
CUT_AT_100 = [1, 3, 5]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "results.jsonl"


def open_journal(out: Path, facts: RunFacts) -> Journal:
    return Journal.open(out, facts, resume=True, overwrite=False)


def write_journal(out: Path, rows: Iterable[PageResult], facts: RunFacts) -> Path:
    with open_journal(out, facts) as journal:
        for result in rows:
            journal.append(Entry(result, size=10, mtime_ns=20))
    return journal_path(out)


def cut_rows(journal: Journal) -> list[int | None]:
    return [found.page_index for found in journal.rows("a.pdf") if found.cut]


def test_cut_is_what_ended_at_the_limit_or_was_found_to_loop_only_there() -> None:
    assert [result.page_index for result in ROWS if was_cut(result, 100)] == CUT_AT_100


def test_an_unfinished_run_keeps_every_row_and_knows_which_were_cut(out: Path) -> None:
    path = write_journal(out, ROWS, facts(100))
    before = path.read_bytes().splitlines()
    with open_journal(out, facts(200)) as journal:
        assert cut_rows(journal) == CUT_AT_100
        assert [journal.read("a.pdf", result.page_index) for result in ROWS] == ROWS
        assert {(found.size, found.mtime_ns) for found in journal.rows("a.pdf")} == {(10, 20)}
    after = path.read_bytes().splitlines()
    assert b'"max_new_tokens":"200"' in after[0]
    assert [old == new for old, new in zip(before, after, strict=True)] == [
        False,
        *(result.page_index not in CUT_AT_100 for result in ROWS),
    ]
    with open_journal(out, facts(200)) as journal:
        assert cut_rows(journal) == CUT_AT_100


@pytest.mark.parametrize("name", ["results.parquet", "results.jsonl"])
def test_a_finished_table_goes_on_the_same_way_and_is_left_alone_until_then(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    out = tmp_path / name
    table = parquet if name.endswith(".parquet") else jsonl
    table.write(out, ROWS, facts(100))
    before = out.read_bytes()
    with open_journal(out, facts(200)) as journal:
        assert cut_rows(journal) == CUT_AT_100
        assert [journal.read("a.pdf", result.page_index) for result in ROWS] == ROWS
        assert journal.is_redundant
    assert "what --max-new-tokens 100 cut is read again with 200" in caplog.text
    assert (out.read_bytes(), journal_path(out).exists()) == (before, False)
    with open_journal(out, facts(100)) as journal:
        assert cut_rows(journal) == []


def test_only_what_goes_on_says_so_and_not_the_question(out: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "batchocr")
    write_journal(out, ROWS, facts(100))
    assert lower_limit(facts(100), facts(200)) == 100
    assert caplog.text == ""
    open_journal(out, facts(200)).close()
    assert caplog.text.count("what --max-new-tokens 100 cut is read again with 200") == 1


def test_a_page_that_was_read_again_is_not_cut_any_more_and_one_that_failed_again_is(out: Path) -> None:
    write_journal(out, ROWS, facts(100))
    read_again = row(1, block("stop", 150))
    failed = replace(FAILED, page_index=3)
    with open_journal(out, facts(200)) as journal:
        journal.append(Entry(read_again, 10, 20))
        journal.append(Entry(failed, 10, 20))
        assert cut_rows(journal) == [3, 5]
    with open_journal(out, facts(200)) as journal:
        assert cut_rows(journal) == [3, 5]
        assert journal.read("a.pdf", 1) == read_again
        assert journal.read("a.pdf", 3) == TABLE


def test_a_limit_raised_twice_is_judged_by_what_each_run_read(out: Path) -> None:
    write_journal(out, ROWS, facts(100))
    with open_journal(out, facts(200)) as journal:
        journal.append(Entry(replace(CUT, blocks=(block("length", 200),)), 10, 20))
        journal.append(Entry(row(5, block("stop", 150)), 10, 20))
        assert cut_rows(journal) == [3]
    with open_journal(out, facts(300)) as journal:
        assert cut_rows(journal) == [1, 3]


def test_a_page_cut_for_another_reason_than_the_limit_is_read_again_only_once(out: Path) -> None:
    """At the end of the model's positions, a block ends below any limit."""
    write_journal(out, [CUT], facts(100))
    with open_journal(out, facts(99_000)) as journal:
        journal.append(Entry(replace(CUT, blocks=(block("length", 15_000),)), 10, 20))
    with open_journal(out, facts(99_000)) as journal:
        assert cut_rows(journal) == []


def test_a_lower_limit_is_refused_and_what_is_possible_is_said(out: Path) -> None:
    path = write_journal(out, ROWS, facts(200))
    before = path.read_bytes()
    with pytest.raises(
        OutputMismatchError, match=r"200 there, 100 here.*run with the same or a higher --max-new-tokens"
    ):
        open_journal(out, facts(100))
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "found",
    [facts(100, dpi="150"), replace(facts(100), schema_version=SCHEMA_VERSION + 1), replace(facts(0), settings={})],
)
def test_a_higher_limit_excuses_no_other_difference(out: Path, found: RunFacts) -> None:
    write_journal(out, [], facts(100)).write_bytes(b"")
    parquet_out = out.with_suffix(".parquet")
    parquet.write(parquet_out, ROWS, found)
    with pytest.raises(OutputMismatchError):
        open_journal(parquet_out, facts(200))


def full_at(number: int) -> Callable[[bytes, int], bytes]:
    """In place of what writes a line: the disk is full at one of them."""
    numbers = count()

    def write(line: bytes, limit: int) -> bytes:
        if next(numbers) == number:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return line

    return write


@pytest.mark.parametrize("number", range(len(ROWS)))
def test_a_run_that_ends_while_it_raises_the_limit_loses_nothing(
    out: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    path = write_journal(out, ROWS, facts(100))
    before = path.read_bytes()
    with monkeypatch.context() as patched, pytest.raises(OutputError, match="the disk is full"):
        patched.setattr("batchocr.output.journal._marked_if_cut", full_at(number))
        open_journal(out, facts(200))
    assert path.read_bytes() == before
    assert os.listdir(out.parent) == [path.name]
    with open_journal(out, facts(200)) as journal:
        assert cut_rows(journal) == CUT_AT_100


def test_a_torn_or_damaged_line_is_as_it_was(out: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write_journal(out, ROWS, facts(100))
    lines = path.read_bytes().splitlines(keepends=True)
    lines[2] = lines[2].replace(b"token limit", b"token linit")
    path.write_bytes(b"".join(lines)[:-5])
    with open_journal(out, facts(200)) as journal:
        assert cut_rows(journal) == [3, 5]
        assert [found.page_index for found in journal.rows("a.pdf")] == [0, 2, 3, 4, 5]
    assert "damaged in 1 line, first in line 3" in caplog.text
