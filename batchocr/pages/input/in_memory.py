"""Documents that are no files: bytes, file objects and PIL images, each under a name.

While they are read they lie in anonymous memory. Whichever process is killed, nothing is left behind; a worker, which
belongs to the same user, opens it through /proc.
"""

from __future__ import annotations

import fcntl
import io
import os
import weakref
from typing import Protocol, TypeAlias

from PIL import Image

from batchocr.data import Document, Failure, valid_text
from batchocr.errors import PageError, UsageError
from batchocr.machine import allow_open_files

_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
_OTHER_FILES = 4096


class SupportsRead(Protocol):
    """A file that was opened for reading bytes, or something like it."""

    def read(self) -> bytes: ...


Content: TypeAlias = bytes | bytearray | memoryview | SupportsRead | Image.Image


def hold(name: str, content: Content) -> Document:
    """Return the document with this content and `name` for its `source`. Its memory is freed with it.

    A file object is read to its end. Of a PIL image it is the frame it stands at, upright, in RGB, on white and no
    larger than a page, as if it came from a file; its doc_id depends on those pixels alone. What cannot be read or
    decoded is a problem of the document. Raises UsageError for anything else, and if there is no room.
    """
    if not isinstance(name, str) or not name:
        raise UsageError(
            f"a document in memory needs a name that is not empty, as in ('scan-1.pdf', data), not {name!r}"
        )
    name = valid_text(name)
    try:
        parts = _parts(name, content)
    except PageError as error:
        return Document(name, name, Failure(error.error_kind, str(error)))
    except OSError as error:
        return Document(name, name, Failure("unreadable", f"it cannot be read: {error.strerror or error}"))
    memory = _Memory(name, parts)
    return Document(memory.path, name, held=memory)


def _parts(name: str, content: object) -> list[bytes | memoryview]:
    """The bytes of the document, in parts. Raises UsageError, PageError, OSError."""
    if isinstance(content, Image.Image):
        from batchocr.pages.input.image import refusals  # loads MuPDF, which a run does not need
        from batchocr.pages.input.page_pixels import as_page

        with refusals():
            page = as_page(content)
        # PPM: its bytes are the pixels, whatever the version of whatever library.
        return [b"P6\n%d %d\n255\n" % page.size, page.tobytes()]
    if isinstance(content, bytes | bytearray | memoryview):
        view = memoryview(content)
        return [view.cast("B") if view.c_contiguous else view.tobytes()]
    read = getattr(content, "read", None)
    is_text = isinstance(content, io.TextIOBase)
    try:
        data = read() if callable(read) and not is_text else None
    except ValueError as error:  # a file that is closed
        raise UsageError(f"{name!r} cannot be read: {error}") from error
    if not isinstance(data, bytes):
        what = "a file opened for text" if is_text or isinstance(data, str) else f"of type {type(content).__name__}"
        raise UsageError(f"{name!r} is {what}: give bytes, a file opened for reading bytes, or a PIL image")
    return [data]


class _Memory:
    """Anonymous memory, freed with this object."""

    def __init__(self, name: str, parts: list[bytes | memoryview]) -> None:
        try:
            descriptor = os.memfd_create("batchocr-document", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            weakref.finalize(self, os.close, descriptor)
            for part in parts:
                rest = memoryview(part)
                while rest:
                    rest = rest[os.write(descriptor, rest) :]
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
        except OSError as error:
            raise UsageError(
                f"there is no room for {name!r} in memory ({error.strerror}): each document there takes its size and "
                "one of the open files that `ulimit -n` allows; give fewer at once, or files"
            ) from error
        allow_open_files(descriptor + _OTHER_FILES)
        self.path = f"/proc/{os.getpid()}/fd/{descriptor}"
        """A path that leads to the content, in this process and in others of the same user."""
