"""`recipes/huggingface/read.py`: a dataset in, a dataset out, on folders."""

from __future__ import annotations

import importlib.util
import io
import tarfile
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from batchocr.errors import ExitCode
from batchocr.storage.members import CONTAINERS
from tests.support.recipes import RECIPES
from tests.support.running import draw_pdf

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quick_processes")]


@pytest.fixture
def recipe() -> ModuleType:
    spec = importlib.util.spec_from_file_location("read", RECIPES / "huggingface" / "read.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    found = pytest.importorskip("datasets")
    monkeypatch.setattr(found.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    return found


def png() -> bytes:
    Image.new("L", (300, 400), 255).save(file := io.BytesIO(), "PNG")
    return file.getvalue()


def rows_in(folder: Path) -> list[tuple[Any, ...]]:
    """As DuckDB reads them."""
    columns = "source, page_index, status, typeof(markdown), typeof(blocks) like 'STRUCT%[]'"
    return duckdb.sql(f"select {columns} from '{folder}/data/*.parquet'").fetchall()


def test_a_folder_of_documents_becomes_a_dataset_and_goes_on_with_what_is_new(
    recipe: ModuleType, model: Path, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    draw_pdf(tmp_path / "in/a.pdf", "One", "Two")
    asked = [str(tmp_path / "in"), str(tmp_path / "out"), "--model", str(model)]
    assert recipe.main(asked) == 0
    assert rows_in(tmp_path / "out") == [("a.pdf", page, "ok", "VARCHAR", True) for page in (0, 1)]
    (tmp_path / "in/b.pdf").write_bytes(b"%PDF-1.7 and no more")
    assert recipe.main(asked) == ExitCode.TOO_MANY_FAILURES
    assert [row[:3] for row in rows_in(tmp_path / "out")][2:] == [("b.pdf", None, "failed")]
    card = (tmp_path / "out/README.md").read_text()
    assert f"# Pages read by {model}" in card
    assert f"3 rows, one for each page of {tmp_path}/in: 2 ok, 1 failed. They were made by batchocr" in card


def test_what_is_beside_an_archive_is_read_too_and_every_kind_of_archive(
    recipe: ModuleType, model: Path, tmp_path: Path
) -> None:
    (tmp_path / "in/more/.cache").mkdir(parents=True)
    letter = draw_pdf(tmp_path / "in/letter.pdf", "One")
    with zipfile.ZipFile(tmp_path / "in/a.ZIP", "w") as archive:
        archive.write(letter, "b.pdf")
    with tarfile.open(tmp_path / "in/more/c.tar.gz", "w:gz") as tar:
        tar.add(letter, "d.pdf")
    (tmp_path / "in/more/.cache/hidden.zip").write_bytes(b"no archive")
    assert recipe.main([str(tmp_path / "in"), str(tmp_path / "out"), "--model", str(model)]) == 0
    assert {row[0] for row in rows_in(tmp_path / "out")} == {"letter.pdf", "a.ZIP/b.pdf", "more/c.tar.gz/d.pdf"}
    assert recipe.CONTAINERS == CONTAINERS


def test_the_files_of_a_dataset_that_is_downloaded_are_links_and_are_read(
    recipe: ModuleType, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "blobs").mkdir()
    (tmp_path / "snapshot").mkdir()
    draw_pdf(tmp_path / "blobs/5d41402a", "One")
    (tmp_path / "snapshot/a.pdf").symlink_to("../blobs/5d41402a")
    monkeypatch.setattr(recipe, "snapshot_download", lambda *_, **__: str(tmp_path / "snapshot"))
    assert recipe.main(["owner/scans", str(tmp_path / "out"), "--model", str(model)]) == 0
    assert [row[0] for row in rows_in(tmp_path / "out")] == ["a.pdf"]


def test_a_column_of_a_dataset_is_read_and_datasets_opens_the_result(
    recipe: ModuleType, model: Path, tmp_path: Path, datasets: Any
) -> None:
    (tmp_path / "in/data").mkdir(parents=True)
    images = {"image": [{"bytes": png(), "path": "x.png"}]}
    features = datasets.Features({"image": datasets.Image()})
    datasets.Dataset.from_dict(images, features).to_parquet(tmp_path / "in/data/test.parquet")
    files = {"label": [1], "file": [draw_pdf(tmp_path / "a.pdf", "One").read_bytes()]}
    pq.write_table(pa.table(files), tmp_path / "in/data/train.parquet")
    asked = [str(tmp_path / "in"), str(tmp_path / "out"), "--model", str(model)]
    assert recipe.main(asked) == 0
    found = datasets.load_dataset(str(tmp_path / "out"), split="train")
    read = [(row["source"], row["status"]) for row in found]
    assert read == [("data/test.parquet/x.png", "ok"), ("data/train.parquet/0", "ok")]
    assert {"markdown", "blocks", "status"} <= set(found.column_names)
    assert isinstance(found[0]["blocks"], list)
    only = [str(tmp_path / "in"), str(tmp_path / "again"), "--model", str(model), "--files", "data/train*"]
    assert recipe.main(only) == 0
    assert [row[0] for row in rows_in(tmp_path / "again")] == ["data/train.parquet/0"]
    assert recipe.main([*only, "--column", "label"]) == ExitCode.USAGE


def test_a_run_that_cannot_begin_says_why_and_makes_no_card(
    recipe: ModuleType, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").mkdir()
    code = recipe.main([str(tmp_path / "in"), str(tmp_path / "out"), "--model", str(model)])
    assert (code, (tmp_path / "out/README.md").exists()) == (ExitCode.NO_INPUT, False)
    assert capsys.readouterr().err
