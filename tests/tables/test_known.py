"""What the columns of a table say is what its rows say, one by one; and rows that stay are the same rows."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import fields, replace
from itertools import groupby
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchocr.data import Block, ErrorKind, FinishReason, PageResult, Status, TextSource
from batchocr.option_values import PageSpec, parse_page_spec
from batchocr.tables import parquet
from batchocr.tables.known import Kept, KnownRow, KnownRows, Overlay, Version, needs_no_attempt
from batchocr.tables.page_quality import TRAITS, traits_of
from batchocr.tables.schema import PAGE_SCHEMA, storable, to_row
from batchocr.tables.table import StoredTable, table_for
from tests.support.documents import METADATA
from tests.support.tables import put_table

shares = st.none() | st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]) | st.floats(-1, 2)
angles = st.sampled_from([None, 0, 90, 270, 180])
blocks = st.builds(
    Block,
    type=st.just("text"),
    bbox=st.just((0.0, 0.0, 1.0, 1.0)),
    angle=angles,
    content=st.none(),
    confidence=shares,
    finish_reason=st.none() | st.sampled_from(get_args(FinishReason)),
    text_source=st.none() | st.sampled_from(get_args(TextSource)),
)
rows = st.builds(
    PageResult,
    source=st.sampled_from("abc"),
    page_index=st.none() | st.integers(0, 4),
    status=st.sampled_from(get_args(Status)),
    doc_id=st.none() | st.sampled_from("12"),
    page_count=st.none() | st.integers(0, 5),
    error_kind=st.none() | st.sampled_from(get_args(ErrorKind)),
    markdown=st.none() | st.text(max_size=3),
    blocks=st.lists(blocks, max_size=3).map(tuple),
    ink_outside=shares,
    text_layer_agreement=shares,
    orientation=angles,
    rescued_blocks=st.none() | st.integers(0, 1),
    ink_in_figures=shares,
    writing_in_figures=shares,
    file_bytes=st.none() | st.integers(1, 2),
    file_mtime_ns=st.none() | st.sampled_from([-1, 5]),
)


def as_one_version(pages: Sequence[PageResult]) -> list[PageResult]:
    """The rows of a document as those of the first row's file."""
    names = ("doc_id", "page_count", "file_bytes", "file_mtime_ns")
    return [replace(page, **{name: getattr(pages[0], name) for name in names}) for page in pages]


def in_order(given: Sequence[PageResult]) -> list[PageResult]:
    unique = {(row.source, -1 if row.page_index is None else row.page_index): row for row in given}
    return [unique[key] for key in sorted(unique)]


mixed = st.lists(rows, min_size=1, max_size=9).map(in_order)
of_one_version = mixed.map(
    lambda rows: [page for _, pages in groupby(rows, key=lambda row: row.source) for page in as_one_version([*pages])]
)
tables = mixed | of_one_version
formats = pytest.mark.parametrize("name", ["table.parquet", "table.jsonl"])


@contextmanager
def opened(path: Path) -> Iterator[StoredTable]:
    """The table at `path`."""
    table = table_for(path).open_table(path)
    assert table is not None
    with closing(table):
        yield table


