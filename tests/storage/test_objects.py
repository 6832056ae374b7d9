"""Objects in a store: looked at, listed, fetched and put, over the real protocol, and what is said if that fails."""

from __future__ import annotations

import io
import random
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from batchocr.errors import ChangedError, NotFoundError, PageError, PageTimeoutError, UnreadableError, UsageError
from batchocr.storage import objects
from batchocr.storage.objects import StoredObject, fetch, list_below, look_at, put, remove
from batchocr.storage.uris import is_uri, parse_uri
from tests.support.object_store import SECRET, Environ, Fault, ObjectStore, answering, breaking_off, first, lying


def fetched(uri: str, timeout_s: float = 60.0) -> bytes:
    file = io.BytesIO()
    fetch(uri, file, timeout_s=timeout_s)
    return file.getvalue()


# Names


@pytest.mark.parametrize("name", ["s3://bucket/a.pdf", "S3://bucket", "gs://b/c", "abfss://c@a.dfs.core.windows.net/d"])
def test_an_address_of_a_store_is_no_path(name: str) -> None:
    assert is_uri(name)
    assert not is_uri(f"./{name}")
    assert not is_uri(name.partition("/")[2])


def test_a_key_is_taken_as_it_is_written() -> None:
    assert parse_uri("S3://bucket/a%20b#c d/").key == "a%20b#c d/"
    assert str(parse_uri("S3://bucket/a b")) == "s3://bucket/a b"


@pytest.mark.parametrize(
    "name",
    [
        "s3://AKIA:hunter2@bucket/a.pdf",
        "s3://hunter2@bucket/a.pdf",
        "s3://bucket/a.pdf?access_key=AKIA&secret_key=hunter2",
        "s3://bucket/a.pdf?X-Amz-Signature=hunter2",
        "abfss://account:hunter2@account.dfs.core.windows.net/a",
        "abfs://files@account.dfs.core.windows.net/a?sv=2024&sig=hunter2",
    ],
)
def test_an_address_with_a_secret_is_refused_and_not_repeated(name: str) -> None:
    with pytest.raises(UsageError, match="environment") as refused:
        parse_uri(name)
    assert "hunter2" not in str(refused.value)


def test_an_address_without_a_bucket_is_refused() -> None:
    with pytest.raises(UsageError, match="no bucket"):
        parse_uri("s3:///a.pdf")


# Looking and listing


def test_an_object_is_described_alike_by_a_listing_and_by_a_look(store: ObjectStore) -> None:
    store.put("alike", {"folder/a.pdf": b"12345"})
    [listed] = list_below("s3://alike/folder")
    assert listed == look_at("s3://alike/folder/a.pdf")
    assert listed == StoredObject("s3://alike/folder/a.pdf", 5, listed.mtime_ns)
    assert listed.mtime_ns > 0


def test_a_prefix_is_no_object_and_is_not_fetched(store: ObjectStore) -> None:
    store.put("prefixes", {"folder/a.pdf": b"12345"})
    for name in ("s3://prefixes/folder", "s3://prefixes/folder/", "s3://prefixes"):
        assert look_at(name) is None
        with pytest.raises(UnreadableError, match="a prefix"):
            fetched(name)


@pytest.mark.slow
def test_a_thousand_objects_are_listed_with_one_request_and_read_with_four_each(store: ObjectStore) -> None:
    store.put("many", {f"{number}.pdf": b"%d" % number for number in range(1000)})
    store.requests.clear()
    listed = list_below("s3://many")
    assert len(listed) == 1000
    assert len(store.requests) == 1
    for found in listed[:50]:
        assert fetched(found.uri) == found.uri.rpartition("/")[2].removesuffix(".pdf").encode()
    assert len(store.requests) == 1 + 4 * 50


