"""The address of a document within a file: of a member of an archive, or of a row of a table.

An address stands wherever a path or a URI may: it begins with that of the container. NUL, which neither can have,
parts its fields. It says where the document is, so that whoever reads it needs no index of the container, and which
version of the container that is true of.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Final, NamedTuple, Self

from pydantic import Field

from batchocr.data import Int64, Number
from batchocr.storage.uris import is_uri

COMPRESSED: Final = (".tar.gz", ".tgz", ".tar.zst")
CONTAINERS: Final = (".zip", ".cbz", ".tar", *COMPRESSED, ".parquet")
"""How the names of files end that hold documents."""

MAX_NAME: Final = 4096
"""The most letters of a member's name; no path may be longer."""

_NUL: Final = "\0"


@dataclass(frozen=True, slots=True)
class Member:
    """A document within a file."""

    ordinal: Number
    """The document's number in the file, from 0: two may have the same name."""
    offset: Number
    """Where the document begins in an archive: of a zip, the header before it. Of a row, the number of its column."""
    length: Number
    """How many bytes the document takes in the archive; of a row, its place in the list that is there."""
    size: Number
    """The document's own size, in bytes; of a row, the table's."""
    mtime_ns: Int64
    """The document's own time; of a zip's, which are whole seconds, the rest is from its checksum. If it has none, the
    container's."""
    name: Annotated[str, Field(max_length=MAX_NAME)]


@dataclass(frozen=True, slots=True)
class MemberAddress:
    """Where a document within a file is."""

    container: str
    """The path or URI of the file."""
    version: tuple[int, int]
    """Size in bytes and mtime in ns of the container."""
    member: Member

    def __str__(self) -> str:
        member = self.member
        numbers = *self.version, member.ordinal, member.offset, member.length, member.size, member.mtime_ns
        return _NUL.join((self.container, *map(str, numbers), member.name))

    @classmethod
    def parse(cls, address: str) -> Self:
        container, *numbers, name = address.split(_NUL, 8)
        size, mtime_ns, ordinal, offset, length, own_size, own_mtime_ns = map(int, numbers)
        return cls(container, (size, mtime_ns), Member(ordinal, offset, length, own_size, own_mtime_ns, name))


class WholeContainer(NamedTuple):
    """What a run knows of a file of which it knows all documents."""

    size: int
    """The size of the file in bytes when it was listed; its time is `mtime_ns`."""
    mtime_ns: int
    document_column: str | None
    name_column: str | None
    num_documents: int
    """How many documents of the file are of this shard."""
    zip_encoding: str | None = None
    """The encoding of names in a zip; None as versions wrote it that gave members of zips other names."""


def is_container(path: str) -> bool:
    """Whether a file of this name holds documents."""
    return path.lower().endswith(CONTAINERS)


def is_compressed(path: str) -> bool:
    """Whether a file of this name holds documents that can only be read once it is unpacked."""
    return path.lower().endswith(COMPRESSED)


def is_member(path: str) -> bool:
    """Whether a path is the address of a document within a file."""
    return _NUL in path


def is_copied(path: str) -> bool:
    """Whether a worker reads a copy of the document at this path: of an object, or of a document within a file."""
    return is_member(path) or is_uri(path)


def folders_above(path: str) -> Iterator[str]:
    """Yield what stands before each slash in a path, the shortest first. The file that a document is in is among it."""
    return (path[: slash.start()] for slash in re.finditer("/", path))


def file_of(path: str) -> str:
    """The file, or the object, in which a document is."""
    return path.partition(_NUL)[0]
