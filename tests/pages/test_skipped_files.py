"""What is said about files of no kind that is read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from batchocr.errors import NoInputError
from batchocr.pages.input.folders import describe_skipped
from batchocr.pages.input.sources import find_documents
from batchocr.tables.files import files_of, report_path, temporary_path
from tests.support.listing import make

pytestmark = pytest.mark.usefixtures("folder")


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


def test_a_folder_of_thousands_of_suffixes_has_a_short_account() -> None:
    make("d/x.pdf", f"d/scan.{'long' * 20}", *(f"d/scan.{number:04}" for number in range(300)))
    kinds = skipped("d")
    assert len(kinds) <= 101
    assert sum(kinds.values()) == 301
    assert kinds["other suffixes"] >= 200
    assert len(describe_skipped(kinds)) < 250


def test_the_account_names_the_ten_most_frequent_kinds() -> None:
    assert describe_skipped({".docx": 30, ".zip": 2}) == "skipped 32 files: 30 .docx, 2 .zip"
    assert describe_skipped({"no suffix": 1}) == "skipped 1 file: 1 with no suffix"
    many = {f".{number}": 1_000 for number in range(12)}
    assert describe_skipped(many).endswith("1,000 .9, 2,000 of 2 other kinds")
    assert describe_skipped({}) == ""


def test_where_nothing_is_read_the_error_says_what_was_skipped() -> None:
    make("d/a.docx", "d/b.docx")
    with pytest.raises(NoInputError, match=r"no document is there; skipped 2 files: 2 \.docx"):
        find_documents(["d"])