def endless(environ: Environ, start: Any) -> list[bytes]:
    """A fault: each part of a listing says that the first one follows."""
    body = b"<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>1</NextContinuationToken>"
    body += b"<Contents><Key>a/b.pdf</Key><Size>1</Size></Contents></ListBucketResult>"
    start("200 OK", [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
    return [body]


def test_a_listing_without_end_is_given_up(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "_LISTING_S", 0.3)
    with store.failing(endless), pytest.raises(UsageError, match="the list of s3://endless/a does not end"):
        list_below("s3://endless/a")
    assert len(store.requests) > 1


@pytest.mark.parametrize("key", ["x?sig=abc.pdf", "a;X-Amz-Signature=1.pdf"])
def test_a_name_in_a_store_that_looks_like_a_secret_is_read(store: ObjectStore, key: str) -> None:
    store.put("odd", {key: b"1"})
    [found] = [found for found in list_below("s3://odd") if found.uri.endswith(key)]
    assert fetched(found.uri) == b"1"
    with pytest.raises(UsageError, match="contains credentials"):
        look_at(found.uri)


def test_no_traceback_quotes_the_answer_of_a_store(store: ObjectStore) -> None:
    for ask in (look_at, list_below, fetched):
        with pytest.raises(PageError) as raised:
            ask("s3://nowhere/a.pdf")
        assert "AWS Error" not in "".join(traceback.format_exception(raised.value))


def test_what_is_missing_is_named(store: ObjectStore) -> None:
    store.put("here", {"a.pdf": b"1"})
    with pytest.raises(NotFoundError, match="no object s3://here/b"):
        look_at("s3://here/b.pdf")
    with pytest.raises(NotFoundError, match="nothing at s3://here/folder/"):
        list_below("s3://here/folder/")
    for ask in (look_at, list_below, fetched):
        with pytest.raises(NotFoundError, match="no bucket nowhere"):
            ask("s3://nowhere/a.pdf")


# Fetching


def test_what_is_fetched_is_what_was_put(store: ObjectStore) -> None:
    content = bytes(range(256)) * 80_000  # more than one piece
    store.put("contents", {"a b%20ü.pdf": content, "empty.pdf": b""})
    assert fetched("s3://contents/a b%20ü.pdf") == content
    assert fetched("s3://contents/empty.pdf") == b""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "count", "fault", "method"),
    [
        pytest.param(3, 2, answering("503 Slow Down", "SlowDown"), "HEAD", marks=pytest.mark.long),
        (3, 1, answering("503 Slow Down", "SlowDown"), "GET"),
        (30_000, 1, answering("503 Slow Down", "SlowDown"), "GET"),
        (30_000, 1, breaking_off, "GET"),
    ],
)
def test_passing_faults_are_not_noticed(store: ObjectStore, size: int, count: int, fault: Fault, method: str) -> None:
    store.put("passing", {"a.pdf": b"x" * size})
    with store.failing(first(count, fault, method=method)):
        assert fetched("s3://passing/a.pdf") == b"x" * size


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (
            answering("403 Forbidden", "InvalidAccessKeyId"),
            "access is denied .*check the credentials .*AWS_ACCESS_KEY_ID",
        ),
        (answering("403 Forbidden", "SignatureDoesNotMatch"), "access is denied"),
        (answering("301 Moved Permanently", "PermanentRedirect"), "another region.*AWS_REGION"),
        (answering("400 Bad Request", "ExpiredToken"), "access is denied|refuses it"),
    ],
)
def test_a_refusal_has_a_reason_and_no_secret(store: ObjectStore, fault: Fault, said: str) -> None:
    store.put("refusing", {"a.pdf": b"1"})
    with store.failing(fault):
        for ask in (list_below, look_at, fetched):
            with pytest.raises(UnreadableError, match=said) as refused:
                ask("s3://refusing/a.pdf")
            assert SECRET not in str(refused.value)


@pytest.mark.long
def test_a_store_that_is_too_busy_is_given_up(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "_ATTEMPTS", 2)
    with store.failing(answering("503 Slow Down", "SlowDown")), pytest.raises(UnreadableError, match="too busy"):
        list_below("s3://busy/")


