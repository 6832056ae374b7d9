"""Objects in stores: looked at, listed, fetched and put, by pyarrow's file systems. That is loaded when first needed.

Credentials and endpoints come from the environment. Passing faults, such as throttling and connections that break, are
tried again by the store's own client, which waits longer each time; here errors only get a reason that a user can act
on. No message repeats what a store says in full, as it may quote a signature.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, BinaryIO, TypeVar

from batchocr.errors import (
    ChangedError,
    DeniedError,
    NoBucketError,
    NotFoundError,
    OutputError,
    PageTimeoutError,
    UnavailableError,
    UnreadableError,
    UsageError,
)
from batchocr.storage.uris import CREDENTIALS, Uri, parse_uri

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer
    from pyarrow.fs import FileInfo, FileSystem, NativeFile

_Answer = TypeVar("_Answer")
_CONNECT_S = 5
_SILENCE_S = 10
"""How long a store may send nothing before the request is tried again."""
_ATTEMPTS = 5
_RETRY_S = 30
_LISTING_S = 3600
"""How long a listing may take, in seconds: a store gives some ten thousand names a second."""
_CHUNK_BYTES = 8 * 2**20
_CHUNK_WAITS_S = (0.2, 1.0, 3.0)
_PIECE_BYTES = 64 * 2**20
_AHEAD_BYTES = 2**20
_AT_ONCE = 8
"""How many pieces of an object are fetched at the same time."""
_NS = 10**9
_CHANGED = "the object changed while it was fetched: run again to read it as it is now"

# In the words of pyarrow's clients and of obstore's.
_DENIED = re.compile(r"ACCESS_DENIED|ACCESS_KEY|SIGNATURE|TOKEN|CREDENTIAL|HTTP status 40[13]|Permission", re.I)
_NO_OBJECT = re.compile(r"NO_SUCH_KEY|RESOURCE_NOT_FOUND|HTTP status 404")
_NO_BUCKET = re.compile(r"NO_?SUCH_?BUCKET|BucketNotFound|ContainerNotFound", re.I)
_BUSY = re.compile(r"SLOW_DOWN|THROTTL|HTTP status (429|500|503)|ServerBusy", re.I)
_UNREACHABLE = re.compile(r"NETWORK_CONN|curlCode|resolve host|Connection refused|Failed to connect|HTTP error", re.I)
_ELSEWHERE = re.compile(r"PermanentRedirect|Received redirect|HTTP status 301|AUTHORIZATION_?HEADER", re.I)
_CODE = re.compile(r"AWS Error ([A-Z_]+(?: \(HTTP status \d+\))?)|<Code>(\w+)</Code>")


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object as its store describes it."""

    uri: str
    size: int
    mtime_ns: int
    """When the object was last modified, in whole seconds, as listings and single answers of some stores differ in the
    rest; 0 if the store has none."""
    doubted: bool = False
    """Whether the object's ETag, most often an MD5, is not that of the bytes that came."""

    @property
    def version(self) -> tuple[int, int]:
        return self.size, self.mtime_ns


def look_at(text: str) -> StoredObject | None:
    """The object of this name; None if it is a prefix of others. Raises NotFoundError, UnreadableError, UsageError."""
    return _look_at(parse_uri(text))


def _look_at(uri: Uri) -> StoredObject | None:
    if not uri.key or uri.key.endswith("/"):
        return None
    with _store_of(uri) as (system, base):
        from pyarrow.fs import FileType

        info = system.get_file_info(_path(base, uri.key))
        if info.type == FileType.Directory:
            return None
        if info.type != FileType.File:
            with suppress(OSError):  # it may be that buckets must not be looked at
                if system.get_file_info(base).type == FileType.NotFound:
                    raise NoBucketError(f"there is no bucket {uri.authority}")
            raise NotFoundError(f"there is no object {uri}")
        return _described(info, str(uri))


def list_below(text: str, *, recursive: bool = True) -> list[StoredObject]:
    """All objects whose names begin with the prefix and a slash; recursive: also those with further slashes. Raises
    NotFoundError if there is no such prefix, UnreadableError, UsageError."""
    uri = parse_uri(text)
    with _store_of(uri) as (system, base):
        from pyarrow.fs import FileSelector, FileType

        below = FileSelector(_path(base, uri.key).rstrip("/"), recursive=recursive)
        listing: Future[list[FileInfo]] = asked(partial(system.get_file_info, below))
        if not wait([listing], _LISTING_S).done:
            raise UsageError(f"the list of {uri} does not end within {_LISTING_S} s: name parts of it")
        infos = listing.result()
        root, num_base = str(Uri(uri.scheme, uri.authority, "")), len(base.rstrip("/")) + 1
        return [_described(info, root + info.path[num_base:]) for info in infos if info.type == FileType.File]


