"""Files of a run in which a bit has flipped: they are refused, or no row is another than before."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from batchocr.data import Block, PageResult
from batchocr.errors import OutputError
from batchocr.tables.files import journal_path, record_path
from batchocr.tables.journal import Journal
from batchocr.tables.table import table_for
from tests.support.documents import METADATA, text_row
from tests.support.jobs import FULL
from tests.support.tables import put_table

pytestmark = pytest.mark.slow

NUM_FLIPS = 3000 if FULL else 600


def make_rows(count: int) -> list[PageResult]:
    """Rows of four-page documents with random text, a failed document among them."""
    dice = random.Random(count)

    def block() -> Block:
        text = "".join(dice.choices("etaoin shrdlu\n", k=90))
        return Block("text", (0.1, 0.2, dice.random(), 1.0), 0, text, confidence=dice.random())

    rows = [
        text_row(f"d{number // 4}.pdf", number % 4, block(), block(), doc_id=f"{dice.getrandbits(256):064x}")
        for number in range(count - 1)
    ]
    return [*rows, PageResult("e.pdf", None, "failed", error_kind="damaged", error_message="no trailer")]


ROWS = [replace(row, file_bytes=1000, file_mtime_ns=12345) for row in make_rows(24)]


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory, where thousands of files are written in seconds; an ordinary one if there is none."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


def flipped(sound: bytes, count: int = NUM_FLIPS) -> Iterator[bytes]:
    """The bytes with one bit flipped, at this many seeded places."""
    dice = random.Random(count)
    for _ in range(count):
        damaged = bytearray(sound)
        damaged[dice.randrange(len(sound))] ^= 1 << dice.randrange(8)
        yield bytes(damaged)


def test_no_flipped_bit_in_a_journal_changes_a_row(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    out = memory / "table.parquet"

    def open_journal() -> Journal:
        return Journal.open(out, METADATA, resume=True, overwrite=False)

    with open_journal() as journal:
        for row in ROWS:
            journal.append(row)
    num_refused = num_missing = 0
    for damaged in flipped(journal_path(out).read_bytes()):
        journal_path(out).write_bytes(damaged)
        try:
            with open_journal() as journal:
                found = [row for row in ROWS if journal.known.find(row.source, row.page_index) is not None]
                assert [journal.read(row.source, row.page_index) for row in found] == found
                known = [row for source in journal.known.sources() for row in journal.known.rows(source)]
                assert len(known) == len(found), "a row that nobody wrote"
                assert {row.version for row in known} == {(1000, 12345)}
                num_missing += len(ROWS) - len(found)
        except OutputError:
            num_refused += 1
    assert 0 < num_refused < NUM_FLIPS / 10, "the first line alone stops the run"
    assert NUM_FLIPS - num_refused <= num_missing < NUM_FLIPS * 1.1, "only rows of the line itself are read again"


@pytest.mark.parametrize("name", ["table.parquet", "table.jsonl"])
def test_a_table_with_a_flipped_bit_is_refused(memory: Path, name: str) -> None:
    out = memory / name
    table = table_for(out)
    put_table(out, ROWS, METADATA)
    for damaged in flipped(out.read_bytes()):
        out.write_bytes(damaged)
        with pytest.raises(OutputError):
            list(table.read_rows(out))


def test_no_flipped_bit_in_a_parquet_table_changes_its_metadata(memory: Path) -> None:
    out = memory / "table.parquet"
    table = table_for(out)
    put_table(out, ROWS[:1], METADATA)
    for damaged in flipped(out.read_bytes()):
        out.write_bytes(damaged)
        try:
            assert table.read_metadata(out) in (None, METADATA)
        except OutputError as error:
            assert "was damaged or changed since it was written" in str(error)


def test_metadata_beside_a_table_with_a_flipped_bit_are_refused(memory: Path) -> None:
    out = memory / "table.jsonl"
    table = table_for(out)
    put_table(out, ROWS[:1], METADATA)
    for damaged in flipped(record_path(out).read_bytes()):
        record_path(out).write_bytes(damaged)
        with pytest.raises(OutputError):
            list(table.read_rows(out))
        try:
            assert table.read_metadata(out) is None
        except OutputError as error:
            assert "is damaged, or was changed" in str(error)
