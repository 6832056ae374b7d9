"""Globs and folders: what matches, in natural order, and which links lead out of them."""

from __future__ import annotations

import fnmatch
import logging
import os
import re
from collections import deque
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from batchocr.data import counted

logger = logging.getLogger(__name__)

PathKey: TypeAlias = list[tuple[str, str]]

_Match: TypeAlias = tuple[str, int, bool]
"""A path, how many parts of the pattern are matched by it, and whether it is a link."""

WILDCARD = re.compile(r"[*?[]")
_NUMBER = re.compile("0*([0-9]+)")


class Bounds:
    """A folder that links must not lead out of, unless they may."""

    def __init__(self, folder: str, follow_symlinks: bool) -> None:
        self._folder = folder
        self._real = os.path.realpath(folder)
        self._follow_symlinks = follow_symlinks
        self.outside: set[str] = set()
        """The links that led outside, for one warning."""

    def allow(self, path: str) -> bool:
        """Return whether what is at `path` may be looked at."""
        if self._follow_symlinks or os.path.commonpath((os.path.realpath(path), self._real)) == self._real:
            return True
        self.outside.add(path)
        return False

    def warn(self) -> None:
        """Log a warning about links that were not followed, if there are any."""
        if self.outside:
            logger.warning(
                "%s: not followed, since they lead out of it: %s, such as %s; --follow-symlinks follows them, as they "
                "are where the shell expands a glob",
                self._folder or os.curdir,
                counted(len(self.outside), "link"),
                min(self.outside, key=natural_key),
            )


def paths_matching(folder: str, pattern: str, bounds: Bounds) -> Iterator[str]:
    """Yield the paths below a folder that `glob.glob(recursive=True)` finds, and the folders that cannot be listed.

    Unlike glob, it enters no folder that is out of bounds, and each folder at most once per part of the pattern,
    however many links lead to it: following loops of links would yield exponentially many paths. Links are followed
    last, so that a folder is entered by its path without links if it has one here.
    """
    parts = [*filter(None, pattern.split("/")), *([""] if pattern.endswith("/") else [])]
    visited: set[tuple[str, int]] = set()
    waiting, links = [(folder, 0, os.path.islink(folder))], deque[_Match]()
    while waiting or links:
        path, num_matched, is_link = waiting.pop() if waiting else links.popleft()
        if num_matched == len(parts):
            # What is no link is within the bounds, as the folder is in which it was found.
            if path and (not (is_link or parts[-1] == "..") or bounds.allow(path)):
                yield path
            continue
        if not (os.path.isdir(path or os.curdir) and bounds.allow(path)):
            continue
        if (visit := (os.path.realpath(path), num_matched)) not in visited:
            visited.add(visit)
            try:
                for match in reversed(_match_part((path, num_matched, is_link), parts)):
                    (links if match[2] else waiting).append(match)
            except OSError:
                yield path or os.curdir


def _match_part(match: _Match, parts: Sequence[str]) -> list[_Match]:
    """Return what the next part of a pattern matches in a folder. Raises OSError."""
    folder, index, _ = match
    part = parts[index]
    if part != "**" and not WILDCARD.search(part):
        path = os.path.join(folder, part)
        return [(path, index + 1, os.path.islink(path))] if os.path.lexists(path) else []
    with os.scandir(folder or os.curdir) as entries:
        items = {item.name: item for item in entries if part.startswith(".") or not item.name.startswith(".")}
    is_last = index + 1 == len(parts)
    folders = {name: found for name, item in items.items() if (found := is_folder(item)) or is_last}
    names = sorted(folders if part == "**" else fnmatch.filter(folders, part), key=natural_key)
    num_matched = {name: index if part == "**" and folders[name] else index + 1 for name in names}
    below = [(os.path.join(folder, name), num_matched[name], items[name].is_symlink()) for name in names]
    return [(folder, index + 1, match[2]), *below] if part == "**" else below


def is_folder(item: os.DirEntry[str]) -> bool:
    """Whether the entry is a folder, or a link to one. Raises OSError."""
    return os.path.isdir(item.path) if item.is_symlink() else item.is_dir()  # is_dir() raises on a loop of links


def natural_key(name: str) -> tuple[str, str]:
    """A sort key: `page2` comes before `page10`; the name itself decides between `page2` and `page02`.

    A number becomes text that sorts by its value, and before all other text: NUL, which no name has, how many digits it
    has, and the digits.
    """
    return _NUMBER.sub(lambda number: f"\0{chr(len(number[1]))}{number[1]}", name), name


def path_key(path: str) -> PathKey:
    """A sort key: the natural order of a folder tree, in which what is in a folder stays together."""
    return [natural_key(part) for part in path.split("/")]
