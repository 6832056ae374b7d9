"""The parts of a run on a cluster, in a folder and in a store: what they are of, whose they are, and what they hold."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import batchocr.ray.reader
from batchocr.config import Config
from batchocr.data import Failure
from batchocr.documents.assembly.assemble import open_table
from batchocr.errors import NoInputError, OutputError, OutputMismatchError, UsageError
from batchocr.job.stop import StopSwitch
from batchocr.machine import own_version
from batchocr.pages.input.sources import find_documents
from batchocr.ray.cluster import connected
from batchocr.ray.driver import Driver
from batchocr.ray.folder import OutputFolder
from batchocr.ray.items import ClusterPlan, Item, plan_items
from batchocr.ray.reader import Reader
from batchocr.tables import parquet
from batchocr.tables.schema import RunMetadata
from tests.support.object_store import ObjectStore, answering, first
from tests.support.running import draw_pdf

pytestmark = pytest.mark.slow

METADATA = RunMetadata(own_version(), "none", "0", "0", {"dtype": "float32"})


def plan_of(items: Sequence[Item]) -> ClusterPlan:
    return ClusterPlan("", METADATA, None, tuple(items))


@pytest.fixture
def store(store: ObjectStore) -> ObjectStore:
    """A store with a bucket for parts."""
    store.put("parts", {"beside": b""})
    return store


@pytest.fixture(params=["folder", "store"])
def out(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place for parts, that of the test alone."""
    if request.param == "folder":
        return str(tmp_path / "out")
    request.getfixturevalue("store")
    return f"s3://parts/{tmp_path.name}/out"


@pytest.fixture
def items(tmp_path: Path) -> list[Item]:
    """A book of four pages in two items."""
    (tmp_path / "in").mkdir()
    draw_pdf(tmp_path / "in" / "book.pdf", "one", "two", "three", "four")
    return plan_items(find_documents([str(tmp_path / "in")]), Config(), None, 2)


def put(folder: OutputFolder, item: Item, tmp_path: Path) -> None:
    """Put a part in which all rows of the item failed."""
    part = tmp_path / item.name
    parquet.write(part, item.failed_rows(Failure("crashed", "it went"), attempts=1), METADATA)
    folder.files.put(part, item.name)


def test_the_next_run_finds_the_plan_and_the_parts(out: str, items: list[Item], tmp_path: Path) -> None:
    begun = OutputFolder(out)
    assert begun.plan() is None
    begun.try_to_put()
    begun.begin(plan_of(items))
    put(begun, items[0], tmp_path)
    names = [item.name for item in items]
    later = OutputFolder(out)
    plan = later.plan()
    assert plan is not None
    assert (plan.metadata, [item.name for item in plan.items]) == (METADATA, names)
    rows = later.rows_of(items, METADATA)
    assert {name: (dict(held.by_status), dict(held.errors)) for name, held in rows.items()} == {
        names[0]: ({"failed": 2}, {"crashed": 2})
    }
    later.begin(plan_of(items[1:]))
    assert not later.rows_of(items, METADATA)
    put(later, items[1], tmp_path)
    later.begin(plan_of(items), afresh=True)
    assert not later.rows_of(items, METADATA)


def test_what_a_killed_actor_has_left_of_a_part_goes(items: list[Item], tmp_path: Path) -> None:
    folder = OutputFolder(str(tmp_path / "out"))
    put(folder, items[0], tmp_path)
    left = tmp_path / "out" / f"{items[0].name}.0123456789abcdef.tmp"
    left.touch()
    folder.begin(plan_of(items))
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [items[0].name, "run.json"]


def test_a_run_ends_when_another_one_begins_in_its_folder(out: str, items: list[Item], tmp_path: Path) -> None:
    first_run, second_run = OutputFolder(out), OutputFolder(out)
    first_run.begin(plan_of(items))
    second_run.try_to_put()
    first_run.require_own()
    OutputFolder(out).try_to_put(afresh=True)
    with pytest.raises(OutputError, match="another run has begun"):
        first_run.require_own()
    second_run.begin(plan_of(items[1:]))
    with pytest.raises(OutputError, match="another run has begun"):
        first_run.require_own()
    second_run.require_own()
    put(first_run, items[0], tmp_path)
    put(second_run, items[1], tmp_path)
    with pytest.raises(OutputError, match="another run has begun"):
        first_run.end(items)
    second_run.end(items[1:])
    assert set(second_run.rows_of(items, METADATA)) == {items[1].name}


