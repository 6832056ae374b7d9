"""The folder of an export: nothing of anybody else's is touched, and nothing is half written."""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import BinaryIO

import pytest

from batchocr.documents.export.figures import File
from batchocr.documents.export.folder import ExportFolder
from batchocr.documents.export.refusal import FileRefusedError
from batchocr.errors import OutputError
from batchocr.pages.input.folders import EXPORT_RECORD
from batchocr.tables.atomic import atomic_file
from batchocr.tables.files import temporary_path
from tests.support.running import raising
from tests.support.sqlite_attacks import ENDLESS


def write(to: Path, *files: tuple[str, bytes], source: str = "a.pdf", version: str = "1") -> None:
    """Export one document."""
    with ExportFolder(to) as folder:
        folder.begin(source, "md")
        folder.write(source, "md", [File(path, data) for path, data in files])
        folder.complete(source, "md", version)


def files_in(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(EXPORT_RECORD)
    }


def is_up_to_date(to: Path, version: str = "1") -> bool:
    with ExportFolder(to) as folder:
        folder.begin("a.pdf", "md")
        return folder.is_up_to_date("a.pdf", "md", version)


def test_a_document_written_before_is_known_again(tmp_path: Path) -> None:
    write(tmp_path, ("x/a.md", b"1"))
    assert is_up_to_date(tmp_path)
    assert not is_up_to_date(tmp_path, "2")
    (tmp_path / "x/a.md").unlink()
    assert not is_up_to_date(tmp_path)


@pytest.mark.parametrize("interrupted_at", ["commit", "begin immediate"])
def test_ctrl_c_while_the_record_is_committed_ends_the_export_in_good_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interrupted_at: str
) -> None:
    execute = ExportFolder._execute

    def interrupted(folder: ExportFolder, statement: str, *values: object) -> list[object]:
        if statement == interrupted_at:
            raise KeyboardInterrupt
        return execute(folder, statement, *values)

    write(tmp_path, ("a.md", b"1"))
    with pytest.raises(KeyboardInterrupt), ExportFolder(tmp_path) as folder:
        monkeypatch.setattr(ExportFolder, "_execute", interrupted)
        folder.begin("b.pdf", "md")
        folder.write("b.pdf", "md", [File("b.md", b"2")])
    monkeypatch.undo()
    assert is_up_to_date(tmp_path)


@pytest.mark.parametrize("taken", [("a.md", b"1"), ("a.md", b"2"), ("a.images/1.png", b"2")])
def test_a_document_whose_file_became_another_s_is_written_again(tmp_path: Path, taken: tuple[str, bytes]) -> None:
    files = (("a.images/1.png", b"1"), ("a.md", b"1"))
    write(tmp_path, *files)
    write(tmp_path, taken, source="b.pdf")
    assert not is_up_to_date(tmp_path)
    write(tmp_path, *files)
    assert is_up_to_date(tmp_path)
    assert files_in(tmp_path) == dict(files)


def test_a_document_keeps_what_somebody_changed_when_another_is_refused_its_place(tmp_path: Path) -> None:
    write(tmp_path, ("a.md", b"1"))
    (tmp_path / "a.md").write_bytes(b"mine")
    with pytest.raises(FileRefusedError):
        write(tmp_path, ("a.md", b"2"), source="b.pdf")
    assert is_up_to_date(tmp_path)


def test_a_document_whose_file_another_was_taking_at_a_kill_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "out", ("a.md", b"1"))
    killed = killed_at_work(tmp_path / "out", monkeypatch, in_place=True, source="b.pdf")
    assert files_in(killed) == {"a.md": b"2"}
    assert not is_up_to_date(killed)


def test_files_that_a_document_has_no_more_are_removed(tmp_path: Path) -> None:
    write(tmp_path, ("a.images/1.png", b"1"), ("a.md", b"1"))
    write(tmp_path, ("a.md", b"2"))
    assert files_in(tmp_path) == {"a.md": b"2"}
    assert not (tmp_path / "a.images").exists()


