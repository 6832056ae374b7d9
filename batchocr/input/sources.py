"""From what the user named to the documents to read.

An INPUT is a file, a folder, a glob, `@list.txt` (one path per line) or `-` (paths on stdin); or an object in a store,
a prefix or a glob of objects, by its URI. Only lists are opened here: whether a file is a document turns out when a
worker opens it. Whatever is missing or cannot be read is a Document too, so that it becomes a row. A link that is
itself an INPUT is followed; one found in a folder or by a glob is followed only if it stays in that folder, or in the
one where the glob begins. Beside its target it counts for nothing: each file is read once, under its own name. What
`batchocr export` has cut out of documents is left out, unless it is itself an INPUT.

A document's `source`: if the first INPUT is a folder, what is in it is named by the path below that folder. Everything
else is named by its path as given (an INPUT, a line of a list, a match of a glob), and for a folder the path below it.
So an INPUT can be added at the end, and files to any INPUT, without another name for what was there. (Only where the
first folder gets a file whose path there is that of a later INPUT's file does that one go by its absolute path.)
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, count, groupby
from pathlib import PurePath
from typing import TextIO

from batchocr.data import Document, ErrorKind, Failure
from batchocr.errors import NoInputError, NotFoundError, PageError, UsageError
from batchocr.input.exported import cut_files
from batchocr.input.folders import SUFFIXES, SkippedFiles, describe_skipped, num_links, walk
from batchocr.input.globs import WILDCARD, Bounds, natural_key, paths_matching
from batchocr.input.lists import read_list, read_stdin
from batchocr.input.objects import documents_below, documents_matching
from batchocr.storage.objects import StoredObject, look_at
from batchocr.storage.uris import is_uri, parse_uri

logger = logging.getLogger(__name__)

_LOOKS_AT_ONCE = 16
"""How many objects of a list a store is asked for at the same time."""

_MAX_NAMED = 10
"""How many inputs and problems an error message spells out."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A Document without its final `source`.

    real: the path with links resolved, by which a file is recognised. whole: the path as given, without dots. below:
    the path below the folder that was given or matched; `whole` if it was the file itself. is_plain: whether the folder
    is the first INPUT. given: the Document, if it was given as one. stored: what its store says of an object.
    """

    path: str
    real: str
    whole: str
    below: str
    is_plain: bool = False
    problem: Failure | None = None
    given: Document | None = None
    stored: StoredObject | None = None

    def document(self, source: str) -> Document:
        size, mtime_ns = self.stored.version if self.stored else (None, None)
        return self.given or Document(self.path, source, self.problem, size=size, mtime_ns=mtime_ns)


@dataclass(frozen=True, slots=True)
class Found:
    """What the INPUTs hold.

    documents: what to read, in order. skipped: how many files are left out because of their suffix, or because an
    export has cut them (see SkippedFiles): of the whole input, whatever the shard. roots: the folders below which a
    document's `source` is its path.
    """

    documents: list[Document]
    skipped: Mapping[str, int]
    roots: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Search:
    """How to look, and what is counted on the way."""

    stdin: TextIO | None
    null: bool
    follow_symlinks: bool
    skipped: SkippedFiles


def find_documents(
    inputs: Sequence[str | Document],
    *,
    stdin: TextIO | None = None,
    null: bool = False,
    follow_symlinks: bool = False,
    shard: tuple[int, int] = (1, 1),
) -> Found:
    """Return the documents that `inputs` name: in that order, folders in natural order, each file once.

    inputs: Documents are taken as they are. stdin: where the paths for the INPUT `-` are read from. null: paths there
    and in lists are separated by NUL. follow_symlinks: also follow links that lead out of a folder or a glob. shard:
    return only the documents of one shard, (index from 1, count).
    Raises NoInputError if there is nothing that could be read, UsageError if a given Document has the name of another.
    """
    search = _Search(stdin, null, follow_symlinks, SkippedFiles())
    kept: dict[str, str] = {}
    candidates = [
        candidate
        for position, given in enumerate(inputs)
        for candidate in _one_of_each(_expand(given, search, is_first=position == 0), kept)
    ]
    if all(candidate.problem and candidate.given is None for candidate in candidates):
        raise NoInputError(_nothing_found(inputs, candidates, search.skipped))
    documents = [
        candidate.document(source)
        for candidate, source in zip(candidates, _choose_names(candidates), strict=True)
        if in_shard(source, *shard)
    ]
    return Found(documents, search.skipped.by_kind(), _roots(inputs))


def _roots(inputs: Sequence[str | Document]) -> tuple[str, ...]:
    first, here = inputs[0], os.getcwd()
    if isinstance(first, str) and is_uri(first):
        return str(parse_uri(first)), here
    if isinstance(first, str) and os.path.isdir(first):
        return tuple(dict.fromkeys([os.path.abspath(first), here]))
    return (here,)


def in_shard(source: str, index: int, count: int) -> bool:
    """Return whether the document is in shard `index` (from 1) of `count`: the same on every machine, in every run."""
    digest = hashlib.sha256(source.encode()).digest()
    return int.from_bytes(digest[:8], "big") % count == index - 1


def _expand(text: str | Document, search: _Search, *, is_first: bool) -> Iterator[_Candidate]:
    """Yield what one INPUT stands for."""
    if isinstance(text, Document):
        name, real = text.source, f"in memory: {id(text)}"
        yield _Candidate(text.path, real, whole=name, below=name, problem=text.problem, given=text)
    elif text == "-" or text.startswith("@"):
        yield from _read_list(text, search)
    elif is_uri(text):
        yield from _found_in_store(text, search, is_plain=is_first)
    elif WILDCARD.search(text) and not os.path.lexists(text):
        yield from _expand_glob(text, search)
    else:
        yield from _look_at(text, search, is_plain=is_first)


def _read_list(text: str, search: _Search) -> Iterator[_Candidate]:
    """Yield what the paths of a list stand for. text: `@` and its path, or `-`."""
    name = "stdin" if text == "-" else f"the list {_as_text(text[1:])}"
    try:
        if text != "-":
            paths = read_list(text[1:], null=search.null)
        elif search.stdin is not None:
            paths = read_stdin(search.stdin, null=search.null)
        else:
            raise ValueError("there is none")
    except FileNotFoundError:
        yield _failed(text, "not_found", f"{name} does not exist")
    except (OSError, ValueError) as error:
        yield _failed(text, "unreadable", f"{name} cannot be read: {_because(error)}")
    else:
        uris = [path for path in paths if is_uri(path)]
        with ThreadPoolExecutor(_LOOKS_AT_ONCE if uris else 1) as looking:
            looked = looking.map(partial(_found_in_store, search=search), uris)
            for path in paths:
                yield from next(looked) if is_uri(path) else _look_at(path, search)


def _found_in_store(uri: str, search: _Search, *, is_plain: bool = False) -> list[_Candidate]:
    """The object, the documents below the prefix, or what matches the glob. Raises UsageError."""
    try:
        if WILDCARD.search(uri) and not _is_object(uri):
            matches = list(documents_matching(uri, search.skipped))
            if not matches:
                return [_failed_object(uri, "not_found", f"no object matches {_as_text(uri)}")]
            return [_of_object(match.object) for match in matches]
        stored = look_at(uri)
        if stored is not None:
            return [_of_object(stored)]
        return [
            _of_object(found.object, found.below, is_plain=is_plain) for found in documents_below(uri, search.skipped)
        ]
    except PageError as error:
        return [_failed_object(uri, error.error_kind, str(error))]


def _is_object(uri: str) -> bool:
    """Whether an object has this very name, though it looks like a glob. Raises UnreadableError, UsageError."""
    try:
        return look_at(uri) is not None
    except NotFoundError:
        return False


def _of_object(stored: StoredObject, below: str = "", *, is_plain: bool = False) -> _Candidate:
    name = _as_text(stored.uri)
    return _Candidate(stored.uri, stored.uri, name, _as_text(below) or name, is_plain, stored=stored)


def _failed_object(uri: str, kind: ErrorKind, message: str) -> _Candidate:
    name = _as_text(uri)
    return _Candidate(uri, uri, name, name, problem=Failure(kind, message))


def _expand_glob(pattern: str, search: _Search) -> Iterator[_Candidate]:
    folder = os.path.dirname(WILDCARD.split(pattern, maxsplit=1)[0])
    bounds = Bounds(folder, search.follow_symlinks)
    matches = sorted(set(paths_matching(folder, pattern[len(folder) :].lstrip("/"), bounds)), key=natural_key)
    if not matches and not bounds.any_outside:
        yield _failed(pattern, "not_found", f"no file matches {_as_text(pattern)}")
    walked: set[str] = set()
    folders = sorted(filter(os.path.isdir, matches), key=num_links)
    inside = {folder: list(_look_into(folder, bounds, walked, search)) for folder in folders}
    cuts = _count_cuts(matches, search.skipped)
    for match in matches:
        if match not in cuts:
            yield from inside[match] if match in inside else [_look_at_file(match)]
    bounds.warn()


def _count_cuts(matches: Sequence[str], skipped: SkippedFiles) -> set[str]:
    """Those of the files that an export has cut."""
    cuts = list(cut_files(matches))
    for folder, group in groupby(cuts, key=os.path.dirname):
        skipped.count(os.path.realpath(folder), [os.path.basename(cut) for cut in group])
    return set(cuts)


def _look_at(path: str, search: _Search, *, is_plain: bool = False) -> Iterator[_Candidate]:
    """Yield the file at `path`, or the documents in it if it is a folder."""
    if os.path.isdir(path):
        bounds = Bounds(path, search.follow_symlinks)
        for candidate in _look_into(path, bounds, set(), search):
            yield replace(candidate, is_plain=is_plain)
        bounds.warn()
    else:
        yield _look_at_file(path)


def _look_at_file(path: str, below: str = "") -> _Candidate:
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return _failed(path, "not_found", f"{_as_text(path)} does not exist", below)
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        return _failed(path, "unreadable", f"{_as_text(path)} cannot be read: {_because(error)}", below)
    return _candidate(path, os.path.realpath(path), below)


def _look_into(folder: str, bounds: Bounds, visited: set[str], search: _Search) -> Iterator[_Candidate]:
    """Yield the documents in a folder and the folders below it. visited: see `walk`."""
    for entry in walk(folder, bounds, visited, search.skipped):
        if entry.error is None:
            yield _look_at_file(entry.path, entry.relative)
        else:
            message = f"the folder {_as_text(entry.path)} cannot be read: {_because(entry.error)}"
            yield _failed(entry.path, "unreadable", message, entry.relative)


def _candidate(path: str, real: str, below: str = "", problem: Failure | None = None) -> _Candidate:
    """below: the path below its folder, if it was found in one."""
    whole = _as_text(PurePath(path).as_posix())
    return _Candidate(path, real, whole, _as_text(below) or whole, problem=problem)


def _failed(path: str, kind: ErrorKind, message: str, below: str = "") -> _Candidate:
    return _candidate(path, os.path.abspath(path), below, Failure(kind, message))


def _one_of_each(found: Iterable[_Candidate], kept: dict[str, str]) -> Iterator[_Candidate]:
    """Yield each file of an INPUT once: by its path with the fewest links, else by the first.

    Hard links and copies count as separate files. kept: the paths of the files of earlier INPUTs, by their paths with
    links resolved; those yielded now are added.
    """
    candidates = list(found)
    chosen: dict[str, _Candidate] = {}
    for candidate in candidates:
        other = chosen.setdefault(candidate.real, candidate)
        if other is not candidate and num_links(candidate.path) < num_links(other.path):
            chosen[candidate.real] = candidate
    for candidate in candidates:
        if candidate.real not in kept and chosen[candidate.real] is candidate:
            yield candidate
        else:
            same = kept.get(candidate.real, chosen[candidate.real].path)
            logger.info("%s is left out: it is the same file as %s", candidate.path, same)
    for candidate in chosen.values():
        kept.setdefault(candidate.real, candidate.path)


def _choose_names(candidates: Sequence[_Candidate]) -> Iterator[str]:
    """Yield for each candidate its `source`; where an earlier one has the same, its absolute path.

    Raises UsageError.
    """
    taken: set[str] = set()
    for candidate in candidates:
        usual = candidate.below if candidate.is_plain else candidate.whole
        if candidate.given is not None and usual in taken:
            raise UsageError(f"another document is named {usual!r} already: give the one in memory another name")
        absolute = _as_unique_text(candidate.real)
        others = (f"{absolute} ({number})" for number in count(2))  # a name that looks like an escape
        taken.add(source := next(name for name in chain((usual, absolute), others) if name not in taken))
        yield source


def _nothing_found(inputs: Sequence[str | Document], candidates: Sequence[_Candidate], skipped: SkippedFiles) -> str:
    texts = [_as_text(given.source if isinstance(given, Document) else given) for given in inputs[:_MAX_NAMED]]
    problems = [candidate.problem.message for candidate in candidates[:_MAX_NAMED] if candidate.problem]
    others = f"; {said}" if (said := describe_skipped(skipped.by_kind())) else ""
    found = ("; ".join(problems) or "no document is there") + others
    is_said = bool(texts) and all(text in found for text in texts)
    looked = "" if is_said else f"; looked in {', '.join(texts) or 'nothing'}"
    return (
        f"no document to read{looked}: {found}. An INPUT is a file, a folder with files of these kinds "
        f"({' '.join(SUFFIXES)}), a glob, @list.txt with one path a line, or - for paths on stdin"
    )


def _because(error: OSError | ValueError) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


def _as_text(path: str) -> str:
    """Return `path` as valid Unicode: bytes that are not text are written as escapes."""
    return path.encode("utf-8", "backslashreplace").decode()


def _as_unique_text(path: str) -> str:
    """Like `_as_text`, but never the same for two paths: a backslash in the path itself is doubled."""
    return _as_text(path.replace("\\", "\\\\"))
