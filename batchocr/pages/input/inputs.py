"""What one INPUT stands for: a file, what is in a folder or a list, what a glob matches, what a store has."""

from __future__ import annotations

import codecs
import io
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import groupby
from pathlib import Path, PurePath
from typing import NamedTuple, TextIO

from batchocr.data import Document, ErrorKind, Failure, valid_text
from batchocr.errors import DeniedError, NoBucketError, NotFoundError, PageError, UnavailableError, of_store
from batchocr.pages.input.folders import FolderEntry, SkippedFiles, is_exported, num_links, walk
from batchocr.pages.input.globs import WILDCARD, Bounds, natural_key, paths_matching
from batchocr.pages.input.objects import documents_below, documents_matching
from batchocr.storage.objects import StoredObject, look_at
from batchocr.storage.uris import is_uri

_LOOKS_AT_ONCE = 16
"""How many objects of a list a store is asked for at the same time."""


class FoundInput(NamedTuple):
    """A Document, and what it is recognised by."""

    real: str | int
    """The path with links resolved; the `id` of a Document that was given, whose `source` is to stay."""
    document: Document
    """The document, under the `source` that it gets if no other has that."""


@dataclass(frozen=True, slots=True)
class Search:
    """How to look, and what is counted on the way."""

    stdin: TextIO | None
    null: bool
    follow_symlinks: bool
    skipped: SkippedFiles
    real_folder: Callable[[str], str] = field(default_factory=lambda: lru_cache(os.path.realpath))
    """The path of a folder with links resolved; remembered, as many files in a row are in the same."""


def expand(text: str | Document, search: Search, *, is_first: bool) -> Iterator[FoundInput]:
    """Yield what one INPUT stands for."""
    if isinstance(text, Document):
        yield FoundInput(id(text), text)
    elif text == "-" or text.startswith("@"):
        yield from _read_list(text, search)
    elif is_uri(text):
        yield from _in_store(text, search, is_plain=is_first, is_listed=False)
    elif WILDCARD.search(text) and not os.path.lexists(text):
        yield from _expand_glob(text, search)
    else:
        yield from _look_at(text, search, is_plain=is_first)


def _read_list(text: str, search: Search) -> Iterator[FoundInput]:
    """Yield what the paths of a list stand for. text: `@` and its path, or `-`."""
    name = "stdin" if text == "-" else f"the list {valid_text(text[1:])}"
    try:
        paths = _paths_in_list(text, search)
    except FileNotFoundError:
        yield _failed(text, "not_found", f"{name} does not exist")
    except (OSError, ValueError) as error:
        yield _failed(text, "unreadable", f"{name} cannot be read: {_because(error)}")
    else:
        uris = [path for path in paths if is_uri(path)]
        with ThreadPoolExecutor(_LOOKS_AT_ONCE if uris else 1) as looking:
            looked = looking.map(partial(_in_store, search=search), uris)
            for path in paths:
                yield from next(looked) if is_uri(path) else _look_at(path, search)


def _paths_in_list(text: str, search: Search) -> list[str]:
    """The paths in a list: separated by NUL and taken as they are, or one a line without blank lines. A line of a file
    that begins with `#` is a comment; on stdin it is a name. Raises OSError, ValueError."""
    if text != "-":
        content = _decoded(Path(text[1:]).read_bytes())
    elif search.stdin is None:
        raise ValueError("there is none")
    elif isinstance(search.stdin, io.TextIOWrapper):
        content = _decoded(search.stdin.buffer.read())  # its own decoding refuses names that are not text
    else:
        content = search.stdin.read()
    if search.null:
        return [path for path in content.split("\0") if path]
    if "\0" in content:
        raise ValueError("its paths are separated by NUL: --null reads it")
    lines = [line.removesuffix("\r") for line in content.removeprefix("\ufeff").split("\n") if line.strip()]
    return lines if text == "-" else [line for line in lines if not line.startswith("#")]


def _decoded(data: bytes) -> str:
    """The text of a list; UTF-16 is what Windows' PowerShell writes. Raises ValueError."""
    return data.decode("utf-16") if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else os.fsdecode(data)


def _in_store(uri: str, search: Search, *, is_plain: bool = False, is_listed: bool = True) -> Iterable[FoundInput]:
    """The object, the documents below the prefix, or what matches the glob. is_listed: it is a line of a list, of which
    others may be read if the store does not serve this one. Raises UsageError, OutputError."""
    try:
        if WILDCARD.search(uri) and not _is_object(uri):
            matches = documents_matching(uri, search.skipped)
            if not matches:
                return [_failed_object(uri, "not_found", f"no object matches {valid_text(uri)}")]
            return map(_of_object, matches)
        stored = look_at(uri)
        if stored is not None:
            return [_of_object(stored)]
        found = documents_below(uri, search.skipped)
        return (_of_object(stored, below, is_plain=is_plain) for below, stored in found.items())
    except PageError as error:
        if not is_listed and isinstance(error, UnavailableError | DeniedError | NoBucketError):
            raise of_store(error, f"nothing can be read: {error}") from error
        return [_failed_object(uri, error.error_kind, str(error))]


