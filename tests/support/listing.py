"""Folders to search for documents, and the documents found in them."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from batchocr.data import Document
from batchocr.pages.input.sources import find_documents


def make(*paths: str) -> None:
    for path in paths:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).touch()


def sources(*inputs: str, stdin: io.TextIOBase | None = None) -> list[str]:
    return [document.source for document in find_documents(inputs, stdin=stdin).documents]  # type: ignore[arg-type]


def problem_kind(document: Document) -> str | None:
    return document.problem.kind if document.problem else None


def lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make it impossible to list folders whose names end in `locked`."""
    scandir = os.scandir

    def refuse(path: str) -> Iterator[os.DirEntry[Any]]:
        if path.endswith("locked"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
