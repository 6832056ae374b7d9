"""Runs over objects in a store: the same rows as from files, continued as from files, and what goes wrong in rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import batchocr
from batchocr.errors import NoInputError
from tests.support.object_store import SECRET, ObjectStore, running_store, used
from tests.support.running import draw_pdf, make_quick_model, read_rows, run_command, texts

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """A model that is quick, and a run that is small."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    model = make_quick_model(tmp_path_factory.mktemp("model") / "quick")
    yield {"model": model, "dpi": 72, "workers": 1, "max_new_tokens": 8, "dtype": "float32", "device": "cpu"}
    torch.set_num_threads(num_threads)


@pytest.fixture(scope="module")
def running() -> Iterator[ObjectStore]:
    with running_store() as store:
        yield store


@pytest.fixture
def store(running: ObjectStore) -> Iterator[ObjectStore]:
    with used(running) as store:
        yield store


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
    from_files = list(batchocr.process(folder, **options))
    assert texts(batchocr.process("s3://samples/in/", **options)) == texts(from_files)
    assert {row.status for row in from_files} >= {"failed"}


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
    assert list(after) == ["a.pdf", "b.pdf"]
    assert after["a.pdf"] == before["a.pdf"]
    assert after["b.pdf"] != before["b.pdf"]
    assert report.exit_code == 0


def test_an_object_that_goes_after_it_was_listed_is_a_row(
    store: ObjectStore, options: dict[str, Any], tmp_path: Path
) -> None:
    put_pages(store, "going", tmp_path, "in/a.pdf", "in/b.pdf")

    def deleting(environ: dict[str, Any], _: object) -> None:
        if environ["PATH_INFO"].endswith("/b.pdf"):
            store.fault = lambda environ, start: None
            store.delete("going", "in/b.pdf")

    with store.failing(deleting):
        batchocr.run("s3://going/in/", out=tmp_path / "table.jsonl", **options)
    assert kinds(tmp_path / "table.jsonl") == {"a.pdf": None, "b.pdf": "not_found"}


def test_an_object_that_is_missing_is_a_row_beside_others(
    store: ObjectStore, options: dict[str, Any], tmp_path: Path
) -> None:
    put_pages(store, "lines", tmp_path, "a.pdf")
    batchocr.run(["s3://lines/a.pdf", "s3://lines/b.pdf"], out=tmp_path / "table.jsonl", **options)
    assert kinds(tmp_path / "table.jsonl") == {"s3://lines/a.pdf": None, "s3://lines/b.pdf": "not_found"}
    with pytest.raises(NoInputError):
        batchocr.run("s3://lines/b.pdf", out=tmp_path / "other.jsonl", **options)


def test_the_commands_around_a_run_read_from_the_store_too(
    store: ObjectStore, options: dict[str, Any], tmp_path: Path
) -> None:
    put_pages(store, "around", tmp_path, "in/a.pdf", "in/b.pdf")
    out = tmp_path / "table.parquet"
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    done = run_command("s3://around/in/", "--out", out, *flags)
    assert done.returncode == 0, done.stderr
    facts = batchocr.open_table(out).facts
    assert facts.input_roots[0] == "s3://around/in/"

    def said(*arguments: str | Path) -> Any:
        import subprocess
        import sys

        command = [sys.executable, "-m", "batchocr", *arguments]
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert ended.returncode == 0, ended.stderr
        assert SECRET not in ended.stdout + ended.stderr
        return ended.stdout

    assert json.loads(said("verify", "--json", out, "s3://around/in/"))["findings"] == []
    inspected = json.loads(said("inspect", "--json", "--device-kind", "h200", "s3://around/in/*.pdf"))
    assert (inspected["documents"], inspected["pages"]) == (2, 2)
    assert inspected["problems"] == {}
    said("view", out, "--out", tmp_path / "review.html")
    assert "data:image/webp" in (tmp_path / "review.html").read_text()
