"""The `source` of a document: what it depends on, and what it does not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from batchocr.pages.input.sources import find_documents
from tests.support.listing import make, sources

pytestmark = pytest.mark.usefixtures("folder")


def names(*inputs: str) -> dict[str, str]:
    """By path from the current folder."""
    return {os.path.relpath(found.path): found.source for found in find_documents(inputs).documents}


@pytest.mark.parametrize("form", ["a", "./a", "a/", "./a//", "../{here}/a", "{there}/a"])
def test_below_the_first_folder_the_source_is_the_path_there_however_the_folder_is_written(
    folder: Path, form: str
) -> None:
    make("a/x.pdf", "a/sub/y.pdf")
    assert sources(form.format(here=folder.name, there=folder)) == ["sub/y.pdf", "x.pdf"]


@pytest.mark.parametrize("form", ["b", "./b", "b/", "./b//"])
def test_what_any_other_input_holds_carries_that_input_as_it_is_given(folder: Path, form: str) -> None:
    make("a/x.pdf", "b/x.pdf", "b/sub/y.pdf", "c.pdf")
    assert sources("a", form) == ["x.pdf", "b/sub/y.pdf", "b/x.pdf"]
    assert sources("c.pdf", form) == ["c.pdf", "b/sub/y.pdf", "b/x.pdf"]
    assert sources("a", str(folder / "b")) == ["x.pdf", f"{folder}/b/sub/y.pdf", f"{folder}/b/x.pdf"]


def test_an_input_added_at_the_end_leaves_every_name_as_it_was() -> None:
    make("a/x.pdf", "a/b/x.pdf", "b/x.pdf", "b/y.pdf", "c/b/y.pdf", "x.pdf", "b.pdf")
    inputs = ["./a", "./b", "b.pdf", "@list.txt", "c/*", "x.pdf", "a/b", "."]
    Path("list.txt").write_text("b/y.pdf\nc\n")
    before: dict[str, str] = {}
    for count in range(1, len(inputs) + 1):
        now = names(*inputs[:count])
        assert before.items() <= now.items()
        assert len(set(now.values())) == len(now)
        before = now
    assert len(before) == 7


def test_a_file_added_to_an_input_leaves_every_other_name_as_it_was() -> None:
    make("a/x.pdf", "b/y.pdf", "b/z.pdf")
    before = names("a", "b")
    make("a/y.pdf", "b/x.pdf", "a/sub/z.pdf", "b/sub/x.pdf")
    assert before.items() <= names("a", "b").items()


def test_the_order_of_the_inputs_after_the_first_changes_the_order_alone() -> None:
    make("a/x.pdf", "b/x.pdf", "c/x.pdf", "d.pdf")
    assert names("a", "b", "c", "d.pdf") == names("a", "d.pdf", "c", "b")


def test_a_folder_within_a_folder_adds_nothing_and_before_it_keeps_its_names() -> None:
    make("a/x.pdf", "a/b/y.pdf")
    assert sources("a", "a/b") == ["b/y.pdf", "x.pdf"]
    assert sources("a/b", "a") == ["y.pdf", "a/x.pdf"]


def test_a_file_and_its_folder_are_named_by_the_one_that_comes_first() -> None:
    make("a/x.pdf", "a/y.pdf")
    assert sources("a", "a/x.pdf") == ["x.pdf", "y.pdf"]
    assert sources("a/x.pdf", "a") == ["a/x.pdf", "a/y.pdf"]


def test_lists_and_globs_name_files_by_their_paths_there_whatever_their_place() -> None:
    make("a/x.pdf", "b/x.pdf")
    Path("list.txt").write_text("./a\nb/x.pdf\n")
    for inputs in (["@list.txt"], ["*/*.pdf"], ["[ab]"], ["[a]", "@list.txt"], ["b/*", "a/*"]):
        assert sorted(sources(*inputs)) == ["a/x.pdf", "b/x.pdf"]


def test_a_name_that_an_earlier_input_has_becomes_the_absolute_path(folder: Path) -> None:
    make("a/b/x.pdf", "a/y.pdf", "b/x.pdf", "y.pdf")
    assert sources("a", "b", "y.pdf") == ["b/x.pdf", "y.pdf", f"{folder}/b/x.pdf", f"{folder}/y.pdf"]


def test_no_choice_of_names_makes_two_sources_the_same(folder: Path) -> None:
    make(*(os.fsdecode(name) for name in (b"a/o\xff.pdf", rb"a/o\udcff.pdf", rb"a/o\\udcff.pdf", rb"a/o\\\udcff.pdf")))
    make("b.pdf")
    assert len(set(sources("b.pdf", str(folder / "a")))) == len(set(sources("a", "b.pdf"))) == 5


def test_files_of_the_same_name_in_many_folders_are_in_different_shards() -> None:
    make(*(f"{folder}/scan.pdf" for folder in "abcdefghijklmnop"))
    for inputs in (["*"], sorted("abcdefghijklmnop")):
        shards = [len(find_documents(inputs, shard=(index, 3)).documents) for index in (1, 2, 3)]
        assert sum(shards) == 16 and min(shards) > 1
