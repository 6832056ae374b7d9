"""INPUTs in a store: an object, a prefix, a glob, the lines of a list, named and ordered as files are."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from batchocr.data import Document
from batchocr.errors import ExitCode, NoInputError, StoreRefusesError, StoreUnavailableError, UsageError
from batchocr.pages.input.folders import EXPORT_RECORD
from batchocr.pages.input.sources import find_documents
from batchocr.storage import objects
from tests.support.object_store import ObjectStore, answering

KEYS = ["docs/page10.pdf", "docs/page2.pdf", "docs/2024-01/a.PDF", "docs/2024-02/b.tif", "docs/2024-02/sub/c.pdf"]
OTHERS = ["docs/.hidden.pdf", "docs/.cache/d.pdf", "docs/notes.docx", "docs/2024-01/e.docx", "docs/out.parquet"]


@pytest.fixture(scope="module")
def running(running: ObjectStore) -> ObjectStore:
    running.put("mine", {key: key.encode() for key in KEYS + OTHERS} | {"docs-2/f.pdf": b"1", "what[1]?.pdf": b"2"})
    return running


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with files that are called like the objects."""
    for key in KEYS + OTHERS:
        path = tmp_path / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(key.encode())
    return tmp_path


def sources(*inputs: str) -> list[str]:
    return [document.source for document in find_documents(inputs).documents]


def test_what_is_below_the_first_prefix_is_named_and_ordered_as_in_a_folder(store: ObjectStore, files: Path) -> None:
    below, folder = find_documents(["s3://mine/docs/"]), find_documents([str(files / "docs")])
    assert [document.source for document in below.documents] == [document.source for document in folder.documents]
    assert below.skipped == folder.skipped == {".docx": 2}
    assert below.documents[0].path == "s3://mine/docs/2024-01/a.PDF"


@pytest.mark.parametrize("pattern", ["*", "*.pdf", "**/*.pdf", "2024-*/*", "2024-0[2-9]", "**", "page?.pdf", ".c*/*"])
def test_a_glob_matches_what_it_matches_in_a_folder(store: ObjectStore, files: Path, pattern: str) -> None:
    prefix, folder = "s3://mine/docs/", f"{files}/docs/"
    there = [source.removeprefix(folder) for source in sources(f"{folder}{pattern}")]
    assert [source.removeprefix(prefix) for source in sources(f"{prefix}{pattern}")] == there


def test_what_an_export_has_cut_is_left_out_of_its_folder_in_a_store(store: ObjectStore) -> None:
    names = (EXPORT_RECORD, "a.md", "a.pdf", "a.images/page-1-block-2.png", "a.images/scan.png")
    store.put("copied", {f"{folder}/{name}": b"1" for folder in ("texts", "texts-2") for name in names})
    store.put("copied", {"other/a.images/page-1-block-2.png": b"1"})
    found = find_documents(["s3://copied/"])
    assert [document.source for document in found.documents] == [
        *("other/a.images/page-1-block-2.png", "texts/a.images/scan.png", "texts/a.pdf"),
        *("texts-2/a.images/scan.png", "texts-2/a.pdf"),
    ]
    assert found.skipped == {".md": 2, "cut by an export": 2}
    assert set(sources("s3://copied/**/*.png")) == {
        f"s3://copied/{name}"
        for name in ("other/a.images/page-1-block-2.png", "texts/a.images/scan.png", "texts-2/a.images/scan.png")
    }


def test_size_and_time_of_all_objects_come_from_one_listing(store: ObjectStore) -> None:
    documents = find_documents(["s3://mine/docs"]).documents
    assert [document.size for document in documents] == [
        len(document.path) - len("s3://mine/") for document in documents
    ]
    assert all(document.mtime_ns for document in documents)
    assert len(store.requests) <= 3


