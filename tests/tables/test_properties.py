"""What holds for arbitrary rows: they survive every format and a torn journal, and are known again."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchocr.data import MAX_PAGES, Block, ErrorKind, FinishReason, PageResult, Status, valid_text
from batchocr.tables.journal import Journal
from batchocr.tables.known import KnownRow, KnownRows, Overlay
from batchocr.tables.schema import storable
from batchocr.tables.table import table_for
from tests.support.documents import METADATA
from tests.support.tables import put_table

ODD_TEXTS = ["\ud800", "caf\udce9", "\x00", "\x1b[2J", "\r\n", "\u2028", "\u202e"]
"""Lone surrogates, control characters, line ends: drawn from all characters, they would come up too rarely."""
texts = st.lists(st.text() | st.sampled_from(ODD_TEXTS), max_size=3).map("".join)
sizes = st.integers(0, 2**63 - 1)
finite = st.floats(allow_nan=False, allow_infinity=False)
statuses = st.sampled_from(get_args(Status))
page_numbers = st.none() | st.integers(0, MAX_PAGES)
doc_ids = st.none() | st.sampled_from(["d1", "d2"])

blocks = st.builds(
    Block,
    type=texts,
    bbox=st.tuples(finite, finite, finite, finite),
    angle=st.sampled_from([None, 0, 90, 180, 270]),
    content=st.none() | texts,
    merge_prev=st.booleans(),
    confidence=st.none() | st.floats(),
    min_logprob=st.none() | st.floats(),
    tokens=st.none() | sizes,
    finish_reason=st.none() | st.sampled_from(get_args(FinishReason)),
)
results = st.builds(
    PageResult,
    source=texts,
    page_index=page_numbers,
    status=statuses,
    doc_id=doc_ids,
    page_count=page_numbers,
    width=st.none() | sizes,
    height=st.none() | sizes,
    dpi=st.none() | finite,
    error_kind=st.none() | st.sampled_from(get_args(ErrorKind)),
    error_message=st.none() | texts,
    markdown=st.none() | texts,
    blocks=st.lists(blocks, max_size=3).map(tuple),
    image_tokens=sizes,
    output_tokens=sizes,
    attempts=sizes,
    file_bytes=st.none() | sizes,
    file_mtime_ns=st.none() | sizes,
)


@contextmanager
def folder() -> Iterator[Path]:
    """An empty folder for one example."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def open_journal(out: Path) -> Journal:
    return Journal.open(out, METADATA, resume=True, overwrite=False)


def key(row: PageResult) -> tuple[str, int | None]:
    return valid_text(row.source), row.page_index


@pytest.mark.slow
@pytest.mark.parametrize("name", ["table.jsonl", "table.parquet"])
@given(rows=st.lists(results, max_size=4))
def test_a_table_gives_back_any_rows(name: str, rows: list[PageResult]) -> None:
    with folder() as place:
        put_table(place / name, rows, METADATA)
        assert list(table_for(place / name).read_rows(place / name)) == [storable(row) for row in rows]
        assert table_for(place / name).read_metadata(place / name) == METADATA


@given(row=results)
def test_what_is_storable_stays_as_it_is(row: PageResult) -> None:
    assert storable(storable(row)) == storable(row)


@pytest.mark.slow
@given(written=st.lists(results, max_size=4, unique_by=key))
def test_a_journal_gives_back_any_rows_and_what_is_known_of_their_files(written: list[PageResult]) -> None:
    with folder() as place:
        with open_journal(place / "out.parquet") as journal:
            for row in written:
                journal.append(row)
        with open_journal(place / "out.parquet") as journal:
            for row in written:
                assert journal.read(row.source, row.page_index) == storable(row)
                found = journal.known.find(row.source, row.page_index)
                assert found is not None
                assert found.version == (row.file_bytes, row.file_mtime_ns)


known_rows = st.builds(
    KnownRow,
    page_index=st.none() | st.integers(0, 5),
    status=statuses,
    doc_id=doc_ids,
    page_count=page_numbers,
    attempts=sizes,
    file_bytes=st.none() | st.integers(0, 3),
    file_mtime_ns=st.none() | st.integers(0, 3),
    place=st.integers(-(2**40), -1),
)


@given(puts=st.lists(st.tuples(st.sampled_from(["a.pdf", "b.pdf", ""]), known_rows), max_size=40))
def test_the_rows_that_count_are_those_of_a_plain_dictionary(puts: list[tuple[str, KnownRow]]) -> None:
    overlay = Overlay(KnownRows())
    expected: dict[tuple[str, int | None], KnownRow] = {}
    for source, row in puts:
        overlay.put(source, row)
        before = expected.get((source, row.page_index))
        was_read = before is not None and before.status in ("ok", "degraded") and before.doc_id == row.doc_id
        if not (was_read and row.status == "failed"):
            expected[source, row.page_index] = row
    assert set(overlay.sources()) == {source for source, _ in expected}
    for source in ("a.pdf", "b.pdf", "", "c.pdf"):
        rows = [row for (of, _), row in expected.items() if of == source]
        assert list(overlay.rows(source)) == sorted(rows, key=lambda row: (row.page_index is not None, row.page_index))
        for page_index in (None, *range(7)):
            assert overlay.find(source, page_index) == expected.get((source, page_index))
