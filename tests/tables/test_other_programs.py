"""A folder of parts opens as a folder in the programs that people have, whatever else a command has put into it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from tests.support.nights import FIRST_MERGE, NAMES, NIGHT, Archive, Order

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quick_processes")]

COLUMNS = ["source", "page_index"]
Pages = list[tuple[str, int | None]]


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Archive:
    return Archive(tmp_path_factory.mktemp("archive"), model, None)


@pytest.fixture(scope="module", params=[NIGHT, FIRST_MERGE], ids=str)
def written(request: pytest.FixtureRequest, archive: Archive, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A folder that a command has just written, and its pages."""
    order: Order = request.param
    night = archive.night(NAMES[2], order)
    with night.machine("one") as machine:
        night.run(machine)
    out = tmp_path_factory.mktemp("written") / "table"
    shutil.copytree(night.out, out)
    return out, [(row.source, row.page_index) for row in night.expected.after]


def by_pandas(out: Path) -> Any:
    return pd.read_parquet(out, columns=COLUMNS).astype(object).to_numpy().tolist()


def by_pyarrow_dataset(out: Path) -> Any:
    return ds.dataset(out, format="parquet").to_table(columns=COLUMNS).to_pylist()


def by_pyarrow_parquet(out: Path) -> Any:
    return pq.read_table(out, columns=COLUMNS).to_pylist()


def by_duckdb(out: Path) -> Any:
    return duckdb.sql(f"select source, page_index from '{out}/*.parquet'").fetchall()


def by_duckdb_below(out: Path) -> Any:
    return duckdb.sql(f"select source, page_index from '{out}/**/*.parquet'").fetchall()


def by_polars(out: Path) -> Any:
    return pl.scan_parquet(out / "*.parquet").select(COLUMNS).collect().rows()


def by_datasets(out: Path) -> Any:
    import datasets

    return list(datasets.load_dataset(str(out), split="train", streaming=True).select_columns(COLUMNS))


def by_datasets_as_parquet(out: Path) -> Any:
    import datasets

    found = datasets.load_dataset("parquet", data_dir=str(out), split="train", streaming=True)
    return list(found.select_columns(COLUMNS))


@pytest.mark.parametrize(
    "read",
    [
        by_pandas,
        by_pyarrow_dataset,
        by_pyarrow_parquet,
        by_duckdb,
        by_duckdb_below,
        by_polars,
        by_datasets,
        by_datasets_as_parquet,
    ],
)
def test_a_folder_opens_as_a_folder_with_each_page_once(
    written: tuple[Path, Pages], read: Callable[[Path], Any]
) -> None:
    out, pages = written
    found = [tuple(row.values()) if isinstance(row, dict) else tuple(row) for row in read(out)]
    found = [(source, None if index is None or index != index else int(index)) for source, index in found]
    assert sorted(found, key=repr) == sorted(pages, key=repr)
