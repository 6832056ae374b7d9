"""From INPUT arguments to documents."""

from __future__ import annotations

import glob
import io
import logging
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from batchocr.data import Document
from batchocr.errors import NoInputError
from batchocr.input.sources import find_documents, in_shard


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, which is the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def make(*paths: str) -> None:
    for path in paths:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).touch()


def sources(*inputs: str, stdin: io.TextIOBase | None = None) -> list[str]:
    return [document.source for document in find_documents(inputs, stdin=stdin)]  # type: ignore[arg-type]


def test_a_folder_is_read_recursively_in_natural_order() -> None:
    make("d/page10.pdf", "d/page2.pdf", "d/page1/z.png", "d/page1/b/a.tiff", "d/page02.pdf")
    assert sources("d") == ["page1/b/a.tiff", "page1/z.png", "page02.pdf", "page2.pdf", "page10.pdf"]


def test_digits_of_other_scripts_are_ordered_as_text() -> None:
    make("d/２０２４/x.pdf", "d/2023/x.pdf", "d/٣2024.pdf", "d/a.pdf")
    assert sources("d") == ["2023/x.pdf", "a.pdf", "٣2024.pdf", "２０２４/x.pdf"]


def test_a_folder_yields_documents_by_suffix_in_any_case() -> None:
    make("d/a.PDF", "d/b.Jpeg", "d/c.jp2", "d/notes.txt", "d/README", "d/e.docx", "d/f.pgm", "d/g.pnm")
    assert sources("d") == ["a.PDF", "b.Jpeg", "c.jp2", "f.pgm", "g.pnm"]


def test_hidden_files_and_folders_are_left_out() -> None:
    make("d/.hidden.pdf", "d/.git/x.pdf", "d/seen.pdf")
    assert sources("d") == ["seen.pdf"]


def test_a_folder_that_is_named_itself_is_read_even_if_hidden() -> None:
    make(".cache/x.pdf")
    assert sources(".cache") == ["x.pdf"]


def test_a_folder_whose_name_ends_like_a_document_is_still_a_folder() -> None:
    make("d/book.pdf/1.png")
    assert sources("d") == ["book.pdf/1.png"]


def test_a_file_named_itself_is_a_document_whatever_its_suffix() -> None:
    make("scan", "notes.txt")
    assert sources("scan", "notes.txt") == ["scan", "notes.txt"]


def test_the_source_of_a_file_is_its_path_as_given_without_dots(folder: Path) -> None:
    make("a/x.pdf", "y.pdf")
    assert sources("./a//x.pdf", str(folder / "y.pdf")) == ["a/x.pdf", f"{folder}/y.pdf"]


def test_documents_come_in_the_order_of_the_inputs() -> None:
    make("z.pdf", "d/m.pdf", "a.pdf")
    assert sources("z.pdf", "d", "a.pdf") == ["z.pdf", "m.pdf", "a.pdf"]


def test_a_glob_is_expanded_in_natural_order() -> None:
    make("p10.pdf", "p9.pdf", "sub/p1.pdf", "other.png")
    assert sources("p*.pdf") == ["p9.pdf", "p10.pdf"]
    assert sources("**/p1.pdf") == ["sub/p1.pdf"]


def test_a_folder_that_a_glob_finds_is_read() -> None:
    make("in1/x.pdf", "in2/y.pdf")
    assert sources("in*") == ["x.pdf", "y.pdf"]


def test_a_file_whose_name_looks_like_a_glob_is_that_file() -> None:
    make("a[1].pdf", "a1.pdf")
    assert sources("a[1].pdf") == ["a[1].pdf"]


def test_a_list_names_one_path_a_line() -> None:
    make("x.pdf", "with space.pdf", "d/y.pdf")
    Path("list.txt").write_bytes(b"\xef\xbb\xbfx.pdf\n\n   \nwith space.pdf\r\nd\n")
    assert sources("@list.txt") == ["x.pdf", "with space.pdf", "y.pdf"]


def test_paths_are_read_from_stdin() -> None:
    make("x.pdf", "y.pdf")
    assert sources("-", stdin=io.StringIO("y.pdf\nx.pdf\n")) == ["y.pdf", "x.pdf"]


def test_names_on_stdin_need_not_be_text() -> None:
    name = os.fsdecode(b"odd\xff.pdf")
    make(name)
    stdin = io.TextIOWrapper(io.BytesIO(os.fsencode(name)), encoding="utf-8")
    [document] = find_documents(["-"], stdin=stdin)
    assert document.path == name
    assert document.error_kind is None


