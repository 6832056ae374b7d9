"""A SQLite file that others may have made: what is in it does not act, and opening it does nothing to another file."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from batchocr.storage import sqlite_file
from batchocr.storage.sqlite_file import SqliteFile
from tests.support.sqlite_attacks import ENDLESS

TABLES = ("create table if not exists t (x text primary key, y)", "create index if not exists t_by_y on t (y)")


def database(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as db:
        for statement in statements:
            db.execute(statement)
        db.commit()


@pytest.mark.parametrize("statements", [(), TABLES[:1], TABLES])
def test_what_we_make_is_ours_and_so_is_a_part_of_it(tmp_path: Path, statements: tuple[str, ...]) -> None:
    database(tmp_path / "db", *statements)
    with closing(SqliteFile(tmp_path / "db", wait_s=0)) as db:
        db.require_only(*TABLES)


@pytest.mark.parametrize(
    "statements",
    [
        [f"create view t as {ENDLESS}"],
        [f"create view u as {ENDLESS}"],
        ["create table t (x text primary key, y, z)"],
        ["create table t (x text primary key, y generated always as (length(x)))"],
        ["create table t (x text primary key, y default (randomblob(9)))"],
        ["create table t (x text primary key, y check (y > randomblob(9)))"],
        ["create table u (x)"],
        ["create virtual table t using fts5 (x, y)"],
        ["create virtual table t using rtree (x, y, z)"],
        [*TABLES, "create trigger tr after insert on t begin delete from t; end"],
        [*TABLES, "create index t_by_both on t (x, y)"],
        [*TABLES, "create index t_by_length on t (length(x))"],
    ],
)
def test_what_holds_anything_else_is_not_ours(tmp_path: Path, statements: list[str]) -> None:
    try:
        database(tmp_path / "db", *statements)
    except sqlite3.OperationalError as error:
        pytest.skip(str(error))
    with closing(SqliteFile(tmp_path / "db", wait_s=0)) as db, pytest.raises(sqlite3.DatabaseError, match="other"):
        db.require_only(*TABLES)


@pytest.mark.slow
@pytest.mark.parametrize("query", [ENDLESS, f"select count(*) from ({ENDLESS})"])
def test_a_query_without_an_end_is_ended_and_the_next_has_its_own_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    monkeypatch.setattr(sqlite_file, "QUERY_S", 0.5)
    with closing(SqliteFile(tmp_path / "db", wait_s=0)) as db:
        with pytest.raises(sqlite3.OperationalError, match="interrupted"):
            for _ in db.execute(query):
                pass
        steps = "with recursive c(x) as (select 1 union all select x + 1 from c where x < 200000) select max(x) from c"
        assert db.execute(steps).fetchone() == (200000,)


def test_functions_that_act_are_not_trusted_in_a_schema(tmp_path: Path) -> None:
    with closing(SqliteFile(tmp_path / "db", wait_s=0)) as db:
        assert db.execute("pragma trusted_schema").fetchone() == (0,)


def test_a_journal_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    database(tmp_path / "db", *TABLES)
    os.mkfifo(tmp_path / "db-journal")
    with pytest.raises(sqlite3.DatabaseError, match="no journal of it"):
        SqliteFile(tmp_path / "db", wait_s=0)


@pytest.mark.parametrize("suffix", ["-journal", "-wal", "-shm"])
@pytest.mark.parametrize("locking", ["normal", "exclusive"])
def test_a_link_beside_it_is_not_written_through(tmp_path: Path, suffix: str, locking: str) -> None:
    (tmp_path / "victim.txt").write_text("notes")
    database(tmp_path / "db", *TABLES)
    (tmp_path / f"db{suffix}").symlink_to("victim.txt")
    try:
        with closing(SqliteFile(tmp_path / "db", wait_s=0)) as db:
            for statement in (
                f"pragma locking_mode = {locking}",
                "pragma journal_mode = wal",
                "insert into t values (1, 2)",
            ):
                db.execute(statement)
    except sqlite3.DatabaseError:
        pass
    assert (tmp_path / "victim.txt").read_text() == "notes"


def test_what_a_kill_left_is_rolled_back(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "db", isolation_level=None)) as db:
        db.execute("create table t (x)")
        db.execute("insert into t values (1)")
        db.execute("pragma cache_size = 1")
        db.execute("begin")
        db.execute("update t set x = 2")
        for number in range(1000):
            db.execute("insert into t values (?)", (f"{number:0500}",))
        for name in ("db", "db-journal"):
            (tmp_path / f"killed-{name}").write_bytes((tmp_path / name).read_bytes())
    (tmp_path / "killed").mkdir()
    for name in ("db", "db-journal"):
        (tmp_path / f"killed-{name}").rename(tmp_path / "killed" / name)
    with closing(SqliteFile(tmp_path / "killed/db", wait_s=0)) as killed:
        assert killed.execute("select * from t").fetchall() == [(1,)]
