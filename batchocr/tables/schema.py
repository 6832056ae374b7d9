"""What a table contains: its columns, its rows and the metadata of the run that wrote it.

Every format writes the fields of PageResult, in order, and carries the same RunMetadata.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from itertools import accumulate
from pathlib import Path
from types import NoneType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import pyarrow as pa
from pydantic import TypeAdapter, ValidationError

from batchocr.data import Block, PageResult, valid_text
from batchocr.errors import OutputMismatchError
from batchocr.storage.members import WholeContainer
from batchocr.tables.selection import Selection, selection_of_either

SCHEMA_VERSION = 8
"""The version of rows and metadata. It goes up whenever they become what a reader of the version before would take
wrongly."""

READABLE_VERSIONS = range(6, SCHEMA_VERSION + 1)
"""The versions that can be read. Versions 6 and 7 lack columns from `orientation` to `writing_in_figures`. No row of
version 6 has the error kind `absent`, no archive in its metadata a `zip_encoding`."""

MAX_METADATA_BYTES = 1 << 20
_MAX_LIST_BYTES = MAX_METADATA_BYTES // 4
"""The most bytes of a list in metadata, of which a line has no more than `MAX_METADATA_BYTES`; what a file of someone
else has in its place may be anything."""

_PREFIX = "batchocr."

_ARROW_TYPES = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
"""The types of columns in Arrow. Numbers are 64 bits wide so that Parquet and JSON Lines read as the same types."""


def columns_of(row: Any) -> list[pa.Field[Any]]:
    """A column for each field of a dataclass, in order; with nulls where the field may be None. A dataclass in it is a
    struct, a tuple a list."""
    return [
        pa.field(name, _arrow_type(annotation), nullable=NoneType in get_args(annotation))
        for name, annotation in get_type_hints(row).items()
    ]


def _arrow_type(annotation: Any) -> pa.DataType:
    """What holds the values of a field with this annotation."""
    arguments = get_args(annotation)
    if NoneType in arguments:
        return _arrow_type(arguments[0])
    if get_origin(annotation) is Literal:
        return pa.string()
    if get_origin(annotation) is tuple:
        # Not a fixed-size list: readers differ in how they handle one inside a struct.
        return pa.list_(pa.field("item", _arrow_type(arguments[0]), nullable=not is_dataclass(arguments[0])))
    return pa.struct(columns_of(annotation)) if is_dataclass(annotation) else _ARROW_TYPES[annotation]


PAGE_SCHEMA = pa.schema(columns_of(PageResult))
"""The columns of a table, which has one row per page."""

_PAGE = TypeAdapter(PageResult)
_Row = TypeVar("_Row", PageResult, Block)


@dataclass(frozen=True, slots=True)
class RunMetadata:
    """What a run's rows depend on. The last five fields are no part of the fingerprints."""

    batchocr_version: str
    model: str
    model_fingerprint: str
    settings_fingerprint: str
    """The fingerprint of all settings that change the text."""
    settings: Mapping[str, str]
    """What the fingerprint is of, in words."""
    schema_version: int = SCHEMA_VERSION
    model_revision: str = ""
    """The commit of a model from Hugging Face; empty for a local folder."""
    input_roots: tuple[str, ...] = ()
    """The folders below which the documents were, absolute."""
    selection: Selection | None = None
    """What of the input was asked for; None if that is not known."""
    containers: Mapping[str, WholeContainer] = field(default_factory=dict)
    """The archives and tables, by `source`, of which a run has found all documents, and each of them has rows."""
    newest: tuple[str, ...] = ()
    """The `source` of each document that came last, if more of their rows failed, or are degraded, than was allowed; of
    very many, a sample."""

    @property
    def naming(self) -> dict[str, str]:
        """The options that decide what the run's documents are called, if they are not the usual ones."""
        return {name: value for name, value in self.settings.items() if name == "zip_encoding"}


