"""From INPUT arguments to documents."""

from __future__ import annotations

import io
import logging
import os
import socket
from collections.abc import Mapping
from pathlib import Path

import pytest

from batchocr.data import Document, Failure
from batchocr.errors import NoInputError, UsageError
from batchocr.pages.input.folders import describe_skipped
from batchocr.pages.input.sources import find_documents, in_shard
from batchocr.tables.files import files_of, report_path, temporary_path
from tests.support.listing import lock, make, problem_kind, sources

pytestmark = pytest.mark.usefixtures("folder")


def test_a_folder_is_read_recursively_in_natural_order() -> None:
    make("d/page10.pdf", "d/page2.pdf", "d/page1/z.png", "d/page1/b/a.tiff", "d/page02.pdf")
    assert sources("d") == ["page1/b/a.tiff", "page1/z.png", "page02.pdf", "page2.pdf", "page10.pdf"]


def test_digits_of_other_scripts_are_ordered_as_text() -> None:
    make("d/２０２４/x.pdf", "d/2023/x.pdf", "d/٣2024.pdf", "d/a.pdf")
    assert sources("d") == ["2023/x.pdf", "a.pdf", "٣2024.pdf", "２０２４/x.pdf"]


def test_a_folder_yields_documents_by_suffix_in_any_case() -> None:
    make("d/a.PDF", "d/b.Jpeg", "d/c.jp2", "d/notes.txt", "d/README", "d/e.docx", "d/f.pgm", "d/g.pnm")
    assert sources("d") == ["a.PDF", "b.Jpeg", "c.jp2", "f.pgm", "g.pnm"]


def test_hidden_files_and_folders_are_left_out_unless_they_are_named() -> None:
    make("d/.hidden.pdf", "d/.git/x.pdf", "d/seen.pdf")
    assert sources("d") == ["seen.pdf"]
    assert sources("d/.git") == ["x.pdf"]


def test_a_folder_whose_name_ends_like_a_document_is_still_a_folder() -> None:
    make("d/book.pdf/1.png")
    assert sources("d") == ["book.pdf/1.png"]


def test_a_file_named_itself_is_a_document_whatever_its_suffix() -> None:
    make("scan", "notes.txt")
    assert sources("scan", "notes.txt") == ["scan", "notes.txt"]


def test_the_source_of_a_file_is_its_path_as_given_without_dots(folder: Path) -> None:
    make("a/x.pdf", "y.pdf")
    assert sources("./a//x.pdf", str(folder / "y.pdf")) == ["a/x.pdf", f"{folder}/y.pdf"]


def test_a_glob_is_expanded_in_natural_order() -> None:
    make("p10.pdf", "p9.pdf", "sub/p1.pdf", "other.png")
    assert sources("p*.pdf") == ["p9.pdf", "p10.pdf"]
    assert sources("**/p1.pdf") == ["sub/p1.pdf"]


def test_a_file_whose_name_looks_like_a_glob_is_that_file() -> None:
    make("a[1].pdf", "a1.pdf")
    assert sources("a[1].pdf") == ["a[1].pdf"]


def test_a_list_names_one_path_a_line() -> None:
    make("x.pdf", "with space.pdf", "d/y.pdf")
    Path("list.txt").write_bytes(b"\xef\xbb\xbfx.pdf\n\n   \nwith space.pdf\r\nd\n")
    assert sources("@list.txt") == ["x.pdf", "with space.pdf", "d/y.pdf"]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
def test_a_list_may_be_in_utf_16_as_powershell_writes_it(encoding: str) -> None:
    make("x.pdf", "ü.pdf")
    text = "x.pdf\r\nü.pdf\r\n" if encoding == "utf-16" else "\ufeffx.pdf\nü.pdf\n"
    Path("list.txt").write_bytes(text.encode(encoding))
    assert sources("@list.txt") == ["x.pdf", "ü.pdf"]
    stdin = io.TextIOWrapper(io.BytesIO(text.encode(encoding)), encoding="ascii")
    assert [document.path for document in find_documents(["-"], stdin=stdin).documents] == ["x.pdf", "ü.pdf"]


