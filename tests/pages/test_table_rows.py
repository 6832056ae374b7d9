"""Documents in a column of a Parquet table: what they are called, and the bytes of each, in whatever order."""

from __future__ import annotations

import io
import random
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchocr.config import Config
from batchocr.data import Failure
from batchocr.errors import AbsentError, DamagedError, PageError
from batchocr.pages import documents
from batchocr.pages.documents import DocumentCache
from batchocr.pages.input import table_rows
from batchocr.pages.input.containers import Containers
from batchocr.pages.input.render import open_document
from batchocr.processes.messages import ListMembers, MembersListed, Setup
from batchocr.storage.members import MemberAddress
from tests.support.documents import text_row, write_table

DOCUMENTS = [b"%%PDF-1.4 number %d" % number for number in range(30)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.parquet"


def write(path: Path, columns: dict[str, Any], **options: Any) -> None:
    pq.write_table(pa.table(columns), path, **options)


def listed(path: Path, *columns: str | None) -> MembersListed:
    document_column, name_column = (*columns, None, None)[:2]
    setup = Setup.of(Config(document_column=document_column, name_column=name_column))
    return Containers(setup).list(ListMembers(1, str(path)))


def names(path: Path, *columns: str | None) -> list[str]:
    found = listed(path, *columns)
    assert found.problem is None
    return [each.name for each in found.members]


def problem(path: Path, *columns: str | None) -> Failure:
    found = listed(path, *columns)
    assert found.problem is not None
    assert found.members == ()
    return found.problem


def read(path: Path, containers: Containers, row: int, *columns: str | None) -> bytes:
    found = listed(path, *columns)
    copy = io.BytesIO()
    containers.copy(str(MemberAddress(str(path), found.version, found.members[row])), copy, timeout_s=10)
    return copy.getvalue()


def as_struct(documents: list[bytes | None], paths: list[str | None]) -> pa.Array:
    kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    return pa.array([{"bytes": data, "path": name} for data, name in zip(documents, paths, strict=True)], kind)


def test_rows_that_are_damaged_cost_no_others(path: Path) -> None:
    write(path, {"pdf": DOCUMENTS[:16]}, row_group_size=8, use_dictionary=False)
    place = pq.read_metadata(path).row_group(0).column(0).data_page_offset
    data = path.read_bytes()
    path.write_bytes(data[:place] + bytes(20) + data[place + 20 :])
    containers = Containers()
    with pytest.raises(DamagedError, match="the table is damaged"):
        read(path, containers, 0)
    assert [read(path, containers, row) for row in (8, 9)] == DOCUMENTS[8:10]


def test_rows_are_called_by_their_path_a_named_column_or_their_number(path: Path) -> None:
    write(path, {"pdf": as_struct(DOCUMENTS[:3], ["a/b.pdf", None, "../c"]), "id": [7, 8, None]})
    assert names(path) == ["a/b.pdf", "1", "c"]
    assert names(path, None, "id") == ["7", "8", "2"]
    write(path, {"pdf": DOCUMENTS[:2], "path": ["a", "b"]})
    assert names(path) == ["a", "b"]
    for others in (DOCUMENTS[:2], [1.5, 2.5], pa.array([b"\xff", b""]).dictionary_encode()):
        write(path, {"pdf": DOCUMENTS[:2], "path": others})
        assert names(path, "pdf") == ["0", "1"], "a path is text"
    write(path, {"pdf": DOCUMENTS[:2], "text": ["a", "b"]})
    assert names(path) == ["0", "1"]
    assert names(path, "pdf", "text") == ["a", "b"]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), None])
def test_a_row_is_read_whichever_was_read_before(path: Path, kind: pa.DataType | None) -> None:
    column = pa.array(DOCUMENTS, kind) if kind else as_struct([*DOCUMENTS], [None] * len(DOCUMENTS))
    write(path, {"number": range(len(DOCUMENTS)), "pdf": column}, row_group_size=7)
    containers = Containers()
    order = [*range(30), *random.Random(0).choices(range(30), k=20)]
    assert [read(path, containers, row) for row in order] == [DOCUMENTS[row] for row in order]


def test_rows_that_are_read_in_their_order_are_decoded_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(path, {"pdf": DOCUMENTS}, row_group_size=7)
    opened: list[object] = []
    monkeypatch.setattr(table_rows, "_open", lambda file, open=table_rows._open: opened.append(file) or open(file))
    found, containers = listed(path), Containers()
    opened.clear()
    for each in found.members[::3]:
        containers.copy(str(MemberAddress(str(path), found.version, each)), io.BytesIO(), timeout_s=10)
    assert len(opened) == 1


