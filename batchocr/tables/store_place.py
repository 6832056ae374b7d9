"""The place of a table in an object store, where a version replaces the one that was read, or none.

GET and PUT have to be allowed. What else a store, or the credentials, do not allow is found out before a run reads
anything, said once, and done without.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import BinaryIO, cast

from batchocr import errors
from batchocr.storage import conditional, objects
from batchocr.storage.temporary import writing_temporary

logger = logging.getLogger(__name__)

_FETCH_S = 24 * 3600
_FOREIGN_TAG = json.dumps({"e_tag": f'"{0:032}"', "version": "1"})
"""The tag of no version."""


@dataclass(frozen=True, slots=True)
class Writer:
    """A run that writes a table in a store, or was killed before it had ended."""

    run: str
    host: str
    since: str


@contextmanager
def _as_output_errors() -> Iterator[None]:
    """Turn what a store says into an OutputError."""
    try:
        yield
    except errors.ChangedError as error:
        raise errors.StaleError(f"{error}: run the same command again") from error
    except errors.PageError as error:
        raise errors.of_store(error, str(error)) from error


class StorePlace:
    """A prefix in a store. All methods raise OutputError."""

    def __init__(self, prefix: str) -> None:
        """prefix: a URI that ends in a slash. Raises UsageError."""
        self._prefix = prefix
        self._by_pyarrow = not conditional.is_possible(prefix)
        self._has_conditions = self._has_copy = not self._by_pyarrow
        self.can_remove = self._has_list = True
        self._begun = "", b""
        """The file that says that a run writes, and what it says."""

    def __str__(self) -> str:
        return self._prefix

    @_as_output_errors()
    def get(self, name: str) -> tuple[bytes, str] | None:
        # Who may not list names is denied what is not there; and `begin` has made sure that what is there is given.
        try:
            return self._get(name)
        except errors.NotFoundError:
            return None
        except errors.DeniedError:
            if self._begun[0]:
                self._get(self._begun[0])  # is denied, too, if the credentials have ended since
            return None

    def _get(self, name: str) -> tuple[bytes, str]:
        if not self._by_pyarrow:
            return conditional.get(self._prefix + name)
        file = io.BytesIO()
        objects.fetch(self._prefix + name, file, timeout_s=_FETCH_S)
        return file.getvalue(), hashlib.sha256(file.getvalue()).hexdigest()

    @_as_output_errors()
    def swap(self, name: str, content: bytes, tag: str | None) -> str:
        try:
            if self._has_conditions:
                return conditional.put(content, self._prefix + name, tag)
        except errors.UnreadableError as error:
            if self._begun[0] or isinstance(error, errors.DeniedError | errors.UnavailableError):
                raise
            self._has_conditions = False  # while it is tried out
        if (self.get(name) or (b"", None))[1] != tag:
            raise errors.ChangedError(f"{self}{name} was replaced meanwhile")
        with self._putting(name) as file:
            file.write(content)
        return (self.get(name) or (b"", ""))[1]

    @_as_output_errors()
    def put(self, file: Path, name: str) -> None:
        objects.put(file, self._prefix + name)

    @_as_output_errors()
    def copy(self, name: str, to: str) -> None:
        try:
            if self._has_copy:
                conditional.copy(self._prefix + name, self._prefix + to)
                return
        except errors.UnreadableError as error:
            logger.warning("%s: what is copied there has to be put a second time: %s", self, error)
            self._has_copy = False
        with self._putting(to) as file:
            objects.fetch(self._prefix + name, file, timeout_s=_FETCH_S)

    @_as_output_errors()
    def remove(self, name: str) -> None:
        try:
            if self.can_remove:
                (objects.remove if self._by_pyarrow else conditional.remove)(self._prefix + name)
        except errors.DeniedError as error:
            logger.warning("%s: nothing can be removed, so what is of no use any more stays: %s", self, error)
            self.can_remove = False

    @_as_output_errors()
    def names(self, folder: str) -> list[str]:
        with suppress(errors.NotFoundError):
            try:
                found = objects.list_below(self._prefix + folder, recursive=False) if self._has_list else []
                return [f"{folder}/{name}".lstrip("/") for name in (each.uri.rpartition("/")[2] for each in found)]
            except errors.DeniedError as error:
                logger.warning("%s: no names can be listed, so what killed runs have staged stays: %s", self, error)
                self._has_list = False
        return []

    @_as_output_errors()
    def begin(self, name: str, run: str) -> Writer | None:
        """Put a file of this name that says that the run writes, and try out with it what can be done here; returns
        the run that it named before, if that has not ended."""
        writer = Writer(run, socket.gethostname(), datetime.now(UTC).isoformat(timespec="seconds"))
        content = json.dumps(asdict(writer)).encode() + b"\n"
        before = self.get(name)
        while True:
            with suppress(errors.StaleError):  # another run has begun in the same moment
                self.swap(name, content, before[1] if before else None)
                break
            there = self._get(name)
            self._has_conditions &= there != before  # this one was refused in its own place, as with weak ETags
            before = there
        self._try_out(name, content)
        self._begun = name, content
        with suppress(ValueError, TypeError):  # it is empty, or not ours
            other = Writer(**json.loads(before[0] if before else b""))
            return other if other.run != run else None
        return None

    def _try_out(self, name: str, content: bytes) -> None:
        self._get(name)
        for tag in (None, _FOREIGN_TAG):
            with suppress(errors.StaleError):
                self.swap(name, content, tag)
                self._has_conditions = False  # it was put all the same
        if not self._has_conditions:
            reason = ", as only pyarrow reaches it" if self._by_pyarrow else ""
            logger.warning("%s takes no puts on conditions%s: only one run at a time may write there", self, reason)
        with self._putting(f"{name}.new") as file:  # as parts are put
            file.write(content)
        self.copy(name, f"{name}.new")
        self.remove(f"{name}.new")

    def end(self) -> None:
        """Empty the file by which the run has begun, unless another has begun since."""
        name, content = self._begun
        there = self.get(name) if name else None
        if there and there[0] == content:
            with suppress(errors.StaleError):
                self.swap(name, b"", there[1])

    @contextmanager
    def _putting(self, name: str) -> Iterator[BinaryIO]:
        """A file that is put when the block has written it."""
        with writing_temporary(), NamedTemporaryFile() as file:
            yield cast(BinaryIO, file)
            file.flush()
            objects.put(Path(file.name), self._prefix + name)
