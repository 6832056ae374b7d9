"""The folder of an export: nothing of anybody else's is touched, and nothing is half written."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import pytest

from batchocr.errors import OutputError
from batchocr.export.folder import ExportFolder, RefusedError
from batchocr.export.formats import File
from batchocr.input.exported import EXPORT_RECORD
from batchocr.output.atomic import atomic_file
from batchocr.output.files import temporary_path


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
    with pytest.raises(RefusedError):
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


@pytest.mark.parametrize("before", [b"theirs", b"x"])
def test_a_file_of_somebody_else_is_never_replaced(tmp_path: Path, before: bytes) -> None:
    (tmp_path / "a.md").write_bytes(before)
    with pytest.raises(RefusedError, match=r"a\.md was not written by an export"):
        write(tmp_path, ("a.md", b"ours"))
    assert (tmp_path / "a.md").read_bytes() == before
    assert not is_up_to_date(tmp_path)


def test_a_file_that_somebody_changed_is_neither_replaced_nor_removed(tmp_path: Path) -> None:
    write(tmp_path, ("a.md", b"ours"), ("a.images/1.png", b"ours"))
    (tmp_path / "a.md").write_bytes(b"mine")
    (tmp_path / "a.images/1.png").write_bytes(b"mine")
    with pytest.raises(RefusedError):
        write(tmp_path, ("a.md", b"new"))
    write(tmp_path, ("b.md", b"new"))
    assert files_in(tmp_path) == {"a.md": b"mine", "a.images/1.png": b"mine", "b.md": b"new"}


def test_a_file_that_was_copied_back_is_still_ours(tmp_path: Path) -> None:
    write(tmp_path, ("a.md", b"ours"))
    os.utime(tmp_path / "a.md", ns=(1, 1))
    write(tmp_path, ("a.md", b"new"))
    assert files_in(tmp_path) == {"a.md": b"new"}


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
    with pytest.raises(RefusedError):
        write(out, ("a.md", b"ours"))
    assert target.read_bytes() == b"ours"
    assert not (tmp_path / "nowhere").exists()


def test_a_file_in_the_place_of_a_folder_concerns_its_documents_alone(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"theirs")
    with pytest.raises(RefusedError, match="x is not a folder"):
        write(tmp_path, ("x/a.md", b"1"))
    write(tmp_path, ("b.md", b"1"), source="b.pdf")
    assert files_in(tmp_path) == {"b.md": b"1", "x": b"theirs"}


def test_a_link_within_the_folder_does_not_lead_out_of_it(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out/x").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RefusedError, match="leads out of"):
        write(tmp_path / "out", ("x/y/a.md", b"1"))
    assert not any(tmp_path.glob("elsewhere/**/*.md"))
    (tmp_path / "out" / EXPORT_RECORD).unlink()
    (tmp_path / "out" / EXPORT_RECORD).symlink_to(tmp_path / "record")
    with pytest.raises(OutputError, match="not an ordinary file"):
        ExportFolder(tmp_path / "out")
    assert not (tmp_path / "record").exists()


def test_two_documents_never_share_a_file(tmp_path: Path) -> None:
    with ExportFolder(tmp_path) as folder:
        for source in ("a.pdf", "b.pdf"):
            folder.begin(source, "md")
        folder.write("a.pdf", "md", [File("x.md", b"1")])
        with pytest.raises(RefusedError, match=r"already a file of a\.pdf"):
            folder.write("b.pdf", "md", [File("x.md", b"2")])
    assert files_in(tmp_path) == {"x.md": b"1"}


def test_what_was_written_before_an_error_is_ours(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_bytes(b"theirs")
    with pytest.raises(RefusedError):
        write(tmp_path, ("a.images/1.png", b"1"), ("a.md", b"1"))
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
        patched.setattr("batchocr.export.folder.atomic_file", interrupted)
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


def test_files_that_were_being_written_at_a_kill_are_ours_whatever_comes_next(tmp_path: Path) -> None:
    write(tmp_path / "out", ("a.md", b"1"), ("b.md", b"1"))

    def files() -> Iterator[File]:
        yield File("a.md", b"2")
        yield File("a.images/1.png", b"2")
        shutil.copytree(tmp_path / "out", tmp_path / "killed")  # just what a kill would leave
        yield File("b.md", b"2")

    with ExportFolder(tmp_path / "out") as folder:
        folder.begin("a.pdf", "md")
        folder.write("a.pdf", "md", files())
    write(tmp_path / "killed", ("a.md", b"3"), ("b.md", b"3"), version="3")
    assert files_in(tmp_path / "killed") == {"a.md": b"3", "b.md": b"3"}


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


@pytest.mark.parametrize("content", [b"something else, and long enough to be no database" * 9, b""])
def test_a_record_that_is_damaged_or_empty_gives_an_error_or_begins_anew(tmp_path: Path, content: bytes) -> None:
    (tmp_path / EXPORT_RECORD).write_bytes(content)
    if content:
        with pytest.raises(OutputError, match="damaged or not ours"):
            ExportFolder(tmp_path)
    else:
        write(tmp_path, ("a.md", b"1"))


def test_a_full_disk_ends_the_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with ExportFolder(tmp_path) as folder:
        folder.begin("a.pdf", "md")
        monkeypatch.setattr("batchocr.output.atomic.os.fsync", no_room)
        with pytest.raises(OutputError, match="disk is full"):
            folder.write("a.pdf", "md", [File("a.md", b"1")])
    assert files_in(tmp_path) == {}