def test_a_damaged_part_is_read_again_and_one_of_other_settings_is_refused(
    out: str, items: list[Item], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, names = OutputFolder(out), [item.name for item in items]
    folder.begin(plan_of(items))
    for item in items:
        put(folder, item, tmp_path)
    with pytest.raises(OutputMismatchError, match="other settings"):
        folder.rows_of(items, RunMetadata(own_version(), "none", "0", "1", {}))
    torn = tmp_path / "torn"
    torn.write_bytes((tmp_path / names[0]).read_bytes()[:-9])
    folder.files.put(torn, names[0])
    assert set(folder.rows_of(items, METADATA)) == {names[1]}
    assert f"{names[0]} in {folder} is damaged" in caplog.text


def test_a_flipped_bit_changes_nothing_that_a_part_is_said_to_hold_and_is_found_by_verify(
    items: list[Item], tmp_path: Path
) -> None:
    folder, name = OutputFolder(str(tmp_path / "out")), items[0].name
    put(folder, items[0], tmp_path)
    [sound], data = folder.rows_of(items[:1], METADATA).values(), (tmp_path / name).read_bytes()
    num_noticed = 0
    for position in range(4, len(data), 97):
        (tmp_path / "out" / name).write_bytes(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
        with suppress(OutputMismatchError):
            num_noticed += (found := folder.rows_of(items[:1], METADATA)) == {}
            assert found in ({}, {name: sound}), position
        with pytest.raises(OutputError, match=r"run the same command again|was not written by this version"):
            list(parquet.read_rows(tmp_path / "out" / name))
    assert num_noticed


def test_a_part_that_lies_under_the_name_of_another_is_read_again(out: str, items: list[Item], tmp_path: Path) -> None:
    folder = OutputFolder(out)
    for item, other in (items, items[::-1]):
        put(folder, item, tmp_path)
        folder.files.put(tmp_path / item.name, other.name)
        assert set(folder.rows_of(items, METADATA)) == {item.name}


def test_a_part_that_is_a_pipe_is_an_error_and_not_waited_for(items: list[Item], tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    os.mkfifo(tmp_path / "out" / items[0].name)
    with pytest.raises(OutputError, match="it is not an ordinary file"):
        OutputFolder(str(tmp_path / "out")).rows_of(items, METADATA)


def test_a_part_that_cannot_be_fetched_is_not_taken_for_damaged(
    store: ObjectStore, items: list[Item], tmp_path: Path
) -> None:
    folder = OutputFolder("s3://parts/away")
    put(folder, items[0], tmp_path)
    denied = first(-1, answering("403 Forbidden", "AccessDenied"), ending=items[0].name)
    with store.failing(denied), pytest.raises(OutputError, match="access is denied"):
        folder.rows_of(items[:1], METADATA)


def test_a_run_that_starts_over_keeps_what_is_there_until_it_can_read(
    out: str, items: list[Item], tmp_path: Path, model: Path
) -> None:
    pytest.importorskip("ray")
    folder = OutputFolder(out)
    folder.begin(plan_of(items))
    put(folder, items[0], tmp_path)
    with pytest.raises(NoInputError, match="--pages 99"):
        batchocr.ray.run([tmp_path / "in"], out=out, overwrite=True, pages="99", model=model)
    plan = folder.plan()
    assert plan is not None
    assert plan.metadata == METADATA
    assert set(folder.rows_of(items, METADATA)) == {items[0].name}


def test_parts_that_no_cluster_has_put_are_never_removed(items: list[Item], tmp_path: Path, model: Path) -> None:
    pytest.importorskip("ray")
    part = tmp_path / "out" / "part-00000-of-another-tool.snappy.parquet"
    part.parent.mkdir()
    part.write_bytes(b"PAR1")
    with pytest.raises(OutputMismatchError, match="not of a run on a cluster"):
        batchocr.ray.run([tmp_path / "in"], out=tmp_path / "out", overwrite=True, model=model)
    assert part.exists()


def test_a_table_of_a_shard_among_the_parts_stays(items: list[Item], tmp_path: Path) -> None:
    folder, shard = OutputFolder(str(tmp_path / "out")), tmp_path / "out" / "part-1.parquet"
    folder.begin(plan_of(items))
    shard.write_bytes(b"PAR1")
    folder.begin(plan_of(items[1:]), afresh=True)
    assert shard.exists()


def test_sigterm_while_ray_starts_is_left_to_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray")

    def end(**_: object) -> None:
        raise SystemExit(signal.SIGTERM)

    monkeypatch.setattr(ray, "init", end)
    came: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: came.append(number))
    try:
        with pytest.raises(SystemExit), connected(None):
            pass
    finally:
        signal.signal(signal.SIGTERM, before)
    assert came == [signal.SIGTERM]


@pytest.mark.parametrize("place", ["s3://parts/out", "out", "/out"])
def test_what_a_run_has_put_is_told_from_documents(place: str) -> None:
    folder = OutputFolder(f"{place}/")
    assert folder.is_own(f"{place}/part-000000-0123456789abcdef.parquet")
    assert folder.is_own(f"{place}/run.json")
    for document in ("a.pdf", "in/run.json"):
        assert not folder.is_own(f"{place}/{document}")
    assert not folder.is_own(f"{place}-2/run.json")


def test_a_store_that_is_away_does_not_end_a_run(
    store: ObjectStore, items: list[Item], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = OutputFolder("s3://parts/apart")
    folder.begin(plan_of(items))
    away = answering("403 Forbidden", "AccessDenied")
    with store.failing(first(-1, away)):
        folder.require_own()
    monkeypatch.setattr(batchocr.ray.reader, "_PUT_AGAIN_S", (0.0, 0.0))
    reader = Reader(Config(workers=1), folder, (), cpus=1, per_node=1, begun_in=None)
    put(folder, items[0], tmp_path)
    with store.failing(first(2, away, method="POST")):
        reader._put(tmp_path / items[0].name, items[1].name)
    with store.failing(first(3, away, method="POST")), pytest.raises(OutputError, match="access is denied"):
        reader._put(tmp_path / items[0].name, items[1].name)


def test_what_cannot_be_put_is_known_before_the_work(store: ObjectStore) -> None:
    with pytest.raises(OutputError, match="no bucket nowhere"):
        OutputFolder("s3://nowhere/out").try_to_put()
    denied = first(-1, answering("403 Forbidden", "AccessDenied"), method="POST")
    with store.failing(denied), pytest.raises(OutputError, match="access is denied"):
        OutputFolder("s3://parts/denied").try_to_put()


def test_an_empty_name_is_no_folder() -> None:
    with pytest.raises(UsageError, match="--out is empty"):
        OutputFolder("")


def test_a_machine_that_does_not_see_the_folder_says_so(out: str) -> None:
    folder = OutputFolder(out)
    with pytest.raises(OutputError, match=r"run\.json is not in"):
        folder.require_seen()
    folder.try_to_put()
    folder.require_seen()


@pytest.mark.slow
def test_a_divided_document_that_is_gone_has_each_row_once_and_is_read_when_it_is_back(
    out: str, items: list[Item], tmp_path: Path, model: Path
) -> None:
    folder = OutputFolder(out)
    folder.try_to_put()
    config = Config(model=str(model), workers=1, dpi=72, max_new_tokens=8, dtype="float32")
    reader = Reader(config, folder, (str(tmp_path / "in"),), cpus=1, per_node=1, begun_in=None)
    try:
        reader.load()
        shutil.move(tmp_path / "in" / "book.pdf", tmp_path / "book.pdf")
        gone = [reader.read(item, again=False) for item in items]
        rows = list(open_table(out).rows())
        shutil.move(tmp_path / "book.pdf", tmp_path / "in" / "book.pdf")
        back = [reader.read(item, again=True) for item in items]
    finally:
        assert reader._session is not None
        reader._session.close()
    assert [(row.page_index, row.error_kind, row.page_count) for row in rows] == [
        (page_index, "not_found", 4) for page_index in range(4)
    ]
    assert [dict(read.rows.by_status) for read in gone] == [{"failed": 2}] * 2
    assert [row.status in ("ok", "degraded") for row in open_table(out).rows()] == [True] * 4
    assert [read.rows.by_status["failed"] for read in back] == [0, 0]
    asked = [part.metadata.selection for part in open_table(out).parts]
    assert asked == [{}, {}], "of all pages, of which each part has some: with one part lost, not all is there"


@pytest.mark.parametrize("num_read", [0, 1])
def test_a_run_whose_time_is_over_before_its_first_item_is_finished_says_so_and_is_not_to_be_repeated(
    items: list[Item], tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch, num_read: int
) -> None:
    pytest.importorskip("ray")

    def run_out_of_time(driver: Driver, address: str | None, stop: StopSwitch, progress: object) -> None:
        driver.first_ready_s = time.perf_counter()
        driver.tally.parts_read = num_read
        stop.request("stop_after")

    monkeypatch.setattr(Driver, "run", run_out_of_time)
    if num_read:
        assert batchocr.ray.run([tmp_path / "in"], out=tmp_path / "out", model=model, pages_per_task=2).exit_code == 75
        return
    with pytest.raises(UsageError, match=r"starting up took 0 s, and reading 0; give the run more time"):
        batchocr.ray.run([tmp_path / "in"], out=tmp_path / "out", model=model, pages_per_task=2)


def test_a_report_that_is_of_somebody_else_is_left_as_it_is(items: list[Item], tmp_path: Path, model: Path) -> None:
    pytest.importorskip("ray")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "report.json").write_text('{"mine": 1}')
    with pytest.raises(OutputError, match=r"report\.json is no report"):
        batchocr.ray.run([tmp_path / "in"], out=tmp_path / "out", model=model)
    assert (tmp_path / "out" / "report.json").read_text() == '{"mine": 1}'


def test_a_parquet_file_of_another_program_under_the_name_of_a_part_is_read_again(
    items: list[Item], tmp_path: Path
) -> None:
    folder = OutputFolder(str(tmp_path / "out"))
    put(folder, items[0], tmp_path)
    path = tmp_path / "out" / items[0].name
    pq.write_table(pq.read_table(path).replace_schema_metadata({}), path)
    assert folder.rows_of(items, METADATA) == {}