def asked(ask: Callable[[], _Answer]) -> Future[_Answer]:
    """The answer to come of `ask`. It is called in a thread, as the stores' clients cannot be stopped, and no signal is
    handled in a thread that waits in them."""
    answer: Future[_Answer] = Future()

    def run() -> None:
        try:
            answer.set_result(ask())
        except BaseException as error:  # noqa: BLE001 (whoever waits for the answer raises it)
            answer.set_exception(error)

    Thread(target=run, daemon=True).start()
    return answer


def fetch(text: str, file: BinaryIO, *, timeout_s: float) -> StoredObject:
    """Write the object into the file, and return what was written. It is one version of the object.

    Raises NotFoundError, UnreadableError, ChangedError, PageTimeoutError, UsageError; OSError of the file.
    """
    deadline_s = time.monotonic() + timeout_s
    uri = parse_uri(text, is_listed=True)
    before = _require_object(uri)
    with _store_of(uri) as (system, base):
        stream = system.open_input_file(_path(base, uri.key))
    with stream:
        num_bytes, md5 = 0, hashlib.md5(usedforsecurity=False)
        while num_bytes < before.size:
            data = _read_chunk(stream, num_bytes, _CHUNK_BYTES, uri, before)
            if not data:
                break
            if time.monotonic() > deadline_s:
                raise PageTimeoutError(
                    f"it could not be fetched within {timeout_s:g} s, most of --page-timeout: "
                    f"{num_bytes:,} of {before.size:,} bytes had come"
                )
            num_bytes += file.write(data)
            md5.update(data)
        etag = (stream.metadata() or {}).get("ETag", b"").strip(b'"').decode()
    file.flush()
    if num_bytes != before.size or _require_object(uri) != before:
        raise ChangedError(_CHANGED)
    return replace(before, doubted=bool(re.fullmatch("[0-9a-f]{32}", etag)) and etag != md5.hexdigest())


def fetch_pieces(stored: StoredObject, file: BinaryIO, pieces: Iterable[tuple[int, int]]) -> None:
    """Write these pieces of the object, each from one byte up to another, to its place in the file.

    Raises NotFoundError, UnreadableError, ChangedError, UsageError; OSError of the file.
    """
    uri = parse_uri(stored.uri, is_listed=True)
    with _store_of(uri) as (system, base):
        stream = system.open_input_file(_path(base, uri.key))

    def fetch_piece(piece: tuple[int, int]) -> None:
        start, stop = piece
        os.pwrite(file.fileno(), _read_chunk(stream, start, stop - start, uri, stored), start)

    with stream, ThreadPoolExecutor(_AT_ONCE) as fetching:
        list(fetching.map(fetch_piece, pieces))
    if _require_object(uri) != stored:
        raise ChangedError(_CHANGED)


def _read_chunk(stream: NativeFile, offset: int, num_bytes: int, uri: Uri, before: StoredObject) -> bytes:
    """The next bytes. An answer that is longer than what was asked for, as an error's may be for the last bytes of an
    object, is an error of its own to the client, which does not try again."""
    for wait_s in _CHUNK_WAITS_S:
        with suppress(UnreadableError), reasons(uri):
            return bytes(stream.read_at(num_bytes, offset))
        time.sleep(wait_s)
        if _require_object(uri) != before:
            raise ChangedError(_CHANGED)
    with reasons(uri):
        return bytes(stream.read_at(num_bytes, offset))


@contextmanager
def open_object(text: str, ahead_bytes: int | None = None) -> Iterator[BinaryIO]:
    """The object as a file, of which only what is read is fetched, and what follows that: at most a MiB, or so much.
    Raises NotFoundError, UnreadableError, ChangedError, UsageError, also while it is read."""
    uri = parse_uri(text, is_listed=True)
    stored = _require_object(uri)
    with _store_of(uri) as (system, base), system.open_input_file(_path(base, uri.key)) as stream:
        raw = _Ranges(partial(_read_chunk, stream, uri=uri, before=stored), stored.size)
        yield io.BufferedReader(raw, min(_AHEAD_BYTES, ahead_bytes or _AHEAD_BYTES))


class _Ranges(io.RawIOBase):
    """What is read by ranges, as a file."""

    def __init__(self, read_at: Callable[[int, int], bytes], size: int) -> None:
        self._read_at, self._size, self._offset = read_at, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        self._offset = offset + (0, self._offset, self._size)[whence]
        return self._offset  # below 0, BufferedReader raises OSError

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer)
        data = self._read_at(self._offset, len(view)) if self._offset < self._size else b""
        view[: len(data)] = data
        self._offset += len(data)
        return len(data)


def require_object(text: str) -> StoredObject:
    """The object of this name. Raises NotFoundError, UnreadableError, UsageError."""
    return _require_object(parse_uri(text, is_listed=True))


def _require_object(uri: Uri) -> StoredObject:
    found = _look_at(uri)
    if found is None:
        raise UnreadableError("it is a prefix, not an object")
    return found


