"""The documents that a worker has open: the last few, so that a file is opened once for all of its pages.

An object of a store is fetched first, and a document within a file is unpacked. The copy has no name: it is gone when
the process has ended, however that came.

What is open is known by its path, its size and its mtime: these say which version of a file or object it is.
"""

from __future__ import annotations

import tempfile
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import BinaryIO

from batchocr.data import MAX_PAGES
from batchocr.errors import ChangedError, DamagedError, TooLargeError, UnreadableError, UnsupportedError
from batchocr.pages.input.containers import Containers
from batchocr.pages.input.render import RenderableDocument, fingerprint, one_version, version_of
from batchocr.storage.members import is_copied, is_member
from batchocr.storage.objects import StoredObject, fetch

_Open = Callable[..., RenderableDocument]
_MAX_OPEN = 4
_MAX_COPIES = 64
_MAX_COPIED_BYTES = 128 * 2**20
"""The most bytes of copies that are kept, once there are as many copies as documents may be open: these are opened
ahead."""
_FETCH_SHARE = 0.8
"""The share of the page's time limit after which a fetch fails, so that its worker need not be killed."""

_DOUBTED = "check the store: what it gave does not fit its ETag (unless that is of SSE-KMS or SSE-C) nor can be read"


@dataclass(slots=True)
class _Copy:
    """A local copy of an object, or of a document within a file; `stored` says of either what it is."""

    file: BinaryIO
    stored: StoredObject

    @property
    def path(self) -> str:
        return f"/proc/self/fd/{self.file.fileno()}"


class DocumentCache:
    """Opens documents on request, and closes the least recently requested ones. Copies of objects are kept longer."""

    def __init__(
        self, open_document: _Open, page_timeout_s: float = 60.0, containers: Containers | None = None
    ) -> None:
        """open_document: called with the path of the file or of the copy, and with `name`, the path or URI."""
        self.containers = containers or Containers()
        self._open_document = open_document
        self._fetch_s = _FETCH_SHARE * page_timeout_s
        self._open: OrderedDict[tuple[str, int, int], RenderableDocument] = OrderedDict()
        """The open documents by path, size and mtime; the one used last is at the end."""
        self._copies: OrderedDict[str, _Copy] = OrderedDict()

    @contextmanager
    def open(self, path: str, size: int | None, mtime_ns: int | None) -> Iterator[RenderableDocument]:
        """The document at `path`, or of this URI, of the version of this size and mtime, or None: as it is now. What
        the block reads of it is of that version. Raises ChangedError, or another PageError."""
        if size is None or mtime_ns is None:
            size, mtime_ns = self._copy_of(path).stored.version if is_copied(path) else version_of(path)
        try:
            with self._one_copy(path, (size, mtime_ns)) if is_copied(path) else one_version(path, size, mtime_ns):
                yield self._get((path, size, mtime_ns))
        except ChangedError:
            self._close(path)  # which version it is of is not known any more
            raise

    def local_path(self, path: str) -> str:
        """Where the file, or a copy of the object, can be read. Raises PageError."""
        return self._copy_of(path).path if is_copied(path) else path

    def fingerprint(self, path: str) -> tuple[str, int, int]:
        """The SHA-256 (hex) of a file, or of an object as it is now, its size in bytes and mtime in ns. Raises
        PageError."""
        if not is_copied(path):
            return fingerprint(path)
        self._close(path)
        copy = self._copy_of(path)
        return fingerprint(copy.path)[0], *copy.stored.version

    def is_doubted(self, path: str) -> bool:
        """Whether the document at this path is an object whose copy does not fit its ETag."""
        return path in self._copies and self._copies[path].stored.doubted

    def close(self) -> None:
        """Close all documents, and delete the copies of their files."""
        for path in [*(path for path, *_ in self._open), *self._copies]:
            self._close(path)

    @contextmanager
    def _one_copy(self, uri: str, version: tuple[int, int]) -> Iterator[None]:
        """Require that the copy of the object is of this version; if it is not, a new one."""
        if self._copy_of(uri).stored.version != version:
            self._close(uri)
            if self._copy_of(uri).stored.version != version:
                raise ChangedError("the object changed while it was read: run again to read it as it is now")
        try:
            yield
        except (DamagedError, UnsupportedError) as error:
            if not self._copy_of(uri).stored.doubted:
                raise
            raise UnreadableError(f"{_DOUBTED}: {error}") from error

    def _get(self, key: tuple[str, int, int]) -> RenderableDocument:
        """The document of this key of `_open`, which is opened if it is not."""
        if key not in self._open:
            while len(self._open) >= _MAX_OPEN:
                self._open.pop(next(iter(self._open))).close()
            document = self._open_document(self.local_path(key[0]), name=key[0])
            if document.page_count > MAX_PAGES:
                document.close()
                raise TooLargeError(f"it claims {document.page_count:,} pages, more than {MAX_PAGES:,}: divide it")
            self._open[key] = document
        self._open.move_to_end(key)
        return self._open[key]

    def _copy_of(self, uri: str) -> _Copy:
        if uri not in self._copies:
            while self._has_too_many_copies():
                self._close(next(iter(self._copies)))
            try:
                copy = self.containers.copy if is_member(uri) else fetch
                self._copies[uri] = _copied(copy, uri, self._fetch_s)
            except OSError as error:
                if not self._copies:
                    raise UnreadableError(
                        f"there is no room for its copy in {tempfile.gettempdir()} ({error.strerror}): TMPDIR may name "
                        "another folder"
                    ) from error
                while self._copies:  # these may be what fills the disk
                    self._close(next(iter(self._copies)))
                return self._copy_of(uri)
        self._copies.move_to_end(uri)
        return self._copies[uri]

    def _has_too_many_copies(self) -> bool:
        num_bytes = sum(copy.file.tell() for copy in self._copies.values())
        return len(self._copies) >= _MAX_OPEN and (num_bytes > _MAX_COPIED_BYTES or len(self._copies) >= _MAX_COPIES)

    def _close(self, path: str) -> None:
        """Close the document, in all its versions, and delete its copy, as far as there are any."""
        for key in [key for key in self._open if key[0] == path]:
            self._open.pop(key).close()
        if (copy := self._copies.pop(path, None)) is not None:
            copy.file.close()


def _copied(copy: Callable[..., StoredObject], path: str, timeout_s: float) -> _Copy:
    """A new copy of the object, or of the document within a file. Raises OSError if there is no room for it."""
    file = tempfile.TemporaryFile()  # noqa: SIM115, it is open as long as the copy is kept
    try:
        return _Copy(file, copy(path, file, timeout_s=timeout_s))
    except BaseException:
        with suppress(OSError):
            file.close()
        raise
