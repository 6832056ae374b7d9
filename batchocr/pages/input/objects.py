"""The documents among the objects of a store: below a prefix, or matching a glob, by one listing."""

from __future__ import annotations

import fnmatch
from collections import defaultdict
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass

from batchocr.pages.input.folders import SUFFIXES, SkippedFiles, cut_objects
from batchocr.pages.input.globs import WILDCARD, natural_key, path_key
from batchocr.storage.objects import StoredObject, list_below
from batchocr.storage.uris import parse_uri


@dataclass(frozen=True, slots=True)
class Listed:
    """An object that counts as a document. below: its path below the prefix that was listed or matched."""

    object: StoredObject
    below: str


def documents_below(prefix: str, skipped: SkippedFiles) -> list[Listed]:
    """The documents below a prefix, in natural order, as they would be in a folder. Raises NotFoundError,
    UnreadableError, UsageError."""
    prefix = str(parse_uri(prefix)).rstrip("/")
    start = len(prefix) + 1
    objects = list_below(prefix)
    cuts = cut_objects(found.uri for found in objects)
    return _documents([Listed(found, found.uri[start:]) for found in objects], prefix, cuts, skipped)


def documents_matching(pattern: str, skipped: SkippedFiles) -> Iterator[Listed]:
    """Yield the objects that match, and the documents below prefixes that do, in natural order. `*` stops at a slash,
    `**` does not. Raises NotFoundError if there is nothing where the glob begins, UnreadableError, UsageError."""
    pattern = str(parse_uri(pattern))
    prefix = WILDCARD.split(pattern, maxsplit=1)[0].rpartition("/")[0]
    wanted = pattern[len(prefix) + 1 :].split("/")
    files, folders = {}, defaultdict[str, list[Listed]](list)
    objects = list_below(prefix)
    cuts = cut_objects(found.uri for found in objects)
    for found in objects:
        parts = found.uri[len(prefix) + 1 :].split("/")
        if _matches(parts, wanted) and found.uri not in cuts:
            files["/".join(parts)] = Listed(found, "")
        for end in range(len(parts)):
            if _matches(parts[:end], wanted):
                folders["/".join(parts[:end])].append(Listed(found, "/".join(parts[end:])))
    yielded: set[str] = set()
    for match in sorted(files.keys() | folders.keys(), key=natural_key):
        inside = _documents(folders[match], f"{prefix}/{match}", cuts, skipped) if match in folders else []
        for listed in [*inside, *filter(None, [files.get(match)])]:
            if listed.object.uri not in yielded:
                yielded.add(listed.object.uri)
                yield listed


def _documents(listed: Sequence[Listed], prefix: str, cuts: Set[str], skipped: SkippedFiles) -> list[Listed]:
    """Those that count as documents; the others are counted. cuts: URIs of what an export has cut."""
    documents, others = [], defaultdict[str, list[str]](list)
    for found in listed:
        folder, _, name = found.below.rpartition("/")
        if any(part.startswith(".") for part in found.below.split("/")):
            continue
        if name.lower().endswith(SUFFIXES) and found.object.uri not in cuts:
            documents.append(found)
        else:
            others[folder].append(name)
    for folder, names in others.items():
        skipped.count(f"{prefix}/{folder}", names)
    return sorted(documents, key=lambda found: path_key(found.below))


def _matches(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    if not pattern:
        return not parts
    first, rest = pattern[0], pattern[1:]
    shows_hidden = first.startswith(".")
    if first == "**":
        return _matches(parts, rest) or (bool(parts) and not parts[0].startswith(".") and _matches(parts[1:], pattern))
    if not parts or (parts[0].startswith(".") and not shows_hidden):
        return False
    return fnmatch.fnmatchcase(parts[0], first) and _matches(parts[1:], rest)
