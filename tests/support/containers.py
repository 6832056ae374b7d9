"""Archives and Parquet tables of the files in a folder."""

from __future__ import annotations

import tarfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def make_zip(folder: Path, path: str, names: Sequence[str], compression: int = zipfile.ZIP_DEFLATED) -> None:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name in names:
            archive.write(folder / name, name)


def make_stored_zip(folder: Path, path: str, names: Sequence[str]) -> None:
    make_zip(folder, path, names, zipfile.ZIP_STORED)


def make_tar(folder: Path, path: str, names: Sequence[str]) -> None:
    with tarfile.open(path, "w:gz" if path.endswith("gz") else "w") as archive:
        for name in names:
            archive.add(folder / name, name)


def make_tar_zst(folder: Path, path: str, names: Sequence[str]) -> None:
    make_tar(folder, f"{path}.tar", names)
    with pa.CompressedOutputStream(path, "zstd") as packed:
        packed.write(Path(f"{path}.tar").read_bytes())


def make_table(folder: Path, path: str, names: Sequence[str]) -> None:
    """With a column of Hugging Face's `struct<bytes, path>`."""
    documents = [{"bytes": (folder / name).read_bytes(), "path": name} for name in names]
    pq.write_table(pa.table({"number": range(len(names)), "pdf": documents}), path, row_group_size=3)


def make_table_of_bytes(folder: Path, path: str, names: Sequence[str]) -> None:
    contents = [(folder / name).read_bytes() for name in names]
    pq.write_table(pa.table({"path": list(names), "pdf": contents}), path, row_group_size=3)


Maker = Callable[[Path, str, Sequence[str]], None]

MAKERS: dict[str, Maker] = {
    "x.zip": make_zip,
    "x.tar": make_tar,
    "x.parquet": make_table,
    "x.tar.gz": make_tar,
    "x.tar.zst": make_tar_zst,
}
