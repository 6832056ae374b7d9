"""A worker's copies of objects: without a name, of one version, and of documents that may be opened again soon."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import BinaryIO

import psutil
import pytest

from batchocr.config import Config
from batchocr.errors import ChangedError, DamagedError, UnreadableError
from batchocr.pages import documents
from batchocr.pages.documents import DocumentCache
from batchocr.pages.input.render import open_document
from batchocr.processes.messages import Failed, Opened, Setup
from batchocr.processes.pool import WorkerPool
from batchocr.storage.objects import StoredObject, fetch
from tests.support.object_store import ObjectStore, lying
from tests.support.running import draw_pdf, raising, workers_of

pytestmark = pytest.mark.usefixtures("quick_processes")


@pytest.fixture
def store(store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    """A store with `s3://pages/a.pdf`; copies go to the folder `copies`."""
    (tmp_path / "copies").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "copies"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    store.put("pages", {"a.pdf": draw_pdf(tmp_path / "a.pdf", "one", "two").read_bytes()})
    return store


@pytest.fixture
def cache() -> Iterator[DocumentCache]:
    with closing(DocumentCache(partial(open_document, password=None, dpi=72))) as cache:
        yield cache


def num_pages(cache: DocumentCache, uri: str) -> int:
    with cache.open(uri, None, None) as document:
        return document.page_count


def copies(process: psutil.Process, folder: Path) -> list[str]:
    """What a process has open in the folder."""
    descriptors = Path(f"/proc/{process.pid}/fd").iterdir()
    links = [os.readlink(descriptor) for descriptor in descriptors if descriptor.is_symlink()]
    return [link for link in links if link.startswith(str(folder))]


def test_a_document_is_fetched_once_for_all_of_its_pages(store: ObjectStore, cache: DocumentCache) -> None:
    _, size, mtime_ns = cache.fingerprint("s3://pages/a.pdf")
    store.requests.clear()
    for page_index in (0, 1):
        with cache.open("s3://pages/a.pdf", size, mtime_ns) as document:
            assert document.render(page_index).image.size == (150, 200)
    assert not store.requests


SETUP = replace(Setup.of(Config(), 256 * 2**20), protocol="none")
"""A worker with little memory can fetch."""


def test_a_copy_has_no_name_and_goes_with_the_worker_that_is_killed(store: ObjectStore, tmp_path: Path) -> None:
    with WorkerPool(1, SETUP) as pool:
        opened = pool.open_alone("s3://pages/a.pdf", 60.0)
        assert isinstance(opened, Opened)
        assert (opened.page_count, opened.size) == (2, (tmp_path / "a.pdf").stat().st_size)
        [worker] = workers_of()
        assert len(copies(worker, tmp_path / "copies")) >= 1
        assert not os.listdir(tmp_path / "copies")
        worker.kill()
    assert not os.listdir(tmp_path / "copies")


@pytest.mark.parametrize(("num_kept", "limit"), [(9, None), (6, 5), (4, 1)])
def test_a_worker_keeps_copies_of_more_documents_than_it_has_open_but_only_of_few_large_ones(
    store: ObjectStore,
    cache: DocumentCache,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    num_kept: int,
    limit: int | None,
) -> None:
    """limit: as many as this are too large together with another."""
    content = (tmp_path / "a.pdf").read_bytes()
    if limit is not None:
        monkeypatch.setattr(documents, "_MAX_COPIED_BYTES", limit * len(content))
    store.put("pages", {f"{number}.pdf": content for number in range(9)})
    uris = [f"s3://pages/{number}.pdf" for number in range(9)]
    for uri in uris:
        cache.fingerprint(uri)
        assert num_pages(cache, uri) == 2
    assert len(set(copies(psutil.Process(), tmp_path / "copies"))) == num_kept
    store.requests.clear()
    assert [num_pages(cache, uri) for uri in reversed(uris[-num_kept:])] == [2] * num_kept
    assert not store.requests


def test_an_object_that_was_replaced_since_it_was_opened_is_changed(
    store: ObjectStore, cache: DocumentCache, tmp_path: Path
) -> None:
    _, size, mtime_ns = cache.fingerprint("s3://pages/a.pdf")
    store.put("pages", {"a.pdf": draw_pdf(tmp_path / "b.pdf", "three").read_bytes()})
    another = DocumentCache(partial(open_document, password=None, dpi=72))  # of another worker
    with closing(another), pytest.raises(ChangedError, match="run again"):
        another.open("s3://pages/a.pdf", size, mtime_ns).__enter__()
    assert cache.fingerprint("s3://pages/a.pdf")[1] != size
    assert num_pages(cache, "s3://pages/a.pdf") == 1


@pytest.mark.parametrize("name", ["a.pdf", "a.png"])
def test_what_cannot_be_read_as_the_store_gave_other_bytes_is_the_stores_fault(
    store: ObjectStore, tmp_path: Path, name: str
) -> None:
    content = (tmp_path / "a.pdf").read_bytes()
    store.put("pages", {name: content})
    for lie in (lambda content, first, last: bytes(last + 1 - first), lambda content, first, last: content[:9]):
        with store.failing(lying(content, lie)), WorkerPool(1, SETUP) as pool:
            failed = pool.open_alone(f"s3://pages/{name}", 60.0)
        assert isinstance(failed, Failed)
        assert failed.failure.kind == UnreadableError.error_kind
        assert "check the store: what it gave does not fit its ETag" in failed.failure.message


def test_what_is_damaged_in_the_store_is_damaged(store: ObjectStore, cache: DocumentCache) -> None:
    store.put("pages", {"cut.pdf": b"%PDF-1.7\n"})
    _, size, mtime_ns = cache.fingerprint("s3://pages/cut.pdf")
    with pytest.raises(DamagedError):
        cache.open("s3://pages/cut.pdf", size, mtime_ns).__enter__()


def test_what_can_be_read_is_read_whatever_its_etag_is(
    store: ObjectStore, cache: DocumentCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "fetch", lambda *args, **kwargs: replace(fetch(*args, **kwargs), doubted=True))
    _, size, mtime_ns = cache.fingerprint("s3://pages/a.pdf")
    with cache.open("s3://pages/a.pdf", size, mtime_ns) as document:
        assert document.page_count == 2


def test_a_pdf_without_a_header_is_one_by_the_name_of_its_object(
    store: ObjectStore, cache: DocumentCache, tmp_path: Path
) -> None:
    headless = (tmp_path / "a.pdf").read_bytes().replace(b"%PDF", b"%XYZ", 1)
    store.put("pages", {"headless.pdf": headless})
    assert num_pages(cache, "s3://pages/headless.pdf") == 2


def test_a_document_of_other_bytes_than_its_etag_is_of_is_doubted(store: ObjectStore, tmp_path: Path) -> None:
    content = (tmp_path / "a.pdf").read_bytes()
    other = draw_pdf(tmp_path / "other.pdf", "o").read_bytes().ljust(len(content), b"\n")
    assert len(other) == len(content)
    with WorkerPool(1, SETUP) as pool:
        sound = pool.open_alone("s3://pages/a.pdf", 60.0)
    with (
        store.failing(lying(other, lambda content, first, last: content[first : last + 1])),
        WorkerPool(1, SETUP) as pool,
    ):
        swapped = pool.open_alone("s3://pages/a.pdf", 60.0)
    assert isinstance(sound, Opened) and (sound.page_count, sound.doubted) == (2, False)
    assert isinstance(swapped, Opened) and (swapped.page_count, swapped.doubted) == (1, True)


@pytest.mark.parametrize("folder", ["full", "locked"])
def test_a_full_disk_or_locked_folder_is_said_to_be_so(
    store: ObjectStore, cache: DocumentCache, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    with open("/dev/full", "w+b") as full:
        new_file = (lambda: full) if folder == "full" else raising(PermissionError(13, "Permission denied"))
        monkeypatch.setattr(documents.tempfile, "TemporaryFile", new_file)  # type: ignore[attr-defined]
        with pytest.raises(UnreadableError, match=r"no room for its copy .*(No space left|Permission denied).*TMPDIR"):
            num_pages(cache, "s3://pages/a.pdf")


def test_copies_make_room_for_another(
    store: ObjectStore, cache: DocumentCache, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    content = (tmp_path / "a.pdf").read_bytes()
    store.put("pages", {f"{number}.pdf": content for number in range(7)})

    def disk_for_three(uri: str, file: BinaryIO, *, timeout_s: float) -> StoredObject:
        if len(cache._copies) >= 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        return fetch(uri, file, timeout_s=timeout_s)

    monkeypatch.setattr(documents, "fetch", disk_for_three)
    assert [num_pages(cache, f"s3://pages/{number}.pdf") for number in range(7)] == [2] * 7
    assert [uri[-5:] for uri in cache._copies] == ["6.pdf"]
