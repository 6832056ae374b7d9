"""Answers that outlive a run: who finds them, and what becomes of a run whose cache is not as it should be."""

from __future__ import annotations

import logging
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from batchocr.data import Completion
from batchocr.errors import UsageError
from batchocr.processes import answer_cache
from batchocr.processes.answer_cache import NAME, AnswerCache, cache_folder
from batchocr.storage import sqlite_file
from batchocr.storage.checksums import checked_line
from tests.support.sqlite_attacks import ENDLESS

MAKER = {"model_fingerprint": "m", "dtype": "float32"}
OTHER = {"model_fingerprint": "m", "dtype": "bfloat16"}


def digest(number: int) -> str:
    return f"{number:064x}"


def answer(number: int, letters: int = 5) -> Completion:
    return Completion(f"{number} \udc80é" + "x" * letters, "stop", 7, 5, 0.123456789012345678, -1e-300)


def fill(
    folder: Path, count: int, *, maker: dict[str, str] = MAKER, letters: int = 5, max_bytes: int = 1 << 30
) -> None:
    with closing(AnswerCache(folder, maker, max_bytes=max_bytes)) as cache:
        for number in range(count):
            cache.put(digest(number), answer(number, letters))


def found(folder: Path, count: int, *, maker: dict[str, str] = MAKER) -> dict[str, Completion]:
    with closing(AnswerCache(folder, maker)) as cache:
        return cache.find([digest(number) for number in range(count)])


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], str]]:
    """The one warning that there was."""

    def one_warning() -> str:
        [record] = [record for record in caplog.records if record.levelno == logging.WARNING]
        return record.getMessage()

    with caplog.at_level(logging.WARNING, logger="batchocr"):
        yield one_warning


def test_an_answer_is_found_later_as_it_was_given(tmp_path: Path) -> None:
    fill(tmp_path / "new" / "folder", 3)
    assert found(tmp_path / "new" / "folder", 5) == {digest(number): answer(number) for number in range(3)}


def test_what_another_model_or_another_dtype_answered_is_not_found(tmp_path: Path) -> None:
    fill(tmp_path, 2)
    fill(tmp_path, 1, maker=OTHER)
    assert len(found(tmp_path, 2)) == 2
    assert len(found(tmp_path, 2, maker=OTHER)) == 1
    assert found(tmp_path, 2, maker={"model_fingerprint": "n"}) == {}


def test_one_that_another_run_is_just_making_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    make = answer_cache._make_or_check

    def make_beside_another(db: sqlite3.Connection) -> None:
        make(db)
        other.execute("BEGIN IMMEDIATE")

    with closing(sqlite3.connect(tmp_path / NAME, isolation_level=None)) as other:
        monkeypatch.setattr(answer_cache, "_make_or_check", make_beside_another)
        monkeypatch.setattr(answer_cache.time, "sleep", lambda _: other.execute("COMMIT"))
        fill(tmp_path, 1)
    monkeypatch.undo()
    assert len(found(tmp_path, 1)) == 1
    assert not caplog.records


def test_it_is_written_about_once_a_second_and_not_more_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr(answer_cache.time, "monotonic", lambda: now_s)
    cache = AnswerCache(tmp_path, MAKER)
    cache.put(digest(0), answer(0))
    cache.write_if_due()
    assert found(tmp_path, 1) == {}
    now_s += 1.1
    cache.write_if_due()
    assert len(found(tmp_path, 1)) == 1
    cache.close()


@pytest.mark.long
@pytest.mark.slow
def test_several_runs_write_into_one_at_once(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from tests.processes.test_answer_cache import *\n"
        "with closing(AnswerCache(Path(sys.argv[1]), MAKER)) as cache:\n"
        "    for number in range(int(sys.argv[2]), int(sys.argv[2]) + 300):\n"
        "        cache.put(digest(number), answer(number))\n"
        "        cache.write()\n"
    )
    runs = [
        subprocess.Popen([sys.executable, "-c", script, tmp_path, str(first)], stderr=subprocess.PIPE)
        for first in (0, 150, 300, 450)
    ]
    assert [(run.wait(timeout=60), run.communicate()[1]) for run in runs] == [(0, b"")] * 4
    assert len(found(tmp_path, 750)) == 750


