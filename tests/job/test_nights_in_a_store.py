"""A run over a finished table in a store: what it fetches and puts is what is new."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import batchocr
from batchocr.data import PageResult
from batchocr.errors import OutputError, OutputMismatchError, StaleError
from batchocr.tables import parquet
from batchocr.tables.schema import RunMetadata
from tests.support import stand_in
from tests.support.object_store import ObjectStore, answering, denying, first
from tests.support.running import command, draw_pdf, texts
from tests.support.tables import put_table

pytestmark = pytest.mark.slow

PAGES = 300
TABLES = ["table.parquet", "table/"]
BOTH = pytest.mark.parametrize("name", TABLES)
FOLDER = pytest.mark.parametrize("name", [pytest.param(TABLES[0], marks=pytest.mark.long), TABLES[1]])
BUCKET = "nights"


@pytest.fixture(scope="module")
def usual(model: Path) -> dict[str, Any]:
    small = {"dpi": 72, "workers": 1, "max_new_tokens": 8, "rows_per_part": 700}
    return {"model": model, "max_degraded_rate": 1, **small}


@pytest.fixture(scope="module")
def metadata(tmp_path_factory: pytest.TempPathFactory, usual: dict[str, Any]) -> RunMetadata:
    """Of a run with these options."""
    folder = tmp_path_factory.mktemp("first")
    batchocr.run(draw_pdf(folder / "a.pdf", "a"), out=folder / "table.parquet", **usual)
    found = parquet.read_metadata(folder / "table.parquet")
    assert found is not None
    return found


@pytest.fixture
def archive(store: ObjectStore, metadata: RunMetadata, tmp_path: Path) -> Path:
    """Five documents of many pages, and a table of them in the store, as a file and as a folder of three parts."""
    (tmp_path / "in").mkdir()
    (tmp_path / "table").mkdir()
    rows = [*made_up(tmp_path / "in")]
    for out in (tmp_path / "table", tmp_path / "table.parquet"):
        put_table(out, rows, replace(metadata, input_roots=(str(tmp_path / "in"), os.getcwd())), rows_per_part=700)
    made = [tmp_path / "table.parquet", *(path for path in (tmp_path / "table").rglob("*") if path.is_file())]
    store.put(BUCKET, {str(file.relative_to(tmp_path)): file.read_bytes() for file in made})
    yield tmp_path
    for key in store.keys(BUCKET):
        store.delete(BUCKET, key)


def made_up(folder: Path) -> Iterator[PageResult]:
    """Rows of documents that are as large and as old as files in the folder, and have text that is hard to pack."""
    dice = random.Random(5)
    for name in "bdfhk":
        file = draw_pdf(folder / f"{name}.pdf", name).stat()
        of_file = {"doc_id": name * 64, "file_bytes": file.st_size, "file_mtime_ns": file.st_mtime_ns}
        for page in range(PAGES):
            text = dice.randbytes(1000).hex()
            yield PageResult(f"{name}.pdf", page, "ok", page_count=PAGES, markdown=text, **of_file)


def night(archive: Path, usual: dict[str, Any], name: str, **options: Any) -> batchocr.Report:
    return batchocr.run(archive / "in", out=f"s3://{BUCKET}/{name}", work_dir=archive / "work", **usual, **options)


def rows_of(name: str) -> list[PageResult]:
    return sorted(batchocr.open_table(f"s3://{BUCKET}/{name}").rows(), key=lambda row: (row.source, row.page_index))


def put(store: ObjectStore) -> set[str]:
    """The tables and records that were put, but for those under staged names."""
    names = {path.removeprefix(f"/{BUCKET}/") for path in store.put_bytes}
    return {name for name in names if not name.endswith(("report.json", "run.json", ".new"))}


def size_of(store: ObjectStore, name: str) -> int:
    return sum(len(store.get(BUCKET, key)) for key in store.keys(BUCKET) if key.startswith(name))


@BOTH
def test_with_nothing_new_little_of_the_table_is_fetched_and_none_is_put(
    store: ObjectStore, archive: Path, usual: dict[str, Any], name: str
) -> None:
    night(archive, usual, name)  # the first one over a copy of a folder says that its parts have their names
    store.forget()
    assert night(archive, usual, name).nothing_to_do
    assert not put(store)
    assert 0 < store.fetched.total() < size_of(store, name) / 5
    assert not [file for file in (archive / "work").rglob("*") if file.is_file()]


@BOTH
def test_a_new_document_is_put_with_the_file_or_the_part_that_it_is_in(
    store: ObjectStore, archive: Path, usual: dict[str, Any], name: str
) -> None:
    before = rows_of(name)
    draw_pdf(archive / "in" / "a.pdf", "a")
    store.forget()
    assert night(archive, usual, name).pages_read == 1
    last = max(key for key in store.keys(BUCKET) if key.startswith(name) and key.endswith(".parquet"))
    assert put(store) == {last, f"{name}.meta.json" if name == TABLES[0] else "table/.batchocr/table.json"}
    assert store.fetched.total() < size_of(store, name) * (1.3 if name == TABLES[0] else 0.5)
    after = rows_of(name)
    assert (after[0].source, after[1:]) == ("a.pdf", before)
    assert night(archive, usual, name).nothing_to_do


def test_in_a_folder_parts_are_replaced_under_their_names_and_one_that_does_not_change_is_left_alone(
    store: ObjectStore, archive: Path, usual: dict[str, Any]
) -> None:
    names = [key for key in store.keys(BUCKET) if "/part-" in key]
    draw_pdf(archive / "in" / "d.pdf", "changed")
    (archive / "in" / "k.pdf").unlink()
    store.forget()
    report = night(archive, usual, "table/", prune=True)
    assert (report.pages_read, report.rows_gone) == (1, PAGES)
    assert put(store) == {"table/.batchocr/table.json", names[0], names[2]}
    assert [key for key in store.keys(BUCKET) if "/part-" in key] == names
    assert [row.source for row in rows_of("table/")] == [
        f"{name}.pdf" for name in ["b"] * 300 + ["d"] + [*"fh"] * 0
    ] + ["f.pdf"] * 300 + ["h.pdf"] * 300


@FOLDER
def test_a_table_that_is_replaced_in_the_store_while_a_run_is_at_work_is_not_mixed_with_the_other(
    store: ObjectStore, archive: Path, usual: dict[str, Any], name: str
) -> None:
    """Progress is shown once the columns were fetched, and before rows are."""
    draw_pdf(archive / "in" / "a.pdf", "a")
    [key] = [key for key in store.keys(BUCKET) if key.startswith(name) and key.endswith(".parquet")][-1:]
    content = bytearray(store.get(BUCKET, key))
    content[1000] ^= 1
    with pytest.raises(OutputError, match="was damaged or changed since"):
        night(archive, usual, name, progress=lambda _: store.put(BUCKET, {key: bytes(content)}))
    store.put(BUCKET, {key: bytes(content[:1000] + bytes([content[1000] ^ 1]) + content[1001:])})
    assert night(archive, usual, name).items.already_done == 5 * PAGES + 1


@pytest.mark.long
def test_parts_that_were_not_put_are_put_by_the_same_command(
    store: ObjectStore, archive: Path, usual: dict[str, Any]
) -> None:
    names = [key for key in store.keys(BUCKET) if "/part-" in key]
    draw_pdf(archive / "in" / "a.pdf", "a")
    draw_pdf(archive / "in" / "d.pdf", "changed")
    refusing = first(99, answering("403 Forbidden", "AccessDenied"), method="PUT", ending=names[2])
    with store.failing(refusing), pytest.raises(OutputError, match=r"access is denied.*the same command puts it"):
        night(archive, usual, "table/")
    store.forget()
    assert night(archive, usual, "table/").nothing_to_do
    assert put(store) == {names[2]}
    sources = [row.source for row in rows_of("table/")]
    assert sources == ["a.pdf"] + ["b.pdf"] * 300 + ["d.pdf"] + [f"{name}.pdf" for name in "fhk" for _ in range(300)]


@FOLDER
@pytest.mark.parametrize(
    "moment",
    [
        pytest.param("before the table takes its place", marks=pytest.mark.long),
        pytest.param("after that", marks=pytest.mark.long),
        "while it is put",
    ],
)
def test_a_kill_costs_nothing(store: ObjectStore, archive: Path, usual: dict[str, Any], name: str, moment: str) -> None:
    draw_pdf(archive / "in" / "a.pdf", "a")
    draw_pdf(archive / "in" / "d.pdf", "changed")
    die = {
        "before the table takes its place": "import os, batchocr.tables.store_place as store\n"
        "store.StorePlace.put = lambda self, file, name: os.kill(os.getpid(), 9)",
        "after that": "import os, batchocr.tables.journal\n"
        "batchocr.tables.journal.Journal.remove = lambda self: os.kill(os.getpid(), 9)",
        "while it is put": "import os, batchocr.tables.store_place as store\n"
        "copy = store.StorePlace.copy\nstore.StorePlace.copy = lambda self, name, to: "
        "os.kill(os.getpid(), 9) if 'parquet' == to[-7:] else copy(self, name, to)",
    }[moment]
    flags = [f"--{option.replace('_', '-')}={value}" for option, value in usual.items()]
    out = f"s3://{BUCKET}/{name}"
    killed = command(archive / "in", "--out", out, "--work-dir", archive / "work", *flags, before=die)
    assert subprocess.run(killed, check=False, capture_output=True).returncode == -signal.SIGKILL
    assert night(archive, usual, name).items.already_done == 4 * PAGES + 2
    sources = [row.source for row in rows_of(name)]
    assert sources == ["a.pdf"] + ["b.pdf"] * 300 + ["d.pdf"] + [f"{name}.pdf" for name in "fhk" for _ in range(300)]
    assert not [file for file in (archive / "work").rglob("*") if file.is_file()]


@pytest.mark.long
def test_a_run_on_another_machine_continues_a_folder_that_was_put_in_part(
    store: ObjectStore, archive: Path, usual: dict[str, Any]
) -> None:
    names = [key for key in store.keys(BUCKET) if "/part-" in key]
    draw_pdf(archive / "in" / "b.pdf", "changed")
    draw_pdf(archive / "in" / "a.pdf", "a")
    refusing = first(99, answering("403 Forbidden", "AccessDenied"), method="PUT", ending=names[2])
    with store.failing(refusing), pytest.raises(OutputError):
        night(archive, usual, "table/")
    shutil.rmtree(archive / "work")
    assert night(archive, usual, "table/").nothing_to_do
    assert [row.source for row in rows_of("table/")][:3] == ["a.pdf", "b.pdf", "d.pdf"]


@pytest.mark.long
def test_overwrite_leaves_no_row_of_before_in_a_folder(
    store: ObjectStore, archive: Path, usual: dict[str, Any]
) -> None:
    for name in "bdfh":
        (archive / "in" / f"{name}.pdf").unlink()
    assert night(archive, usual, "table/", overwrite=True).pages_read == 1
    assert [row.source for row in rows_of("table/")] == ["k.pdf"]
    assert night(archive, usual, "table/").nothing_to_do


def test_a_folder_of_other_objects_is_refused_and_nothing_is_put(
    store: ObjectStore, archive: Path, usual: dict[str, Any]
) -> None:
    store.put(BUCKET, {"scans/a.pdf": b"a"})
    for overwrite in (False, True):
        with pytest.raises(OutputMismatchError, match=r"a\.pdf, which is not of a run into this folder"):
            night(archive, usual, "scans/", overwrite=overwrite)
    assert [key for key in store.keys(BUCKET) if key.startswith("scans/")] == ["scans/a.pdf"]


def test_a_folder_is_made_and_read_where_there_was_none(
    store: ObjectStore, archive: Path, usual: dict[str, Any]
) -> None:
    for name in "dfhk":
        (archive / "in" / f"{name}.pdf").unlink()
    assert night(archive, usual, "new/").pages_read == 1
    keys = [key.partition("/")[2] for key in store.keys(BUCKET) if key.startswith("new/")]
    assert [key for key in keys if not key.startswith(".batchocr/new/")] == [
        *(f".batchocr/{name}.json" for name in ("report", "run", "table")),
        keys[-1],
    ]
    assert keys[-1].startswith("part-000000-")
    assert night(archive, usual, "new/").nothing_to_do
    assert [row.source for row in rows_of("new/")] == ["b.pdf"]
    code, shown, _ = stand_in.command("verify", "--max-degraded-rate", "1", f"s3://{BUCKET}/new/", str(archive / "in"))
    assert (code, "1 row expected: nothing wrong" in shown) == (0, True)
    out = f"s3://{BUCKET}/merged/"
    assert stand_in.command("merge", f"s3://{BUCKET}/new/", "--out", out)[0] == 0
    assert stand_in.command("merge", f"s3://{BUCKET}/new/", "--out", out)[0] == 6
    assert stand_in.command("merge", f"s3://{BUCKET}/new/", "--out", out, "--overwrite")[0] == 0
    assert texts(rows_of("merged/")) == texts(rows_of("new/"))


def test_a_second_run_at_once_is_refused_and_does_not_disturb_the_first(
    store: ObjectStore, archive: Path, usual: dict[str, Any]
) -> None:
    refused = []

    def start_another(_: batchocr.RunProgress) -> None:
        if not refused:
            with pytest.raises(OutputError, match="another run is writing") as error:
                night(archive, usual, "table.parquet")
            refused.append(error)
            assert store.get(BUCKET, "table.parquet.run.json")  # which says that the first is at work

    draw_pdf(archive / "in" / "a.pdf", "a")
    assert night(archive, usual, "table.parquet", progress=start_another).pages_read == 1
    assert refused and len(rows_of("table.parquet")) == 5 * PAGES + 1


def test_who_may_only_get_and_put_can_write_a_folder(
    store: ObjectStore, archive: Path, usual: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    for name in "dfhk":
        (archive / "in" / f"{name}.pdf").unlink()
    with store.failing(denying("copy", "delete", "list")):
        assert night(archive, usual, "narrow/").pages_read == 1
        draw_pdf(archive / "in" / "c.pdf", "c")
        assert night(archive, usual, "narrow/").pages_read == 1
        assert night(archive, usual, "narrow/").nothing_to_do
        assert [row.source for row in rows_of("narrow/")] == ["b.pdf", "c.pdf"]
        store.put(BUCKET, {"older/table.json": store.get(BUCKET, "narrow/.batchocr/table.json")})
        with pytest.raises(OutputError, match="may list"):  # else its parts would stay beside the new ones
            night(archive, usual, "older/")


@BOTH
def test_what_is_damaged_can_be_overwritten(
    store: ObjectStore, archive: Path, usual: dict[str, Any], name: str
) -> None:
    for document in "dfhk":
        (archive / "in" / f"{document}.pdf").unlink()
    assert night(archive, usual, f"new/{name}").pages_read == 1
    [record] = [
        key for key in store.keys(BUCKET) if key.startswith("new/") and key.endswith(("table.json", "meta.json"))
    ]
    for damage in (lambda: store.put(BUCKET, {record: store.get(BUCKET, record).replace(b"dpi", b"ipd")}), lose(store)):
        damage()
        with pytest.raises(OutputError, match="--overwrite"):
            night(archive, usual, f"new/{name}")
        assert night(archive, usual, f"new/{name}", overwrite=True).pages_read == 1
        assert [row.source for row in rows_of(f"new/{name}")] == ["b.pdf"]
        assert len([key for key in store.keys(BUCKET) if key.startswith("new/") and key.endswith(".parquet")]) == 1


def lose(store: ObjectStore) -> Callable[[], None]:
    """What deletes the parts of the new table."""

    def delete() -> None:
        for key in store.keys(BUCKET):
            if key.startswith("new/") and key.endswith((".parquet", ".new")):
                store.delete(BUCKET, key)

    return delete


def test_a_damaged_journal_can_be_overwritten(store: ObjectStore, archive: Path, usual: dict[str, Any]) -> None:
    for name in "dfhk":
        (archive / "in" / f"{name}.pdf").unlink()
    refusing = first(99, answering("403 Forbidden", "AccessDenied"), method="PUT", ending=".meta.json")
    with store.failing(refusing), pytest.raises(OutputError):
        night(archive, usual, "new.parquet")
    [journal] = (archive / "work").rglob("*.journal")
    journal.write_bytes(journal.read_bytes().replace(b"dpi", b"ipd", 1))
    with pytest.raises(OutputError, match="start over with --overwrite"):
        night(archive, usual, "new.parquet")
    assert night(archive, usual, "new.parquet", overwrite=True).pages_read == 1


@BOTH
def test_a_run_whose_table_is_replaced_before_it_copies_rows_of_it_goes_on_from_the_newer_one(
    store: ObjectStore, archive: Path, usual: dict[str, Any], name: str
) -> None:
    whole = batchocr.open_table(archive / "table.parquet")
    put_table(archive / "newer.parquet", [row for row in whole.rows() if row.source != "k.pdf"], whole.metadata)
    codes = []

    def replace_it(_: batchocr.RunProgress) -> None:
        if not codes:
            replacing = ("merge", str(archive / "newer.parquet"), "--out", f"s3://{BUCKET}/{name}", "--overwrite")
            codes.append(stand_in.command(*replacing)[0])

    draw_pdf(archive / "in" / "a.pdf", "a")
    (archive / "in" / "k.pdf").unlink()
    with pytest.raises(StaleError, match="goes on from the newer table"):
        night(archive, usual, name, progress=replace_it)
    assert codes == [0]
    assert night(archive, usual, name).nothing_to_do
    assert {row.source for row in rows_of(name)} == {"a.pdf", "b.pdf", "d.pdf", "f.pdf", "h.pdf"}
