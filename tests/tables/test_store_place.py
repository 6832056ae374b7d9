"""The place of a table in a store: what is replaced, what the store or the credentials do not allow, who writes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import batchocr
from batchocr.data import PageResult
from batchocr.errors import ExitCode, OutputError, StaleError, StoreRefusesError, StoreUnavailableError
from batchocr.storage import conditional
from batchocr.tables.remote_output import fetch_tables, output_at
from batchocr.tables.store_place import StorePlace
from tests.support.documents import METADATA, text_row, write_table
from tests.support.object_store import (
    SECRET,
    Environ,
    Fault,
    ObjectStore,
    answering,
    denying,
    first,
    ignoring_conditions,
    losing_answers,
)
from tests.support.running import said_by

BUCKET, RUN = "places", ".batchocr/run.json"


@pytest.fixture
def place(store: ObjectStore) -> StorePlace:
    store.put(BUCKET, {})
    for key in store.keys(BUCKET):
        store.delete(BUCKET, key)
    return StorePlace("s3://places/out/")


@pytest.fixture
def by_pyarrow(place: StorePlace, monkeypatch: pytest.MonkeyPatch) -> StorePlace:
    """The same with credentials that only pyarrow finds."""
    monkeypatch.setattr(conditional, "_settings", lambda scheme, authority: None)
    return StorePlace("s3://places/out/")


# What is there


def test_files_have_names_below_the_prefix(place: StorePlace, store: ObjectStore, tmp_path: Path) -> None:
    (tmp_path / "part").write_bytes(b"rows")
    place.put(tmp_path / "part", ".batchocr/new/1-a.new")
    place.copy(".batchocr/new/1-a.new", "a.parquet")
    assert store.keys(BUCKET) == ["out/.batchocr/new/1-a.new", "out/a.parquet"]
    assert place.names("") == ["a.parquet"]
    assert place.names(".batchocr/new") == [".batchocr/new/1-a.new"]
    assert place.names("nothing") == []
    place.remove("a.parquet")
    place.remove("a.parquet")
    assert store.keys(BUCKET) == ["out/.batchocr/new/1-a.new"]
    assert (tmp_path / "part").exists()


@pytest.mark.parametrize("which", ["place", "by_pyarrow"])
def test_only_the_version_that_was_read_is_replaced(which: str, request: pytest.FixtureRequest) -> None:
    place: StorePlace = request.getfixturevalue(which)
    assert place.get("table.json") is None
    tag = place.swap("table.json", b"one", None)
    assert place.get("table.json") == (b"one", tag)
    newer = place.swap("table.json", b"two", tag)
    for stale in (tag, None):
        with pytest.raises(
            StaleError, match=r"table\.json was replaced meanwhile: run the same command again"
        ) as raised:
            place.swap("table.json", b"three", stale)
        assert raised.value.exit_code == ExitCode.STOPPED
    assert place.get("table.json") == (b"two", newer)


def test_of_ten_that_commit_at_once_one_does(place: StorePlace) -> None:
    tag = place.swap("table.json", b"one", None)

    def commit(number: int) -> int:
        try:
            place.swap("table.json", b"%d" % number, tag)
        except StaleError:
            return 0
        return 1

    with ThreadPoolExecutor(10) as pool:
        assert sum(pool.map(commit, range(10))) == 1


def test_a_conflict_with_a_put_that_comes_to_nothing_is_tried_again(place: StorePlace, store: ObjectStore) -> None:
    tag = place.swap("table.json", b"one", None)
    with store.failing(first(2, answering("409 Conflict", "ConditionalRequestConflict"), method="PUT")):
        place.swap("table.json", b"two", tag)


def put(work: Path, out: str) -> None:
    """A run that has one row."""
    output = output_at(out, work)
    output.prepare()
    output.begin()
    output.commit([PageResult("a.pdf", 0, "ok")], METADATA, rows_per_part=9)
    output.put_report(None)
    output.close()


def test_a_commit_whose_answer_is_lost_is_made(place: StorePlace, store: ObjectStore, tmp_path: Path) -> None:
    for row in ("one", "two"):
        output = output_at("s3://places/out/table.jsonl", tmp_path)
        output.prepare()
        output.begin()
        with store.failing(first(1, losing_answers(store), method="PUT", ending="/table.jsonl.meta.json")):
            output.commit([PageResult("a.pdf", 0, "ok", markdown=row)], METADATA, rows_per_part=9)
        assert row in store.get(BUCKET, "out/table.jsonl").decode()


# What is not allowed


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (answering("403 Forbidden", "InvalidAccessKeyId"), StoreRefusesError),
        (answering("404 Not Found", "NoSuchBucket"), StoreRefusesError),
        (answering("418 Teapot", "Odd"), OutputError),
        (denying("put"), StoreRefusesError),
        pytest.param(answering("503 Slow Down", "SlowDown"), StoreUnavailableError, marks=pytest.mark.slow),
        (denying("get", "list"), StoreRefusesError),
    ],
)
def test_a_store_that_cannot_be_written_ends_the_run_at_its_start(
    place: StorePlace, store: ObjectStore, fault: Fault, error: type[OutputError]
) -> None:
    with store.failing(fault), pytest.raises(error) as raised:
        place.begin(RUN, "a")
    assert type(raised.value) is error
    assert SECRET not in str(raised.value)
    assert "says the store" not in str(raised.value)


def test_who_may_not_read_what_another_run_has_put_is_told_so(place: StorePlace, store: ObjectStore) -> None:
    store.put(BUCKET, {f"out/{RUN}": b"another's"})
    with store.failing(denying("get", "list")), pytest.raises(StoreRefusesError, match="access is denied"):
        place.begin(RUN, "a")
    assert store.get(BUCKET, f"out/{RUN}") == b"another's"


def test_a_store_that_allows_all_is_tried_out_with_few_requests_and_nothing_is_said(
    place: StorePlace, store: ObjectStore, caplog: pytest.LogCaptureFixture
) -> None:
    store.forget()
    assert place.begin(RUN, "a") is None
    assert [method for method, *_ in store.requests] == [
        *("GET", "PUT", "GET", "PUT", "PUT"),
        *("POST", "PUT", "POST", "PUT", "DELETE"),
    ]
    assert store.keys(BUCKET) == ["out/.batchocr/run.json"]
    assert caplog.messages == []


@pytest.mark.parametrize(
    "fault",
    [
        ignoring_conditions,
        lambda environ, start: (
            answering("501 Not Implemented", "NotImplemented")(environ, start)
            if environ.keys() & {"HTTP_IF_MATCH", "HTTP_IF_NONE_MATCH"}
            else None
        ),
    ],
)
def test_a_store_without_conditions_is_for_one_writer_which_is_said_once(
    place: StorePlace, store: ObjectStore, caplog: pytest.LogCaptureFixture, fault: Fault
) -> None:
    with store.failing(fault):
        place.begin(RUN, "a")
        tag = place.swap("table.json", b"one", None)
        place.swap("table.json", b"two", tag)
        with pytest.raises(StaleError):
            place.swap("table.json", b"three", tag)
    [said] = caplog.messages
    assert said == "s3://places/out/ takes no puts on conditions: only one run at a time may write there"
    assert store.get(BUCKET, "out/table.json") == b"two"


@pytest.mark.timeout(30)
def test_a_store_whose_tags_fit_no_condition_is_for_one_writer(
    place: StorePlace, store: ObjectStore, caplog: pytest.LogCaptureFixture
) -> None:
    def weakening(environ: Environ, start: Any) -> Iterable[bytes] | None:
        def weak(status: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
            return start(status, [(name, f"W/{it}" if name.lower() == "etag" else it) for name, it in headers], *rest)

        return store.answer(environ, weak) if environ["REQUEST_METHOD"] == "GET" else None

    place.begin(RUN, "a")
    with store.failing(weakening):
        place.begin(RUN, "b")
    assert [said for said in caplog.messages if "takes no puts on conditions" in said]


def test_a_store_that_has_conditions_is_never_put_to_without(place: StorePlace, store: ObjectStore) -> None:
    place.begin(RUN, "a")
    odd = answering("400 Bad Request", "RequestTimeout")
    with store.failing(first(1, odd, method="PUT")), pytest.raises(OutputError, match="RequestTimeout"):
        place.swap("table.json", b"one", None)
    assert place.get("table.json") is None
    place.swap("table.json", b"one", None)


def test_what_may_not_be_copied_or_deleted_is_put_again_and_stays_which_is_said_once(
    place: StorePlace, store: ObjectStore, caplog: pytest.LogCaptureFixture
) -> None:
    store.put(BUCKET, {"out/a.new": b"rows"})
    with store.failing(denying("copy", "delete")):
        place.begin(RUN, "a")
        place.copy("a.new", "a.parquet")
        place.remove("a.new")
    assert store.get(BUCKET, "out/a.parquet") == b"rows"
    assert "out/a.new" in store.keys(BUCKET)
    assert [said.partition(": ")[2].partition(": ")[0] for said in caplog.messages] == [
        "what is copied there has to be put a second time",
        "nothing can be removed, so what is of no use any more stays",
    ]


def test_those_who_may_only_get_and_put_can_write(
    place: StorePlace, store: ObjectStore, caplog: pytest.LogCaptureFixture
) -> None:
    with store.failing(denying("copy", "delete", "list")):
        assert place.begin(RUN, "a") is None
        assert place.get("table.json") is None
        tag = place.swap("table.json", b"one", None)
        assert place.get("table.json") == (b"one", tag)
        assert place.names("") == place.names("new") == []
        place.end()
    assert [said.partition(": ")[2].partition(",")[0] for said in caplog.messages][2:] == ["no names can be listed"]
    assert store.get(BUCKET, f"out/{RUN}") == b""


def test_with_credentials_that_only_pyarrow_finds_one_run_may_write(
    by_pyarrow: StorePlace, store: ObjectStore, caplog: pytest.LogCaptureFixture
) -> None:
    assert by_pyarrow.begin(RUN, "a") is None
    by_pyarrow.end()
    assert store.get(BUCKET, f"out/{RUN}") == b""
    [said] = caplog.messages
    assert "takes no puts on conditions, as only pyarrow reaches it: only one run at a time" in said


def test_parts_that_cannot_be_removed_are_not_overwritten_by_other_parts(
    place: StorePlace, store: ObjectStore, tmp_path: Path
) -> None:
    put(tmp_path, "s3://places/out/")
    with store.failing(denying("delete")):
        output_at("s3://places/out/", tmp_path).prepare()
        with pytest.raises(StoreRefusesError, match="nothing can be removed there, and other programs would read both"):
            output_at("s3://places/out/", tmp_path).prepare(overwrite=True)


@pytest.mark.parametrize("name", ["table.parquet", "table.jsonl", ""])
def test_an_object_that_somebody_has_replaced_is_refused_though_what_was_put_is_still_staged(
    place: StorePlace, store: ObjectStore, tmp_path: Path, name: str
) -> None:
    out = f"s3://places/out/{name}"
    put(tmp_path, out)
    [key] = [key for key in store.keys(BUCKET) if key.endswith((".parquet", ".jsonl"))]
    store.put(BUCKET, {key: b"another program's"})
    for use in (lambda: fetch_tables(out), lambda: output_at(out, tmp_path).prepare()):
        with pytest.raises(OutputError, match="is not the one that the table's record names"):
            use()
    assert store.get(BUCKET, key) == b"another program's"


@pytest.mark.parametrize("name", ["table.parquet", "table.jsonl", ""])
def test_a_table_that_the_version_before_made_and_did_not_put_is_not_hidden(
    place: StorePlace, store: ObjectStore, tmp_path: Path, name: str
) -> None:
    out = f"s3://places/out/{name}"
    made = output_at(out, tmp_path).path
    (made / "part-000000-0123456789abcdef.parquet" if not name else made).write_bytes(b"rows")
    with pytest.raises(OutputError) as raised:
        output_at(out, tmp_path).prepare()
    assert f"`batchocr merge {made} --out {out} --overwrite`" in str(raised.value)


def test_parts_that_no_record_names_go_when_they_are_overwritten(
    place: StorePlace, store: ObjectStore, tmp_path: Path
) -> None:
    part = write_table(tmp_path / "part.parquet", [text_row("a.pdf", 0)])
    store.put(BUCKET, {"out/part-000000-0123456789abcdef.parquet": part.read_bytes()})
    output = output_at("s3://places/out/", tmp_path)
    output.prepare(overwrite=True)
    output.begin()
    output.unreported({})
    output.commit([text_row("b.pdf", 0)], METADATA, rows_per_part=4)
    assert len([key for key in store.keys(BUCKET) if key.endswith(".parquet")]) == 1


def test_credentials_that_end_meanwhile_are_what_is_said_and_not_that_a_table_is_gone_or_another(
    place: StorePlace, store: ObjectStore, tmp_path: Path
) -> None:
    ended = answering("403 Forbidden", "ExpiredToken")
    for name in ("out/", "out/table.parquet"):
        output = output_at(f"s3://places/{name}", tmp_path)
        output.prepare()
        output.begin()
        output.commit([text_row("a.pdf", 0)], METADATA, rows_per_part=4)
        with store.failing(ended), pytest.raises(StoreRefusesError, match=r"access is denied .*Nothing is lost"):
            output.commit([text_row("b.pdf", 0)], METADATA, rows_per_part=4)
        with store.failing(ended), pytest.raises(StoreRefusesError, match="ExpiredToken"):
            output.unreported({})


@pytest.mark.parametrize("name", ["scans [1].parquet", "scans [1].jsonl", "scans [1]/", "scans?/"])
def test_a_table_whose_name_looks_like_a_glob_is_found(
    place: StorePlace, store: ObjectStore, tmp_path: Path, name: str
) -> None:
    rows, out = [text_row("a.pdf", 0)], f"s3://places/out/{name}"
    assert said_by("merge", write_table(tmp_path / "table.parquet", rows), "--out", out)[0] == 0
    assert list(batchocr.open_table(out).rows()) == rows


# Who writes


def test_a_run_learns_which_other_is_at_work_or_was_killed(place: StorePlace, store: ObjectStore) -> None:
    place.begin(RUN, "a")
    other = StorePlace("s3://places/out/")
    before = other.begin(RUN, "b")
    assert before is not None
    assert before.run == "a"
    assert before.since.startswith("20")
    place.end()  # says nothing of the other
    assert json.loads(store.get(BUCKET, f"out/{RUN}"))["run"] == "b"
    assert other.begin(RUN, "b") is None
    other.end()
    assert StorePlace("s3://places/out/").begin(RUN, "c") is None


@pytest.mark.parametrize("content", [b"", b"[1]", b"null", b'{"run": 1, "odd": 2}', b"\xff"])
def test_a_file_that_names_no_run_is_replaced(place: StorePlace, store: ObjectStore, content: bytes) -> None:
    store.put(BUCKET, {f"out/{RUN}": content})
    assert place.begin(RUN, "a") is None
    assert json.loads(store.get(BUCKET, f"out/{RUN}"))["run"] == "a"


def test_runs_that_begin_in_the_same_moment_see_each_other(place: StorePlace) -> None:
    places = [StorePlace("s3://places/out/") for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        before = list(pool.map(lambda number: places[number].begin(RUN, str(number)), range(4)))
    assert before.count(None) == 1