@pytest.mark.parametrize("name", ["a b.pdf", "line\nbreak.pdf", "日本語 ☃.pdf", "-dash.pdf", "tab\t'\".pdf"])
def test_any_name_is_a_name(name: str) -> None:
    make(f"d/{name}")
    [document] = find_documents(["d"])
    assert document.source == name
    assert Path(document.path).exists()


def test_undecodable_names_survive_in_the_path_and_are_escaped_in_the_source() -> None:
    make(os.fsdecode(b"d/odd\xff.pdf"), os.fsdecode(b"d/odd\xfe.pdf"))
    documents = find_documents(["d"])
    assert [os.fsencode(document.path) for document in documents] == [b"d/odd\xfe.pdf", b"d/odd\xff.pdf"]
    assert [document.source for document in documents] == ["odd\\udcfe.pdf", "odd\\udcff.pdf"]


def test_an_escaped_name_differs_from_a_file_that_is_really_called_so() -> None:
    make(os.fsdecode(b"d/odd\xff.pdf"), "d/odd\\udcff.pdf")
    names = sources("d")
    assert len(set(names)) == 2
    assert all(name.encode() for name in names)


def test_files_of_the_same_name_in_two_folders_are_told_apart_by_the_folder() -> None:
    make("a/x.pdf", "b/x.pdf", "b/y.pdf")
    assert sources("a", "./b") == ["a/x.pdf", "b/x.pdf", "y.pdf"]


def test_a_file_whose_folder_does_not_tell_it_apart_gets_its_absolute_path(folder: Path) -> None:
    make("a/x.pdf", "b/x.pdf", "b/a/x.pdf")
    assert sources("a", "b") == [f"{folder}/a/x.pdf", "b/a/x.pdf", "b/x.pdf"]


