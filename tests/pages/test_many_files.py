"""The order of a folder tree, and what finding a file costs: folders hold hundreds of thousands."""

from __future__ import annotations

import os
import random
import re
import tracemalloc
from itertools import product
from pathlib import Path

import pyarrow as pa
import pytest

from batchocr.errors import NotFoundError, PageError, UnreadableError
from batchocr.pages.input.globs import natural_key
from batchocr.pages.input.render import version_of
from batchocr.pages.input.sources import find_documents
from batchocr.storage import listing
from tests.support.listing import make, problem_kind, sources

pytestmark = pytest.mark.usefixtures("folder")

PIECES = ("", "a", "B", "0", "1", "01", "10", "-", " ", ".", "é", "\n", "٣")
FOLDERS = (
    "a",
    "A",
    "a b",
    "a-b",
    "a.",
    "a1",
    "a01",
    "a10",
    "a2",
    "10",
    "2",
    "02",
    "b.pdf",
    "é",
    "e\u0301",
    "a\nb",
    "~",
)
FILES = ("a.pdf", "a b.pdf", "a-b.pdf", "a1.pdf", "a01.pdf", "a10.pdf", "1.png", "01.png", "10.PNG", "é.pdf", "~.pdf")


def by_values(path: str) -> list[tuple[list[str | int], str]]:
    """The natural order spelt out: text and numbers in turn, for each part of a path."""
    parts = [(re.split("([0-9]+)", part), part) for part in path.split("/")]
    return [([int(text) if i % 2 else text for i, text in enumerate(texts)], part) for texts, part in parts]


def test_names_sort_by_the_values_of_their_numbers() -> None:
    names = {"".join(pieces) for pieces in product(PIECES, repeat=4)}
    assert sorted(names, key=natural_key) == sorted(names, key=lambda name: by_values(name)[0])


@pytest.mark.parametrize("seed", range(5))
def test_a_tree_of_odd_names_is_found_in_the_order_of_whole_paths(seed: int) -> None:
    draw = random.Random(seed)
    folders = ["d", *("d/" + "/".join(draw.choices(FOLDERS, k=draw.randint(1, 3))) for _ in range(30))]
    files = {f"{folder}/{name}" for folder in folders for name in draw.sample(FILES, 4)}
    make(*files)
    assert sources("d") == sorted((file.removeprefix("d/") for file in files), key=by_values)


def test_a_folder_comes_between_files_by_its_name_and_so_does_a_link() -> None:
    make("d/a/1.pdf", "d/a.pdf", "d/a b/2.pdf", "d/a-b.pdf", "d/.more/sub/3.pdf", "d/.more/10.pdf", "d/a1/4.pdf")
    Path("d/a0").symlink_to(".more")
    Path("d/a1/b.pdf").symlink_to("../.more/10.pdf")  # which comes first in a0
    Path("d/a1/c.pdf").symlink_to("../a")
    Path("d/.more/sub/z").symlink_to("../../a")
    expected = ["a/1.pdf", "a0/10.pdf", "a0/sub/3.pdf", "a1/4.pdf", "a b/2.pdf", "a-b.pdf", "a.pdf"]
    assert sources("d") == expected


def test_a_link_out_of_the_folder_is_not_followed_below_another_link_either(caplog: pytest.LogCaptureFixture) -> None:
    make("outside/x.pdf", "d/.more/y.pdf", "d/z.pdf")
    Path("d/.more/out").symlink_to(Path("outside").absolute())
    Path("d/.more/out.pdf").symlink_to("../../outside/x.pdf")
    Path("d/inside").symlink_to(".more")
    assert sources("d") == ["inside/y.pdf", "z.pdf"]
    assert "2 links, such as d/inside/out;" in caplog.text
    assert sources("d/**/*.pdf") == ["d/inside/y.pdf", "d/z.pdf"]


def test_a_file_that_a_folder_shows_is_not_looked_at_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    make(*(f"d/{number % 3}/{number}.pdf" for number in range(30)))
    looked_at: list[str] = []
    for name in ("stat", "lstat"):
        real = getattr(os, name)
        monkeypatch.setattr(
            os, name, lambda path, *, call=real, **options: looked_at.append(path) or call(path, **options)
        )
    assert len(sources("d")) == 30
    assert not [path for path in looked_at if str(path).endswith(".pdf")]


@pytest.mark.parametrize(("given", "limit"), [("d", 330), ("d/**/*.pdf", 330), ("@list.txt", 260)])
def test_finding_a_file_takes_little_memory(given: str, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "_AT_ONCE", 50)
    make(*(files := [f"d/{number % 20}/scan-{number}.pdf" for number in range(2000)]))
    Path("list.txt").write_text("\n".join(files))
    find_documents([given])  # what is imported on the way does not count
    before = pa.system_memory_pool().bytes_allocated()
    tracemalloc.start()
    try:
        found = find_documents([given])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(found.documents) == 2000
    assert peak / 2000 < limit  # bytes
    assert (pa.system_memory_pool().bytes_allocated() - before) / 2000 < 200


@pytest.mark.parametrize("error", [FileNotFoundError(2, "gone"), PermissionError(13, "closed"), OSError(5, "broken")])
def test_a_file_that_cannot_be_looked_at_is_the_same_kind_of_row_whoever_notices(
    monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    make("d/x.pdf", "y.pdf")
    look = os.stat

    def refuse(path: str, **options: bool) -> os.stat_result:
        if str(path).endswith("x.pdf"):
            raise error
        return look(path, **options)

    monkeypatch.setattr(os, "stat", refuse)
    monkeypatch.setattr(os, "lstat", refuse)
    named, _ = find_documents(["d/x.pdf", "y.pdf"]).documents
    with pytest.raises(PageError) as caught:
        version_of("d/x.pdf")
    assert isinstance(caught.value, NotFoundError if isinstance(error, FileNotFoundError) else UnreadableError)
    assert problem_kind(named) == caught.value.error_kind