def test_a_current_folder_that_was_deleted_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "gone").mkdir()
    make("x.pdf")
    monkeypatch.chdir(folder / "gone")
    (folder / "gone").rmdir()
    for given in (str(folder / "x.pdf"), "y.pdf"):
        with pytest.raises(UsageError, match="the current folder was deleted: change into another"):
            find_documents([given])


def test_lines_of_a_list_that_begin_with_a_number_sign_are_comments() -> None:
    make("x.pdf", "#y.pdf", "a#b.pdf")
    Path("list.txt").write_text("# from the scanner\nx.pdf\n#y.pdf\n./#y.pdf\na#b.pdf\n")
    assert sources("@list.txt") == ["x.pdf", "#y.pdf", "a#b.pdf"]


def test_on_stdin_a_number_sign_begins_a_name() -> None:
    make("x.pdf", "#y.pdf")
    assert sources("-", stdin=io.StringIO("#y.pdf\n\nx.pdf\n")) == ["#y.pdf", "x.pdf"]


def test_paths_separated_by_nul_are_taken_as_they_are() -> None:
    names = ["line\nbreak.pdf", "#x.pdf", " ", "end\r", "\ufeff.pdf"]
    make(*names)
    Path("list.txt").write_bytes("\0".join(names).encode() + b"\0")
    stdin = io.TextIOWrapper(io.BytesIO(Path("list.txt").read_bytes()), encoding="ascii")
    assert [document.path for document in find_documents(["@list.txt"], null=True).documents] == names
    assert [document.path for document in find_documents(["-"], stdin=stdin, null=True).documents] == names


def test_names_on_stdin_need_not_be_text() -> None:
    name = os.fsdecode(b"odd\xff.pdf")
    make(name)
    stdin = io.TextIOWrapper(io.BytesIO(os.fsencode(name)), encoding="utf-8")
    [document] = find_documents(["-"], stdin=stdin).documents
    assert document.path == name
    assert document.problem is None


@pytest.mark.parametrize("name", ["a b.pdf", "line\nbreak.pdf", "日本語 ☃.pdf", "-dash.pdf", "tab\t'\".pdf"])
def test_any_name_is_a_name(name: str) -> None:
    make(f"d/{name}")
    [document] = find_documents(["d"]).documents
    assert document.source == name
    assert Path(document.path).exists()


def test_undecodable_names_survive_in_the_path_and_are_escaped_in_the_source() -> None:
    make(os.fsdecode(b"d/odd\xff.pdf"), os.fsdecode(b"d/odd\xfe.pdf"))
    documents = find_documents(["d"]).documents
    assert [os.fsencode(document.path) for document in documents] == [b"d/odd\xfe.pdf", b"d/odd\xff.pdf"]
    assert [document.source for document in documents] == ["odd\\udcfe.pdf", "odd\\udcff.pdf"]


def test_a_file_reached_twice_is_listed_once(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    make("d/x.pdf")
    Path("link.pdf").symlink_to("d/x.pdf")
    with caplog.at_level(logging.INFO, logger="batchocr"):
        assert sources("d", "d/x.pdf", "./d/x.pdf", str(folder / "d"), "link.pdf") == ["x.pdf"]
    assert "link.pdf is left out: it is the same file as d/x.pdf" in caplog.text


def test_a_link_to_nothing_becomes_a_row() -> None:
    make("d/x.pdf")
    Path("d/gone.pdf").symlink_to("nothing.pdf")
    documents = find_documents(["d"]).documents
    assert [(document.source, problem_kind(document)) for document in documents] == [
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
        ("-", "unreadable", "stdin cannot be read: there is none"),
        (
            "@null.txt",
            "unreadable",
            "the list null.txt cannot be read: its paths are separated by NUL: --null reads it",
        ),
        ("nul\0.pdf", "unreadable", "cannot be read: embedded null byte"),
        ("n" * 300, "unreadable", "cannot be read: File name too long"),
    ],
)
def test_what_cannot_be_found_becomes_a_row_and_the_rest_is_read(missing: str, kind: str, message: str) -> None:
    make("x.pdf", "folder/notes.txt")
    Path("null.txt").write_bytes(b"a.pdf\0b.pdf\0")
    failed, found = find_documents([missing, "x.pdf"]).documents
    assert failed.problem is not None
    assert (failed.source, failed.problem.kind) == (missing, kind)
    assert message in failed.problem.message
    assert found == Document("x.pdf", "x.pdf")


