"""The files of a run: its table, and what stands next to it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from batchocr.data import Document


def journal_path(out: Path) -> Path:
    """Where the journal of the table at `out` is."""
    return out.with_name(out.name + ".journal")


def facts_path(out: Path) -> Path:
    """Where the facts of a JSON Lines table are."""
    return out.with_name(out.name + ".meta.json")


def report_path(out: Path) -> Path:
    """Where the report goes unless the user says otherwise."""
    return out.with_name(out.name + ".report.json")


def temporary_path(path: Path) -> Path:
    """Where a file is written before it takes its place; a run that is killed may leave it there."""
    return path.with_name(path.name + ".tmp")


def files_of(out: Path, report: Path) -> list[Path]:
    """The paths that a run with this table and this report may write, whether or not they exist."""
    files = [out, journal_path(out), facts_path(out), report]
    return [*files, *map(temporary_path, files)]


def without_files(documents: Iterable[Document], files: Sequence[Path]) -> list[Document]:
    """Leave out documents that are among these files: a glob matches them too, once a run has written them."""
    names, paths = {file.name for file in files}, set(map(os.path.realpath, files))

    def is_ours(document: Document) -> bool:
        return os.path.basename(document.path) in names and os.path.realpath(document.path) in paths

    return [document for document in documents if not is_ours(document)]
