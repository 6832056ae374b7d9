"""Globs, and links in folders: what is followed, and that no walk goes on forever."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from batchocr.pages.input.sources import find_documents
from tests.support.listing import make, problem_kind, sources

pytestmark = pytest.mark.usefixtures("folder")


def test_links_that_lead_out_of_the_folder_are_followed_only_when_asked(caplog: pytest.LogCaptureFixture) -> None:
    make("outside/x.pdf", "outside/sub/y.pdf", "d/in.pdf", "d2/y.pdf", "d2/z.pdf")
    Path("d/folder").symlink_to("../outside")
    Path("d/file.pdf").symlink_to("../d2/y.pdf")
    Path("d/sibling.pdf").symlink_to("../d2/z.pdf")  # d2 begins like d
    Path("outside/sub/up").symlink_to("..")
    assert sources("d") == ["in.pdf"]
    assert "3 links" in caplog.text
    caplog.clear()
    followed = [document.source for document in find_documents(["d"], follow_symlinks=True).documents]
    assert followed == ["file.pdf", "folder/sub/y.pdf", "folder/x.pdf", "in.pdf", "sibling.pdf"]
    assert not caplog.messages


def test_a_link_that_is_named_itself_is_followed() -> None:
    make("outside/x.pdf", "d/in.pdf")
    Path("d/file.pdf").symlink_to("../outside/x.pdf")
    Path("list.txt").write_text("d/file.pdf")
    Path("link").symlink_to("outside")
    assert sources("d/file.pdf") == ["d/file.pdf"]
    assert sources("@list.txt") == ["d/file.pdf"]
    assert sources("link") == ["x.pdf"]


def test_a_glob_follows_no_link_out_of_the_folder_where_it_begins(caplog: pytest.LogCaptureFixture) -> None:
    make("outside/x.pdf", "d/in.pdf", "d/.more/y.pdf")
    Path("d/folder").symlink_to("../outside")
    Path("d/file.pdf").symlink_to("../outside/x.pdf")
    Path("d/inside").symlink_to(".more")
    assert sources("d/**/*.pdf") == ["d/in.pdf", "d/inside/y.pdf"]
    assert sources("d/*") == ["d/in.pdf", "d/inside/y.pdf"]
    assert "d: not followed, since they lead out of it: 2 links, such as d/file.pdf" in caplog.text
    assert [d.source for d in find_documents(["d/*.pdf"], follow_symlinks=True).documents] == ["d/file.pdf", "d/in.pdf"]


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The folders listed, recorded as they are listed."""
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
    assert "d: not followed, since they lead out of it: 1 link, such as d/sub/out;" in caplog.text
    assert [d.source for d in find_documents(["d/**/*.pdf"], follow_symlinks=True).documents] == [
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
    [document] = find_documents([pattern], follow_symlinks=follow_symlinks).documents
    assert os.path.realpath(document.path) == os.path.realpath("d/sub/x.pdf")
    assert len(listed) <= 6  # two folders, once for each part of the pattern, and once as matches


@pytest.mark.parametrize(
    "pattern",
    [
        *("*", "**", "d/**", "d/**/", "d/**/*", "d/*/", "**/x.pdf", "d/**/b/*.pdf", "./d/*.p[dn][fg]", "d//*//x.pdf"),
        *("d/.*", "d/.*/*", "d/**/.h.pdf", "d/*/../x.pdf", "d/b/**/x.pdf", "d/**/b/**", "d/?/x.pdf"),
        *("nothing/*", "*.pdf/*", "d/**x.pdf", "d/x.pdf/*", "d/gone*", "d/[*]", "d/**/*.pdf/"),
    ],
)
def test_a_glob_finds_what_the_librarys_glob_finds(pattern: str) -> None:
    make("d/x.pdf", "d/.h.pdf", "d/.h/x.pdf", "d/b/x.pdf", "d/b/c/x.png", "d/b/b/x.pdf", "d/book.pdf/1.png")
    make("y.pdf", "d/*")
    Path("d/gone.pdf").symlink_to("nothing")
    found = {
        os.path.normpath(path)
        for match in glob.glob(pattern, recursive=True)
        for path in ([d.path for d in find_documents([match, "y.pdf"]).documents] if os.path.isdir(match) else [match])
    }
    documents = [d for d in find_documents([pattern, "y.pdf"]).documents if d.path != pattern]
    assert {os.path.realpath(document.path) for document in documents} == {
        os.path.realpath(path) for path in {*found, "y.pdf"}
    }


def test_links_within_the_folder_are_followed_and_what_lies_below_keeps_its_natural_order() -> None:
    make("d/.store/1.bin", "d/.more/5.pdf", "d/1.pdf", "d/m/9.pdf")
    Path("d/a.pdf").symlink_to(".store/1.bin")
    Path("d/b").symlink_to(".more")
    assert sources("d") == ["1.pdf", "a.pdf", "b/5.pdf", "m/9.pdf"]


def test_link_loops_are_harmless_and_one_that_is_named_like_a_document_becomes_a_row() -> None:
    make("d/sub/x.pdf")
    Path("d/sub/up").symlink_to("..")
    Path("d/self").symlink_to("self")
    Path("d/one").symlink_to("two")
    Path("d/two").symlink_to("one")
    Path("d/loop.pdf").symlink_to("loop.pdf")
    documents = find_documents(["d"]).documents
    assert {document.source: problem_kind(document) for document in documents} == {
        "loop.pdf": "unreadable",
        "sub/x.pdf": None,
    }


def test_beside_its_target_a_link_gives_way_whatever_the_order_of_their_names() -> None:
    make("d/m.pdf", "d/sub/x.pdf")
    Path("d/a.pdf").symlink_to("m.pdf")
    Path("d/z.pdf").symlink_to("m.pdf")
    Path("d/earlier").symlink_to("sub")
    Path("d/sub/below.pdf").symlink_to("../m.pdf")
    Path("list.txt").write_text("d/a.pdf\nd/m.pdf\nd/sub\n")
    assert sources("d") == ["m.pdf", "sub/x.pdf"]
    assert sources("d/**/*.pdf") == ["d/m.pdf", "d/sub/x.pdf"]
    assert [document.path for document in find_documents(["d/*"]).documents] == ["d/m.pdf", "d/sub/x.pdf"]
    assert [document.path for document in find_documents(["@list.txt"]).documents] == ["d/m.pdf", "d/sub/x.pdf"]


def test_of_two_links_to_what_is_found_nowhere_else_the_first_is_read() -> None:
    make("d/.store/1.bin", "d/.more/2.pdf")
    for name in ("b.pdf", "a.pdf"):
        Path("d", name).symlink_to(".store/1.bin")
    for name in ("e", "c/d"):
        Path("d", name).parent.mkdir(exist_ok=True)
        Path("d", name).symlink_to(Path("d/.more").absolute())
    assert sources("d") == ["a.pdf", "c/d/2.pdf"]


def test_a_file_of_an_earlier_input_keeps_its_name_whatever_a_later_one_links_to() -> None:
    make("b/x.pdf", "a/y.pdf")
    Path("link.pdf").symlink_to("b/x.pdf")
    assert sources("link.pdf", "b") == ["link.pdf"]
