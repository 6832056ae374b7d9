"""The tables: what Parquet and JSON Lines give back, to batchocr and to the readers people use."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import fields, replace
from itertools import count
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchocr.data import Block, PageResult, Reading
from batchocr.documents.audit.audit_table import read_settings
from batchocr.errors import OutputError, UsageError
from batchocr.storage.members import WholeContainer
from batchocr.tables import parquet
from batchocr.tables.atomic import remove_leftovers
from batchocr.tables.files import files_of, record_path, temporary_path
from batchocr.tables.opened import open_rows
from batchocr.tables.page_list import read_page_list
from batchocr.tables.schema import PAGE_SCHEMA, RunMetadata, decode_metadata, encode_metadata, largest
from batchocr.tables.table import TableFormat, table_for
from tests.support.tables import put_table

METADATA = RunMetadata("0.1.0", "acme/reader", "f" * 64, "a" * 64, {"dpi": "200", "note": 'größer "than"\n'})
BLOCKS = (
    Block("title", (0.1, 0.05, 0.9, 0.1), 0, "A title", False, 0.98, -0.7, 4, "stop"),
    Block("image", (0.1, 0.2, 0.9, 0.5), None, None),
    Block("text", (0.1, 0.5, 0.9, 0.9), 90, "loops loops", True, 0.5, -3.0, 8192, "repetition"),
)
PAGES = (
    PageResult("a.pdf", 0, "ok", "d1", 2, 1700, 2200, 200.0, markdown="# A title", blocks=BLOCKS[:2], output_tokens=4),
    PageResult("a.pdf", 1, "degraded", "d1", 2, 1700, 2200, 200.0, markdown="loops", blocks=BLOCKS[2:], attempts=2),
    PageResult("b.pdf", None, "failed", "d2", error_kind="encrypted", error_message="asks for a password"),
    PageResult("c.pdf", None, "skipped", "d3", 0),
)


@pytest.fixture(params=["results.parquet", "results.jsonl"])
def out(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / str(request.param)


@pytest.fixture
def table(out: Path) -> TableFormat:
    return table_for(out)


def test_columns_are_what_they_were_in_every_table_of_this_version() -> None:
    block = pa.struct(
        [
            pa.field("type", pa.string(), nullable=False),
            pa.field("bbox", pa.list_(pa.float64()), nullable=False),
            pa.field("angle", pa.int64()),
            pa.field("content", pa.string()),
            pa.field("merge_prev", pa.bool_(), nullable=False),
            pa.field("confidence", pa.float64()),
            pa.field("min_logprob", pa.float64()),
            pa.field("tokens", pa.int64()),
            pa.field("finish_reason", pa.string()),
            pa.field("text_source", pa.string()),
            pa.field("sub_type", pa.string()),
            pa.field("description", pa.string()),
        ]
    )
    written_out = pa.schema(
        [
            pa.field("source", pa.string(), nullable=False),
            pa.field("page_index", pa.int64()),
            pa.field("status", pa.string(), nullable=False),
            pa.field("doc_id", pa.string()),
            pa.field("page_count", pa.int64()),
            pa.field("width", pa.int64()),
            pa.field("height", pa.int64()),
            pa.field("dpi", pa.float64()),
            pa.field("error_kind", pa.string()),
            pa.field("error_message", pa.string()),
            pa.field("markdown", pa.string()),
            pa.field("blocks", pa.list_(pa.field("item", block, nullable=False)), nullable=False),
            pa.field("image_tokens", pa.int64(), nullable=False),
            pa.field("output_tokens", pa.int64(), nullable=False),
            pa.field("ink_outside", pa.float64()),
            pa.field("text_layer_agreement", pa.float64()),
            pa.field("orientation", pa.int64()),
            pa.field("rescued_blocks", pa.int64()),
            pa.field("ink_in_figures", pa.float64()),
            pa.field("writing_in_figures", pa.float64()),
            pa.field("layout_confidence", pa.float64()),
            pa.field("layout_min_logprob", pa.float64()),
            pa.field("attempts", pa.int64(), nullable=False),
            pa.field("file_bytes", pa.int64()),
            pa.field("file_mtime_ns", pa.int64()),
        ]
    )
    assert PAGE_SCHEMA.equals(written_out, check_metadata=True)


def test_a_row_has_all_that_a_reading_says_of_its_page() -> None:
    reading = Reading(
        "# A title", BLOCKS, 30, 4, "block 1 looped", 0.1, 0.2, 0.3, -0.4, width=1700, height=2200, dpi=200.0
    )
    row = PageResult.of("a.pdf", 1, reading)
    assert (row.source, row.page_index, row.status, row.error_message) == ("a.pdf", 1, "degraded", "block 1 looped")
    assert {field.name: getattr(row, field.name) for field in fields(reading)} == {
        field.name: getattr(reading, field.name) for field in fields(reading)
    }
    assert PageResult.of("a.pdf", 1, replace(reading, error_message=None)).status == "ok"


def test_rows_and_metadata_come_back_as_they_were_written(out: Path, table: TableFormat) -> None:
    put_table(out, PAGES, METADATA)
    assert (list(table.read_rows(out)), table.read_metadata(out)) == (list(PAGES), METADATA)


def test_text_that_utf8_cannot_hold_is_spelt_out_and_nul_stays(out: Path, table: TableFormat) -> None:
    odd = "a\udce9\x00b"
    row = replace(PAGES[0], source=odd, markdown=odd, error_message=odd, blocks=(replace(BLOCKS[0], content=odd),))
    put_table(out, [row], METADATA)
    [back] = table.read_rows(out)
    stored = "a\\udce9\x00b"
    assert (back.source, back.markdown, back.error_message, back.blocks[0].content) == (stored,) * 4


def test_a_write_that_fails_leaves_the_old_table_and_nothing_else(out: Path, table: TableFormat) -> None:
    def broken_rows() -> Iterator[PageResult]:
        yield PAGES[0]
        raise OutputError("the journal cannot be read")

    put_table(out, PAGES, METADATA)
    before = {path.name: path.read_bytes() for path in out.parent.iterdir()}
    with pytest.raises(OutputError, match="the journal cannot be read"):
        put_table(out, broken_rows(), METADATA)
    assert {path.name: path.read_bytes() for path in out.parent.iterdir()} == before


def test_what_lies_under_a_name_that_could_be_guessed_is_not_written_to(out: Path, table: TableFormat) -> None:
    bystander = out.with_name("bystander")
    bystander.write_bytes(b"not ours")
    for file in (out, record_path(out)):
        os.mkfifo(f"{file}.tmp")
        file.symlink_to(bystander)
    put_table(out, PAGES, METADATA)
    assert list(table.read_rows(out)) == list(PAGES)
    assert bystander.read_bytes() == b"not ours"


def test_a_table_is_as_readable_as_any_file_that_the_user_makes(out: Path, table: TableFormat) -> None:
    put_table(out, PAGES, METADATA)
    out.with_name("other").touch()
    assert out.stat().st_mode == out.with_name("other").stat().st_mode


def test_a_table_that_others_may_not_read_stays_so_when_it_is_replaced(out: Path, table: TableFormat) -> None:
    put_table(out, PAGES, METADATA)
    out.chmod(0o600)
    put_table(out, PAGES, METADATA)
    assert out.stat().st_mode & 0o777 == 0o600


def test_what_killed_runs_left_is_recognised_and_removed(out: Path) -> None:
    files = files_of(out, out.with_name("reports") / "report.json")
    out.with_name("reports").mkdir()
    kept = [out.with_name(name) for name in (f"{out.name}.tmp", "other.0123456789abcdef.tmp", "photo.tmp")]
    for path in (*kept, *map(temporary_path, files)):
        path.touch()
    remove_leftovers(files)
    assert sorted(path for path in out.parent.rglob("*") if path.is_file()) == sorted(kept)


def test_a_table_that_is_a_pipe_is_an_error_and_not_waited_for(out: Path, table: TableFormat) -> None:
    os.mkfifo(out)
    os.mkfifo(record_path(out))
    with pytest.raises(OutputError, match="it is not an ordinary file"):
        list(table.read_rows(out))
    with suppress(OutputError):
        assert table.read_metadata(out) is None


def test_an_audit_or_a_list_of_pages_that_is_a_pipe_is_an_error_and_not_waited_for(out: Path) -> None:
    os.mkfifo(out)
    for read in (read_page_list, read_settings):
        with pytest.raises(OutputError, match="it is not an ordinary file"):
            read(out)


def test_a_row_group_says_the_least_and_the_largest_source_and_page_and_of_no_text(tmp_path: Path) -> None:
    parquet.write(path := tmp_path / "table.parquet", PAGES, METADATA)
    group = pq.read_metadata(path).row_group(0)
    columns = (group.column(number) for number in range(group.num_columns))
    said = {column.path_in_schema for column in columns if column.statistics and column.statistics.has_min_max}
    assert {"source", "page_index", "status"} <= said <= {"source", "page_index", "status", "doc_id", "error_kind"}


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("results.parquet", "read the documents again with `batchocr run --overwrite`"),
        ("part-000000-0123456789abcdef.parquet", "run the same command again"),
    ],
)
def test_what_to_do_about_damage_fits_what_wrote_the_table(tmp_path: Path, name: str, remedy: str) -> None:
    parquet.write(path := tmp_path / name, PAGES, METADATA)
    content = path.read_bytes()
    for damaged in (content[:30] + bytes([content[30] ^ 1]) + content[31:], content[:-9]):
        path.write_bytes(damaged)
        with pytest.raises(OutputError, match=remedy):
            list(open_rows(path, ours=True).rows())


def test_a_table_of_a_pinned_model_says_its_commit(out: Path, table: TableFormat) -> None:
    put_table(out, PAGES, replace(METADATA, model_revision="c" * 40))
    assert table.read_metadata(out) == replace(METADATA, model_revision="c" * 40)


def test_a_file_of_someone_else_has_no_metadata(out: Path, table: TableFormat) -> None:
    out.write_bytes(b"PAR1 or not")
    assert table.read_metadata(out) is None
    duckdb.sql(f"copy (select 1 as x) to '{out}' (format {'parquet' if table is parquet else 'json'})")
    assert table.read_metadata(out) is None


@pytest.mark.parametrize("settings", ["[" * 100_000, "9" * 5000, "{"])
def test_metadata_that_cannot_be_read_are_none(settings: str) -> None:
    assert decode_metadata({**encode_metadata(METADATA), b"batchocr.settings": settings.encode()}) is None


def test_a_table_that_somebody_edited_is_refused_though_every_row_is_one(out: Path, table: TableFormat) -> None:
    put_table(out, PAGES, METADATA)
    if out.suffix == ".jsonl":
        out.write_text(out.read_text().replace("# A title", "# A tiger"))
    else:
        edited = pq.read_table(out)
        pq.write_table(edited.set_column(0, edited.schema.field(0), [["x.pdf"] * len(PAGES)]), out)
    with pytest.raises(OutputError, match=r"changed|was not written by this version"):
        list(table.read_rows(out))


def test_the_pages_of_a_parquet_table_have_checksums_that_its_readers_compare(tmp_path: Path) -> None:
    out = tmp_path / "results.parquet"
    parquet.write(out, [replace(page, markdown="plain") for page in PAGES], METADATA)
    whole = out.read_bytes()
    out.write_bytes(whole.replace(b"a.pdf", b"b.pdf", 1))
    with pytest.raises(OSError, match="CRC checksum verification failed"):
        pq.read_table(out, page_checksum_verification=True)


def test_a_jsonl_table_has_the_digest_that_its_metadata_say(tmp_path: Path) -> None:
    out = tmp_path / "results.jsonl"
    put_table(out, PAGES, METADATA)
    [part] = json.loads(record_path(out).read_bytes())["record"]["parts"].values()
    assert part["sha256"] == hashlib.sha256(out.read_bytes()).hexdigest()


class Killed(BaseException):
    """What stands for SIGKILL."""


class Killer:
    """Ends everything at the system call of this number, among those that make a file last or give it its name."""

    def __init__(self, moment: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.remaining = moment
        for name in ("replace", "unlink", "fsync"):
            monkeypatch.setattr(os, name, self._ending(getattr(os, name)))

    def _ending(self, call: Callable[..., None]) -> Callable[..., None]:
        def ending(*arguments: object, **options: object) -> None:
            self.remaining -= 1
            if self.remaining == 0:
                raise Killed
            call(*arguments, **options)

        return ending


def test_a_kill_while_a_table_is_replaced_never_leaves_it_beside_the_metadata_of_the_other(
    out: Path, table: TableFormat
) -> None:
    former, later = (METADATA, list(PAGES)), (replace(METADATA, model="acme/other"), list(PAGES[:1]))
    seen = []
    for moment in count(1):
        put_table(out, former[1], former[0])
        with pytest.MonkeyPatch.context() as patched, suppress(Killed):
            killer = Killer(moment, patched)
            put_table(out, later[1], later[0])
        metadata = table.read_metadata(out)
        try:
            rows = list(table.read_rows(out))
        except OutputError as error:
            assert metadata is None
            assert "one of them was damaged, changed or replaced since" in str(error)
        else:
            assert (metadata, rows) in (former, later)
        seen.append(metadata)
        if killer.remaining > 0:
            break
    assert (seen[0], seen[-1]) == (former[0], later[0])


def test_other_suffixes_are_a_usage_error_that_names_the_two() -> None:
    with pytest.raises(UsageError, match=r"\.parquet or \.jsonl"):
        table_for(Path("results.csv"))


def test_a_row_group_ends_with_a_document_unless_that_has_thousands_of_pages(tmp_path: Path) -> None:
    out = tmp_path / "results.parquet"
    lengths = [1000, 40, 1020, 8, 4800, 12]
    rows = [replace(PAGES[0], source=f"{length}.pdf", page_index=page) for length in lengths for page in range(length)]
    parquet.write(out, rows, METADATA)
    assert pq.read_schema(out).equals(PAGE_SCHEMA)
    metadata = pq.ParquetFile(out).metadata
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [1040, 1028, 2048, 2048, 716]
    assert list(parquet.read_rows(out)) == rows


def test_of_more_archives_than_metadata_has_room_for_those_with_the_most_documents_are_noted() -> None:
    archives = {f"{number:04}.zip": WholeContainer(1, 1, None, None, number) for number in range(9999)}
    noted = largest(archives)
    assert 1000 < len(noted) < len(archives)
    assert sorted(noted) == sorted(archives)[-len(noted) :]


def test_duckdb_unnests_blocks(out: Path, table: TableFormat) -> None:
    put_table(out, PAGES, METADATA)
    unnested = duckdb.sql(f"select b.type, b.bbox[2], b.confidence from (select unnest(blocks) as b from '{out}')")
    assert unnested.fetchall() == [("title", 0.05, 0.98), ("image", 0.2, None), ("text", 0.5, 0.5)]


def test_every_line_of_jsonl_is_a_page_and_its_text_stays_readable(tmp_path: Path) -> None:
    out = tmp_path / "results.jsonl"
    put_table(out, [replace(PAGES[0], markdown="größer\n漢字\u2028")], METADATA)
    [line] = out.read_text(encoding="utf-8").split("\n")[:-1]
    assert list(json.loads(line)) == PAGE_SCHEMA.names
    assert "größer\\n漢字" in line