_METADATA = TypeAdapter(RunMetadata)
_AS_JSON = {"settings", "input_roots", "selection", "containers", "newest"}
"""Fields of RunMetadata that are no text, and become JSON in a file's metadata."""


def fingerprint_of_settings(settings: Mapping[str, str]) -> str:
    """A SHA-256, hex, over everything that changes the text of a page."""
    return hashlib.sha256(json.dumps(dict(settings), sort_keys=True).encode()).hexdigest()


def encode_metadata(metadata: RunMetadata) -> dict[bytes, bytes]:
    """The metadata in the form that a file's has: each field under `batchocr.<name>`, the settings as JSON."""
    values = _METADATA.dump_python(metadata)
    values |= {name: json.dumps(values[name], ensure_ascii=False) for name in _AS_JSON}
    return {f"{_PREFIX}{name}".encode(): str(value).encode() for name, value in values.items()}


def decode_metadata(of_file: Mapping[bytes, bytes] | None) -> RunMetadata | None:
    """The metadata in a file's metadata; None if it is missing or incomplete."""
    texts = {key.decode("utf-8", "replace"): value.decode("utf-8", "replace") for key, value in (of_file or {}).items()}
    values: dict[str, Any] = {
        name.removeprefix(_PREFIX): text for name, text in texts.items() if name.startswith(_PREFIX)
    }
    try:
        return _METADATA.validate_python(values | {name: json.loads(values[name]) for name in _AS_JSON & values.keys()})
    except (ValueError, RecursionError):  # those from json, and ValidationError
        return None


def metadata_to_json(metadata: RunMetadata) -> bytes:
    """The metadata as one JSON object, on one line."""
    return _METADATA.dump_json(metadata)


def metadata_from_json(line: bytes) -> RunMetadata | None:
    """The metadata in a JSON object; None if it holds something else."""
    try:
        return _METADATA.validate_json(line)
    except ValidationError:
        return None


def require_readable(path: Path | str, found: RunMetadata) -> None:
    """Raise OutputMismatchError if the rows at `path` are of a version that is not read."""
    if found.schema_version not in READABLE_VERSIONS:
        raise OutputMismatchError(
            f"{path} was written by batchocr {found.batchocr_version} with columns of version {found.schema_version}, "
            f"and this one reads versions {READABLE_VERSIONS[0]} to {SCHEMA_VERSION}: read the documents again with "
            "`batchocr run --overwrite`, or use the batchocr that wrote it"
        )


def require_same_settings(path: Path | str, found: RunMetadata, metadata: RunMetadata) -> None:
    """Raise OutputMismatchError, naming what differs, if the rows at `path` would not fit with this run's, or are not
    read."""
    require_readable(path, found)
    if found.settings_fingerprint == metadata.settings_fingerprint:
        return
    different = different_settings(found, metadata)
    differences = [
        f"{name} {there or 'not set'} there, {here or 'not set'} here" for name, (there, here) in different.items()
    ]
    remedy = "run with the same"
    if different.keys() & {"protocol", "input"} and "model fingerprint" not in different:
        remedy = (
            "this version makes other rows of the same answers, and with --cache no answer is asked for twice; "
            "continue it with the version that began it"
        )
    raise OutputMismatchError(
        f"{path} belongs to other settings ({'; '.join(differences)}): "
        f"{remedy}, choose another --out, or start over with --overwrite"
    )


def largest(containers: Mapping[str, WholeContainer]) -> dict[str, WholeContainer]:
    """The containers with the most documents, as many as metadata has room for."""
    ordered = sorted(containers.items(), key=lambda item: -item[1].num_documents)
    ends = accumulate(len(json.dumps(item)) for item in ordered)
    return dict(item for item, end in zip(ordered, ends, strict=True) if end <= _MAX_LIST_BYTES)


