"""Places where no output can be put: each is refused before the work begins, in a sentence that is true of it. And
places where somebody else has left something: it is not taken for ours."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from batchocr.config import load_recipe
from batchocr.documents.assembly.assemble import open_table
from batchocr.errors import ModelError, OutputError, UsageError
from batchocr.planning.checkpoint_files import find_checkpoint
from batchocr.tables.atomic import open_locked, require_writable, writing
from batchocr.tables.earlier import metadata_of_rows
from batchocr.tables.remote_output import output_at
from tests.support.documents import text_row, write_table

LONG = "x" * 300
NOBODY = 65534


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    (tmp_path / "file").touch()
    (tmp_path / "folder.parquet").mkdir()
    (tmp_path / "broken").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe.parquet")
    return tmp_path


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("/proc/table.parquet", "create its folder first, or choose another"),
        ("/dev/null/table.parquet", "Not a directory"),
        ("/dev/null", "it is not an ordinary file; choose another place"),
        ("file/table.parquet", "Not a directory"),
        ("none/table.parquet", "create its folder first, or choose another"),
        ("broken/none/table.parquet", "create its folder first, or choose another"),
        ("loop/table.parquet", "Too many levels of symbolic links"),
        ("folder.parquet", "Is a directory"),
        ("pipe.parquet", "it is not an ordinary file; choose another place"),
        (f"{LONG}.parquet", "File name too long"),
        (f"{'x' * 245}.parquet", "File name too long"),
        ("a\0b.parquet", "no name can hold a NUL character; choose another"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_a_place_where_no_output_can_be_is_refused_with_what_is_true_of_it(odd: Path, place: str, said: str) -> None:
    path = odd / place
    assert metadata_of_rows(path) is None
    with pytest.raises(OutputError) as caught:
        require_writable(path)
    assert str(caught.value).startswith("cannot write ")
    assert str(caught.value).endswith(said)


@pytest.mark.parametrize("name", ["broken", "loop", "link", "pipe.parquet"])
def test_a_journal_that_is_a_link_or_a_pipe_is_not_written_to(odd: Path, name: str) -> None:
    (odd / "link").symlink_to("file")
    journal = odd / "table.parquet.journal"
    (odd / name).rename(journal)
    with pytest.raises(OutputError, match=f"cannot write {journal}: it is (a link|not an ordinary file); remove it"):
        open_locked(journal)
    assert (odd / "file").read_bytes() == b""
    assert not (odd / "nowhere").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become someone else")
def test_a_folder_of_someone_else_is_refused(tmp_path: Path) -> None:
    os.seteuid(NOBODY)
    try:
        with pytest.raises(OutputError, match="Permission denied"):
            require_writable(tmp_path / "table.parquet")
    finally:
        os.seteuid(0)


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.EROFS, "Read-only file system"),
        (errno.ENOSPC, "the disk is full; free some space and run again to continue"),
        (errno.EDQUOT, "the disk is full; free some space and run again to continue"),
    ],
)
def test_why_a_file_system_takes_no_file_is_said(number: int, said: str) -> None:
    with pytest.raises(OutputError) as caught, writing(Path("/mnt/table.parquet")):
        raise OSError(number, os.strerror(number))
    assert str(caught.value) == f"cannot write /mnt/table.parquet: {said}"


@pytest.mark.parametrize("name", ["file", "broken", "loop", "pipe.parquet", LONG, "a\0b"])
def test_a_model_that_is_no_folder_is_called_that(odd: Path, name: str) -> None:
    with pytest.raises(ModelError, match="is neither a folder nor a Hugging Face id"):
        find_checkpoint(f"{odd}/{name}", None)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("folder.parquet", "cannot be read: Is a directory"),
        ("file/x.toml", "cannot be read: Not a directory"),
        ("broken", "cannot be read: No such file"),
        ("loop", "cannot be read: Too many levels of symbolic links"),
        (LONG, "cannot be read: File name too long"),
        ("a\0b", "embedded null byte"),
    ],
)
def test_a_recipe_that_cannot_be_read_is_wrong_usage(odd: Path, name: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        load_recipe(f"{odd}/{name}")


def test_a_table_is_read_where_it_is_whatever_lies_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a file that names an address to fetch it from, as earlier versions had it beside copies of tables."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    path = write_table(tmp_path / "t.parquet", [text_row("a.pdf", 0)])
    (tmp_path / ".batchocr-address").write_text("s3://bucket/evil/")
    before = path.read_bytes()
    assert [row.source for row in open_table(path).rows()] == ["a.pdf"]
    assert path.read_bytes() == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to someone else")
@pytest.mark.long
def test_an_unfinished_table_for_a_store_is_continued_only_from_a_folder_of_one_s_own(tmp_path: Path) -> None:
    def folder_of_output() -> Path:
        return output_at("s3://bucket/t.parquet", tmp_path / "work").path.parent

    own = folder_of_output()
    assert own.stat().st_mode & 0o777 == 0o700
    own.chmod(0o755)  # as earlier versions made it
    assert folder_of_output() == own

    own.chmod(0o777)
    with pytest.raises(OutputError, match=r"open to all: .* `chmod 700` it; else --work-dir names another place"):
        folder_of_output()
    own.chmod(0o700)
    os.chown(own, NOBODY, NOBODY)
    with pytest.raises(OutputError, match="another user's"):
        folder_of_output()
    own.rename(tmp_path / "others")
    own.symlink_to(tmp_path / "others", target_is_directory=True)
    with pytest.raises(OutputError, match="is a link"):
        folder_of_output()