def test_a_file_that_somebody_changed_is_neither_replaced_nor_removed(tmp_path: Path) -> None:
    write(tmp_path, ("a.md", b"ours"), ("a.images/1.png", b"ours"))
    (tmp_path / "a.md").write_bytes(b"mine")
    (tmp_path / "a.images/1.png").write_bytes(b"mine")
    with pytest.raises(FileRefusedError):
        write(tmp_path, ("a.md", b"new"))
    write(tmp_path, ("b.md", b"new"))
    assert files_in(tmp_path) == {"a.md": b"mine", "a.images/1.png": b"mine", "b.md": b"new"}


@pytest.mark.parametrize("kind", ["link", "folder", "pipe", "link to nowhere"])
def test_what_is_no_ordinary_file_is_never_replaced_nor_written_through(tmp_path: Path, kind: str) -> None:
    target, out = tmp_path / "target", tmp_path / "out"
    out.mkdir()
    target.write_bytes(b"ours")
    match kind:
        case "link":
            (out / "a.md").symlink_to(target)
        case "link to nowhere":
            (out / "a.md").symlink_to(tmp_path / "nowhere")
        case "folder":
            (out / "a.md").mkdir()
        case _:
            os.mkfifo(out / "a.md")
    with pytest.raises(FileRefusedError):
        write(out, ("a.md", b"ours"))
    assert target.read_bytes() == b"ours"
    assert not (tmp_path / "nowhere").exists()


def test_a_file_in_the_place_of_a_folder_concerns_its_documents_alone(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"theirs")
    with pytest.raises(FileRefusedError, match="x is not a folder"):
        write(tmp_path, ("x/a.md", b"1"))
    write(tmp_path, ("b.md", b"1"), source="b.pdf")
    assert files_in(tmp_path) == {"b.md": b"1", "x": b"theirs"}


@pytest.mark.parametrize("to", ["elsewhere", "nowhere"])
def test_a_link_within_the_folder_does_not_lead_out_of_it(tmp_path: Path, to: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out/x").symlink_to(tmp_path / to)
    with pytest.raises(FileRefusedError, match="leads out of"):
        write(tmp_path / "out", ("x/y/z/a.md", b"1"))
    assert not list((tmp_path / "elsewhere").iterdir())
    assert not (tmp_path / "nowhere").exists()


def test_a_record_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / EXPORT_RECORD).symlink_to(tmp_path / "record")
    with pytest.raises(OutputError, match="not an ordinary file"):
        ExportFolder(tmp_path / "out")
    assert not (tmp_path / "record").exists()


def test_two_documents_never_share_a_file(tmp_path: Path) -> None:
    with ExportFolder(tmp_path) as folder:
        for source in ("a.pdf", "b.pdf"):
            folder.begin(source, "md")
        folder.write("a.pdf", "md", [File("x.md", b"1")])
        with pytest.raises(FileRefusedError, match=r"already a file of a\.pdf"):
            folder.write("b.pdf", "md", [File("x.md", b"2")])
    assert files_in(tmp_path) == {"x.md": b"1"}


def test_a_file_of_somebody_else_is_never_replaced_and_what_was_written_before_it_is_ours(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_bytes(b"theirs")
    with pytest.raises(FileRefusedError, match=r"a\.md was not written by an export"):
        write(tmp_path, ("a.images/1.png", b"1"), ("a.md", b"1"))
    assert files_in(tmp_path) == {"a.images/1.png": b"1", "a.md": b"theirs"}
    assert not is_up_to_date(tmp_path)
    (tmp_path / "a.md").unlink()
    write(tmp_path, ("a.images/1.png", b"2"), ("a.md", b"2"))
    assert files_in(tmp_path) == {"a.images/1.png": b"2", "a.md": b"2"}


def test_an_export_that_was_interrupted_leaves_no_half_file(tmp_path: Path) -> None:
    def files() -> Iterator[File]:
        yield File("a.images/1.png", b"1")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), ExportFolder(tmp_path) as folder:
        folder.begin("a.pdf", "md")
        folder.write("a.pdf", "md", files())
    assert files_in(tmp_path) == {"a.images/1.png": b"1"}
    assert not is_up_to_date(tmp_path)