def test_an_object_is_named_by_its_address_and_read_whatever_its_suffix(store: ObjectStore) -> None:
    assert sources("s3://mine/docs/notes.docx", "S3://mine/docs/page2.pdf") == [
        "s3://mine/docs/notes.docx",
        "s3://mine/docs/page2.pdf",
    ]
    assert sources("s3://mine/what[1]?.pdf") == ["s3://mine/what[1]?.pdf"]


def test_an_object_that_two_inputs_name_is_read_once(store: ObjectStore) -> None:
    assert sources("s3://mine/docs/2024-01", "s3://mine/docs/2024-0*", "s3://mine/docs/2024-01/a.PDF") == [
        "a.PDF",
        "s3://mine/docs/2024-02/b.tif",
        "s3://mine/docs/2024-02/sub/c.pdf",
    ]


def test_lines_of_a_list_are_addresses_too(store: ObjectStore, tmp_path: Path) -> None:
    (tmp_path / "list").write_text("s3://mine/docs/page2.pdf\ns3://mine/gone.pdf\ns3://mine/docs/2024-01/\n")
    page2, gone, below = find_documents([f"@{tmp_path}/list"]).documents
    assert (page2.source, page2.problem) == ("s3://mine/docs/page2.pdf", None)
    assert gone.problem is not None
    assert (gone.problem.kind, gone.problem.message) == ("not_found", "there is no object s3://mine/gone.pdf")
    assert below.source == "s3://mine/docs/2024-01/a.PDF"


@pytest.mark.parametrize("name", ["s3://mine/gone.pdf", "s3://mine/gone/", "s3://mine/x*"])
def test_nothing_where_an_input_is_said_to_be_ends_the_run(store: ObjectStore, name: str) -> None:
    with pytest.raises(NoInputError, match=r"there is no|there is nothing|no object matches"):
        find_documents([name])


def test_a_prefix_without_documents_ends_the_run(store: ObjectStore) -> None:
    store.put("others", {"docs/a.docx": b"1"})
    with pytest.raises(NoInputError, match=r"skipped 1 file: 1 \.docx"):
        find_documents(["s3://others/docs/"])


def test_a_wrong_key_is_said_to_be_one(store: ObjectStore, tmp_path: Path) -> None:
    with store.failing(answering("403 Forbidden", "InvalidAccessKeyId")):
        for inputs in (["s3://mine/docs/"], [Document("a.pdf", "a.pdf"), "s3://mine/docs/"]):
            with pytest.raises(StoreRefusesError, match=r"access is denied .*AWS_ACCESS_KEY_ID") as refused:
                find_documents(inputs)
            assert refused.value.exit_code == ExitCode.USAGE
        (tmp_path / "list").write_text("s3://mine/docs/\n")
        [first, second] = find_documents([f"@{tmp_path}/list", Document("a.pdf", "a.pdf")]).documents
    assert first.problem is not None
    assert first.problem.kind == "unreadable"
    assert second.problem is None


@pytest.mark.parametrize("name", ["s3://none/a.pdf", "s3://none", "s3://none/*.pdf"])
def test_a_bucket_that_is_not_there_is_wrong_usage(store: ObjectStore, name: str) -> None:
    with pytest.raises(StoreRefusesError, match="there is no bucket none"):
        find_documents([name])


def test_a_store_that_does_not_answer_may_do_so_later(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "_ATTEMPTS", 1)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(StoreUnavailableError, match=r"does not answer .*AWS_ENDPOINT_URL.*run the same") as away:
            find_documents(["s3://away/docs", Document("a.pdf", "a.pdf")])
    assert away.value.exit_code == ExitCode.STOPPED


@pytest.mark.parametrize("name", ["s3://key:hunter2@mine/docs", "s3://mi*/docs"])
def test_an_address_that_cannot_be_meant_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "list").write_text(f"{name}\n")
    for given in (name, f"@{tmp_path}/list"):
        with pytest.raises(UsageError) as refused:
            find_documents([given])
        assert "hunter2" not in str(refused.value)
