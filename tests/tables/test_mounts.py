"""File systems that lack something: what they refuse costs what it must, and no more."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from batchocr.data import PageResult
from batchocr.errors import OutputError
from batchocr.tables import jsonl, parquet
from batchocr.tables.journal import Journal
from batchocr.tables.table import table_for
from tests.support.documents import METADATA
from tests.support.tables import put_table

ROWS = [PageResult("a.pdf", number, "ok", "d1", 2, markdown="text") for number in range(2)]


def refusing(number: int, *, folders: bool = False) -> Callable[..., None]:
    """A call that is refused; folders: if it is for one, and for a file does nothing."""

    def call(descriptor: int, *_: object) -> None:
        if not folders or stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, os.strerror(number))

    return call


def run_once(out: Path) -> list[PageResult]:
    """A journal and two tables written, one over the other; the rows that are there then."""
    for rows in (ROWS[:1], ROWS):
        with Journal.open(out, METADATA, resume=True, overwrite=False) as journal:
            for row in rows:
                journal.append(row)
            put_table(out, rows, METADATA, written=journal.end)
            journal.remove()
    return list(table_for(out).read_rows(out))


@pytest.mark.parametrize("name", ["t.parquet", "t.jsonl"])
@pytest.mark.parametrize("call", ["fchmod", "fsync"])
@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.EINVAL, errno.EPERM, errno.ENOSYS, 524], ids=str)
def test_where_modes_cannot_be_set_or_nothing_synced_the_table_is_written_all_the_same(
    tmp_path: Path, name: str, call: str, number: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(os, call, refusing(number))
    assert run_once(tmp_path / name) == ROWS
    assert caplog.messages == []


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, 524], ids=str)
def test_where_there_are_no_locks_one_warning_says_what_that_means(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(fcntl, "flock", refusing(number))
    assert run_once(tmp_path / "t.parquet") == ROWS
    expected = f"{tmp_path} has no locks ({os.strerror(number)}): two runs into one output go unseen"
    assert caplog.messages == [expected]


def test_a_disk_that_fails_as_a_folder_is_synced_is_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(os, "fsync", refusing(errno.EIO, folders=True))
    assert run_once(tmp_path / "t.jsonl") == ROWS
    expected = f"cannot sync the folder {tmp_path} (Input/output error): a power loss may bring replaced files back"
    assert caplog.messages == [expected]


def test_a_disk_that_fails_as_a_file_is_synced_is_an_error_and_the_former_table_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for format, out in ((parquet, tmp_path / "t.parquet"), (jsonl, tmp_path / "t.jsonl")):
        put_table(out, ROWS[:1], METADATA)
        with monkeypatch.context() as patch, pytest.raises(OutputError, match="Input/output error"):
            patch.setattr(os, "fsync", refusing(errno.EIO))
            put_table(out, ROWS, METADATA)
        assert list(format.read_rows(out)) == ROWS[:1]
        with (
            pytest.raises(OutputError, match="Input/output error"),
            Journal.open(out, METADATA, resume=True, overwrite=False) as journal,
        ):
            monkeypatch.setattr(os, "fsync", refusing(errno.EIO))
            monkeypatch.setattr("batchocr.tables.journal._SYNC_INTERVAL_S", 0.0)
            journal.tick()
        monkeypatch.undo()