def test_a_file_reached_twice_is_listed_once(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    make("d/x.pdf")
    Path("link.pdf").symlink_to("d/x.pdf")
    with caplog.at_level(logging.INFO, logger="batchocr"):
        assert sources("d", "d/x.pdf", "./d/x.pdf", str(folder / "d"), "link.pdf") == ["x.pdf"]
    assert "link.pdf is left out: it is the same file as d/x.pdf" in caplog.text


def test_links_that_lead_out_of_the_folder_are_not_followed(caplog: pytest.LogCaptureFixture) -> None:
    make("outside/x.pdf", "d/in.pdf")
    Path("d/folder").symlink_to("../outside")
    Path("d/file.pdf").symlink_to("../outside/x.pdf")
    assert sources("d") == ["in.pdf"]
    assert "2 links" in caplog.text


def test_links_that_lead_out_are_followed_when_asked(caplog: pytest.LogCaptureFixture) -> None:
    make("outside/x.pdf", "outside/sub/y.pdf", "d/in.pdf")
    Path("d/folder").symlink_to("../outside")
    Path("outside/sub/up").symlink_to("..")
    followed = find_documents(["d"], follow_symlinks=True)
    assert [document.source for document in followed] == ["folder/sub/y.pdf", "folder/x.pdf", "in.pdf"]
    assert not caplog.messages


def test_a_link_that_is_named_itself_is_followed() -> None:
    make("outside/x.pdf", "d/in.pdf")
    Path("d/file.pdf").symlink_to("../outside/x.pdf")
    Path("list.txt").write_text("d/file.pdf")
    assert sources("d/file.pdf") == ["d/file.pdf"]
    assert sources("@list.txt") == ["d/file.pdf"]


def test_a_glob_follows_no_link_out_of_the_folder_where_it_begins(caplog: pytest.LogCaptureFixture) -> None:
    make("outside/x.pdf", "d/in.pdf", "d/.more/y.pdf")
    Path("d/folder").symlink_to("../outside")
    Path("d/file.pdf").symlink_to("../outside/x.pdf")
    Path("d/inside").symlink_to(".more")
    assert sources("d/**/*.pdf") == ["d/in.pdf", "d/inside/y.pdf"]
    assert sources("d/*") == ["d/in.pdf", "y.pdf"]
    assert "d: not followed, since they lead out of it: 2 links, such as d/file.pdf" in caplog.text
    assert [d.source for d in find_documents(["d/*.pdf"], follow_symlinks=True)] == ["d/file.pdf", "d/in.pdf"]


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The folders that are listed, as they are."""
    folders: list[str] = []
    scandir = os.scandir

    def record(path: str) -> Iterator[os.DirEntry[Any]]:
        folders.append(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", record)
    return folders


def test_a_glob_lists_no_folder_that_a_link_leads_out_to(listed: list[str], caplog: pytest.LogCaptureFixture) -> None:
    make("big/sentinel/x.pdf", "d/in.pdf", "d/sub/y.pdf")
    Path("d/sub/out").symlink_to("../../big")
    for pattern in ("d/**/*.pdf", "d/**", "d/*/*/*.pdf", "d/*/out/*.pdf", "d/**/sentinel/*.pdf", "d/*/../../big/*.pdf"):
        find_documents([pattern, "d/in.pdf"])
    assert {os.path.realpath(path) for path in listed} == {os.path.realpath(path) for path in ("d", "d/sub")}
    assert "d: not followed, since they lead out of it: 1 links, such as d/sub/out;" in caplog.text
    assert [d.source for d in find_documents(["d/**/*.pdf"], follow_symlinks=True)] == [
        *("d/in.pdf", "d/sub/out/sentinel/x.pdf", "d/sub/y.pdf"),
    ]


@pytest.mark.parametrize("follow_symlinks", [False, True])
@pytest.mark.parametrize("pattern", ["d/**/*.pdf", "d/**", "d/**/**/*.pdf", "d/*"])
def test_loops_of_links_make_a_glob_list_no_folder_again_and_again(
    listed: list[str], pattern: str, follow_symlinks: bool
) -> None:
    make("d/sub/x.pdf")
    for number in range(20):
        Path(f"d/l{number}").symlink_to(".")
        Path(f"d/sub/l{number}").symlink_to("..")
    [document] = find_documents([pattern], follow_symlinks=follow_symlinks)
    assert os.path.realpath(document.path) == os.path.realpath("d/sub/x.pdf")
    assert len(listed) <= 6  # two folders, once for each part of the pattern, and once as matches


@pytest.mark.parametrize(
    "pattern",
    [
        *("*", "**", "d/**", "d/**/", "d/**/*", "d/*/", "**/x.pdf", "d/**/b/*.pdf", "./d/*.p[dn][fg]", "d//*//x.pdf"),
        *(
            "d/.*",
            "d/.*/*",
            "d/**/.h.pdf",
            "d/*/../x.pdf",
            "d/b/**/x.pdf",
            "d/**/b/**",
            "d/?/x.pdf",
            "nothing/*",
            "*.pdf/*",
        ),
        *("d/**x.pdf", "d/x.pdf/*", "d/gone*", "d/[*]", "d/**/*.pdf/"),
    ],
)
def test_a_glob_finds_what_the_librarys_glob_finds(pattern: str) -> None:
    make(
        "d/x.pdf",
        "d/.h.pdf",
        "d/.h/x.pdf",
        "d/b/x.pdf",
        "d/b/c/x.png",
        "d/b/b/x.pdf",
        "d/book.pdf/1.png",
        "y.pdf",
        "d/*",
    )
    Path("d/gone.pdf").symlink_to("nothing")
    found = {
        os.path.normpath(path)
        for match in glob.glob(pattern, recursive=True)
        for path in ([d.path for d in find_documents([match, "y.pdf"])] if os.path.isdir(match) else [match])
    }
    documents = [d for d in find_documents([pattern, "y.pdf"]) if d.path != pattern]
    assert {os.path.realpath(document.path) for document in documents} == {
        os.path.realpath(path) for path in {*found, "y.pdf"}
    }


def test_a_folder_below_a_glob_that_may_not_be_read_becomes_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    make("d/locked/y.pdf", "d/sub/x.pdf")
    scandir = os.scandir

    def refuse(path: str) -> Iterator[os.DirEntry[Any]]:
        if path.endswith("locked"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    locked, found = find_documents(["d/**/*.pdf"])
    assert (locked.source, locked.error_kind) == ("d/locked", "unreadable")
    assert found.source == "d/sub/x.pdf"


def test_a_sibling_whose_name_begins_alike_is_outside() -> None:
    make("d2/x.pdf", "d/in.pdf")
    Path("d/file.pdf").symlink_to("../d2/x.pdf")
    assert sources("d") == ["in.pdf"]


def test_links_within_the_folder_are_followed() -> None:
    make("d/.store/1.bin", "d/.more/2.pdf")
    Path("d/a.pdf").symlink_to(".store/1.bin")
    Path("d/b").symlink_to(".more")
    assert sources("d") == ["a.pdf", "b/2.pdf"]


def test_a_folder_that_is_itself_a_link_is_read() -> None:
    make("real/x.pdf")
    Path("link").symlink_to("real")
    assert sources("link") == ["x.pdf"]


def test_link_loops_are_harmless() -> None:
    make("d/sub/x.pdf")
    Path("d/sub/up").symlink_to("..")
    Path("d/self").symlink_to("self")
    Path("d/one").symlink_to("two")
    Path("d/two").symlink_to("one")
    assert sources("d") == ["sub/x.pdf"]


def test_a_link_loop_that_is_named_like_a_document_becomes_a_row() -> None:
    make("d/x.pdf")
    Path("d/loop.pdf").symlink_to("loop.pdf")
    documents = {document.source: document for document in find_documents(["d"])}
    assert documents["loop.pdf"].error_kind == "unreadable"
    assert documents["x.pdf"].error_kind is None


def test_a_link_to_nothing_becomes_a_row() -> None:
    make("d/x.pdf")
    Path("d/gone.pdf").symlink_to("nothing.pdf")
    documents = find_documents(["d"])
    assert [(document.source, document.error_kind) for document in documents] == [
        ("gone.pdf", "not_found"),
        ("x.pdf", None),
    ]


@pytest.mark.parametrize(
    ("missing", "kind", "message"),
    [
        ("missing.pdf", "not_found", "missing.pdf does not exist"),
        ("x.pdf/inside.pdf", "not_found", "x.pdf/inside.pdf does not exist"),
        ("no*match.pdf", "not_found", "no file matches no*match.pdf"),
        ("@missing.txt", "not_found", "the list missing.txt does not exist"),
        ("@folder", "unreadable", "the list folder cannot be read: Is a directory"),
        ("-", "unreadable", "there is no stdin to read paths from"),
        ("nul\0.pdf", "unreadable", "cannot be read: embedded null byte"),
        ("n" * 300, "unreadable", "cannot be read: File name too long"),
    ],
)
def test_what_cannot_be_found_becomes_a_row_and_the_rest_is_read(missing: str, kind: str, message: str) -> None:
    make("x.pdf", "folder/notes.txt")
    failed, found = find_documents([missing, "x.pdf"])
    assert (failed.source, failed.error_kind) == (missing, kind)
    assert message in str(failed.error_message)
    assert found == Document("x.pdf", "x.pdf")


def test_a_folder_that_may_not_be_read_becomes_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    make("d/locked/y.pdf", "d/x.pdf")
    scandir = os.scandir

    def refuse(path: str) -> Iterator[os.DirEntry[Any]]:
        if path.endswith("locked"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    locked, found = find_documents(["d"])
    assert (locked.source, locked.error_kind) == ("locked", "unreadable")
    assert locked.error_message == "the folder d/locked cannot be read: Permission denied"
    assert found.source == "x.pdf"


def test_what_is_no_regular_file_is_left_to_the_worker_to_refuse() -> None:
    make("x.pdf")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("s.pdf")
        assert sources("s.pdf", "x.pdf") == ["s.pdf", "x.pdf"]


@pytest.mark.parametrize("inputs", [[], ["empty"], ["notes"], ["missing.pdf", "no*.pdf"], ["@missing.txt"], ["-"]])
def test_nothing_to_read_at_all_is_an_error(inputs: list[str]) -> None:
    Path("empty").mkdir()
    make("notes/a.txt")
    with pytest.raises(NoInputError) as caught:
        find_documents(inputs)
    message = str(caught.value)
    assert all(text in message for text in inputs)
    assert ".pdf" in message and "@list.txt" in message


def test_an_empty_list_is_nothing_to_read() -> None:
    make("empty.txt")
    with pytest.raises(NoInputError, match=r"@empty\.txt"):
        find_documents(["@empty.txt"])


def test_shards_part_the_documents_between_them() -> None:
    documents = [Document(f"d/{number}.pdf", f"{number}.pdf") for number in range(1000)]
    owners = [[index for index in range(1, 5) if in_shard(document, index, 4)] for document in documents]
    assert all(len(owner) == 1 for owner in owners)
    sizes = [owners.count([index]) for index in range(1, 5)]
    assert min(sizes) > 200


def test_a_shard_depends_on_the_source_alone() -> None:
    assert in_shard(Document("/mnt/1/a.pdf", "a.pdf"), 1, 3) is in_shard(Document("/data/a.pdf", "a.pdf"), 1, 3)
    assert [in_shard(Document("a.pdf", "a.pdf"), index, 3) for index in (1, 2, 3)] == [False, False, True]
