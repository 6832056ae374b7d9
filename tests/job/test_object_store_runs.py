"""Runs over objects in a store: the same rows as from files, continued as from files, and what goes wrong in rows."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

import batchocr
from batchocr.errors import NoInputError, OutputError, OutputMismatchError, UsageError
from batchocr.tables.remote_output import output_at
from tests.support import stand_in
from tests.support.object_store import SECRET, Environ, ObjectStore, answering, first
from tests.support.running import command, draw_pdf, read_rows, said_by, texts

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def options(model: Path) -> dict[str, Any]:
    """A model that is quick, and a run that is small."""
    small = {"dpi": 72, "workers": 1, "max_new_tokens": 8, "max_degraded_rate": 1}
    return {"model": model, "dtype": "float32", "device": "cpu", **small}


def said(*arguments: str | Path) -> str:
    """What the command prints, which is never a secret."""
    exit_code, shown, logged = stand_in.command(*map(str, arguments))
    assert exit_code == 0, logged
    assert SECRET not in shown + logged
    return shown


def put_pages(store: ObjectStore, bucket: str, folder: Path, *names: str, text: str = "") -> None:
    """Put PDFs of one page, no two the same."""
    store.put(bucket, {name: draw_pdf(folder / "page.pdf", f"{name} {text}").read_bytes() for name in names})


def kinds(path: Path) -> dict[str, str | None]:
    return {row.source: row.error_kind for row in read_rows(path)}


def test_documents_in_a_store_give_the_rows_that_files_give(
    store: ObjectStore, options: dict[str, Any], sample_data: Path, tmp_path: Path
) -> None:
    folder = sample_data / "documents"
    store.put("samples", {f"in/{path.name}": path.read_bytes() for path in folder.iterdir()})
    from_files = list(batchocr.process(folder, pages="1", **options))
    store.requests.clear()
    assert texts(batchocr.process("s3://samples/in/", pages="1", **options)) == texts(from_files)
    assert {row.status for row in from_files} >= {"failed"}
    fetched = [path for method, path, _ in store.requests if method == "GET" and "/in/" in path]
    assert sorted(fetched) == sorted(f"/samples/in/{path.name}" for path in folder.iterdir()), "each once"


@pytest.mark.long
def test_a_run_is_continued_by_the_size_and_time_of_the_objects(
    store: ObjectStore, options: dict[str, Any], tmp_path: Path
) -> None:
    put_pages(store, "resumed", tmp_path, "in/a.pdf", "in/b.pdf", "in/c.pdf")
    out = tmp_path / "table.jsonl"
    stopped = batchocr.run("s3://resumed/in/", out=out, limit=2, **options)
    assert stopped.items.ok + stopped.items.degraded == 2
    store.requests.clear()
    batchocr.run("s3://resumed/in/", out=out, **options)
    asked_for = {path for method, path, _ in store.requests if method == "GET"}
    assert "/resumed/in/c.pdf" in asked_for

    put_pages(store, "resumed", tmp_path, "in/b.pdf", text="which is longer now")
    store.delete("resumed", "in/c.pdf")
    before = {row.source: row.doc_id for row in read_rows(out)}
    report = batchocr.run("s3://resumed/in/", out=out, **options)
    after = {row.source: row.doc_id for row in read_rows(out)}
    assert list(after) == ["a.pdf", "b.pdf", "c.pdf"]
    assert after["a.pdf"] == before["a.pdf"]
    assert after["b.pdf"] != before["b.pdf"]
    assert report.exit_code == 0


def test_by_time_verify_fetches_no_document_that_has_not_changed(
    store: ObjectStore, options: dict[str, Any], tmp_path: Path
) -> None:
    put_pages(store, "nightly", tmp_path, "in/a.pdf", "in/b.pdf")
    with zipfile.ZipFile(tmp_path / "c.zip", "w") as archive:
        archive.write(tmp_path / "page.pdf", "c.pdf")
    store.put("nightly", {"in/c.zip": (tmp_path / "c.zip").read_bytes()})
    inputs, out = ["s3://nightly/in/", "s3://nightly/in/c.zip"], tmp_path / "table.parquet"
    batchocr.run(inputs, out=out, **options)
    put_pages(store, "nightly", tmp_path, "in/new.pdf")
    store.forget()
    code, shown, _ = stand_in.command("verify", "--by-time", "--max-degraded-rate", "1", str(out), *inputs)
    assert (code, shown.splitlines()[0]) == (3, "missing   new.pdf: has no row")
    assert shown.endswith("; 3 documents taken by size and time, not opened\n")
    assert not [path for method, path, _ in store.requests if method == "GET" and "/in/" in path]


def test_an_object_that_is_missing_is_a_row_beside_others(
    store: ObjectStore, options: dict[str, Any], tmp_path: Path
) -> None:
    put_pages(store, "lines", tmp_path, "a.pdf")
    batchocr.run(["s3://lines/a.pdf", "s3://lines/b.pdf"], out=tmp_path / "table.jsonl", **options)
    assert kinds(tmp_path / "table.jsonl") == {"s3://lines/a.pdf": None, "s3://lines/b.pdf": "not_found"}
    with pytest.raises(NoInputError):
        batchocr.run("s3://lines/b.pdf", out=tmp_path / "other.jsonl", **options)


def test_inspect_and_view_read_from_the_store_too(store: ObjectStore, options: dict[str, Any], tmp_path: Path) -> None:
    put_pages(store, "around", tmp_path, "in/a.pdf", "in/b.pdf")
    out = tmp_path / "table.parquet"
    batchocr.run("s3://around/in/", out=out, **options)
    metadata = batchocr.open_table(out).metadata
    assert metadata.input_roots[0] == "s3://around/in/"

    inspected = json.loads(said("inspect", "--json", "s3://around/in/*.pdf"))
    assert (inspected["documents"], inspected["pages"]) == (2, 2)
    assert inspected["problems"] == {}
    said("view", out, "--out", tmp_path / "review.html")
    assert "data:image/webp" in (tmp_path / "review.html").read_text()


# Tables in a store


@pytest.fixture
def work(tmp_path: Path) -> Path:
    return tmp_path / "work"


@pytest.mark.long
def test_who_has_no_home_names_a_folder_to_make_the_table_in(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "home", Mock(side_effect=RuntimeError("Could not determine home directory.")))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    with pytest.raises(UsageError, match="--work-dir"):
        output_at("s3://tabled/t.parquet", None)
    assert output_at("s3://tabled/t.parquet", work).path.is_relative_to(work)


def test_a_table_in_a_store_is_the_one_that_a_file_would_be(
    store: ObjectStore, options: dict[str, Any], tmp_path: Path, work: Path
) -> None:
    put_pages(store, "tabled", tmp_path, "in/a.pdf", "in/b.pdf")
    batchocr.run("s3://tabled/in/", out=tmp_path / "t.parquet", **options)
    for suffix in ("parquet", "jsonl"):
        out = f"s3://tabled/out-{suffix}/t.{suffix}"
        report = batchocr.run("s3://tabled/in/", out=out, work_dir=work / suffix, **options)
        [folder] = (work / suffix).iterdir()
        assert not list(folder.iterdir())
        put = {key.rpartition("/")[2]: key for key in store.keys("tabled") if key.startswith(f"out-{suffix}")}
        beside = {f"t.{suffix}{ending}.json" for ending in (".meta", ".report", ".run")}
        assert {name for name in put if not name.endswith(".new")} == {f"t.{suffix}", *beside}
        assert json.loads(store.get("tabled", put[f"t.{suffix}.report.json"]))["items"]["ok"] == report.items.ok
        assert texts(batchocr.open_table(out).rows()) == texts(read_rows(tmp_path / "t.parquet"))


@pytest.mark.long
def test_a_table_in_a_store_is_continued(
    store: ObjectStore, options: dict[str, Any], tmp_path: Path, work: Path
) -> None:
    put_pages(store, "more", tmp_path, "in/a.pdf")
    uri = "s3://more/t.parquet"
    batchocr.run("s3://more/in/", out=uri, work_dir=work, **options)
    put_pages(store, "more", tmp_path, "in/b.pdf")
    report = batchocr.run("s3://more/in/", out=uri, work_dir=tmp_path / "of another machine", **options)
    assert (report.items.found, report.items.already_done) == (2, 1)
    (tmp_path / "t.parquet").write_bytes(store.get("more", "t.parquet"))
    assert [row.source for row in read_rows(tmp_path / "t.parquet")] == ["a.pdf", "b.pdf"]
    with pytest.raises(OutputMismatchError):
        batchocr.run("s3://more/in/", out=uri, work_dir=work, **(options | {"dpi": 96}))


def test_with_nothing_new_no_object_is_fetched_but_the_table_and_only_the_report_is_put(
    store: ObjectStore, options: dict[str, Any], tmp_path: Path, work: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put_pages(store, "night", tmp_path, "in/a.pdf", "in/b.pdf")
    uri = "s3://night/t.parquet"
    caplog.set_level("INFO", "batchocr")
    batchocr.run("s3://night/in/", out=uri, work_dir=work, **options)
    assert f"into {uri}, which is made in {work}" in caplog.text
    caplog.clear()
    store.requests.clear()
    assert batchocr.run("s3://night/in/", out=uri, work_dir=work, **options).nothing_to_do
    assert "made in" not in caplog.text
    seen = [(method, path) for method, path, _ in store.requests]
    assert not [path for method, path in seen if method == "GET" and "/in/" in path and path.endswith(".pdf")]
    assert put_of(seen) == set()
    put_pages(store, "night", tmp_path, "in/c.pdf")
    store.requests.clear()
    assert batchocr.run("s3://night/in/", out=uri, work_dir=work, **options).pages_read == 1
    seen = [(method, path) for method, path, _ in store.requests]
    assert {path for method, path in seen if method == "GET" and path.endswith(".pdf")} == {"/night/in/c.pdf"}
    assert put_of(seen) == {"/night/t.parquet", "/night/t.parquet.meta.json"}


def put_of(seen: list[tuple[str, str]]) -> set[str]:
    """What was put of a table, without what says who writes, staged parts and the report."""
    return {path for method, path in seen if method == "PUT" and not path.endswith(("run.json", ".new", "report.json"))}


def test_a_table_that_cannot_be_put_is_put_by_the_same_command(
    store: ObjectStore, options: dict[str, Any], tmp_path: Path, work: Path
) -> None:
    put_pages(store, "refused", tmp_path, "in/a.pdf")
    refusing = first(99, answering("403 Forbidden", "AccessDenied"), method="PUT", ending="/t.parquet.meta.json")
    with store.failing(refusing), pytest.raises(OutputError, match=r"access is denied.*Nothing is lost"):
        batchocr.run("s3://refused/in/", out="s3://refused/t.parquet", work_dir=work, **options)
    assert "t.parquet" not in store.keys("refused")
    report = batchocr.run("s3://refused/in/", out="s3://refused/t.parquet", work_dir=work, **options)
    assert report.nothing_to_do
    assert "t.parquet" in store.keys("refused")


@pytest.mark.long
def test_a_run_that_is_killed_while_it_puts_its_table_puts_it_whole_the_next_time(
    store: ObjectStore, options: dict[str, Any], tmp_path: Path, work: Path
) -> None:
    put_pages(store, "killed", tmp_path, "in/a.pdf", "in/b.pdf")
    out = "s3://killed/out/t.parquet"
    flags = [text for name, value in options.items() for text in (f"--{name.replace('_', '-')}", str(value))]
    arguments = command("s3://killed/in/", "--out", out, "--work-dir", work, *flags)
    is_put, is_killed = threading.Event(), threading.Event()

    def waiting(environ: dict[str, Any], _: object) -> None:
        if environ["REQUEST_METHOD"] == "PUT" and environ["PATH_INFO"].endswith("/t.parquet"):
            is_put.set()
            is_killed.wait(60)

    with store.failing(waiting), subprocess.Popen(arguments, stderr=subprocess.DEVNULL) as killed:
        assert is_put.wait(60)
        killed.kill()
        is_killed.set()
    assert killed.returncode == -signal.SIGKILL

    done = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "nothing to do" in done.stderr
    assert [row.source for row in batchocr.open_table(out).rows()] == ["a.pdf", "b.pdf"]
    assert json.loads(store.get("killed", "out/t.parquet.report.json"))["items"]["already_done"] == 2


def test_a_table_that_may_not_be_put_is_refused_before_the_work(
    store: ObjectStore, options: dict[str, Any], tmp_path: Path, work: Path
) -> None:
    put_pages(store, "readonly", tmp_path, "in/a.pdf")
    batchocr.run("s3://readonly/in/", out=tmp_path / "part.parquet", **options)
    store.requests.clear()
    with store.failing(first(-1, answering("403 Forbidden", "AccessDenied"), method="POST")):
        with pytest.raises(OutputError, match="access is denied"):
            batchocr.run("s3://readonly/in/", out="s3://readonly/t.parquet", work_dir=work, **options)
        code, _, log = said_by("merge", tmp_path / "part.parquet", "--out", "s3://readonly/t.parquet")
        assert (code, "access is denied" in log) == (2, True)
    assert not [path for method, path, _ in store.requests if method == "GET" and path.endswith(".pdf")]
    assert set(store.keys("readonly")) <= {"in/a.pdf", "t.parquet.run.json"}


@pytest.mark.long
def test_who_may_get_and_put_need_not_list_or_delete(
    store: ObjectStore, options: dict[str, Any], tmp_path: Path, work: Path
) -> None:
    put_pages(store, "narrow", tmp_path, "in/a.pdf", "in/b.pdf")
    known = {f"/narrow/{key}" for key in store.keys("narrow")}

    def denying(environ: Environ, start: Any) -> Iterable[bytes] | None:
        """What a store says that may not tell whether there is an object: denied, not missing."""
        path, method = environ["PATH_INFO"], environ["REQUEST_METHOD"]
        known.update({path} if method in ("POST", "PUT") else ())
        if method == "DELETE" or path not in known:
            return answering("403 Forbidden", "AccessDenied")(environ, start)
        return None

    inputs, uri = ["s3://narrow/in/a.pdf", "s3://narrow/in/b.pdf"], "s3://narrow/out/t.parquet"
    with store.failing(denying):
        batchocr.run(inputs[0], out=uri, work_dir=work, **options)
        report = batchocr.run(inputs, out=uri, work_dir=work, **options)
        assert (report.items.found, report.items.already_done) == (2, 1)
        assert said_by("merge", uri, "--out", "s3://narrow/out/u.parquet")[0] == 0
    assert [row.source for row in batchocr.open_table("s3://narrow/out/u.parquet").rows()] == inputs
    no_looks = first(-1, answering("403 Forbidden", "AccessDenied"), method="HEAD")
    with store.failing(no_looks), pytest.raises(OutputError, match=r"t\.parquet is not there any more, or"):
        batchocr.run(tmp_path / "page.pdf", out=uri, work_dir=tmp_path / "other", **options)


@pytest.mark.parametrize(
    ("out", "error"),
    [("s3://nowhere/t.parquet", OutputError), ("s3://a:hunter2@b/t.parquet", UsageError), ("s3://b/t.csv", UsageError)],
)
def test_a_table_that_can_never_be_put_is_refused_before_the_work(
    store: ObjectStore, options: dict[str, Any], tmp_path: Path, work: Path, out: str, error: type[Exception]
) -> None:
    put_pages(store, "source", tmp_path, "a.pdf")
    with pytest.raises(error) as refused:
        batchocr.run("s3://source/", out=out, work_dir=work, **options)
    assert "hunter2" not in str(refused.value)


@pytest.mark.long
def test_tables_in_a_store_are_merged_and_read_and_leave_no_copies(
    store: ObjectStore, options: dict[str, Any], tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_pages(store, "parts", tmp_path, "in/a.pdf", "in/b.pdf")
    for number in (1, 2):
        out = f"s3://parts/out/part-{number}.parquet"
        inputs = f"s3://parts/in/{'ab'[number - 1]}.pdf"
        batchocr.run(inputs, out=out, work_dir=work, **options)
    store.put("parts", {"out/marks.jsonl": b'{"source":"a.pdf"}\n'})
    table = batchocr.open_table("s3://parts/out/")
    assert [row.source for row in table.rows()] == ["s3://parts/in/a.pdf", "s3://parts/in/b.pdf"]
    assert said_by("merge", "s3://parts/out/part-*.parquet", "--out", "s3://parts/whole.parquet")[0] == 0
    code, _, log = said_by("merge", "s3://parts/out/", "--out", "s3://parts/whole.parquet")
    assert (code, "exists already" in log) == (6, True)
    assert "whole.parquet.report.json" not in store.keys("parts")
    merged = batchocr.open_table("s3://parts/whole.parquet")
    assert texts(merged.rows()) == texts(table.rows())
    with pytest.raises(OutputError, match="there is no table"):
        batchocr.open_table("s3://parts/none/")
    monkeypatch.setenv("TMPDIR", str(work))
    allowed = ("--max-degraded-rate", "1")
    assert json.loads(said("verify", "--json", *allowed, "s3://parts/out/", "s3://parts/in/*.pdf"))["findings"] == []
    assert not list(work.glob("batchocr-*"))