@pytest.mark.parametrize(("given", "below"), [("d", ""), ("d/**/*.pdf", "d/")])
def test_a_folder_that_may_not_be_read_becomes_a_row(monkeypatch: pytest.MonkeyPatch, given: str, below: str) -> None:
    make("d/locked/y.pdf", "d/sub/x.pdf")
    lock(monkeypatch)
    locked, found = find_documents([given]).documents
    problem = Failure("unreadable", "the folder d/locked cannot be read: Permission denied")
    assert (locked.source, locked.problem) == (f"{below}locked", problem)
    assert found.source == f"{below}sub/x.pdf"


def test_what_is_no_regular_file_is_left_to_the_worker_to_refuse() -> None:
    make("x.pdf")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("s.pdf")
        assert sources("s.pdf", "x.pdf") == ["s.pdf", "x.pdf"]


@pytest.mark.parametrize(
    "inputs", [[], ["empty"], ["notes"], ["missing.pdf", "no*.pdf"], ["missing.pdf", "empty"], ["@notes/a.txt"], ["-"]]
)
def test_nothing_to_read_at_all_is_an_error(inputs: list[str]) -> None:
    Path("empty").mkdir()
    make("notes/a.txt")
    with pytest.raises(NoInputError) as caught:
        find_documents(inputs)
    message = str(caught.value)
    assert all(text.replace("-", "stdin") in message for text in inputs)
    assert (".jpeg" in message) == (inputs == ["notes"]), "what is read matters where files were skipped"


@pytest.mark.parametrize("inputs", [["missing.pdf"], ["missing", "x.pdf/y"], ["@missing.txt"]])
def test_inputs_none_of_which_exists_are_wrong_usage_and_the_reason_comes_first(inputs: list[str]) -> None:
    make("x.pdf")
    inputs = [*inputs, *inputs]  # the same twice is no other
    with pytest.raises(UsageError, match=rf"^(the list )?{inputs[0].lstrip('@')} does not exist; .*nothing to read"):
        find_documents(inputs)


def test_a_folder_beside_others_of_which_nothing_is_read_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    make("d/x.pdf", "photos/a.heic", "hidden/.a.pdf")
    Path("empty").mkdir()
    find_documents(["d", "photos", "hidden", "empty"])
    assert [record.args for record in caplog.records if "nothing in" in record.message] == [("photos",), ("hidden",)]


def test_shards_part_the_documents_between_them() -> None:
    owners = [[index for index in range(1, 5) if in_shard(f"{number}.pdf", index, 4)] for number in range(1000)]
    assert all(len(owner) == 1 for owner in owners)
    sizes = [owners.count([index]) for index in range(1, 5)]
    assert min(sizes) > 200
    assert [in_shard("a.pdf", index, 3) for index in (1, 2, 3)] == [False, False, True]


def skipped(*inputs: str) -> Mapping[str, int]:
    return find_documents(inputs).skipped


