"""The documents in a folder and in those below it, and how many other files there are.

What an export has made of documents, pictures and PDFs, is none, unless it is itself an INPUT. It is known by its name,
and by the record that the export keeps in a folder above it.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import islice
from pathlib import PurePath
from threading import Lock
from typing import Final

from batchocr.data import counted
from batchocr.pages.input.globs import Bounds, PathKey, is_folder, natural_key, path_key
from batchocr.storage.members import is_container

SUFFIXES = (
    *(".pdf", ".png", ".jpg", ".jpeg", ".jfif", ".webp", ".avif", ".avifs", ".bmp", ".dib", ".jp2", ".j2k", ".jpx"),
    *(".tif", ".tiff", ".gif", ".icns", ".pnm", ".ppm", ".pgm", ".pbm"),
)
"""What counts as a document in a folder. A file that is itself an INPUT is read whatever its suffix."""

EXPORT_RECORD: Final = ".batchocr-export.sqlite"
"""The name of the file in an export's folder by which the export knows what it has written."""

SEARCHABLE: Final = ".searchable.pdf"
"""How the names of PDFs end that an export has made."""

_EXPORTED = re.compile(
    rf"({re.escape(SEARCHABLE)}|[./]images/(page-[0-9]+-block-[0-9]+(-[0-9]+)?\.png|[0-9a-f]{{64}}\.jpg))\Z"
)
"""How the paths of files end that an export may have made."""

_OF_A_RUN = re.compile(r".\.(parquet|jsonl)(\.journal|\.report\.json|\.meta\.json)?(\.[0-9a-f]{16}\.tmp)?$")
"""The name of a table, or of a file that belongs to one."""

_CUT = "cut by an export"
_NONE, _OTHERS = "no suffix", "other suffixes"
_MAX_SUFFIX = 16
_MAX_KINDS = 100
_MAX_NAMED = 10


class SkippedFiles:
    """Counts files skipped because of their suffix, or because an export cut them out of documents, each folder once.
    Hidden files and those of a run do not count. Used from several threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._folders: set[str] = set()
        self._by_kind: Counter[str] = Counter()

    def count(self, folder: str, names: list[str]) -> None:
        """Count the files of a folder, given with links resolved."""
        with self._lock:
            if folder not in self._folders:
                self._folders.add(folder)
                self.add(Counter(kind_of(name) for name in names if not _OF_A_RUN.search(name.lower())))

    def add(self, by_kind: Mapping[str, int]) -> None:
        """Count so many files of each kind."""
        for kind, number in by_kind.items():
            is_named = kind in self._by_kind or len(self._by_kind) < _MAX_KINDS
            self._by_kind[kind if is_named else _OTHERS] += number

    def by_kind(self) -> Mapping[str, int]:
        """How many there are of each suffix in lower case, most first; also of `no suffix`, `cut by an export`, `links
        or devices in archives`, and `other suffixes`: very long ones, and those after the first hundred."""
        return dict(sorted(self._by_kind.items(), key=lambda item: (-item[1], item[0])))


def kind_of(name: str) -> str:
    """The kind under which a file that is no document is counted."""
    if name.lower().endswith(SUFFIXES):
        return _CUT
    kind = os.path.splitext(name)[1].lower() or _NONE
    return _OTHERS if len(kind) > _MAX_SUFFIX or not kind.isprintable() else kind


def describe_skipped(by_kind: Mapping[str, int]) -> str:
    """What was skipped, as in `skipped 32 files: 30 .docx, 2 .zip`; nothing if nothing was."""
    if not by_kind:
        return ""
    total = sum(by_kind.values())
    named = dict(islice(by_kind.items(), _MAX_NAMED))
    parts = [f"{count:,} {'with ' if kind in (_NONE, _OTHERS) else ''}{kind}" for kind, count in named.items()]
    if len(by_kind) > len(named):
        parts.append(f"{total - sum(named.values()):,} of {len(by_kind) - len(named)} other kinds")
    hint = " (files that hold documents are read if they are named)" if any(map(is_container, by_kind)) else ""
    return f"skipped {counted(total, 'file')}: {', '.join(parts)}{hint}"


@dataclass(slots=True)
class FolderEntry:
    """What a folder holds: a document, or another folder."""

    path: str
    real: str | None
    """The entry's path with links resolved; None if the entry is a link itself."""
    members: list[FolderEntry] | None = None
    """What is found in a folder; None for a document."""
    error: OSError | None = None
    """Why a folder cannot be listed."""


