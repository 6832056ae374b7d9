# /// script
# requires-python = ">=3.11"
# dependencies = ["huggingface_hub>=1.31"]
# ///
"""Reads a dataset of PDFs or images into a dataset with a row for each page: its Markdown, its blocks, how it was read.

    uv run --with ./batchocr read.py ./scans ./texts --model ./mineru
    uv run --with ./batchocr read.py owner/scans ./texts --files 'data/test-*.parquet' --push owner/texts

./batchocr is a clone, as there is no release yet. INPUT is a dataset on the Hub, which is downloaded, or a folder: PDFs
and images are read, archives, and Parquet files, of which a column with documents is read. OUTPUT is a folder. The same
command again goes on where the last one stopped, and reads what is new.
"""

import argparse
import sys
from collections import Counter
from contextlib import chdir
from pathlib import Path

import pyarrow.parquet as pq
from huggingface_hub import HfApi, snapshot_download

import batchocr

CONTAINERS = (".zip", ".cbz", ".tar", ".tar.gz", ".tgz", ".tar.zst", ".parquet")

CARD = """---
configs:
- config_name: default
  data_files:
  - split: train
    path: data/*.parquet
tags:
- ocr
---

# Pages read by {model}

{rows:,} rows, one for each page of {input}: {states}. They were made by batchocr {version}.

`source` and `page_index` (from 0) say which page a row is of, `markdown` is its text, `blocks` are its parts with their
boxes. `status` is `ok`, `degraded` (something is missing: `error_message` says what), `failed` or `skipped`. A model
may have read wrongly. `blocks` hold what it wrote: escape that before you show it.
"""


def main(arguments: list[str] | None = None) -> int:
    """The exit code, which is that of `batchocr run`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("input", metavar="INPUT")
    parser.add_argument("output", metavar="OUTPUT", type=Path)
    parser.add_argument("--model", default="opendatalab/MinerU2.5-Pro-2605-1.2B")
    parser.add_argument("--files", metavar="GLOB", help="only these files of INPUT")
    parser.add_argument("--column", help="with documents, of Parquet files; the only one, if nothing is said")
    parser.add_argument("--push", metavar="OWNER/NAME", help="put OUTPUT on the Hub")
    asked = parser.parse_args(arguments)

    table = asked.output.resolve() / "data" / "train.parquet"
    table.parent.mkdir(parents=True, exist_ok=True)
    model = str(Path(asked.model).resolve()) if Path(asked.model).is_dir() else asked.model
    try:
        with chdir(folder_of(asked.input, asked.files)):  # so that no row names a folder of this machine
            report = batchocr.run(
                find_documents(asked.files),
                out=table,
                model=model,
                document_column=asked.column,
                follow_symlinks=not Path(asked.input).is_dir(),  # what is downloaded are links to the Hub's cache
            )
    except batchocr.BatchOcrError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    if report.exit_code in (0, 3):  # it is finished
        (asked.output / "README.md").write_text(card(asked.input, asked.model, table))
        if asked.push:
            push(asked.output, asked.push)
    return report.exit_code


def folder_of(dataset: str, files: str | None) -> Path:
    """Where the dataset is, once it is downloaded."""
    folder = Path(dataset)
    return folder if folder.is_dir() else Path(snapshot_download(dataset, repo_type="dataset", allow_patterns=files))


def find_documents(files: str | None) -> list[Path]:
    """Here, the files that are asked for; else the folder itself, and each archive and Parquet file below it."""
    here = Path()
    if files:
        return sorted(here.glob(files))
    seen = (path for path in here.rglob("*") if not any(part.startswith(".") for part in path.parts))
    return [here, *sorted(path for path in seen if path.name.lower().endswith(CONTAINERS))]


def card(source: str, model: str, table: Path) -> str:
    """What the dataset says of itself."""
    states = Counter(pq.read_table(table, columns=["status"])["status"].to_pylist())
    counts = ", ".join(f"{number:,} {state}" for state, number in states.most_common())
    return CARD.format(model=model, input=source, rows=states.total(), states=counts, version=batchocr.__version__)


def push(folder: Path, name: str) -> None:
    """Put the dataset on the Hub."""
    hub = HfApi()
    hub.create_repo(name, repo_type="dataset", exist_ok=True)
    hub.upload_folder(
        repo_id=name, repo_type="dataset", folder_path=folder, allow_patterns=["README.md", "data/*.parquet"]
    )


if __name__ == "__main__":
    sys.exit(main())