def test_files_skipped_in_folders_are_counted_by_suffix_in_any_case() -> None:
    make("d/x.pdf", "d/a.DOCX", "d/b.docx", "d/sub/c.docx", "d/sub/archive.tar.zip", "d/README")
    assert skipped("d") == {".docx": 3, ".zip": 1, "no suffix": 1}
    assert next(iter(skipped("d"))) == ".docx"


def test_hidden_files_and_those_of_a_run_do_not_count() -> None:
    make("d/x.pdf", "d/.hidden.docx", "d/.git/config.txt", "d/note.txt")
    for table in ("results.parquet", "part-1.jsonl"):
        files = files_of(Path(table), report_path(Path(table)))
        make(*(f"d/{file}" for file in (*files, *map(temporary_path, files))))
    assert skipped("d") == {".txt": 1}


def test_a_file_that_is_named_or_matched_is_read_and_not_skipped() -> None:
    make("d/notes.txt", "x.pdf")
    assert skipped("d/notes.txt", "d/*.txt", "x.pdf") == {}


def test_a_folder_counts_once_however_often_it_is_named() -> None:
    make("d/x.pdf", "d/sub/a.docx")
    assert skipped("d", "./d/", "d/sub", os.path.abspath("d"), "d*") == {".docx": 1}


def test_the_count_is_of_the_whole_input_whatever_the_shard() -> None:
    make("d/x.pdf", "d/a.docx")
    assert [find_documents(["d"], shard=(index, 2)).skipped for index in (1, 2)] == [{".docx": 1}] * 2


def test_a_shard_without_a_document_says_so(caplog: pytest.LogCaptureFixture) -> None:
    make("d/x.pdf")
    caplog.set_level("INFO")
    without = [index for index in (1, 2) if not find_documents(["d"], shard=(index, 2)).documents]
    assert caplog.messages == [f"shard {index} of 2 has none of 1 document" for index in without]


def test_a_folder_of_thousands_of_suffixes_has_a_short_account() -> None:
    make("d/x.pdf", f"d/scan.{'long' * 20}", "d/a.b\x1b", *(f"d/scan.{number:04}" for number in range(300)))
    kinds = skipped("d")
    assert len(kinds) <= 101
    assert sum(kinds.values()) == 302
    assert kinds["other suffixes"] >= 200
    assert len(describe_skipped(kinds)) < 250


def test_the_account_names_the_ten_most_frequent_kinds() -> None:
    assert describe_skipped({".docx": 30, ".xml": 2}) == "skipped 32 files: 30 .docx, 2 .xml"
    assert describe_skipped({"no suffix": 1}) == "skipped 1 file: 1 with no suffix"
    many = {f".{number}": 1_000 for number in range(12)}
    assert describe_skipped(many).endswith("1,000 .9, 2,000 of 2 other kinds")
    assert describe_skipped({}) == ""


@pytest.mark.parametrize("given", [["d/t"], ["d/t/*/*.parquet"], ["d/t/p=1/a.parquet", "d/t/p=2/b.parquet", "d/t"]])
def test_a_delta_table_is_said_once_to_hold_what_was_deleted_from_it(
    given: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    make("d/t/_delta_log/0.json", "d/t/p=1/a.parquet", "d/t/p=2/b.parquet", "d/a.pdf")
    find_documents([*given, "d/a.pdf"])
    [warning] = [record.message for record in caplog.records if "Delta" in record.message]
    assert warning.startswith("d/t is a Delta table: deleted rows may be in its files")


def test_other_folders_are_no_delta_tables(caplog: pytest.LogCaptureFixture) -> None:
    make("d/_delta_log/0.json", "d/a.pdf", "e/a.parquet")
    find_documents(["d/a.pdf", "e/a.parquet"])
    assert "Delta" not in caplog.text


def test_where_nothing_is_read_the_error_says_what_was_skipped() -> None:
    make("d/a.docx", "d/b.docx")
    with pytest.raises(NoInputError, match=r"no document is there that is not hidden; skipped 2 files: 2 \.docx"):
        find_documents(["d"])