@contextmanager
def table_of(name: str, given: Sequence[PageResult]) -> Iterator[tuple[Path, StoredTable]]:
    """A table of these rows, in small row groups, in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        patched.setattr(parquet, "ROW_GROUP_PAGES", 3)
        path = Path(folder, name)
        put_table(path, given, METADATA)
        with opened(path) as table:
            yield path, table


def is_asked(row: PageResult, spec: PageSpec | None) -> bool:
    if not row.page_count:
        return row.page_index is None
    pages = range(row.page_count) if spec is None else spec.pages(row.page_count)
    return row.page_index is not None and (row.page_index in pages or row.page_index >= row.page_count)


@given(
    given=tables,
    pages=st.none() | st.sampled_from(["1", "2-3", "r1", "2-r2", "r3-1", "1,r1,2", "9", "999999999", "r999999999-r1"]),
    retry_failed=st.none() | st.booleans(),
)
def test_the_rows_asked_for_and_the_documents_that_need_no_look_are_those_that_a_loop_finds(
    given: list[PageResult], pages: str | None, retry_failed: bool | None
) -> None:
    spec = parse_page_spec(pages) if pages else None
    table = pa.Table.from_pylist([*map(to_row, given)], schema=PAGE_SCHEMA)
    columns = KnownRows([table[:3], table[3:]])
    asked, numbers = columns.asked(parse_page_spec(pages), retry_failed)
    expected, sources, num_rows = [], [], 0
    for source, group in groupby(given, key=lambda row: row.source):
        document = [*group]
        first = document[0]
        is_one = all(as_one_version([first, row])[1] == row for row in document)
        known = columns.rows(source)
        is_settled = all(needs_no_attempt(row.status, row.error_kind, retry_failed) for row in document)
        wanted = 1
        if first.page_count:
            wanted = len(range(first.page_count) if spec is None else spec.pages(first.page_count))
        has_all = sum(is_asked(row, spec) for row in document) == wanted
        expected.append(wanted if is_one and is_settled and has_all else 0)
        if is_one:
            of_document = asked[num_rows : num_rows + len(document)].tolist()
            assert of_document == [is_asked(row, spec) for row in document]
        names = [field.name for field in fields(KnownRow) if field.name != "place"]
        expected_rows = [{name: getattr(row, name) for name in names} for row in document]
        assert known == [KnownRow(**row, place=place) for place, row in enumerate(expected_rows, start=num_rows)]
        num_rows += len(document)
        sources.append(source)
    assert numbers.tolist() == expected
    assert columns.sources.to_pylist() == sources
    traits = [
        {trait for bit, trait in enumerate(TRAITS) if traits & 1 << bit} for traits in columns.pages["traits"].tolist()
    ]
    assert traits == [*map(traits_of, given)]


@pytest.mark.slow
@formats
@settings(max_examples=30)
@given(data=st.data(), given=tables, new=st.lists(rows, max_size=4))
def test_rows_that_stay_are_the_rows_that_were_there_whatever_stands_between_them(
    name: str, data: st.DataObject, given: list[PageResult], new: list[PageResult]
) -> None:
    ends = st.integers(0, len(given))
    kept = st.builds(lambda ends: Kept(min(ends), max(ends)), st.tuples(ends, ends))
    written = data.draw(st.lists(kept | st.sampled_from(new) if new else kept, max_size=6))
    expected: list[PageResult] = []
    for row in written:
        if isinstance(row, PageResult):
            expected.append(storable(row))
        else:
            expected += map(storable, given[row.start : row.stop])
    start, stop = sorted(data.draw(st.tuples(*[st.integers(0, len(expected))] * 2)))
    with table_of(name, given) as (path, table):
        assert table.columns.num_rows == len(given)
        digests: list[str] = []
        put_table(path, written, METADATA, earlier=table, written=digests.append)
        assert list(table_for(path).read_rows(path)) == expected
        with opened(path) as after:
            assert [after.digest] == digests
            assert after.columns.num_rows == len(expected)
            assert list(after.rows(start, stop)) == expected[start:stop]


def test_a_document_is_found_by_its_name_and_its_content() -> None:
    rows = [
        PageResult("b.pdf", None, "failed", doc_id="1" * 64),
        PageResult("a.pdf", 0, "ok", doc_id="1" * 64),
        PageResult("c.pdf", 0, "ok", doc_id="1" * 64),
        PageResult("é.pdf", 0, "ok", doc_id="2" * 64),
    ]
    with table_of("table.parquet", rows) as (_, table):
        columns = table.columns
        assert [columns.document_of(row.source) for row in rows] == [0, 1, 2, 3]
        assert columns.document_of("d.pdf") is None
        assert [columns.source_of(number * 64) for number in "123"] == ["a.pdf", "é.pdf", None]


def test_what_is_known_of_documents_is_in_memory_and_each_row_group_is_decoded_once_for_its_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [PageResult(f"{number}.pdf", 0, "ok") for number in range(9)]
    with table_of("table.parquet", rows) as (_, table):
        decoded: list[int] = []
        read = pq.ParquetFile.iter_batches

        def note_and_read(file: pq.ParquetFile, *rest: Any, row_groups: list[int], **named: Any) -> Any:
            decoded.extend(row_groups)
            return read(file, *rest, row_groups=row_groups, **named)

        _ = table.columns
        monkeypatch.setattr(pq.ParquetFile, "iter_batches", note_and_read)
        for number, row in enumerate(rows):
            assert [known.place for known in table.columns.rows(row.source)] == [number]
            assert [found.source for found in table.rows(number, number + 1)] == [row.source]
        assert decoded == [0, 1, 2]


NOW, BEFORE = (2, 20), (1, 10)


def known_row(page_index: int | None, doc_id: str, version: Version, place: int = -1) -> KnownRow:
    return KnownRow(page_index, "ok", doc_id, 3, 1, place, *version)


@pytest.mark.parametrize(
    ("in_table", "in_journal", "stays"),
    [
        pytest.param(("new", NOW), ("old", BEFORE), False, id="the table has been read since the file changed"),
        pytest.param(("old", BEFORE), ("new", NOW), True, id="the file has changed since the table was made"),
        pytest.param(("old", BEFORE), ("newer", (None, None)), False, id="nobody knows which file it is of"),
        pytest.param(("new", NOW), ("new", BEFORE), True, id="the file was only touched"),
        pytest.param(None, ("old", BEFORE), True, id="the table has no row of the page"),
    ],
)
def test_over_a_table_that_was_replaced_a_row_counts_if_it_is_of_the_file_as_it_is_now_or_of_no_other_than_the_table(
    in_table: tuple[str, Version] | None, in_journal: tuple[str, Version], stays: bool
) -> None:
    rows = [PageResult("a.pdf", 0, "failed", "other", 3)]
    if in_table is not None:
        doc_id, (size, mtime_ns) = in_table
        rows.append(PageResult("a.pdf", 1, "ok", doc_id, 3, attempts=1, file_bytes=size, file_mtime_ns=mtime_ns))
    overlay = Overlay(KnownRows([pa.Table.from_pylist([*map(to_row, rows)], schema=PAGE_SCHEMA)]))
    overlay.put("a.pdf", read := known_row(1, *in_journal))
    overlay.drop_outdated(lambda source: {"a.pdf": NOW}[source])
    assert overlay.find("a.pdf", 1) == (read if stays else known_row(1, *in_table, place=1) if in_table else None)
    assert [*overlay.sources()] == (["a.pdf"] if stays else [])


def test_a_page_does_not_count_as_worse_if_the_row_that_was_worse_no_longer_counts() -> None:
    rows = [PageResult("a.pdf", 0, "ok", "new", 1, file_bytes=2, file_mtime_ns=20)]
    overlay = Overlay(KnownRows([pa.Table.from_pylist([*map(to_row, rows)], schema=PAGE_SCHEMA)]))
    overlay.put("a.pdf", KnownRow(0, "failed", "old", 1, 1, -1, *BEFORE, "damaged"))
    assert [*overlay.worse_pages("a.pdf")] == [0]
    overlay.drop_outdated(lambda source: NOW)
    assert not overlay.worse_pages("a.pdf")
