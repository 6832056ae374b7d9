"""The documents among the objects of a store: below a prefix, or matching a glob, by one listing."""

from __future__ import annotations

import fnmatch
from collections import defaultdict
from collections.abc import Mapping, Sequence, Set

from batchocr.pages.input.folders import SUFFIXES, SkippedFiles, exported_objects
from batchocr.pages.input.globs import WILDCARD, natural_key, path_key
from batchocr.storage.objects import StoredObject, list_below
from batchocr.storage.uris import parse_uri


def documents_below(prefix: str, skipped: SkippedFiles) -> dict[str, StoredObject]:
    """The documents below a prefix by their paths there, in natural order, as they would be in a folder. Raises
    NotFoundError, UnreadableError, UsageError."""
    prefix = str(parse_uri(prefix)).rstrip("/")
    objects = list_below(prefix)
    below = {found.uri[len(prefix) + 1 :]: found for found in objects}
    return _documents(below, prefix, exported_objects([found.uri for found in objects]), skipped)


def documents_matching(pattern: str, skipped: SkippedFiles) -> list[StoredObject]:
    """The objects that match, and the documents below prefixes that do, in natural order. `*` stops at a slash, `**`
    does not. Raises NotFoundError if there is nothing where the glob begins, UnreadableError, UsageError."""
    pattern = str(parse_uri(pattern))
    prefix = WILDCARD.split(pattern, maxsplit=1)[0].rpartition("/")[0]
    wanted = pattern[len(prefix) + 1 :].split("/")
    objects = list_below(prefix)
    exported = exported_objects([found.uri for found in objects])
    files, folders = dict[str, StoredObject](), defaultdict[str, dict[str, StoredObject]](dict)
    for found in objects:
        parts = found.uri[len(prefix) + 1 :].split("/")
        if _matches(parts, wanted) and found.uri not in exported:
            files["/".join(parts)] = found
        for end in range(len(parts)):
            if _matches(parts[:end], wanted):
                folders["/".join(parts[:end])]["/".join(parts[end:])] = found
    matching: dict[str, StoredObject] = {}
    for match in sorted(files.keys() | folders.keys(), key=natural_key):
        for found in _documents(folders[match], f"{prefix}/{match}", exported, skipped).values():
            matching[found.uri] = found
        if match in files:
            matching[files[match].uri] = files[match]
    return list(matching.values())


def _documents(
    below: Mapping[str, StoredObject], prefix: str, exported: Set[str], skipped: SkippedFiles
) -> dict[str, StoredObject]:
    """The objects that count as documents; the others are counted. below: objects by their paths below the prefix.
    exported: URIs of what an export has made."""
    documents, others = dict[str, StoredObject](), defaultdict[str, list[str]](list)
    for path, found in below.items():
        folder, _, name = path.rpartition("/")
        if any(part.startswith(".") for part in path.split("/")):
            continue
        if name.lower().endswith(SUFFIXES) and found.uri not in exported:
            documents[path] = found
        else:
            others[folder].append(name)
    for folder, names in others.items():
        skipped.count(f"{prefix}/{folder}", names)
    return dict(sorted(documents.items(), key=lambda item: path_key(item[0])))


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