def test_a_run_that_is_killed_while_it_writes_leaves_it_sound(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from tests.processes.test_answer_cache import *\n"
        "cache = AnswerCache(Path(sys.argv[1]), MAKER)\n"
        "for number in range(100000):\n"
        "    cache.put(digest(number), answer(number, 3000))\n"
        "    cache.write()\n"
        "    print(number, flush=True)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script, tmp_path], stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        while int(run.stdout.readline()) < 200:
            pass
        run.send_signal(signal.SIGKILL)
    assert len(found(tmp_path, 200)) == 200
    with closing(sqlite3.connect(tmp_path / NAME)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_an_answer_that_the_disk_has_altered_is_as_good_as_none(tmp_path: Path) -> None:
    fill(tmp_path, 2)
    with closing(sqlite3.connect(tmp_path / NAME)) as db:
        db.execute("UPDATE answers SET answer = CAST(replace(answer, '\"1 ', '\"2 ') AS BLOB)")
        db.commit()
    assert found(tmp_path, 2) == {digest(0): answer(0)}
    fill(tmp_path, 2)
    assert len(found(tmp_path, 2)) == 2


def test_a_sound_answer_in_the_place_of_another_is_as_good_as_none(tmp_path: Path) -> None:
    fill(tmp_path, 3)
    fill(tmp_path, 3, maker=OTHER)
    with closing(sqlite3.connect(tmp_path / NAME)) as db:
        db.execute("UPDATE answers SET answer = (SELECT answer FROM answers WHERE rowid = 2)")
        db.commit()
    assert found(tmp_path, 3) == {digest(1): answer(1)}
    assert found(tmp_path, 3, maker=OTHER) == {}


def sql(*statements: str, answers: int = 0) -> Callable[[Path], None]:
    """Run these in a file that has so many answers before, or none."""

    def spoil(folder: Path) -> None:
        folder.mkdir(parents=True)
        if answers:
            fill(folder, answers)
        with closing(sqlite3.connect(folder / NAME)) as db:
            for statement in statements:
                db.execute(statement)

    return spoil


def overwritten_in_the_middle(folder: Path) -> None:
    fill(folder, 200, letters=3000)
    with (folder / NAME).open("r+b") as file:
        for page in range(3, 100):
            file.seek(4096 * page)
            file.write(os.urandom(4096))


def text(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / NAME).write_text("these are my notes\n" * 1000)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (text, "it is no cache, or damaged; delete it"),
        (sql("CREATE TABLE answers (a, b, c)"), "it is a file of another program; choose another folder"),
        (sql("PRAGMA user_version = 77", answers=1), "it is of another version of batchocr"),
        (sql("DROP TABLE answers", answers=1), "no such table"),
        (
            sql("DROP TABLE answers", f"CREATE VIEW answers AS {ENDLESS}", answers=1),
            "it holds other tables than batchocr makes: move it away",
        ),
        (overwritten_in_the_middle, "it is damaged; check the disk, and delete it"),
        (lambda folder: (folder / NAME).mkdir(parents=True), "it cannot be opened; choose a folder"),
        (lambda folder: folder.parent.write_text(""), "Not a directory; choose a folder that can be written"),
        (lambda folder: (folder.parent.mkdir(), folder.touch()), "File exists; choose a folder that can be written"),
    ],
)
def test_what_is_no_sound_cache_is_named_once_and_left_as_it_is(
    tmp_path: Path, warnings: Callable[[], str], spoil: Callable[[Path], object], said: str
) -> None:
    folder = tmp_path / "parent" / "folder"
    spoil(folder)
    before = (folder / NAME).read_bytes() if (folder / NAME).is_file() else b""
    with closing(AnswerCache(folder, MAKER)) as cache:
        for number in range(200):
            assert cache.find([digest(number)]) in ({}, {digest(number): answer(number, 3000)})
            cache.put(digest(number + 1000), answer(number))
        cache.write()
        assert cache.find([digest(1000)]) == {}
    assert str(folder / NAME) in warnings()
    assert said in warnings()
    if before:
        assert (folder / NAME).read_bytes() == before