def test_copies_of_rows_are_kept_by_what_they_take(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(path, {"pdf": DOCUMENTS})
    monkeypatch.setattr(documents, "_MAX_COPIED_BYTES", path.stat().st_size)
    opened: list[object] = []
    monkeypatch.setattr(table_rows, "_open", lambda file, open=table_rows._open: opened.append(file) or open(file))
    found = listed(path)
    addresses = [str(MemberAddress(str(path), found.version, each)) for each in found.members]
    opened.clear()
    with closing(DocumentCache(open_document)) as cache:
        for address in addresses * 2:
            cache.local_path(address)
    assert len(opened) == 1


def test_a_table_changes_between_two_rows(path: Path) -> None:
    write(path, {"pdf": DOCUMENTS[:5]})
    containers = Containers()
    assert read(path, containers, 0) == DOCUMENTS[0]
    write(path, {"pdf": DOCUMENTS[5:]})
    assert read(path, containers, 1) == DOCUMENTS[6]


LISTS: dict[str, pa.DataType] = {
    "bytes": pa.list_(pa.binary()),
    "large": pa.large_list(pa.large_binary()),
    "views": pa.list_(pa.binary_view()),
}


@pytest.mark.parametrize("kind", LISTS.values(), ids=LISTS)
def test_each_place_in_a_list_is_a_document(path: Path, kind: pa.DataType) -> None:
    lists = [DOCUMENTS[:3], [], None, [None, b"x"], DOCUMENTS[3:30]]
    write(path, {"pdf": pa.array(lists, kind), "id": ["a", "b", "c", "d", None]}, row_group_size=2)
    expected = ["0/0", "0/1", "0/2", "3/0", "3/1", *(f"4/{number}" for number in range(27))]
    assert names(path) == expected
    assert names(path, None, "id")[2:6] == ["a/2", "d/0", "d/1", "4/0"]
    containers = Containers()
    for place in (0, 1, 2, 4, 5, 31, 6, 1):
        documents: list[Any] = [document for each in lists for document in each or ()]
        assert read(path, containers, place) == documents[place]
    with pytest.raises(AbsentError):
        read(path, containers, 3)


def test_a_list_of_pictures_is_listed_by_their_paths_alone(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pictures = [{"bytes": data, "path": "a.png"} for data in DOCUMENTS]
    kind = pa.list_(pa.struct({"bytes": pa.binary(), "path": pa.string()}))
    write(path, {"images": pa.array([pictures[:2], pictures[2:4]], kind)})
    asked: list[object] = []
    of_file = pq.ParquetFile.iter_batches
    monkeypatch.setattr(
        pq.ParquetFile, "iter_batches", lambda *given, **more: asked.append(more) or of_file(*given, **more)
    )
    assert names(path) == ["0/0", "0/1", "1/0", "1/1"]
    assert [more["columns"] for more in asked] == [["images.list.element.path"]]
    assert read(path, Containers(), 3) == DOCUMENTS[3]


def test_a_single_document_beside_a_list_is_the_one_that_is_meant(path: Path) -> None:
    write(path, {"all": [[b"x"], [b"y"]], "pdf": DOCUMENTS[:2]})
    assert names(path) == ["0", "1"]
    assert names(path, "all") == ["0/0", "1/0"]


def test_rows_of_views_and_dictionaries_are_read_as_others(path: Path) -> None:
    views = pa.struct({"bytes": pa.binary_view(), "path": pa.string_view()})
    columns = [pa.array(DOCUMENTS, pa.binary_view()), pa.array(DOCUMENTS).dictionary_encode()]
    columns += [pa.array([{"bytes": data, "path": "a"} for data in DOCUMENTS], views)]
    for column in columns:
        write(path, {"pdf": column})
        assert [read(path, Containers(), row) for row in (0, 29)] == [DOCUMENTS[0], DOCUMENTS[29]]


def test_a_name_that_is_no_utf_8_costs_no_other(path: Path) -> None:
    write(path, {"pdf": DOCUMENTS[:3], "path": ["a", "éé", "c"]})
    path.write_bytes(path.read_bytes().replace("éé".encode(), b"\xe9\xff\xe9\xff"))
    assert names(path) == ["a", r"\udce9\udcff\udce9\udcff", "c"]


def test_a_row_without_bytes_is_absent(path: Path) -> None:
    write(path, {"pdf": as_struct([b"x", None, b"y"], [None] * 3)})
    containers = Containers()
    with pytest.raises(AbsentError):
        read(path, containers, 1)
    assert read(path, containers, 2) == b"y"


def test_which_column_is_said_or_only_one_fits(path: Path) -> None:
    write(path, {"one": DOCUMENTS[:1], "two": DOCUMENTS[1:2], "three": ["x"]})
    assert "one, two" in problem(path).message
    assert "one, two" in problem(path, "three").message
    assert read(path, Containers(), 0, "two") == DOCUMENTS[1]
    assert "one, two, three" in problem(path, "one", "four").message
    assert "two has neither text nor numbers" in problem(path, "one", "two").message
    write(path, {"three": ["x"]})
    assert "none of this table does" in problem(path).message


def test_a_table_that_batchocr_wrote_is_refused_with_what_was_meant(path: Path) -> None:
    write_table(path, [text_row("a.pdf", 0)])
    assert "the documents that it was read from" in problem(path).message


def failure_of(path: Path) -> str | None:
    """Why not all rows can be listed, or the first two read."""
    try:
        found, containers = listed(path), Containers()
        for each in found.members[:2]:
            containers.copy(str(MemberAddress(str(path), found.version, each)), io.BytesIO(), timeout_s=10)
    except PageError as error:
        return error.error_kind
    return found.problem and found.problem.kind


def test_what_is_no_table_says_so(path: Path) -> None:
    write(path, {"pdf": DOCUMENTS})
    data = path.read_bytes()
    for position in range(0, len(data), 11):
        path.write_bytes(data[:position] + b"\xff\xff" + data[position + 2 :])
        assert failure_of(path) in (None, "damaged")
    for end in range(0, len(data), 50):
        path.write_bytes(data[:end])
        assert failure_of(path) == "damaged"