def put(file: Path, text: str) -> None:
    """Put the file into the store, in place of what has this name. It appears when it is whole, or never; in HDFS it
    grows.

    Raises UnreadableError, NotFoundError (of the bucket), UsageError, OutputError (the file cannot be read).
    """
    uri = parse_uri(text)
    # No interrupt ends a thread: a stream that is left early puts what it has as if it were whole.
    with ThreadPoolExecutor(1) as putting:
        putting.submit(_put, file, uri).result()


def _put(file: Path, uri: Uri) -> None:
    with _store_of(uri) as (system, base):
        stream = system.open_output_stream(_path(base, uri.key))
        try:
            with file.open("rb") as local:
                while piece := _read_piece(local, file):
                    stream.write(piece)
                    if uri.scheme == "s3":
                        stream.flush()  # it keeps what is on its way in memory
            stream.close()
        except OutputError:
            stream.close()
            system.delete_file(_path(base, uri.key))
            raise
        except OSError:
            with suppress(OSError):  # it says the same again
                stream.close()
            raise


def _read_piece(local: BinaryIO, file: Path) -> bytes:
    try:
        return local.read(_PIECE_BYTES)
    except OSError as error:
        raise OutputError(f"{file} cannot be read: {error.strerror}") from error


def remove(text: str) -> None:
    """Remove the object, if there is one. Raises UnreadableError, UsageError."""
    uri = parse_uri(text)
    with suppress(NotFoundError), _store_of(uri) as (system, base):
        system.delete_file(_path(base, uri.key))


def _described(info: FileInfo, uri: str) -> StoredObject:
    return StoredObject(uri, info.size, (info.mtime_ns or 0) // _NS * _NS)


def _path(base: str, key: str) -> str:
    return f"{base.rstrip('/')}/{key}" if key else base


@contextmanager
def _store_of(uri: Uri) -> Iterator[tuple[FileSystem, str]]:
    """The file system, and the path of the store in it. What the store says meanwhile becomes a PageError.

    Raises UsageError.
    """
    with reasons(uri):
        try:
            store = _file_system(uri.scheme, uri.authority)
        except (ValueError, TypeError, NotImplementedError, ImportError) as error:
            raise UsageError(f"{uri.scheme}://{uri.authority} cannot be used: {error}") from error
        yield store


@cache
def _file_system(scheme: str, authority: str) -> tuple[FileSystem, str]:
    from pyarrow import fs

    if scheme == "s3":
        return _s3(authority), authority
    limit = f"?retry_limit_seconds={_RETRY_S}" if scheme in ("gs", "gcs") else ""
    system, base = fs.FileSystem.from_uri(f"{scheme}://{authority}/{limit}")
    return system, base


def _s3(bucket: str) -> FileSystem:
    from pyarrow import fs

    endpoint, region = s3_location(bucket)
    return fs.S3FileSystem(
        endpoint_override=endpoint,
        region=region,
        connect_timeout=_CONNECT_S,
        request_timeout=_SILENCE_S,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS),
    )


def s3_location(bucket: str) -> tuple[str | None, str | None]:
    """The endpoint and the region that a bucket is reached by; None for what the client finds out itself."""
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or None
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or None
    if endpoint is None and region is None:
        from pyarrow import fs

        with suppress(OSError):  # what is asked next says what is wrong
            region = fs.resolve_s3_region(bucket)
    return endpoint, region


@contextmanager
def reasons(uri: Uri) -> Iterator[None]:
    """Turn what a store says into a PageError, which has no cause: a traceback would quote the answer."""
    try:
        yield
    except FileNotFoundError:
        raise NotFoundError(f"there is nothing at {uri}, or no longer") from None
    except (OSError, ValueError) as error:  # ValueError: a name that pyarrow cannot ask for
        said = str(error)
        if _NO_BUCKET.search(said):
            raise NoBucketError(f"there is no bucket {uri.authority}") from None
        if _NO_OBJECT.search(said):
            raise NotFoundError(f"there is nothing at {uri}, or no longer") from None
        refused, reason = _refusal(uri, said)
        raise refused(f"{uri} cannot be read or written: {reason}") from None


def _refusal(uri: Uri, said: str) -> tuple[type[UnreadableError], str]:
    """What a store's answer means, without quoting more than its code."""
    code = f" ({found[1] or found[2]})" if (found := _CODE.search(said)) else ""
    if _ELSEWHERE.search(said):
        return UnreadableError, f"the bucket is in another region{code}: set AWS_REGION to that"
    if _UNREACHABLE.search(said):
        check = "check the network, and AWS_ENDPOINT_URL if it is not Amazon's"
        return UnavailableError, f"the store does not answer{code}: {check}"
    if _DENIED.search(said):
        check = f"check the credentials ({CREDENTIALS[uri.scheme]}) and what they may do"
        return DeniedError, f"access is denied{code}: {check}"
    if _BUSY.search(said):
        return UnavailableError, f"the store is too busy, and stayed so{code}: wait"
    if "mpty path" in said:
        return UnreadableError, "its name has two slashes in a row, which cannot be asked for: copy it to another name"
    return UnreadableError, f"the store refuses it{code}"