def replacing(store: ObjectStore, bucket: str, key: str, content: bytes | None) -> Fault:
    """A fault, though none: before the content is first asked for, the object gets another one, or goes."""

    def fault(environ: Environ, _: object) -> None:
        if environ["REQUEST_METHOD"] == "GET":
            store.fault = lambda environ, start: None
            store.delete(bucket, key) if content is None else store.put(bucket, {key: content})

    return fault


@pytest.mark.parametrize(
    ("later", "error", "said"),
    [
        *((later, ChangedError, "run again") for later in (b"shorter", b"much longer than before")),
        (None, NotFoundError, "no object"),
    ],
)
def test_an_object_that_is_replaced_or_deleted_while_it_is_fetched_is_not_read(
    store: ObjectStore, later: bytes | None, error: type[Exception], said: str
) -> None:
    store.put("changing", {"a.pdf": b"what it was"})
    with store.failing(replacing(store, "changing", "a.pdf", later)), pytest.raises(error, match=said):
        fetched("s3://changing/a.pdf")


LIES: dict[str, Callable[[bytes, int, int], bytes]] = {
    "shifted": lambda content, first, last: content[first + 1 : last + 2],
    "other bytes": lambda content, first, last: bytes(last + 1 - first),
    "fewer": lambda content, first, last: content[first : last - 10],
    "half": lambda content, first, last: content[first : (first + last) // 2],
    "none": lambda content, first, last: b"",
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_other_bytes_than_the_store_holds_are_doubted(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch, lie: Callable[[bytes, int, int], bytes]
) -> None:
    monkeypatch.setattr(objects, "_CHUNK_BYTES", 10_000)
    # Unlike that of any other test: what is missing of an answer is what its memory held before.
    content = random.randbytes(20_480)
    store.put("lying", {"a.pdf": content})
    with store.failing(lying(content, lie)):
        assert fetch("s3://lying/a.pdf", io.BytesIO(), timeout_s=60.0).doubted
    assert not fetch("s3://lying/a.pdf", io.BytesIO(), timeout_s=60.0).doubted


def test_more_bytes_than_were_asked_for_are_the_stores_fault(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "_ATTEMPTS", 1)
    monkeypatch.setattr(objects, "_CHUNK_WAITS_S", ())
    store.put("lying", {"a.pdf": b"content"})
    fault = lying(b"content", lambda content, first, last: content[first : last + 1] + b"more")
    with store.failing(fault), pytest.raises(UnreadableError, match="the store refuses it"):
        fetched("s3://lying/a.pdf")


def test_a_fetch_that_takes_too_long_is_given_up(store: ObjectStore) -> None:
    store.put("slow", {"a.pdf": b"1"})
    with pytest.raises(PageTimeoutError, match="--page-timeout"):
        fetched("s3://slow/a.pdf", timeout_s=0.0)


# Putting


def test_a_file_is_put_whole_in_place_of_another(store: ObjectStore, tmp_path: Path) -> None:
    store.put("tables", {"x.parquet": b"old"})
    (tmp_path / "x").write_bytes(content := bytes(range(256)) * 60_000)
    put(tmp_path / "x", "s3://tables/x.parquet")
    assert store.get("tables", "x.parquet") == content


def test_a_file_that_cannot_be_put_leaves_what_is_there(store: ObjectStore, tmp_path: Path) -> None:
    store.put("tables", {"x.parquet": b"old"})
    (tmp_path / "x").write_bytes(b"new")
    refusing = answering("403 Forbidden", "AccessDenied")
    with store.failing(first(99, refusing, method="PUT")), pytest.raises(UnreadableError, match="access is denied"):
        put(tmp_path / "x", "s3://tables/x.parquet")
    assert store.get("tables", "x.parquet") == b"old"
    with pytest.raises(NotFoundError, match="no bucket nowhere"):
        put(tmp_path / "x", "s3://nowhere/x.parquet")


def test_what_is_not_there_is_removed_already(store: ObjectStore) -> None:
    store.put("tables", {"y.parquet": b"old"})
    remove("s3://tables/y.parquet")
    remove("s3://tables/y.parquet")
    assert "y.parquet" not in store.keys("tables")