def killed_at_work(out: Path, monkeypatch: pytest.MonkeyPatch, *, in_place: bool, source: str = "a.pdf") -> Path:
    """A copy of the folder as a kill leaves it while 2 is written to `a.md`: just before the file is in its place, or
    just after."""
    killed = out.with_name("killed")

    @contextmanager
    def interrupted(path: Path) -> Iterator[BinaryIO]:
        with atomic_file(path) as new:
            yield new
            if not in_place:
                shutil.copytree(out, killed)
        if in_place:
            shutil.copytree(out, killed)

    with monkeypatch.context() as patched:
        patched.setattr("batchocr.documents.export.folder.atomic_file", interrupted)
        write(out, ("a.md", b"2"), source=source)
    return killed


@pytest.mark.parametrize("next_time", [b"2", b"3"])
@pytest.mark.parametrize("in_place", [True, False])
def test_what_a_killed_export_left_is_taken_over_and_cleared_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_place: bool, next_time: bytes
) -> None:
    write(tmp_path / "out", ("a.md", b"1"))
    killed = killed_at_work(tmp_path / "out", monkeypatch, in_place=in_place)
    assert len(files_in(killed)) == (1 if in_place else 2)
    assert files_in(killed)["a.md"] == (b"2" if in_place else b"1")
    temporary_path(killed / "z.md").write_bytes(b"theirs")
    inode = (killed / "a.md").stat().st_ino
    write(killed, ("a.md", next_time))
    assert list(files_in(killed).values()) == [next_time, b"theirs"]
    if in_place and next_time == b"2":
        assert (killed / "a.md").stat().st_ino == inode


def test_two_exports_cannot_write_to_one_folder(tmp_path: Path) -> None:
    with ExportFolder(tmp_path), pytest.raises(OutputError, match="another export is writing"):
        ExportFolder(tmp_path)


def test_a_document_that_comes_twice_is_noticed(tmp_path: Path) -> None:
    with ExportFolder(tmp_path) as folder:
        assert folder.begin("a.pdf", "md") and folder.begin("a.pdf", "html") and folder.begin("b.pdf", "md")
        assert not folder.begin("a.pdf", "md")
    with ExportFolder(tmp_path) as folder:
        assert folder.begin("a.pdf", "md")
        assert folder.num_vanished(["md"]) == 1
        assert folder.num_vanished(["html"]) == 1
        assert folder.num_vanished(["chunks"]) == 0


def changed_record(folder: Path, *statements: str, values: tuple[object, ...] = ()) -> None:
    with closing(sqlite3.connect(folder / EXPORT_RECORD, isolation_level=None)) as db:
        for statement in statements:
            db.execute(statement, values)