def test_a_query_that_takes_too_long_is_one_warning(
    tmp_path: Path, warnings: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(AnswerCache(tmp_path, MAKER)) as cache:
        with closing(sqlite3.connect(tmp_path / NAME)) as db:  # while the run has it open
            db.execute("DROP TABLE answers")
            db.execute(f"CREATE VIEW answers AS {ENDLESS}")
        monkeypatch.setattr(sqlite_file, "QUERY_S", 0.05)
        for number in range(3):
            assert cache.find([digest(number)]) == {}
    assert "a query takes too long; delete it" in warnings()


def test_an_answer_nested_beyond_reading_is_as_good_as_none(tmp_path: Path) -> None:
    fill(tmp_path, 1)
    with closing(sqlite3.connect(tmp_path / NAME)) as db:
        [(key,)] = db.execute("SELECT key FROM answers").fetchall()
        db.execute("UPDATE answers SET answer = ?", (checked_line(b"[" * 100_000, of=key),))
        db.commit()
    assert found(tmp_path, 1) == {}


def test_one_that_another_program_keeps_locked_is_named_once(
    tmp_path: Path, warnings: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer_cache, "_OPEN_WAIT_MS", 50)
    fill(tmp_path, 1)
    with closing(sqlite3.connect(tmp_path / NAME)) as db:
        db.execute("PRAGMA locking_mode = EXCLUSIVE")
        db.execute("BEGIN EXCLUSIVE")
        fill(tmp_path, 1)
    assert "another program has it locked" in warnings()


def test_what_cannot_be_written_while_another_run_writes_is_written_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(AnswerCache(tmp_path, MAKER)) as cache:
        with closing(sqlite3.connect(tmp_path / NAME, isolation_level=None)) as db:
            db.execute("BEGIN IMMEDIATE")
            cache.put(digest(0), answer(0))
            cache.write()
            assert cache.find([digest(0)]) == {}
        cache.write()
        assert cache.find([digest(0)]) == {digest(0): answer(0)}
    assert not caplog.records


def test_answers_that_wait_for_a_lock_too_long_are_given_up(tmp_path: Path, warnings: Callable[[], str]) -> None:
    with closing(AnswerCache(tmp_path, MAKER)) as cache, closing(sqlite3.connect(tmp_path / NAME)) as db:
        db.execute("BEGIN IMMEDIATE")
        for number in range(10):
            cache.put(digest(number), answer(number, 200))
            cache.write(most_waiting_bytes=1000)
    assert "another program has it locked" in warnings()


def test_answers_that_still_wait_for_a_lock_at_the_end_are_lost_with_a_warning(
    tmp_path: Path, warnings: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(AnswerCache(tmp_path, MAKER)) as cache, closing(sqlite3.connect(tmp_path / NAME)) as db:
        db.execute("BEGIN IMMEDIATE")
        cache.put(digest(0), answer(0))
        cache.write()
        monkeypatch.setattr(answer_cache, "_OPEN_WAIT_MS", 50)
        cache.close()
    assert "another program has it locked" in warnings()


def test_a_file_that_was_deleted_without_its_journal_is_begun_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(AnswerCache(tmp_path, MAKER)) as cache:
        cache.put(digest(0), answer(0))
        cache.write()
        journal = (tmp_path / f"{NAME}-wal").read_bytes()
    (tmp_path / NAME).unlink()
    (tmp_path / f"{NAME}-wal").write_bytes(journal)  # as a run that is killed leaves it
    assert journal
    assert found(tmp_path, 1) == {}
    fill(tmp_path, 2)
    assert len(found(tmp_path, 2)) == 2
    assert not caplog.records


def test_a_full_one_is_only_read_and_that_is_said_once(tmp_path: Path, warnings: Callable[[], str]) -> None:
    fill(tmp_path, 10)
    with closing(AnswerCache(tmp_path, MAKER, max_bytes=200_000)) as cache:
        for number in range(10, 100):
            cache.put(digest(number), answer(number, 9000))
            cache.write()
        assert len(cache.find([digest(number) for number in range(10)])) == 10
    assert "is only read from now on" in warnings()
    assert (tmp_path / NAME).stat().st_size <= 200_000
    assert 10 < len(found(tmp_path, 100)) < 100


_IN_SMALL_DISK = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c")
_MOUNT = 'mount -t tmpfs -o size=300k tmpfs "$0" && touch "$0/mounted" && {} && exec "$@"'


def on_a_small_disk(folder: Path, script: str, *, first: str = "true") -> str:
    """What the script says on stderr, with a disk of its own at the folder. first: a shell's command, before that."""
    command = [*_IN_SMALL_DISK, _MOUNT.format(first), folder, sys.executable, "-c", script, folder]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip("no disk can be mounted here: it takes `unshare` and user namespaces")
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_a_disk_that_fills_up_is_named_once_and_what_is_there_is_still_found(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from tests.processes.test_answer_cache import *\n"
        "folder = Path(sys.argv[1]); assert (folder / 'mounted').exists()\n"
        "cache = AnswerCache(folder, MAKER)\n"
        "for number in range(200):\n"
        "    cache.put(digest(number), answer(number, 9000))\n"
        "    cache.write()\n"
        "there = cache.find([digest(number) for number in range(200)])\n"
        "assert 3 < len(there) < 100 and all(each in there for each in map(digest, range(len(there)))), len(there)\n"
        "cache.close()\n"
    )
    [line] = on_a_small_disk(tmp_path, script).splitlines()
    assert "is only read from now on: the disk is full" in line


@pytest.mark.slow
@pytest.mark.parametrize("was_there", [False, True])
def test_a_disk_that_may_not_be_written_is_named_once(tmp_path: Path, *, was_there: bool) -> None:
    fill = "import sys, pathlib, tests.processes.test_answer_cache as here; here.fill(pathlib.Path(sys.argv[1]), 3)"
    first = f'"{sys.executable}" -c "{fill}" "$0"' if was_there else "true"
    [line] = on_a_small_disk(tmp_path, fill, first=f'{first} && mount -o remount,ro "$0"').splitlines()
    assert "the run goes on without the cache" in line
    assert "choose a folder that can be written" in line


def test_a_folder_that_other_machines_may_have_mounted_is_not_used(
    tmp_path: Path, warnings: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(
        f"21 1 0:20 / / rw - ext4 /dev/a rw\n"
        f"22 21 0:21 / {tmp_path} rw shared:1 - nfs4 server:/x rw\n"
        f"23 21 0:22 / {tmp_path}/local rw - xfs /dev/b rw\n"
    )
    monkeypatch.setattr(answer_cache, "_MOUNTS", mounts)
    fill(tmp_path / "local" / "folder", 1)
    assert len(found(tmp_path / "local" / "folder", 1)) == 1
    (tmp_path / "localized").mkdir()
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / NAME).symlink_to(tmp_path / "localized" / NAME)
    fill(tmp_path / "link", 1)
    assert "its file system is of the network (nfs4)" in warnings()
    assert not (tmp_path / "localized" / NAME).exists()


def test_an_empty_name_is_not_that_of_the_working_directory() -> None:
    with pytest.raises(UsageError, match="--cache is empty"):
        cache_folder("")


@pytest.mark.parametrize("uri", ["s3://bucket/cache", "GS://bucket/cache"])
def test_a_store_is_refused_with_a_reason(uri: str) -> None:
    with pytest.raises(UsageError, match="a cache is a folder on a disk of this machine"):
        cache_folder(uri)


@pytest.mark.parametrize("name", ["to nowhere", "to nowhere/folder/deeper", "folder", "loop"])
def test_a_link_to_nothing_is_refused_and_nothing_is_made_in_its_place(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "to nowhere").symlink_to(tmp_path / "nowhere")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "folder" / NAME).symlink_to(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="is a link to nothing: remove it, or choose another folder"):
        cache_folder(str(tmp_path / name))
    assert not (tmp_path / "nowhere").exists()


def test_a_link_to_something_is_followed(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there")
    assert cache_folder(str(tmp_path / "link")) == tmp_path / "link"
    assert cache_folder(str(tmp_path / "new" / "folder")) == tmp_path / "new" / "folder"