def walk(root: str, bounds: Bounds, visited: set[str], skipped: SkippedFiles) -> Iterator[FolderEntry]:
    """Return the documents in a folder and below it, and the folders that cannot be listed, in natural order.

    Only links can lead out of the bounds. They are followed last, so that what has a path without links is found by
    that one. visited: the folders listed before, with links resolved; those listed now are added.
    """
    first = FolderEntry(root, os.path.realpath(root), [])
    waiting, links = [first], list[tuple[PathKey, FolderEntry]]()
    while waiting or links:
        entry = waiting.pop() if waiting else heappop(links)[1]
        if entry.real is None and not bounds.allow(entry.path):
            entry.members = []  # as if it were an empty folder
        elif entry.members is not None and (real := entry.real or os.path.realpath(entry.path)) not in visited:
            visited.add(real)
            try:
                entry.members, others = _list_folder(entry.path, real)
                skipped.count(real, others)
            except OSError as error:
                entry.error = error
            waiting += [member for member in entry.members if member.real and member.members is not None]
            for link in (member for member in entry.members if not member.real):
                heappush(links, (path_key(link.path), link))
    return _in_order(first)


def _list_folder(path: str, real: str) -> tuple[list[FolderEntry], list[str]]:
    """The folders and documents in a folder, and the names of its other files. Raises OSError."""
    entries, others, begin = [], [], os.path.join(real, "")
    with os.scandir(path) as found:
        for item in found:
            if item.name.startswith("."):
                continue
            is_document = item.name.lower().endswith(SUFFIXES) and not is_exported(item.path)
            if (has_more := is_folder(item)) or is_document:
                target = None if item.is_symlink() else begin + item.name
                entries.append(FolderEntry(item.path, target, [] if has_more else None))
            elif item.is_file(follow_symlinks=False):
                others.append(item.name)
    return entries, others


def _in_order(root: FolderEntry) -> Iterator[FolderEntry]:
    """Yield what is found in a folder and below it, in the order of `path_key`, and forget it."""
    waiting = [root]
    while waiting:
        entry = waiting.pop()
        if entry.members is None or entry.error is not None:
            yield entry
        else:
            waiting += sorted(entry.members, key=lambda each: natural_key(each.path.rpartition("/")[2]), reverse=True)
            entry.members = []


def num_links(path: str) -> int:
    """How many parts of a path are links."""
    return sum(os.path.islink(part) for part in (path, *map(str, PurePath(path).parents)))


def is_exported(path: str) -> bool:
    """Whether an export has made this file."""
    name = path.rpartition("/")[2]
    if not _EXPORTED.search(f"/images/{name}"):  # which most names settle, before links are resolved
        return False
    real = PurePath(os.path.realpath(os.path.dirname(path)), name)
    return _EXPORTED.search(str(real)) is not None and any(
        os.path.lexists(above / EXPORT_RECORD) for above in real.parents
    )


def exported_objects(uris: Collection[str]) -> set[str]:
    """The objects of a store that an export has made, among these, if the export's record is among them too: folders
    may be copied."""
    exports = tuple(uri.removesuffix(EXPORT_RECORD) for uri in uris if uri.endswith(f"/{EXPORT_RECORD}"))
    return {uri for uri in uris if _EXPORTED.search(uri) and uri.startswith(exports)}
