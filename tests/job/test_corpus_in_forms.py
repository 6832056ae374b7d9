"""The whole corpus has the same rows in whatever it lies, on a disk and in an object store."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import batchocr
from batchocr.data import PageResult
from tests.support.containers import (
    MAKERS,
    Maker,
    make_stored_zip,
    make_table_of_bytes,
)
from tests.support.object_store import ObjectStore
from tests.support.running import texts

pytestmark = [pytest.mark.slow, pytest.mark.long]

FORMS: dict[str, Maker | None] = {
    "folder": None,
    **MAKERS,
    "stored.zip": make_stored_zip,
    "bytes.parquet": make_table_of_bytes,
}


@pytest.fixture(scope="module")
def names(corpus: Path) -> list[str]:
    return [str(path.relative_to(corpus)) for path in sorted(corpus.glob("*/*"))]


@pytest.fixture(scope="module")
def options(model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    small = {"dpi": 72, "workers": 2, "max_new_tokens": 64, "pages": "1-3"}
    return {
        "model": model,
        "dtype": "float32",
        "device": "cpu",
        "work_dir": str(tmp_path_factory.mktemp("work")),
        **small,
    }


@pytest.fixture(scope="module")
def rows(corpus: Path, options: dict[str, Any]) -> dict[str, list[PageResult]]:
    rows = by_name(batchocr.process(str(corpus), **options), "")
    assert len(rows) > 100
    return rows


def by_name(rows: Iterator[PageResult], prefix: str) -> dict[str, list[PageResult]]:
    """What is said of each document, by its name in the folder or the container."""
    found: dict[str, list[PageResult]] = {}
    for row in texts(rows):
        name = row.source.removeprefix(prefix)
        found.setdefault(name, []).append(replace(row, source=name))
    return found


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("place", ["disk", "store"])
def test_the_rows_are_those_of_the_folder(
    form: str,
    place: str,
    corpus: Path,
    names: list[str],
    tmp_path: Path,
    store: ObjectStore,
    options: dict[str, Any],
    rows: dict[str, list[PageResult]],
) -> None:
    folder = "s3://bucket/" if place == "store" else f"{tmp_path}/"
    make = FORMS[form]
    if make is None:
        given, prefix = (folder, "") if place == "store" else (str(corpus), "")
        store.put("bucket", {name: (corpus / name).read_bytes() for name in names})
    else:
        given = prefix = f"{folder}{form}"
        prefix += "/"
        make(corpus, str(tmp_path / form), names)
        store.put("bucket", {form: (tmp_path / form).read_bytes()})
    assert by_name(batchocr.process(given, **options), prefix) == rows
