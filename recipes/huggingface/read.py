# /// script
# requires-python = ">=3.11"
# dependencies = ["datasets>=4", "huggingface_hub>=1.31"]
# ///
"""Reads a dataset of PDFs or images into a dataset with a row for each page: its Markdown, its blocks, how it was read.

    uv run --with ./batchocr read.py ./scans ./texts --model ./mineru
    uv run --with ./batchocr read.py owner/scans ./texts --push owner/texts

./batchocr is a clone, as there is no release yet. INPUT is a folder of PDFs and images, a folder of Parquet files, or a
dataset on the Hub. Of the latter two a column with images, PDFs or bytes is read, and a row's `source` is the number of
its row in INPUT. OUTPUT is a folder. The same command again goes on where the last one stopped, and reads what is new.
"""

import argparse
import sys
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
from huggingface_hub import HfApi

import batchocr

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
    parser.add_argument("--split", default="train", help="of INPUT")
    parser.add_argument("--column", help="of INPUT; the first that could be meant, if nothing is said")
    parser.add_argument("--push", metavar="OWNER/NAME", help="put OUTPUT on the Hub")
    asked = parser.parse_args(arguments)

    documents = Path(asked.input)
    if not documents.is_dir() or any(documents.rglob("*.parquet")):
        documents = asked.output / "documents"
        write_documents(asked.input, asked.split, asked.column, documents)
    table = asked.output / "data" / "train.parquet"
    table.parent.mkdir(parents=True, exist_ok=True)
    try:
        report = batchocr.run([documents], out=table, model=asked.model)
    except batchocr.BatchOcrError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    if report.exit_code in (0, 3):  # it is finished
        (asked.output / "README.md").write_text(card(asked.input, asked.model, table))
        if asked.push:
            push(asked.output, asked.push)
    return report.exit_code


def write_documents(dataset: str, split: str, column: str | None, folder: Path) -> None:
    """Write the documents in a column as files, named by their rows."""
    from datasets import Value, load_dataset

    rows = load_dataset(dataset, split=split)
    kinds = {
        name: type(kind).__name__
        for name, kind in rows.features.items()
        if type(kind).__name__ in ("Image", "Pdf")
        or kind == Value("binary")
        or (type(kind) is dict and "bytes" in kind)
    }
    column = column or next(iter(kinds), None)
    if column not in kinds:
        raise SystemExit(
            f"{dataset}: --column {column}: choose one with images, PDFs or bytes, of {list(rows.features)}"
        )
    if kinds[column] in ("Image", "Pdf"):
        rows = rows.cast_column(column, type(rows.features[column])(decode=False))
    folder.mkdir(parents=True, exist_ok=True)
    for number, value in enumerate(rows[column]):
        content = value if isinstance(value, bytes | None) else value["bytes"] or Path(value["path"]).read_bytes()
        if content is not None:
            # Of an image the content decides what it is, whatever the suffix.
            path = folder / f"{number:08}{'.pdf' if content.startswith(b'%PDF-') else '.png'}"
            if not path.exists():
                part = path.with_suffix(".part")
                part.write_bytes(content)
                part.rename(path)


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