def foreign_record(tmp_path: Path, path: object) -> Path:
    """A folder with an export of a.md, whose record also names this path as a file of the same document."""
    out = tmp_path / "out"
    write(out, ("a.md", b"1"))
    known = (path, hashlib.sha256(b"notes").digest(), "a.pdf", "md", "page 1")
    changed_record(out, "insert into files values (?, ?, ?, ?, ?)", values=known)
    return out


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file of somebody else, beside the folder of the export."""
    (tmp_path / "victim.txt").write_bytes(b"notes")
    return tmp_path / "victim.txt"


@pytest.mark.parametrize(
    "path",
    [
        *("../victim.txt", "{0}/victim.txt", "x/../../victim.txt", "./../victim.txt", "//{0}/victim.txt", "..", "/"),
        *("a\0.md", b"../victim.txt", b"\xff", b""),
    ],
)
def test_a_record_that_names_what_is_outside_is_refused_and_nothing_outside_is_touched(
    tmp_path: Path, victim: Path, path: str | bytes
) -> None:
    out = foreign_record(tmp_path, path.format(tmp_path) if isinstance(path, str) else path)
    with pytest.raises(OutputError, match="not ours"):
        is_up_to_date(out)
    with pytest.raises(OutputError, match="not ours: move it away, or choose another --to"):
        write(out, ("a.md", b"2"))
    with ExportFolder(out) as folder, pytest.raises(OutputError, match="not ours"):
        folder.picture("page 1")
    assert victim.read_bytes() == b"notes"
    assert files_in(out) == {"a.md": b"1"}


@pytest.mark.parametrize("link", ["x", "x/y"])
def test_what_a_link_in_the_folder_leads_to_is_neither_read_nor_removed(
    tmp_path: Path, victim: Path, link: str
) -> None:
    out = foreign_record(tmp_path, f"{link}/victim.txt")
    (out / link).parent.mkdir(exist_ok=True)
    (out / link).symlink_to(tmp_path)
    with ExportFolder(out) as folder:
        assert folder.picture("page 1") is None
    write(out, ("a.md", b"2"))
    assert victim.read_bytes() == b"notes"
    assert files_in(out)["a.md"] == b"2"


@pytest.mark.parametrize("value", ["9e999", "x'00ff'", "'text'", "null", "-1", "9223372036854775807"])
def test_values_of_any_kind_in_a_record_do_no_harm(tmp_path: Path, victim: Path, value: str) -> None:
    out = foreign_record(tmp_path, "x/victim.txt")
    changed_record(
        out,
        f"update or ignore files set sha256 = {value}, shows = {value} where path <> 'a.md'",
        f"update documents set version = {value}, run = {value}",
    )
    write(out, ("a.md", b"2"))
    assert files_in(out) == {"a.md": b"2"}


@pytest.mark.parametrize(
    "statement",
    [
        "create view v as select 1",
        "create trigger t after insert on documents begin delete from files; end",
        "create table other (x)",
        "alter table documents add column x",
        "create index more on documents (run)",
        f"drop table documents; create view documents as {ENDLESS}",
        f"drop table files; create view files as {ENDLESS}",
        "drop table documents; create table documents (source primary key, format default (randomblob(9)))",
    ],
)
def test_a_record_that_holds_anything_but_our_tables_is_refused(tmp_path: Path, statement: str) -> None:
    write(tmp_path, ("a.md", b"1"))
    changed_record(tmp_path, *statement.split("; " if statement.startswith("drop") else "\n"))
    with pytest.raises(OutputError, match="not ours: move it away"):
        write(tmp_path, ("a.md", b"2"))
    assert files_in(tmp_path) == {"a.md": b"1"}


def test_a_record_that_is_damaged_gives_an_error_and_an_empty_one_begins_anew(tmp_path: Path) -> None:
    record = tmp_path / EXPORT_RECORD
    record.write_bytes(b"something else, and long enough to be no database" * 9)
    with pytest.raises(OutputError, match="damaged or not ours"):
        ExportFolder(tmp_path)
    record.write_bytes(b"")
    write(tmp_path, ("a.md", b"1"))


def test_a_full_disk_ends_the_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ExportFolder(tmp_path) as folder:
        folder.begin("a.pdf", "md")
        monkeypatch.setattr("batchocr.tables.atomic.os.fsync", raising(OSError(28, "No space left on device")))
        with pytest.raises(OutputError, match="disk is full"):
            folder.write("a.pdf", "md", [File("a.md", b"1")])
    assert files_in(tmp_path) == {}


@pytest.mark.parametrize("path", ["", ".", "a.md/", "a.md/b", "x" * 5000, "no/such/file", EXPORT_RECORD + "/x"])
def test_a_record_that_names_what_cannot_be_a_file_does_no_harm(tmp_path: Path, victim: Path, path: str) -> None:
    out = foreign_record(tmp_path, path)
    with ExportFolder(out) as folder:
        assert folder.picture("page 1") is None
    write(out, ("a.md", b"2"))
    assert files_in(out) == {"a.md": b"2"}
    assert is_up_to_date(out)