def _is_object(uri: str) -> bool:
    """Whether an object has this very name, though it looks like a glob. Raises UnreadableError, UsageError."""
    try:
        return look_at(uri) is not None
    except NotFoundError:
        return False


def _of_object(stored: StoredObject, below: str = "", *, is_plain: bool = False) -> FoundInput:
    name, (size, mtime_ns) = valid_text(stored.uri), stored.version
    source = valid_text(below) if is_plain and below else name
    return FoundInput(stored.uri, Document(stored.uri, source, size=size, mtime_ns=mtime_ns))


def _failed_object(uri: str, kind: ErrorKind, message: str) -> FoundInput:
    name = valid_text(uri)
    return FoundInput(uri, Document(uri, name, Failure(kind, message)))


def _expand_glob(pattern: str, search: Search) -> Iterator[FoundInput]:
    folder = os.path.dirname(WILDCARD.split(pattern, maxsplit=1)[0])
    bounds = Bounds(folder, search.follow_symlinks)
    matches = sorted(set(paths_matching(folder, pattern[len(folder) :].lstrip("/"), bounds)), key=natural_key)
    if not matches and not bounds.outside:
        yield _failed(pattern, "not_found", f"no file matches {valid_text(pattern)}")
    visited: set[str] = set()
    folders = sorted(filter(os.path.isdir, matches), key=num_links)
    inside = {each: _look_into(each, walk(each, bounds, visited, search.skipped), search, False) for each in folders}
    exported = _count_exported(matches, search.skipped)
    for match in matches:
        if match not in exported:
            yield from inside[match] if match in inside else [_look_at_file(match, search)]
    bounds.warn()


def _count_exported(matches: Sequence[str], skipped: SkippedFiles) -> set[str]:
    """The files that an export has made, among these; they are counted as skipped."""
    exported = list(filter(is_exported, matches))
    for folder, group in groupby(exported, key=os.path.dirname):
        skipped.count(os.path.realpath(folder), [os.path.basename(path) for path in group])
    return set(exported)


def _look_at(path: str, search: Search, *, is_plain: bool = False) -> Iterator[FoundInput]:
    """Yield the file at `path`, or the documents in it if it is a folder."""
    if os.path.isdir(path):
        bounds = Bounds(path, search.follow_symlinks)
        yield from _look_into(path, walk(path, bounds, set(), search.skipped), search, is_plain)
        bounds.warn()
    else:
        yield _look_at_file(path, search)


def _look_at_file(path: str, search: Search, source: str = "", real: str | None = None) -> FoundInput:
    """The file as an input. real: the path with links resolved, if its folder has shown that the file is there."""
    try:
        real = real or _resolved(path, search)
    except (FileNotFoundError, NotADirectoryError):
        return _failed(path, "not_found", f"{valid_text(path)} does not exist", source)
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        return _failed(path, "unreadable", f"{valid_text(path)} cannot be read: {_because(error)}", source)
    return FoundInput(real, Document(path, source or _source_of(path)))


def _resolved(path: str, search: Search) -> str:
    """The path of a file with links resolved. Raises OSError, ValueError."""
    if stat.S_ISLNK(os.lstat(path).st_mode):
        os.stat(path)  # whether it leads anywhere
        return os.path.realpath(path)
    folder, name = os.path.split(path)
    return os.path.join(search.real_folder(folder), name)


def _look_into(folder: str, entries: Iterable[FolderEntry], search: Search, is_plain: bool) -> Iterator[FoundInput]:
    """Yield the documents in a folder and the folders below it. entries: what `walk` says is there. is_plain: they are
    named by their paths below it."""
    begin = os.path.join(folder, "")
    begin_of_source = "" if is_plain else _source_of(f"{begin}_")[:-1]
    for entry in entries:
        below = entry.path[len(begin) :]  # nothing for the folder itself
        source = valid_text(below and begin_of_source + below)
        if entry.error is None:
            yield _look_at_file(entry.path, search, source, entry.real)
        else:
            message = f"the folder {valid_text(entry.path)} cannot be read: {_because(entry.error)}"
            yield _failed(entry.path, "unreadable", message, source)


def _failed(path: str, kind: ErrorKind, message: str, source: str = "") -> FoundInput:
    return FoundInput(os.path.abspath(path), Document(path, source or _source_of(path), Failure(kind, message)))


def _source_of(path: str) -> str:
    """The path as it was given, without dots. PurePath takes long to leave most paths as they are."""
    return valid_text(PurePath(path).as_posix() if re.search(r"^$|^\.|/\.|//|/$", path) else path)


def _because(error: OSError | ValueError) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)