def sample_of(sources: Sequence[str]) -> tuple[str, ...]:
    """Some of the documents, evenly spread: as many as metadata has room for."""
    return tuple(sources[:: 1 + sum(map(len, sources)) // _MAX_LIST_BYTES])


def continued(found: RunMetadata, now: RunMetadata) -> RunMetadata:
    """The metadata of a table with the rows of two runs: this one, and those before it, which were found there."""
    roots = dict.fromkeys([*now.input_roots, *found.input_roots])
    return replace(now, input_roots=tuple(roots), selection=selection_of_either(found.selection, now.selection))


def require_same_shard(path: Path, found: RunMetadata, now: RunMetadata) -> None:
    """Raise OutputMismatchError if the rows at `path` are of another shard. Merged tables may not say; those of several
    shards are completed by a run over all."""
    if found.selection is not None and now.selection is not None:
        there, here = found.selection.get("shard", "1/1"), now.selection.get("shard", "1/1")
        if there != here and not ("," in there and here == "1/1"):
            raise OutputMismatchError(
                f"{path} is of --shard {there}, and this run reads {here}: each shard needs its own --out; with "
                "--overwrite the table is begun anew"
            )


def different_settings(one: RunMetadata, other: RunMetadata) -> dict[str, tuple[str | None, str | None]]:
    """What two runs' rows depend on and is not the same in both, by name; None where it is not set."""
    there, here = _spelt_out(one), _spelt_out(other)
    different = {name: (there.get(name), here.get(name)) for name in sorted(there.keys() | here.keys())}
    different = {name: values for name, values in different.items() if values[0] != values[1]}
    return {name: values for name, values in different.items() if name != _SUM or len(different) == 1}


_SUM = "settings fingerprint"
"""A setting that is a checksum of all: it differs whenever a setting does, and says nothing that the setting does
not."""


def _spelt_out(metadata: RunMetadata) -> dict[str, str]:
    return {
        **{name: value for name, value in metadata.settings.items() if name != "model_fingerprint"},
        "model": metadata.model,
        **({"model revision": metadata.model_revision} if metadata.model_revision else {}),
        "model fingerprint": metadata.model_fingerprint[:12],
        _SUM: metadata.settings_fingerprint[:12],
    }


def to_row(result: PageResult) -> dict[str, Any]:
    """The result as a row of PAGE_SCHEMA, made of plain Python values."""
    row: dict[str, Any] = _PAGE.dump_python(storable(result))
    return row


def from_row(row: Mapping[str, Any]) -> PageResult:
    """The result in a row of PAGE_SCHEMA. Raises ValueError, which names a column, if the row is not one."""
    return _valid(_PAGE.validate_python, row)


def to_json(result: PageResult) -> bytes:
    """The result as one JSON object, UTF-8, on one line."""
    return _PAGE.dump_json(storable(result))


def content_to_json(result: PageResult) -> bytes:
    """All of a result but what it says of the file's size and time: what has changed if the page has."""
    return _PAGE.dump_json(storable(result), exclude={"file_bytes", "file_mtime_ns"})


def from_json(line: bytes) -> PageResult:
    """The result in a JSON object. Raises ValueError, which names a column, if it holds something else."""
    return _valid(_PAGE.validate_json, line)


def _valid(validate: Callable[[Any], PageResult], row: Any) -> PageResult:
    """The row, valid. Raises ValueError, with what is wrong with the first column that is."""
    try:
        return validate(row)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise ValueError(": ".join(filter(None, (".".join(map(str, first["loc"])), first["msg"])))) from error


def storable(row: _Row) -> _Row:
    """The row in a form that every format can hold: valid UTF-8, and None for a number that is not finite."""
    return replace(row, **{field.name: _storable(getattr(row, field.name)) for field in fields(row)})


def _storable(value: Any) -> Any:
    match value:
        case str():
            return valid_text(value)
        case float():
            return value if math.isfinite(value) else None
        case Block():
            return storable(value)
        case tuple():
            return tuple(map(_storable, value))
        case _:
            return value
