"""An object store on the loopback, by moto: it counts requests, and fails as it is told."""

from __future__ import annotations

import logging
import socket
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, Literal

import pytest

from batchocr.storage import conditional, objects

Environ = dict[str, Any]
Application = Callable[[Environ, Any], Iterable[bytes]]
Fault = Callable[[Environ, Any], Iterable[bytes] | None]

SECRET = "S" * 40
_ACCOUNT = "123456789012"  # moto's only one
_CONDITIONS = {"HTTP_IF_MATCH", "HTTP_IF_NONE_MATCH"}


class ObjectStore:
    """A running store.

    requests: method, path and query of each. fetched, put_bytes: how many bytes each path gave and took. fault: asked
    before each request is answered; what it returns is the answer, unless that is None.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.requests: list[tuple[str, str, str]] = []
        self.fetched: Counter[str] = Counter()
        self.put_bytes: Counter[str] = Counter()
        self.fault: Fault = lambda environ, start: None
        self.answer: Application
        """What carries requests out."""

    def put(self, bucket: str, objects: Mapping[str, bytes]) -> None:
        """Put the content under each key. As all that is asked of the store here, it goes past requests and faults."""
        if bucket not in _kept().buckets:
            _kept().create_bucket(bucket, "us-east-1")
        for key, content in objects.items():
            _kept().put_object(bucket, key, content)

    def get(self, bucket: str, key: str) -> bytes:
        content: bytes = _kept().get_object(bucket, key).value
        return content

    def delete(self, bucket: str, key: str) -> None:
        _kept().delete_object(bucket, key)

    def keys(self, bucket: str) -> list[str]:
        return sorted(_kept().buckets[bucket].keys)

    def forget(self) -> None:
        """Begin to count anew."""
        for counted in (self.requests, self.fetched, self.put_bytes):
            counted.clear()  # type: ignore[attr-defined]

    @contextmanager
    def failing(self, fault: Fault) -> Iterator[None]:
        """Inside, requests go through the fault first."""
        before, self.fault = self.fault, fault
        try:
            yield
        finally:
            self.fault = before


def _kept() -> Any:
    """What moto holds."""
    from moto.s3.models import s3_backends

    return s3_backends[_ACCOUNT]["aws"]


@contextmanager
def used(store: ObjectStore) -> Iterator[ObjectStore]:
    """Inside, it is the store that the environment names, here and in processes that are started."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("AWS_ENDPOINT_URL", store.url)
        patched.setenv("AWS_ACCESS_KEY_ID", "test")
        patched.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        patched.setenv("AWS_EC2_METADATA_DISABLED", "true")
        _forget_clients()
        store.forget()
        yield store
    _forget_clients()


def _forget_clients() -> None:
    """Have the next request made with the environment as it is then."""
    for cached in (objects._file_system, conditional._settings, conditional._store):
        cached.cache_clear()


@contextmanager
def running_store() -> Iterator[ObjectStore]:
    """A store that ends with the block. Skips the test if moto is not installed."""
    pytest.importorskip("moto", reason="moto is not installed: pip install 'moto[s3,server]'")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from moto.server import DomainDispatcherApplication, create_backend_app
        from werkzeug.serving import make_server

        answer: Application = DomainDispatcherApplication(create_backend_app)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)

    def application(environ: Environ, start: Any) -> Iterable[bytes]:
        store.requests.append((environ["REQUEST_METHOD"], environ["PATH_INFO"], environ.get("QUERY_STRING", "")))
        if environ["REQUEST_METHOD"] == "PUT":
            length = environ.get("HTTP_X_AMZ_DECODED_CONTENT_LENGTH") or environ.get("CONTENT_LENGTH") or 0
            store.put_bytes[environ["PATH_INFO"]] += int(length)

        def counting(status: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
            if environ["REQUEST_METHOD"] == "GET":
                store.fetched[environ["PATH_INFO"]] += int(dict(headers).get("Content-Length", 0))
            return start(status, headers, *rest)

        failed = store.fault(environ, start)
        if failed is not None:
            return failed
        with one_at_a_time if environ.keys() & _CONDITIONS else nullcontext():  # moto looks, and puts after that
            return answer(environ, counting)

    one_at_a_time = threading.Lock()
    server = make_server("127.0.0.1", 0, application, threaded=True)
    store = ObjectStore(f"http://127.0.0.1:{server.port}")
    store.answer = answer
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield store
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def answering(status: str, code: str) -> Fault:
    """A fault: every request is answered with this error."""

    def fault(_: Environ, start: Any) -> Iterable[bytes]:
        body = f"<Error><Code>{code}</Code><Message>{code}, says the store</Message></Error>".encode()
        start(status, [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
        return [body]

    return fault


def first(count: int, fault: Fault, *, method: str | None = None, ending: str = "") -> Fault:
    """The fault for the first requests, or those of one method, or of objects with this ending; none after them."""
    left = count

    def fault_or_none(environ: Environ, start: Any) -> Iterable[bytes] | None:
        nonlocal left
        is_meant = method in (None, environ["REQUEST_METHOD"]) and environ["PATH_INFO"].endswith(ending)
        if left == 0 or not is_meant:
            return None
        left -= 1
        return fault(environ, start)

    return fault_or_none


def breaking_off(environ: Environ, _: Any) -> Iterable[bytes]:
    """A fault: the connection ends in the middle of an answer."""
    connection: socket.socket = environ["werkzeug.socket"]
    connection.sendall(b"HTTP/1.1 206 Partial Content\r\nContent-Length: 30000\r\n\r\n" + b"z" * 100)
    connection.shutdown(socket.SHUT_RDWR)
    raise ConnectionError("broken off on purpose")


def losing_answers(store: ObjectStore) -> Fault:
    """A fault: the request is carried out, and the connection ends before the answer."""

    def fault(environ: Environ, start: Any) -> Iterable[bytes]:
        list(store.answer(environ, lambda *_: lambda _: None))
        environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        raise ConnectionError("broken off on purpose")

    return fault


def ignoring_conditions(environ: Environ, _: Any) -> None:
    """A fault: what is to be put on a condition is put."""
    for header in _CONDITIONS:
        environ.pop(header, None)


def denying(*actions: Literal["copy", "delete", "get", "list", "put"]) -> Fault:
    """A fault: these are not allowed. Who may not list is not told of what is missing."""
    denied = answering("403 Forbidden", "AccessDenied")

    def fault(environ: Environ, start: Any) -> Iterable[bytes] | None:
        action = environ["REQUEST_METHOD"].lower()
        if "HTTP_X_AMZ_COPY_SOURCE" in environ:
            action = "copy"
        bucket, _, key = environ["PATH_INFO"].strip("/").partition("/")
        if action == "get" and (not key or ("list" in actions and key not in _kept().buckets[bucket].keys)):
            action = "list"
        return denied(environ, start) if action in actions else None

    return fault


def lying(content: bytes, lie: Callable[[bytes, int, int], bytes]) -> Fault:
    """A fault: a range of the content is asked for, and what `lie` makes of it, and of its first and last offset, is
    given, in an answer that is else as it should be."""

    def fault(environ: Environ, start: Any) -> Iterable[bytes] | None:
        if environ["REQUEST_METHOD"] != "GET" or "HTTP_RANGE" not in environ:
            return None
        first_byte, last_byte = map(int, environ["HTTP_RANGE"].removeprefix("bytes=").split("-"))
        body = lie(content, first_byte, last_byte)
        given = f"bytes {first_byte}-{last_byte}/{len(content)}"
        start("206 Partial Content", [("Content-Length", str(len(body))), ("Content-Range", given)])
        return [body]

    return fault
