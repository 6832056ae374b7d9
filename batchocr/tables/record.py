"""The record of a table: of which parts it consists, and which run has put it there.

A table is what its record says. Who replaces the record replaces the table, in one step; see `tables/output`. A single
file of Parquet on a disk has what is to be said of it in its footer.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json, to_json

from batchocr.data import valid_text
from batchocr.errors import OutputError, OutputMismatchError
from batchocr.storage.checksums import checked_line, is_sound
from batchocr.tables.files import OWN_FOLDER, is_part_name
from batchocr.tables.schema import RunMetadata, metadata_from_json, metadata_to_json

FORMAT: Final = 1
"""The version of the format of records. It goes up when a record says something that a reader of the one before must
not miss."""
MAX_RECORD_BYTES: Final = 1 << 26
"""The most bytes of a line with a record; what a file of someone else has in its place may be anything."""
_START: Final = b'{"batchocr_version":'


@dataclass(frozen=True, slots=True)
class Part:
    """A file of a table."""

    bytes: int
    sha256: str
    """The digest of the file: of Parquet, what its footer says; of JSON Lines, of the whole file."""
    made: int
    """The generation that brought the part."""


@dataclass(frozen=True, slots=True)
class Commit:
    """What replaced the table that was there before."""

    format: int = FORMAT
    generation: int = 0
    """How often the table was replaced; 0 for one that an earlier version of batchocr wrote."""
    run: str = ""
    """The run that made the commit, which is the first to know that it did."""
    worse: Mapping[str, int] = field(default_factory=dict)
    """How many pages of each document came out worse than in the table before; in a store, where no journal says it,
    and until a run has reported it."""
    ended: bool = False
    """Whether the run that did it, or a later one, has said that all parts have got their own names; in a store, where
    those that are staged stay."""
    removed: tuple[str, ...] = ()
    """Parts of the table before that are none of this one."""
    parts: Mapping[str, Part] = field(default_factory=dict)
    """The files of the table, in the order of their names; none if they are not recorded."""


@dataclass(frozen=True, slots=True)
class Record:
    """What a table consists of, and what its rows depend on."""

    metadata: RunMetadata
    commit: Commit = Commit()

    @property
    def digest(self) -> str:
        """The digest of the table, by which a run knows it again."""
        return digest_of({name: part.sha256 for name, part in self.commit.parts.items()})

    def to_line(self) -> bytes:
        """The record as one line of JSON."""
        commit = replace(self.commit, parts={valid_text(name): part for name, part in self.commit.parts.items()})
        return checked_line(metadata_to_json(self.metadata)[:-1] + b',"record":%s}' % to_json(commit))


def digest_of(parts: Mapping[str, str]) -> str:
    """The digest of a table whose parts have these digests: of a folder, SHA-256 (hex) of all; of a single file, its
    own."""
    if len(parts) == 1 and not is_part_name(*parts):
        return next(iter(parts.values()))
    return hashlib.sha256(json.dumps(dict(parts), sort_keys=True).encode()).hexdigest()


_COMMIT: TypeAdapter[Commit] = TypeAdapter(Commit)


def _commit_in(value: Any, path: object) -> Commit:
    """The commit in a JSON object, which may be missing. Raises OutputMismatchError if a later version wrote it,
    OutputError if it is none."""
    if value is None:
        return Commit()
    if isinstance(value, dict) and isinstance(there := value.get("format"), int) and there > FORMAT:
        raise OutputMismatchError(
            f"{path} was written by a later version of batchocr (format {there}, and this one reads {FORMAT}): upgrade "
            "batchocr"
        )
    try:
        return _COMMIT.validate_python(value)
    except ValidationError as error:
        raise OutputError(f"{path} says of its table what cannot be: restore it, or start over with --overwrite") from (
            error
        )


def parse_record(line: bytes, path: object, name: str = "") -> Record | None:
    """The record in a line; None if it is none of ours. name: of the table, if it is a single file: earlier versions
    wrote its size and digest only. Raises OutputError if the line is damaged, OutputMismatchError if a later version
    wrote it."""
    metadata = metadata_from_json(line)
    if metadata is None or not is_sound(line):
        if line.startswith(_START) or str(path).endswith(f"{OWN_FOLDER}/table.json"):  # where nobody else's may be
            raise OutputError(f"{path} is damaged, or was changed: restore it, or start over with --overwrite")
        return None
    said: dict[str, Any] = from_json(line)
    commit = _commit_in(said.get("record"), path)
    if name and not commit.parts and "sha256" in said:
        commit = Commit(parts={name: Part(said["bytes"], said["sha256"], 0)})
    if name:  # it may have been renamed, with its record
        commit = replace(commit, removed=(), parts=dict.fromkeys([name], *commit.parts.values()))
    elif not all(map(is_part_name, (*commit.parts, *commit.removed))):  # nothing elsewhere is read, or removed
        raise OutputError(f"{path} names what is no part of a table: remove it, or start over with --overwrite")
    return Record(metadata, commit)
