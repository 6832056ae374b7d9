"""The documents in a folder and in those below it, and how many other files there are.

What an export has made of documents, pictures and PDFs, is none, unless it is itself an INPUT. It is known by its name,
and by the record that the export keeps in a folder above it.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import islice
from pathlib import PurePath
from threading import Lock
from typing import Final

from batchocr.data import counted
from batchocr.pages.input.globs import Bounds, PathKey, is_folder, path_key

SUFFIXES = (
    *(".pdf", ".png", ".jpg", ".jpeg", ".jfif", ".webp", ".bmp", ".dib", ".jp2", ".j2k", ".jpx"),
    *(".tif", ".tiff", ".gif", ".icns", ".pnm", ".ppm", ".pgm", ".pbm"),
)
"""What counts as a document in a folder. A file that is itself an INPUT is read whatever its suffix."""

EXPORT_RECORD: Final = ".batchocr-export.sqlite"
"""The file in its folder by which an export knows what it has written."""

SEARCHABLE: Final = ".searchable.pdf"
"""How the names of PDFs end that an export has made."""

_EXPORTED = re.compile(
    rf"({re.escape(SEARCHABLE)}|[./]images/(page-[0-9]+-block-[0-9]+(-[0-9]+)?\.png|[0-9a-f]{{64}}\.jpg))\Z"
)
"""How the paths of files end that an export may have made."""

_OF_A_RUN = re.compile(r".\.(parquet|jsonl)(\.journal|\.report\.json|\.meta\.json)?(\.[0-9a-f]{16}\.tmp)?$")
"""A table, or a file that belongs to one."""

_CUT = "cut by an export"
_OTHERS = "other suffixes"
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
                for name in names:
                    if not _OF_A_RUN.search(name.lower()):
                        kind = _kind(name)
                        is_named = kind in self._by_kind or len(self._by_kind) < _MAX_KINDS
                        self._by_kind[kind if is_named else _OTHERS] += 1

    def by_kind(self) -> Mapping[str, int]:
        """How many there are of each suffix in lower case, most first; also of `no suffix`, `cut by an export`, and
        `other suffixes`: very long ones, and those after the first hundred."""
        return dict(sorted(self._by_kind.items(), key=lambda item: (-item[1], item[0])))


def _kind(name: str) -> str:
    if name.lower().endswith(SUFFIXES):
        return _CUT
    kind = os.path.splitext(name)[1].lower() or "no suffix"
    return _OTHERS if len(kind) > _MAX_SUFFIX or not kind.isprintable() else kind


def describe_skipped(by_kind: Mapping[str, int]) -> str:
    """What was skipped, as in `skipped 32 files: 30 .docx, 2 .zip`; nothing if nothing was."""
    if not by_kind:
        return ""
    total = sum(by_kind.values())
    named = dict(islice(by_kind.items(), _MAX_NAMED))
    parts = [f"{count:,} {'' if kind.startswith(('.', _CUT)) else 'with '}{kind}" for kind, count in named.items()]
    if len(by_kind) > len(named):
        parts.append(f"{total - sum(named.values()):,} of {len(by_kind) - len(named)} other kinds")
    return f"skipped {counted(total, 'file')}: {', '.join(parts)}"


@dataclass(frozen=True, slots=True)
class FolderEntry:
    """What a folder holds."""

    path: str
    relative: str
    """Its path from the folder that was given; empty for that folder itself."""
    is_folder: bool
    is_link: bool = False
    error: OSError | None = None
    """Why it cannot be listed."""


def walk(root: str, bounds: Bounds, visited: set[str], skipped: SkippedFiles) -> list[FolderEntry]:
    """Return the documents in a folder and below it, and the folders that cannot be listed, in natural order.

    Links are followed last, so that what has a path without links is found by that one. visited: the folders listed
    before, with links resolved; those listed now are added.
    """
    found: list[FolderEntry] = []
    waiting, links = [FolderEntry(root, "", is_folder=True)], list[tuple[PathKey, FolderEntry]]()
    while waiting or links:
        entry = waiting.pop() if waiting else heappop(links)[1]
        if not bounds.allow(entry.path):
            continue
        if not entry.is_folder:
            found.append(entry)
        elif (real := os.path.realpath(entry.path)) not in visited:
            visited.add(real)
            try:
                entries, others = _list_folder(entry)
            except OSError as error:
                found.append(replace(entry, error=error))
            else:
                skipped.count(real, others)
                waiting += [entry for entry in entries if not entry.is_link]
                for link in (entry for entry in entries if entry.is_link):
                    heappush(links, (path_key(link.relative), link))
    return sorted(found, key=lambda entry: path_key(entry.relative))


def _list_folder(folder: FolderEntry) -> tuple[list[FolderEntry], list[str]]:
    """The folders and documents in a folder, and the names of its other files. Raises OSError."""
    entries, others = [], []
    with os.scandir(folder.path) as found:
        for item in found:
            if item.name.startswith("."):
                continue
            is_document = item.name.lower().endswith(SUFFIXES) and not is_exported(item.path)
            if (has_more := is_folder(item)) or is_document:
                relative = os.path.join(folder.relative, item.name)
                entries.append(FolderEntry(item.path, relative, has_more, item.is_symlink()))
            elif item.is_file(follow_symlinks=False):
                others.append(item.name)
    return entries, others


def num_links(path: str) -> int:
    """How many parts of a path are links."""
    return sum(os.path.islink(part) for part in (path, *map(str, PurePath(path).parents)))


def is_exported(path: str) -> bool:
    """Whether an export has made this file."""
    folder, name = os.path.split(path)
    if not _EXPORTED.search(f"/images/{name}"):  # which most names settle, before links are resolved
        return False
    real = PurePath(os.path.realpath(folder), name)
    return _EXPORTED.search(str(real)) is not None and any(
        os.path.lexists(above / EXPORT_RECORD) for above in real.parents
    )


def exported_objects(uris: Collection[str]) -> set[str]:
    """Those of the objects of a store that an export has made, if its record is among them: folders may be copied."""
    exports = tuple(uri.removesuffix(EXPORT_RECORD) for uri in uris if uri.endswith(f"/{EXPORT_RECORD}"))
    return {uri for uri in uris if _EXPORTED.search(uri) and uri.startswith(exports)}
